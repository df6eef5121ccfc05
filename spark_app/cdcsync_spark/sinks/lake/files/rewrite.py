"""Rows of a lake's files under another schema: the same rows in the same order, one file for one.

Why it is right: rows keep their number in the file, deleted ones too, so whatever names rows by
file and number (deletion vectors, a key index) needs only the file's new path. A column is
made from one origin, never matched by its name. Memory is a row group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.tables.schema_change import Converted, Filled, Origin
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema


def rewritten(
    batches: Iterable[pa.RecordBatch], after: TargetSchema, origins: Sequence[Origin], carried: Sequence[pa.Field] = ()
) -> Iterator[pa.RecordBatch]:
    """`batches` have the columns that `origins` name; see `evolve`. The columns `carried` come last
    as they are."""
    table = arrow_schema(after)
    schema = pa.schema([*table, *carried])
    for batch in batches:
        columns = [_column(batch, origin, field.type) for origin, field in zip(origins, table, strict=True)]
        columns += [batch.column(field.name) for field in carried]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def needed(origins: Sequence[Origin]) -> list[str]:
    """The columns that are read for it."""
    return list(dict.fromkeys(o.source for o in origins if not isinstance(o, Filled)))


def _column(batch: pa.RecordBatch, origin: Origin, kind: pa.DataType) -> pa.Array:
    if isinstance(origin, Filled):
        return pa.repeat(pa.scalar(origin.value, kind), batch.num_rows)
    values = batch.column(origin.source)
    return _converted(values, origin, kind) if isinstance(origin, Converted) else values


def _converted(values: pa.Array, origin: Converted, kind: pa.DataType) -> pa.Array:
    """Every value fits, because only wider types are followed; a cast that would lose raises."""
    if pa.types.is_string(kind) and not pa.types.is_string(values.type):
        values = _plain(values)
    if pa.types.is_string(kind):
        return _with_digits(values, origin.digits)
    if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0))
    return values.cast(kind)


def _plain(values: pa.Array) -> pa.Array:
    """Decimals as the server prints them: Arrow prints those below 1e-6 with an exponent."""
    texts = values.cast(pa.string())
    exponents = pc.fill_null(pc.match_substring(texts, "E"), False)
    plain = [format(v, "f") for v in values.filter(exponents).to_pylist()]
    return pc.replace_with_mask(texts, exponents, pa.array(plain, pa.string())) if plain else texts


def _with_digits(texts: pa.Array, digits: int) -> pa.Array:
    """`12:00:00` or `1.5` with so many digits behind the point, which are at least those there."""
    if not digits:
        return texts
    whole = pc.equal(pc.find_substring(texts, "."), -1)
    texts = pc.binary_join_element_wise(texts, pc.if_else(whole, ".", ""), "")
    there = pc.subtract(pc.subtract(pc.binary_length(texts), pc.find_substring(texts, ".")), 1)
    missing = pc.subtract(pa.scalar(digits, pa.int32()), there)
    return pc.binary_join_element_wise(texts, pc.binary_repeat("0", pc.cast(missing, pa.int64())), "")
