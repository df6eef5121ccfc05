"""A table's schema in Delta's JSON, as delta-rs writes it, without loading delta-rs: most runs use
nothing else of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cdcsync_core.tables.schema_change import Kept, Origin
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema

#: the Delta protocol, "Primitive Types"
_PRIMITIVE = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def delta_schema(schema: TargetSchema) -> str:
    return schema_json(arrow_schema(schema))


def schema_json(schema: pa.Schema) -> str:
    fields = [{"name": f.name, "type": _delta_type(f.type), "nullable": f.nullable, "metadata": {}} for f in schema]
    return _json({"type": "struct", "fields": fields})


def _delta_type(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        element = _delta_type(kind.value_type)
        return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}
    return _PRIMITIVE[kind]


def evolved_schema(
    fields_before: Mapping[str, Mapping[str, Any]],
    after: TargetSchema,
    origins: Sequence[Origin],
    foreign: Iterable[Mapping[str, Any]],
) -> str:
    """The schema `after` a table had the fields `fields_before`: a column that stays keeps what
    users gave it, such as a comment; the fields `foreign` come last."""
    schema = json.loads(delta_schema(after))
    fields = [
        {**fields_before[o.source], "name": f["name"], "type": f["type"]} if isinstance(o, Kept) else f
        for f, o in zip(schema["fields"], origins, strict=True)
    ]
    return _json({**schema, "fields": [*fields, *foreign]})


def unused_name(names: Sequence[str]) -> str:
    """A column name that differs from all of `names` in more than case."""
    lowered = {n.lower() for n in names}
    marker = "cdcsync_deleted"
    while marker in lowered:
        marker += "_"
    return marker


def _json(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
