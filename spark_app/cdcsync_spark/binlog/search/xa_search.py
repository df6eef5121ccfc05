"""Finds the XA PREPARE of an XA COMMIT whose prepared rows a reader does not have.

Theory of operation. The PREPARE of a commit may be before the position where a reader began: a run
restarted between them, or a snapshot was taken there. Only the binlog records it, so that is
searched, backwards file by file. An xid is prepared at most once at a time; so in the binlog before
its commit the last PREPARE of that xid is the one, and if an end of it comes last, there is none.
The server keeps the metadata locks of a prepared transaction, also when it is restarted, so no DDL
lies between: its rows fit the definition that their TABLE_MAP is compared with, as any others.

Why it is bounded: what was read of a file does not change any more, so it is kept, and each part of
the binlog is read at most once by a reader. That pass decodes no row; the rows of the one
transaction that is committed are then read from their own position.

Why it disturbs nothing: the dumps have replica id 0, as those of mysqlbinlog, for which the server
ends no other dump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset, TransactionId, file_number
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.sessions.connection import Source, fetch
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.spool import Spool
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.sql.syntax.text import Statement

_FIRST_EVENT = 4


@dataclass(frozen=True)
class PreparePlace:
    """The transaction that ends at `end` with an XA PREPARE; a dump from `begin` brings it
    whole."""

    begin: LogOffset
    end: LogOffset


class Known(Enum):
    ENDED = auto()


@dataclass
class FileXa:
    """The last fact of each XA transaction in the file of `begin`, its first place, up to an
    offset: where it was prepared, or that it ended. Pure."""

    begin: LogOffset
    upto: LogOffset | None = None
    last: dict[str, PreparePlace | Known] = field(default_factory=dict)
    #: the file was left; a transaction ends behind `upto`, which is left to a later reading
    closed: bool = False
    beyond: bool = False

    def __post_init__(self) -> None:
        #: the end of the last whole transaction that was read
        self.whole = self.begin
        self._xa_facts: list[facts.XaPrepare | facts.XaEnd] = []

    def feed(self, fact: facts.Fact) -> None:
        match fact:
            case facts.TransactionBegin():
                self._xa_facts = []
            case facts.XaPrepare() | facts.XaEnd():
                self._xa_facts.append(fact)
            case facts.Progress(at=at):
                self._reach(at)
            case facts.TransactionEnd(id=id):
                self._end(id.end)
            case facts.TransactionRollback(id=TransactionId(end=end)):
                self._reach(end)

    def _end(self, end: LogOffset) -> None:
        self.beyond = self.upto is not None and not self.upto.covers(end)
        if self.beyond:
            return
        for xa in self._xa_facts:
            prepared = isinstance(xa, facts.XaPrepare)
            self.last[xa.xid] = PreparePlace(self.whole, end) if prepared else Known.ENDED
        self._reach(end)

    def _reach(self, place: LogOffset) -> None:
        if place.file == self.begin.file:
            self.whole = place
        else:
            self.closed = True

    @property
    def done(self) -> bool:
        return self.closed or self.beyond or (self.upto is not None and self.whole.covers(self.upto))


class Stopped(Exception):
    """The reader that searches is asked to end."""


@dataclass
class XaSearch:
    """Searches the binlog that `lineage` ends with. `stopping` is asked while it reads; it then
    raises `Stopped`."""

    source: Source
    lineage: Lineage
    stopping: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._seen: dict[str, FileXa] = {}

    def last(self, xid: str, upto: LogOffset) -> PreparePlace | Known | None:
        """What the binlog up to `upto` (inclusive) has last of `xid`; None where no file names it.
        Raises CdcError, Stopped."""
        for file in reversed(self._files(upto)):
            place = self._read(file, upto).last.get(xid)
            if place is not None:
                return place
        return None

    def prepared(
        self, xid: str, commit: LogOffset, is_wanted: Callable[[TableId], bool], spool: Spool
    ) -> OpenTransaction | None:
        """What the XA COMMIT that ends at `commit` commits; None where no file has its PREPARE.
        Raises CdcError, Stopped."""
        place = self.last(xid, replace(commit, offset=commit.offset - 1))
        return self._transaction(place, is_wanted, spool) if isinstance(place, PreparePlace) else None

    def since(self, place: LogOffset) -> Iterator[facts.Fact]:
        """What is not rows, from `place` to the end of the binlog. Raises CdcError, Stopped."""
        return self._facts(place, lambda _: False)

    def _transaction(self, place: PreparePlace, is_wanted: Callable[[TableId], bool], spool: Spool) -> OpenTransaction:
        transaction = OpenTransaction()
        for fact in self._facts(place.begin, is_wanted):
            if isinstance(fact, facts.TransactionBegin):
                transaction = OpenTransaction()
            elif isinstance(fact, facts.TransactionEnd) and fact.id.end.covers(place.end):
                if fact.id.end == place.end:
                    return transaction
                break
            else:
                _collect(fact, transaction, spool)
        raise fail(
            Reason.POSITION_LOST,
            f"no transaction of the binlog from {place.begin} on ends at {place.end}",
            needed="the binlog in which it was just found",
            remedy=RESNAPSHOT_ALL,
        )

    def _files(self, upto: LogOffset) -> Sequence[str]:
        with open_session(self.source) as session:
            listed = [str(row[0]) for row in fetch(session.proved(self.lineage), "SHOW BINARY LOGS")]
        return [file for file in listed if file_number(file) <= upto.number]

    def _read(self, file: str, upto: LogOffset) -> FileXa:
        in_file = self._seen.get(file)
        if in_file is None or not upto.covers(in_file.whole):
            in_file = FileXa(replace(upto, file=file, offset=_FIRST_EVENT))
        in_file.upto, in_file.beyond = upto if file == upto.file else None, False
        if not in_file.done:
            self._read_on(in_file)
        self._seen[file] = in_file
        return in_file

    def _read_on(self, file_xa: FileXa) -> None:
        for fact in self._facts(file_xa.whole, lambda _: False):
            file_xa.feed(fact)
            if file_xa.done:
                return

    def _facts(self, start: LogOffset, is_wanted: Callable[[TableId], bool]) -> Iterator[facts.Fact]:
        """To the end of the binlog. A connection of its own, which is closed with the iterator."""
        with open_session(self.source) as session:
            connection, flavor = session.proved(self.lineage), session.facts.flavor
            client = BinlogClient.to_the_end(connection, flavor, FilePosition(start))
            parser = EventParser(flavor, file=start.file, is_wanted=is_wanted, binlog=session.facts.log)
            with client:
                for arrived in client.arrivals():
                    if self.stopping():
                        raise Stopped
                    for event in arrived:
                        yield from parser.feed(event)


def _collect(fact: facts.Fact, transaction: OpenTransaction, spool: Spool) -> None:
    match fact:
        case facts.RowsEvent():
            transaction.add(fact, spool)
        case Statement():
            transaction.statements.append(fact)
        case facts.Savepoint():
            transaction.set_savepoint(fact)
        case facts.RollbackTo():
            transaction.roll_back_to(fact)
