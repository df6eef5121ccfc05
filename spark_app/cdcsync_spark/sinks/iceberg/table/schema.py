"""A target's schema as Iceberg has it: types, field ids, identifier fields; and the form that rows
have in its files. Pure.

Readers look for a column by its field id, never by its name. So a column that stays, whatever it is
called then, keeps its id; one that is filled, or whose values were converted, gets an id that the
table never had: no value of a dropped column comes back in a later one of its name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa

from cdcsync_core.errors import Reason, fail
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.schema_change import Converted, Filled, Origin
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.history.rows import history_schema
from cdcsync_spark.sinks.iceberg.table.defaults import default_json, default_value
from cdcsync_spark.sinks.iceberg.table.lineage import file_fields
from cdcsync_spark.sinks.lake.files.field_ids import FIELD_ID, FieldIds

Field = Mapping[str, Any]
#: Iceberg's primitive types; those that it lacks have the next wider one
_PRIMITIVE = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
}


@dataclass(frozen=True)
class TableSchema:
    """A schema of a table, as its metadata has it: `id` is its number there."""

    id: int
    fields: tuple[Field, ...]
    identifiers: tuple[int, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> TableSchema:
        fields = tuple(metadata["fields"])
        for field in fields:
            if not isinstance(field["id"], int) or not isinstance(field["name"], str):
                raise TypeError("a field without id and name")
        return cls(metadata["schema-id"], fields, tuple(sorted(metadata.get("identifier-field-ids") or ())))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field["name"] for field in self.fields)

    @property
    def by_name(self) -> dict[str, Field]:
        return {field["name"]: field for field in self.fields}

    def ids_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """The field ids of columns; 0 for one that is not there."""
        fields = self.by_name
        return tuple(fields[name]["id"] if name in fields else 0 for name in names)

    def to_dict(self) -> dict[str, Any]:
        identifiers = {"identifier-field-ids": list(self.identifiers)} if self.identifiers else {}
        return {"type": "struct", "schema-id": self.id, **identifiers, "fields": [dict(f) for f in self.fields]}

    @property
    def last_id(self) -> int:
        """The highest field id in it."""
        return max((max(field["id"], _element_id(field["type"])) for field in self.fields), default=0)

    @property
    def without_defaults(self) -> TableSchema:
        """For format version 2, which has none: rows that are there are written again."""
        fields = tuple({k: v for k, v in field.items() if not k.endswith("-default")} for field in self.fields)
        return replace(self, fields=fields)

    def serves(self, target: TargetSchema, events: EventColumns | None = None) -> bool:
        """Whether a new copy with this target would have the same columns."""
        new = new_schema(target, 0, 0, events).fields
        columns = [(f["name"], _plain(f["type"]), f["required"]) for f in self.fields]
        return columns == [(f["name"], _plain(f["type"]), f["required"]) for f in new]

    def same_columns(self, other: TableSchema) -> bool:
        """Whether both are one schema, whatever their numbers."""
        return (list(map(dict, self.fields)), self.identifiers) == (list(map(dict, other.fields)), other.identifiers)


def all_columns(target: TargetSchema, events: EventColumns | None) -> pa.Schema:
    """The source's columns, and the metadata columns `events` of a history table."""
    return history_schema(target, events) if events else arrow_schema(target)


def new_schema(target: TargetSchema, schema_id: int, last_id: int, events: EventColumns | None = None) -> TableSchema:
    """A schema whose fields have ids above `last_id`; a history table's has `events`."""
    ids = count(last_id + 1)
    return _with_key(target, schema_id, [_field(field, ids) for field in all_columns(target, events)])


def evolved_schema(
    before: TableSchema,
    after: TargetSchema,
    origins: Sequence[Origin],
    foreign: Sequence[Field],
    schema_id: int,
    last_id: int,
) -> TableSchema:
    """The schema `after` a table had `before`: a column that stays, in a wider type too, keeps its
    id, and what users gave it, such as a comment. The fields `foreign`, of another program, come
    last, unless the source has one of their name now."""
    ids, there = count(last_id + 1), before.by_name
    fields = []
    for field, origin in zip(arrow_schema(after), origins, strict=True):
        field_before = None if isinstance(origin, Filled) else there.get(origin.source)
        if field_before is not None and isinstance(origin, Converted):
            field_before = (
                {**field_before, "type": _type(field.type, ids)} if widens(field_before, field.type) else None
            )
        new = {**_field(field, ids), **_default(origin, field.type)} if field_before is None else field_before
        fields.append({**new, "name": field.name})
    names = {field.name.casefold() for field in arrow_schema(after)}
    return _with_key(after, schema_id, [*fields, *(f for f in foreign if f["name"].casefold() not in names)])


def _with_key(target: TargetSchema, schema_id: int, fields: list[Field]) -> TableSchema:
    """Identifier fields may not be NULL, and all others may: a zero date of the source is one."""
    ours = set(target.names)
    marked = tuple({**f, "required": f["name"] in target.key} if f["name"] in ours else f for f in fields)
    return TableSchema(schema_id, marked, tuple(sorted(f["id"] for f in marked if f["name"] in target.key)))


def _field(field: pa.Field, ids: Iterator[int]) -> Field:
    number = next(ids)
    return {"id": number, "name": field.name, "required": False, "type": _type(field.type, ids)}


def _type(kind: pa.DataType, ids: Iterator[int]) -> str | dict[str, Any]:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        element = next(ids)
        return {
            "type": "list",
            "element-id": element,
            "element": _type(kind.value_type, ids),
            "element-required": False,
        }
    return _PRIMITIVE[kind]


def _element_id(kind: Any) -> int:
    return kind["element-id"] if isinstance(kind, dict) and "element-id" in kind else 0


def same_type(field: Field, kind: pa.DataType) -> bool:
    """Whether a field has the type that a column of this Arrow type has."""
    return _plain(field["type"]) == _plain(_type(kind, count()))


def widens(field: Field, kind: pa.DataType) -> bool:
    """Whether readers give a field's values of before as those of a column of this Arrow type, by
    Iceberg's promotion of types. Texts are none: they may be written otherwise."""
    before, after = _plain(field["type"]), _plain(_type(kind, count()))
    if pa.types.is_decimal(kind) and str(before).startswith("decimal("):
        precision, scale = map(int, before[len("decimal(") : -1].split(","))
        return scale == kind.scale and precision <= kind.precision
    return (before, after) in {("int", "int"), ("int", "long")}


def _plain(kind: Any) -> Any:
    """The type without what differs between writers: spaces, ids."""
    if isinstance(kind, dict):
        return (kind.get("type"), _plain(kind.get("element")))
    return str(kind).replace(" ", "")


def _default(origin: Origin, kind: pa.DataType) -> dict[str, Any]:
    """What rows have that were there before the column, and those of other programs that do not
    name it."""
    if not isinstance(origin, Filled) or origin.value is None:
        return {}
    value = default_json(origin.value, kind)
    return {"initial-default": value, "write-default": value}


def field_ids(schema: TableSchema) -> FieldIds:
    """The ids by which files have the columns."""
    defaults = {
        f["name"]: default_value(f["initial-default"], f["type"])
        for f in schema.fields
        if f.get("initial-default") is not None
    }
    return FieldIds({f["name"]: f["id"] for f in schema.fields}, defaults)


# -- rows


def file_schema(schema: TableSchema, target: TargetSchema, events: EventColumns | None = None) -> pa.Schema:
    """The form of a file's rows: the columns of `target`, and those of `events`, with the ids that
    `schema` gives them. Raises `InternalError` where it has no such column."""
    there = schema.by_name
    fields = []
    for field in all_columns(target, events):
        stored = there.get(field.name)
        if stored is None or not same_type(stored, field.type):
            raise fail(
                Reason.INTERNAL_ERROR,
                f"rows with the column {field.name!r} {field.type} for a table whose columns are {list(there)}",
                needed="rows of the table's schema",
                remedy="report this with the driver log",
            )
        fields.append(_in_file(field, stored, required=field.name in target.key))
    return pa.schema(fields)


def _in_file(field: pa.Field, stored: Field, *, required: bool) -> pa.Field:
    kind = field.type
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        kind = pa.int32()
    if pa.types.is_list(kind):
        kind = pa.list_(pa.field("element", kind.value_type, metadata=_numbered_as(stored["type"]["element-id"])))
    return pa.field(field.name, kind, nullable=not required, metadata=_numbered_as(stored["id"]))


def _numbered_as(number: int) -> dict[bytes, bytes]:
    return {FIELD_ID: str(number).encode()}


def fields_beside(schema: TableSchema, ours: Collection[str]) -> dict[str, pa.Field]:
    """The columns beside `ours` as files have them, by their names; without those of types that no
    column of ours has."""
    names = set(schema.names).difference(ours)
    others = (field for field in schema.fields if field["name"] in names)
    kinds = ((field, _arrow_type(field["type"])) for field in others)
    return {
        field["name"]: pa.field(field["name"], kind, metadata=_numbered_as(field["id"]))
        for field, kind in kinds
        if kind
    }


def _arrow_type(kind: Any) -> pa.DataType | None:
    plain = str(_plain(kind))
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", plain):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return next((arrow for arrow, name in reversed(_PRIMITIVE.items()) if name == plain), None)


def in_files(rows: pa.Table, schema: pa.Schema, table: TableSchema | None = None) -> pa.Table:
    """Rows in the form of a file, with their identities (`lake.row_ids`) if they have any, and
    those columns that `table` has beside the file's which they have."""
    beside = fields_beside(table, schema.names) if table else {}
    extra = {**beside, **file_fields({*schema.names, *(table.names if table else ())})}
    carried = [extra[name] for name in rows.schema.names if name in extra]
    form = pa.schema([*schema, *carried])
    return (rows.rename_columns(form.names) if carried else rows).cast(form)
