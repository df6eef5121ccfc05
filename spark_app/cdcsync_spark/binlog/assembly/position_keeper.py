"""The position of a reader: behind the last whole transaction that it has read.

Its offset never goes back: with GTIDs the server begins a dump at the beginning of a file, and what
is skipped there is in the set, so everything before the furthest offset stays known. Memory is
bounded: a transaction leaves its GTID only, and those are joined to a set, thousands at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, LogOffset, Position, TransactionId
from cdcsync_spark.binlog.assembly.plain_transactions import PlainTransactions
from cdcsync_spark.binlog.assembly.read_gtids import ReadGtids
from cdcsync_spark.binlog.assembly.read_witnesses import witnesses_since
from cdcsync_spark.binlog.assembly.sealed import begun
from cdcsync_spark.wire.binlog import facts


class PositionKeeper:
    """Begins at `start`, which then is where each batch begins."""

    def __init__(self, start: Position, gtids_at_once: int) -> None:
        self._gtids_at_once = gtids_at_once
        self._witnesses = witnesses_since(start)
        #: grows with each progress of the position, and with each confirmation of the same one
        self.progress_count = 0
        self.begin_batch(start)

    def begin_batch(self, start: Position) -> None:
        self.start = start
        #: the offset of `position`, cheaper than all of it where there are GTIDs
        self.at: LogOffset | None = start.at
        self._gtid_pos, self._created = begun(start)
        self._gtids = ReadGtids(self._gtids_at_once)
        self.timestamp: float | None = None
        #: whether something was read that a batch has to say
        self.moved = False

    @property
    def position(self) -> Position:
        """After the last whole transaction: where a reader goes on after a lost connection."""
        if isinstance(self.start, FilePosition):
            return self._place(self.at) if self.at else self.start
        anchor = Anchor(self.at, self._created) if self.at and self._created else self.start.anchor
        return GtidPosition(self._gtids.added_to(self.start.gtids), self.at, anchor, self._witnesses.witnesses)

    def _place(self, at: LogOffset) -> FilePosition:
        witnesses, gtid_pos = self._witnesses, MariaDbGtidPos.parse(self._gtid_pos)
        return FilePosition(at, gtid_pos, self._created, witnesses.witnesses, witnesses.others)

    def takes(self, sources: Iterable[str | None]) -> bool:
        """Whether transactions with GTIDs of these sources (None: without) are of our kind."""
        return isinstance(self.start, FilePosition) or None not in sources

    def learn_state(self, state: MariaDbGtidPos) -> None:
        """Takes the last GTIDs of all servers that wrote up to `position`."""
        self._witnesses.learn(state)

    def begin_file(self, created: int) -> None:
        """`created`: when the current file was begun (seconds since 1970), from its first event."""
        self._created = created

    def pass_transaction(
        self, transaction: TransactionId, end: facts.TransactionEnd | facts.TransactionRollback
    ) -> None:
        self._gtids.add(transaction.gtid)
        self._witnesses.add(transaction, end.timestamp)
        self._pass(transaction.end, end.timestamp)
        self._gtid_pos = end.gtid_pos

    def pass_plain(self, plain: PlainTransactions) -> None:
        """As `pass_transaction` of each of them."""
        self._gtids.join(plain.gtids)
        if plain.stretch.domains is not None or isinstance(self.start, GtidPosition):
            self._witnesses.add_all(plain.witnesses())
        self._pass(plain.end, plain.timestamp)
        self.progress_count += plain.count - 1
        self._gtid_pos = plain.gtid_pos

    def progress(self, progress: facts.Progress) -> None:
        self._pass(progress.at, progress.timestamp)
        if progress.gtid_pos is not None:
            self._gtid_pos = progress.gtid_pos

    def _pass(self, at: LogOffset, timestamp: float | None) -> None:
        if self.at is None or at.covers(self.at):
            if self.at is not None and self.at.file != at.file:
                self._created = 0
            self.at = at
        self.timestamp = timestamp or self.timestamp
        self.moved = True
        self.progress_count += 1
