"""Avro records read back as rows, for `verify`: each by the schema whose id it has.

Why it is right: a topic has a schema for each definition that its table had, and the registry never
gives one's id to another. A column that a record's schema does not have was added after it, without
a default (another one is no change that a topic follows): NULL. A column of another type than the
table's is an error, but for integers, of which Avro has two sizes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.tables.source_table import Column
from cdcsync_spark.sinks.formats.avro_columns import Decoder, decoder, records
from cdcsync_spark.sinks.formats.avro_records import HEAD_BYTES, MAGIC, avro_name
from cdcsync_spark.sinks.formats.record_reader import LastRows

AVRO = "debezium-avro"


@dataclass
class AvroReader:
    """`schema_of` gives the schema of an id. Picklable where that is: `verify` reads in several
    processes."""

    schema_of: Callable[[int], Any]
    form: str = AVRO
    _decoders: dict[int, Decoder] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """What was made of schemas is its process's own."""
        return {**self.__dict__, "_decoders": {}}

    def of(self, columns: Sequence[Column]) -> AvroReader:
        """See `RecordReader.of`: values are read by the registry's schemas."""
        return self

    def keys(self, keys: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """See `RecordReader.keys`."""
        places, tables = _nothing(schema)
        for number, some in _by_schema(keys).items():
            places += some
            tables.append(_columns(self._values(number, [keys[place] for place in some]), schema))
        return _in_order(places, tables)[1]

    def rows(self, values: Sequence[bytes | None], schema: pa.Schema) -> LastRows:
        """See `RecordReader.rows`."""
        places, tables = _nothing(schema)
        for number, some in _by_schema(values).items():
            after = _after(self._values(number, [values[place] or b"" for place in some]))
            places += pa.array(some).filter(after.is_valid()).to_pylist()
            tables.append(_columns(after.drop_null(), schema))
        return _in_order(places, tables)

    def _values(self, number: int, payloads: list[bytes]) -> pa.Array:
        if number not in self._decoders:
            self._decoders[number] = decoder(self.schema_of(number))
        return records(self._decoders[number], [record[HEAD_BYTES:] for record in payloads])


def _by_schema(payloads: Sequence[bytes | None]) -> dict[int, list[int]]:
    """The places of the records of each schema; a tombstone has none."""
    places: dict[int, list[int]] = {}
    for place, record in enumerate(payloads):
        if record is None:
            continue
        if len(record) < HEAD_BYTES or not record.startswith(MAGIC):
            raise ValueError("a record that does not begin with a schema's id")
        places.setdefault(int.from_bytes(record[len(MAGIC) : HEAD_BYTES], "big"), []).append(place)
    return places


def _nothing(schema: pa.Schema) -> tuple[list[int], list[pa.Table]]:
    return [], [schema.empty_table()]


def _in_order(places: list[int], tables: list[pa.Table]) -> LastRows:
    """The rows of all schemas, as their records were."""
    order = sorted(range(len(places)), key=places.__getitem__)
    return LastRows([places[n] for n in order], pa.concat_tables(tables).take(pa.array(order, pa.int64())))


def _after(envelopes: pa.StructArray) -> pa.Array:
    after, ops = envelopes.field("after"), envelopes.field("op")
    if not pc.equal(ops, "d").equals(after.is_null()):
        raise ValueError("an operation without its row")
    return after


def _columns(rows: pa.StructArray, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`; rows are no NULLs."""
    there = {kind.name: rows.field(number) for number, kind in enumerate(rows.type)}
    columns = [_column(there.get(avro_name(f.name)), f, len(rows)) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(written: pa.Array | None, field: pa.Field, count: int) -> pa.Array:
    if written is None:
        return pa.nulls(count, field.type)
    if written.type != field.type and not (pa.types.is_integer(written.type) and pa.types.is_integer(field.type)):
        raise ValueError(f"the column {field.name} as {written.type}, and not {field.type}")
    return written.cast(field.type)
