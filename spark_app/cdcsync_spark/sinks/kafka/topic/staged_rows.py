"""The rows of a table's staged copy that are still to be sent, in an order that never changes, so
that a number of rows says where to go on.

Of a copy that is sent as of one position: its newest version, which is its last one. Of one that is
sent early: what each version has added, in the order of the versions. It only grows then, by one
version a wave, and what a version has added never changes, so what is sent stays behind a place in
that order, however much is added meanwhile. A copy that is not as it was left is refused: where to
go on in it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.sinks.contract.staging import StagedVersion, StagingTable
from cdcsync_spark.sinks.kafka.state.table_record import SnapshotSending
from cdcsync_spark.sinks.staged_copy import is_whole

#: rows, and how far the copy is sent with them
Parts = Iterator[tuple[SnapshotSending, pa.Table]]


@dataclass(frozen=True)
class StagedRows:
    """Rows of the staged copy `copy` of `table`, at most `size` rows together."""

    copy: StagingTable
    table: str
    size: int

    def as_of_now(self) -> StagedVersion:
        """The copy's newest version."""
        version = self.copy.newest()
        if version is None:
            raise lost_copy(self.table)
        return version

    def unsent(self, sent: SnapshotSending | None) -> tuple[TableState, Parts]:
        """The parts of a consistent copy, and its state."""
        version = self.as_of_now()
        state, sent = version.snapshot.state, sent or SnapshotSending(version.number)
        if sent.version != version.number or not is_whole(state):
            raise lost_copy(self.table)
        return state, self._parts(version, sent)

    def unsent_waves(self, sent: SnapshotSending | None, newest: TableState) -> Parts:
        """The waves up to the commit of `newest`. Raises SinkConflict where a version is missing,
        is not ours, or takes rows away."""
        sent, commit_number = sent or SnapshotSending(0), -1
        while commit_number < newest.commit_number:
            wave = self.copy.wave(sent.version)
            if wave is None:
                raise lost_copy(self.table)
            if wave.rows is None or sent.rows < wave.rows:
                yield from self._parts(wave, sent)
            commit_number, sent = wave.snapshot.state.commit_number, SnapshotSending(sent.version + 1)

    def _parts(self, version: StagedVersion, sent: SnapshotSending) -> Parts:
        """What is behind the rows that are sent."""
        for rows in _sliced(version.snapshot, sent.rows, self.size):
            sent = replace(sent, rows=sent.rows + rows.num_rows)
            yield sent, rows


def lost_copy(table: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        "the staged copy of the snapshot is gone, or was changed",
        needed="the copy until it is sent",
        remedy=resnapshot(table),
        table=table,
    )


def _sliced(snapshot: TargetSnapshot, skipped: int, size: int) -> Iterator[pa.Table]:
    """The rows behind the first `skipped` ones, at most `size` together."""
    part: list[pa.RecordBatch] = []
    for batch in snapshot.scan():
        passed = min(skipped, batch.num_rows)
        skipped, batch = skipped - passed, batch.slice(passed)
        while batch.num_rows:
            room = size - sum(b.num_rows for b in part)
            part, batch = [*part, batch.slice(0, room)], batch.slice(room)
            if sum(b.num_rows for b in part) == size:
                yield pa.Table.from_batches(part, snapshot.schema)
                part = []
    if part:
        yield pa.Table.from_batches(part, snapshot.schema)
