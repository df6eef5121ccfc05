"""The form that a table's metadata must have before anything is decided by them: types, bounds, and
what Iceberg's own library holds between fields. Pure.

Why it exists: a catalog, or another program, may write any JSON there. A number of another type, a
branch without its snapshot, or a field id that is taken twice would end a commit somewhere, or give
columns each other's values. Source: Iceberg's table specification, and what `TableMetadata` of its
library refuses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cdcsync_core.quoting import quoted
from cdcsync_spark.sinks.iceberg.table.defaults import default_value
from cdcsync_spark.sinks.iceberg.table.lineage import FIELD_IDS

Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
#: a number that commits count on
Count = Annotated[int, Field(ge=0, lt=2**62)]
#: until the year 9999
Milliseconds = Annotated[int, Field(ge=0, lt=253_402_300_800_000)]
#: ids of fields, below those that the format reserves
FieldId = Annotated[int, Field(ge=0, lt=min(FIELD_IDS.values()) - 1000)]
SchemaId = Annotated[int, Field(ge=0, lt=2**31 - 1)]
#: types whose defaults this program reads
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")


class _Part(BaseModel):
    """What is beside the fields is another program's, and passes."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", "-"))


class _List(_Part):
    type: Literal["list"]
    element_id: FieldId
    element: _Type
    element_required: bool = False


class _Map(_Part):
    type: Literal["map"]
    key_id: FieldId
    key: _Type
    value_id: FieldId
    value: _Type


class _Struct(_Part):
    type: Literal["struct"]
    fields: list[_Field]


_Type = str | Annotated[_List | _Map | _Struct, Field(discriminator="type")]


class _Field(_Part):
    id: FieldId
    name: str
    required: bool
    type: _Type
    initial_default: Any = None

    @model_validator(mode="after")
    def _has_a_default_of_its_type(self) -> Self:
        arrow = _arrow_type(self.type)
        if arrow is not None and self.initial_default is not None:
            pa.scalar(default_value(self.initial_default, self.type), arrow)
        return self


class _Schema(_Part):
    schema_id: SchemaId
    fields: list[_Field]
    identifier_field_ids: list[FieldId] | None = None

    @model_validator(mode="after")
    def _names_each_field_once(self) -> Self:
        _refuse_twice("field name", [field.name for field in self.fields])
        ids = list(_ids(self.fields))
        _refuse_twice("field id", ids)
        _refuse_missing("field", self.identifier_field_ids or (), ids)
        return self


class _Snapshot(_Part):
    snapshot_id: Long
    parent_snapshot_id: Long | None = None
    sequence_number: Count
    timestamp_ms: Milliseconds
    manifest_list: str
    schema_id: SchemaId | None = None
    first_row_id: Count | None = None
    added_rows: Count | None = None
    summary: dict[str, str] | None = None


class _Ref(_Part):
    type: Literal["branch", "tag"]
    snapshot_id: Long


class _PartitionSpec(_Part):
    fields: list[dict[str, Any]]


class _Metadata(_Part):
    last_sequence_number: Count
    next_row_id: Count | None = None
    last_column_id: FieldId
    last_updated_ms: Milliseconds
    schemas: list[_Schema]
    current_schema_id: SchemaId
    partition_specs: list[_PartitionSpec]
    properties: dict[str, str] | None = None
    snapshots: list[_Snapshot] | None = None
    refs: dict[str, _Ref] | None = None

    @model_validator(mode="after")
    def _names_what_it_has(self) -> Self:
        snapshots = [snapshot.snapshot_id for snapshot in self.snapshots or ()]
        schemas = [schema.schema_id for schema in self.schemas]
        _refuse_twice("snapshot", snapshots)
        _refuse_twice("schema", schemas)
        _refuse_missing("snapshot", [ref.snapshot_id for ref in (self.refs or {}).values()], snapshots)
        _refuse_missing("schema", [self.current_schema_id], schemas)
        return self

    @model_validator(mode="after")
    def _counts_on(self) -> Self:
        """What a commit takes next, nothing in the table has yet."""
        ids = (number for schema in self.schemas for number in _ids(schema.fields))
        _refuse_beyond("field id", ids, self.last_column_id)
        snapshots = self.snapshots or ()
        _refuse_beyond("sequence number", (s.sequence_number for s in snapshots), self.last_sequence_number)
        ends = (s.first_row_id + (s.added_rows or 0) for s in snapshots if s.first_row_id is not None)
        if self.next_row_id is not None:
            _refuse_beyond("next row id", ends, self.next_row_id)
        return self


class _WithRowIds(_Metadata):
    next_row_id: Count


def check_form(metadata: Mapping[str, Any], *, row_ids: bool) -> None:
    """Raises ValueError with the place of the first fault; `row_ids`: the format version has
    them."""
    try:
        (_WithRowIds if row_ids else _Metadata).model_validate(metadata)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in fault["loc"])
        raise ValueError(f"{quoted(place, 100)}: {fault['msg'][:200]}") from None


def _arrow_type(kind: _Type) -> pa.DataType | None:
    """None for a type whose defaults this program does not read."""
    if not isinstance(kind, str):
        return None
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW.get(kind)


def _ids(fields: list[_Field]) -> Iterator[int]:
    for field in fields:
        yield field.id
        yield from _ids_below(field.type)


def _ids_below(kind: _Type) -> Iterator[int]:
    if isinstance(kind, _Struct):
        yield from _ids(kind.fields)
    elif isinstance(kind, _List):
        yield kind.element_id
        yield from _ids_below(kind.element)
    elif isinstance(kind, _Map):
        yield from (kind.key_id, kind.value_id)
        yield from _ids_below(kind.key)
        yield from _ids_below(kind.value)


def _refuse_twice(what: str, values: list[Any]) -> None:
    value, times = next(iter(Counter(values).most_common(1)), ("", 1))
    if times > 1:
        raise ValueError(f"the {what} {quoted(str(value), 100)} twice")


def _refuse_missing(what: str, named: Iterable[int], there: Iterable[int]) -> None:
    if missing := set(named).difference(there):
        raise ValueError(f"the {what} {min(missing)}, which the table does not have")


def _refuse_beyond(what: str, numbers: Iterator[int], last: int) -> None:
    highest = max(numbers, default=0)
    if highest > last:
        raise ValueError(f"the {what} {highest} beyond the last one, {last}")
