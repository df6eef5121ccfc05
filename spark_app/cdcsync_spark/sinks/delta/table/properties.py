"""The properties and features that a Delta table of ours has, and why.

- `delta.enableExpiredLogCleanup=false`: the newest entry with our state must stay (see
  `sinks.delta.table.log`).
- `delta.logRetentionDuration`, `delta.deletedFileRetentionDuration`: shorter than Delta's 30 and 7
  days, because a stream commits every second, each commit takes files and vectors away, and a
  checkpoint lists what was taken away within the retention (see `sinks.delta.replica.maintenance`).
  Users may change them.
- which columns have statistics: delta-rs writes those of decimals through a double or a 64-bit
  integer, so that 2^64-1 becomes 2^63-1; a MERGE, or anybody's query, would then skip a file that
  holds the row [measured: a delete was lost]. Decimals of more than 15 digits, BIGINT UNSIGNED
  among them, are therefore left out of the statistics that a MERGE or an OPTIMIZE collects. Staged
  files have their own (see `statistics`).
- the `timestampNtz` feature where a column needs it: delta-rs adds it to a new table by itself, not
  to one whose columns change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.delta.table.schema import unused_name
from cdcsync_spark.sinks.lake.files.bounds import INDEXED_COLUMNS, kind_of

_LISTED = "delta.dataSkippingStatsColumns"
_COUNTED = "delta.dataSkippingNumIndexedCols"
#: the decimal digits that a double always holds
_EXACT_DIGITS = 15
_LISTABLE = re.compile(r"[\w .$-]+")
_BASE = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 2 hours",
}


def new_table(schema: TargetSchema) -> dict[str, str]:
    """The properties with which a table is made."""
    return _BASE | (_listed(schema) if _needs_list(schema) else {})


def adapted(has: Mapping[str, str], schema: TargetSchema) -> dict[str, str]:
    """The properties that a table with the properties `has` lacks for the columns of `schema`."""
    listed = _listed(schema) if _needs_list(schema) or has.keys() & {_LISTED, _COUNTED} else {}
    return {name: value for name, value in listed.items() if has.get(name) != value}


def _needs_list(schema: TargetSchema) -> bool:
    return any(not _exact(f.type) for f in _candidates(schema))


def _listed(schema: TargetSchema) -> dict[str, str]:
    """Statistics for the columns whose bounds survive; a name that cannot stand in the list has
    none."""
    names = [f.name for f in _candidates(schema) if kind_of(f.type) and _exact(f.type)]
    plain = [f"`{n}`" for n in names if _LISTABLE.fullmatch(n)]
    return {_LISTED: ",".join(plain)} if plain else {_LISTED: f"`{_nothing(schema)}`"}


def _candidates(schema: TargetSchema) -> list[Any]:
    return [f for i, f in enumerate(arrow_schema(schema)) if i < INDEXED_COLUMNS or f.name in schema.key]


def _exact(t: pa.DataType) -> bool:
    return not pa.types.is_decimal(t) or t.precision <= _EXACT_DIGITS


def _nothing(schema: TargetSchema) -> str:
    """A column that is not there, because an empty list is not one."""
    return unused_name(list(schema.names))
