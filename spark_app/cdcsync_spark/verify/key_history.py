"""The history of some keys in the binlog between two positions: it decides whether a difference is
one.

The binlog holds the whole row before and after each change, so it shows which rows a key had after
each transaction, and which of them a target at a given position must have. It is read by a dump of
its own, under a replica id of its own; nothing is kept but digests of the keys that are asked for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, read_transactions
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind
from cdcsync_spark.verify.digest import Digesters, DigestSet

_HEARTBEAT_SECONDS = 1.0
_BATCH_BYTES = 32 << 20
_POLL_SECONDS = 0.05

#: the digest of a row; None: there is no row
State = bytes | None
_REMOVES = (ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE)


@dataclass
class KeyHistory:
    """One key in a part of the binlog: `states` are what it had before the first change and after
    each transaction, `at_target` what it had at the target's position, or, where that is stretched,
    at each place in between; while the target catches up, at each place since."""

    states: set[State]
    at_target: set[State]

    @classmethod
    def before(cls, kind: ChangeKind, row: bytes) -> KeyHistory:
        """Begins with the first change that the binlog has: a row that is removed was there before,
        one that is added was not."""
        first = row if kind in _REMOVES else None
        return cls({first}, {first})

    def end_transaction(self, state: State, *, in_target: bool, may_be: bool) -> None:
        """A transaction left the key with `state`; what is between is never visible. The target has
        it, or it may have it."""
        self.states.add(state)
        if in_target:
            self.at_target = {state}
        elif may_be:
            self.at_target.add(state)


class KeyChange(NamedTuple):
    """The digests of a key and of its row, before or after the change as `kind` says."""

    key: bytes
    kind: ChangeKind
    row: bytes


@dataclass
class Transaction:
    """The one that is being read: the keys that it changed, as it leaves them so far."""

    number: int = -1
    in_target: bool = False
    may_be: bool = False
    states: dict[bytes, State] = field(default_factory=dict)


@dataclass
class Watched:
    """Keys of one table that are searched for, and the `position` of its target, `until` and
    `catching_up` as in `Opened`. `stop` is what would stop the table there, a DDL."""

    table: Capture
    digesters: Digesters
    keys: DigestSet
    position: Position
    until: Position
    catching_up: bool = False
    histories: dict[bytes, KeyHistory] = field(default_factory=dict)
    stop: CdcError | None = None

    def take(self, part: TableBatch, transactions: str) -> None:
        """A batch of the table's changes, in the order of the binlog."""
        self.stop = self.stop or part.stop
        if not part.file:
            return
        ids = read_transactions(transactions)
        covered = list(zip(ids.covered(self.position).tolist(), ids.covered(self.until).tolist(), strict=True))
        transaction = Transaction()
        with pa.memory_map(part.file) as source:
            for changes in pa.ipc.open_file(source).read_all().to_batches():
                for number, change in self.changes(changes):
                    if number != transaction.number:
                        self.end(transaction)
                        transaction.number = number
                        transaction.in_target, transaction.may_be = covered[number]
                        transaction.may_be |= self.catching_up
                    self.change(change, transaction)
        self.end(transaction)

    def changes(self, batch: pa.RecordBatch) -> Iterator[tuple[int, KeyChange]]:
        """The changes of the keys that are looked for, each with the number of its transaction."""
        keys = self.digesters.keys.of(batch)
        where = self.keys.where(keys)
        rows = batch.take(pa.array(where, pa.int64()))
        digests = self.digesters.rows.of(rows)
        for at, kind, number, row in zip(
            where, rows[KIND].to_pylist(), rows[TRANSACTION].to_pylist(), digests, strict=True
        ):
            yield number, KeyChange(keys[at].tobytes(), ChangeKind(kind), row.tobytes())

    def change(self, change: KeyChange, transaction: Transaction) -> None:
        if change.key not in self.histories:
            self.histories[change.key] = KeyHistory.before(change.kind, change.row)
        transaction.states[change.key] = None if change.kind in _REMOVES else change.row

    def end(self, transaction: Transaction) -> None:
        """The transaction is committed, with `in_target` and `may_be` as of its end."""
        for key, state in transaction.states.items():
            self.histories[key].end_transaction(state, in_target=transaction.in_target, may_be=transaction.may_be)
        transaction.states.clear()


@dataclass(frozen=True)
class BinlogSearch:
    """Searches the binlog named `log`. `folder` is scratch space; reading takes `timeout` seconds
    at most."""

    source: Source
    lineage: Lineage
    replica_id: int
    folder: Path
    timeout: float

    def between(self, start: Position, place: LogOffset, watched: Mapping[TableId, Watched]) -> None:
        """Fills the histories with what changes from `start` until `place` and all targets'
        positions are passed. Raises CdcError."""
        goals = [w.until for w in watched.values()]
        if passed(start, place, goals):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = BinlogReader(self._settings(start, watched))
        reader.start()
        deadline = time.monotonic() + self.timeout
        try:
            while True:
                batch = reader.next_batch()
                if batch is not None:
                    _look(batch, watched)
                    if passed(batch.end, place, goals):
                        return
                if time.monotonic() > deadline:
                    raise self._too_long(start, place)
                if batch is None:
                    time.sleep(_POLL_SECONDS)
        finally:
            reader.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _settings(self, start: Position, watched: Mapping[TableId, Watched]) -> ReaderSettings:
        return ReaderSettings(
            source=self.source,
            lineage=self.lineage,
            replica_id=self.replica_id,
            tables={table: w.table for table, w in watched.items()},
            start=start,
            ahead={},
            heartbeat_seconds=_HEARTBEAT_SECONDS,
            max_batch_bytes=_BATCH_BYTES,
            folder=self.folder,
            # the fast one wrote the target: a fault of it must not explain itself
            decoder=Decoder.REFERENCE,
        )

    def _too_long(self, start: Position, place: LogOffset) -> CdcError:
        return fail(
            Reason.SOURCE_UNREACHABLE,
            f"the binlog from {start} to {place} was not read within {self.timeout:.0f} s",
            needed="a target that is not far behind, or a longer timeout",
            remedy="let the sync catch up and verify again, or give a longer --wait",
        )


def passed(position: Position, place: LogOffset, goals: list[Position]) -> bool:
    return position.has_reached(place) and all(position.includes(g) for g in goals)


def _look(batch: BinlogBatch, watched: Mapping[TableId, Watched]) -> None:
    if batch.fatal is not None:
        raise batch.fatal
    by_name = {str(table): w for table, w in watched.items()}
    for part in batch.tables:
        by_name[part.table].take(part, batch.transactions)
        if part.file:
            Path(part.file).unlink()
    if batch.transactions:
        Path(batch.transactions).unlink()
