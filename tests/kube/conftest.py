"""One API server for all tests of this folder, a namespace for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cdcsync_kube.client import Api
from support.apiserver import NODE, api_server
from support.in_process_sync import InProcessSync

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    assert NODE.exists(), "needed: the node binary; remedy: make test-kube"
    with api_server(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


@pytest.fixture
def namespace(api: Api) -> str:
    name = f"t{next(_numbers)}"
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def sync(api: Api, namespace: str) -> Iterator[InProcessSync]:
    made = InProcessSync(api, namespace)
    yield made
    for controller in made.controllers:
        controller.close()
