"""The rows of a table's staged copy that are still to be sent, in an order that never changes, so
that a number of rows says where to go on.

Of a copy that is sent as of one position: its newest version, which is its last one, file by file.
Of one that is sent early: what each version has added, in the order of its Delta log. It only grows
then, by one version a wave, and an entry of a Delta log never changes, so what is sent stays behind
a place in that order, however much is added meanwhile. A copy that is not as it was left is
refused: where to go on in it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.delta.open import entry_alone
from cdcsync_spark.sinks.delta.snapshot import DeltaSnapshot
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import TableView
from cdcsync_spark.sinks.kafka.table_record import Publication, is_whole

#: rows, and how far the copy is sent with them
Parts = Iterator[tuple[Publication, pa.Table]]


@dataclass(frozen=True)
class StagedRows:
    """Of the copy in `path`, at most `size` rows together."""

    path: TablePath
    size: int

    def as_of_now(self) -> DeltaSnapshot:
        """The copy's newest version, its files in one order."""
        with self.path.translating_errors("reading the staged copy"):
            view = self.path.view()
        if view is None or view.state is None:
            raise lost_copy(str(self.path.table))
        return self._snapshot(view)

    def unsent(self, sent: Publication | None) -> tuple[TableState, Parts]:
        """The parts of a consistent copy, and its state."""
        snapshot = self.as_of_now()
        sent = sent or Publication(snapshot.version)
        if sent.version != snapshot.version or not is_whole(snapshot.state):
            raise lost_copy(str(self.path.table))
        return snapshot.state, self._parts(snapshot, sent)

    def unsent_waves(self, sent: Publication | None, newest: TableState) -> Parts:
        """Those up to the commit of `newest`. Raises SinkConflict where a version is missing, is
        not ours, or takes rows away."""
        sent, log, known = sent or Publication(0), self.path.log(), -1
        while known < newest.commit_number:
            with self.path.translating_errors("reading the staged copy"):
                wave = entry_alone(log, sent.version)
            if wave is None or wave.state is None or wave.gone:
                raise lost_copy(str(self.path.table))
            if sent.rows < sum(math.inf if f.rows is None else f.rows for f in wave.files.values()):
                yield from self._parts(self._snapshot(wave), sent)
            known, sent = wave.state.commit_number, Publication(sent.version + 1)

    def _snapshot(self, view: TableView) -> DeltaSnapshot:
        found = self.path.snapshot(view)
        return replace(found, files=tuple(sorted(found.files, key=lambda file: file[0])))

    def _parts(self, snapshot: DeltaSnapshot, sent: Publication) -> Parts:
        """What is behind the rows that are sent."""
        for rows in _sliced(snapshot, sent.rows, self.size):
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


def _sliced(snapshot: DeltaSnapshot, skipped: int, size: int) -> Iterator[pa.Table]:
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
