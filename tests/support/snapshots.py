"""Reads a table's rows as a snapshot does, without a binlog or a split: both readers, the fast one
and its oracle."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.runs.run import Decoder
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import (
    Append,
    Build,
    Commit,
)
from cdcsync_spark.snapshot.splits.split_read import READERS
from contract.sinkcase import (
    WATERMARK,
)
from support.servers import Server
from support.source import connected


def rows(server: Server, table: Capture, decoder: Decoder, rest: str = "") -> tuple[pa.Table, int]:
    """The rows in the order of the key, and how many dates became NULL; `rest` follows the table's
    name."""
    order = ", ".join(f"`{k}`" for k in table.key)
    with connected(server) as (connection, _):
        parts = list(READERS[decoder](connection, table, f"FROM {table.id.quoted} {rest} ORDER BY {order}"))
    read = pa.Table.from_batches([p.batch for p in parts], captured_schema(table)).combine_chunks()
    read.validate(full=True)
    return read, sum(p.nulled for p in parts)


def assert_same(server: Server, table: Capture, rest: str = "") -> pa.Table:
    """Both readers see the same rows, which are returned."""
    (fast, fast_nulled), (plain, plain_nulled) = (rows(server, table, d, rest) for d in Decoder)
    for name in fast.column_names:
        assert fast[name].equals(plain[name]), (name, _difference(fast[name], plain[name]))
    assert (fast.schema, fast_nulled) == (plain.schema, plain_nulled)
    return fast


def _difference(fast: pa.ChunkedArray, plain: pa.ChunkedArray) -> list[tuple[int, object, object]]:
    pairs = zip(fast.to_pylist(), plain.to_pylist(), strict=False)
    return [(i, f, p) for i, (f, p) in enumerate(pairs) if f != p][:3]


def wave(split: Split, change: Append, epoch: int = 1) -> Build:
    """A wave of one split; None where it is finished already."""

    def build(found: TableState) -> Commit | None:
        if found.finished.frontier != split.start or found.snapshot_complete:
            return None
        after = found.after_wave([split], FilePosition(WATERMARK), WATERMARK, rows=len(change.staged), nulled_dates=0)
        return Commit(replace(after, epoch=epoch), change)

    return build
