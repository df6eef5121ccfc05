"""A history folded to the table that it ends with: what `verify` compares with the source.

Why it is right: an ordinal is unique within the table, so of each key that has events the one with
the greatest ordinal is its last; a row of the snapshot counts where its key has none. The keys with
events are kept in memory, the rows are read batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.history.rows import present
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot

#: keys that wait until they are folded with the others
_WAITING = 200_000


@dataclass(frozen=True)
class HistorySnapshot:
    """`rows` are all rows of one version."""

    rows: LakeSnapshot
    columns: EventColumns

    @property
    def state(self) -> TableState:
        return self.rows.state

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.state.schema)

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """See `TargetSnapshot.scan`."""
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(n) for n in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, key_filter))

    def _batches(self, names: list[str], key_filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        last = self._last_events(key_filter)
        ordinals, key = last[self.columns.seq], list(self.state.capture.key)
        needed = list(dict.fromkeys([*names, *key, *self._said]))
        for batch in self.rows.scan(needed, key_filter):
            ordinal, there = batch[self.columns.seq], present(batch[self.columns.op])
            newest = pc.is_in(ordinal, ordinals.combine_chunks() if len(ordinals) else pa.array([], pa.int64()))
            current = pc.and_(there, pc.or_(newest, _untouched(batch, key, last, self.columns.seq)))
            yield batch.filter(current).select(names)

    @cached_property
    def _said(self) -> tuple[str, str]:
        return self.columns.op, self.columns.seq

    def _last_events(self, key_filter: pc.Expression | None) -> pa.Table:
        """Each key that has events, with its last ordinal."""
        key, seq = list(self.state.capture.key), self.columns.seq
        schema = pa.schema([*(self.schema.field(k) for k in key), pa.field(seq, pa.int64())])
        last, waiting = schema.empty_table(), list[pa.RecordBatch]()
        for batch in self.rows.scan([*key, seq], key_filter):
            waiting.append(batch.filter(pc.greater(batch[seq], 0)))
            if sum(b.num_rows for b in waiting) >= _WAITING:
                last, waiting = _folded([last, pa.Table.from_batches(waiting, schema)], key, seq), []
        return _folded([last, pa.Table.from_batches(waiting, schema)], key, seq)


def _folded(parts: list[pa.Table], key: list[str], seq: str) -> pa.Table:
    rows = pa.concat_tables(parts)
    return rows.group_by(key).aggregate([(seq, "max")]).rename_columns({f"{seq}_max": seq}).select([*key, seq])


def _untouched(batch: pa.RecordBatch, key: list[str], last: pa.Table, seq: str) -> pa.Array:
    """Whether a row of the snapshot has a key without events."""
    rows = pa.Table.from_batches([batch.select([*key, seq])]).append_column("_cdc_row", pa.array(range(batch.num_rows)))
    old = rows.filter(pc.equal(rows[seq], 0)).select([*key, "_cdc_row"])
    row_numbers = (
        old.join(last.select(key), key, join_type="left anti")["_cdc_row"] if old.num_rows else old["_cdc_row"]
    )
    return pc.is_in(pa.array(range(batch.num_rows)), row_numbers.combine_chunks().cast(pa.int64()))
