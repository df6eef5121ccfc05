"""What the hostile tenant's bodies begin with is valid, so that the operator acts on them."""

from __future__ import annotations

from itertools import product

import pytest

from cdcsync_core.resource.manifest import parse_resource
from cdcsync_kube.client import Object
from support.hostile_objects import SINKS, SOURCES, STARTS


@pytest.mark.parametrize(("source", "start", "sink"), list(product(SOURCES, STARTS, SINKS)))
def test_the_parts_that_are_drawn_are_valid(source: Object, start: Object, sink: Object) -> None:
    spec = {"source": source, "start": start, "sink": sink, "tables": {"include": ["a.*"]}}
    about = {"name": "hostile", "namespace": "hostile"}
    parse_resource({"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": about, "spec": spec})
