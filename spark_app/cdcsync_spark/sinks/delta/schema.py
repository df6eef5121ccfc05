"""A table's schema in Delta's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deltalake import Schema

from cdcsync_core.schema_change import Kept, Origin
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.wire.columns.typemap import arrow_schema


def delta_schema(schema: TargetSchema) -> str:
    return Schema.from_arrow(arrow_schema(schema)).to_json()


def evolved_schema(
    found: Mapping[str, Mapping[str, Any]],
    after: TargetSchema,
    origins: Sequence[Origin],
    theirs: Iterable[Mapping[str, Any]],
) -> str:
    """The schema `after` a table had the fields `found`: a column that stays keeps what users gave
    it, such as a comment; the fields `theirs` come last."""
    wanted = json.loads(delta_schema(after))
    fields = [
        {**found[o.source], "name": f["name"], "type": f["type"]} if isinstance(o, Kept) else f
        for f, o in zip(wanted["fields"], origins, strict=True)
    ]
    return json.dumps({**wanted, "fields": [*fields, *theirs]}, ensure_ascii=False, separators=(",", ":"))
