"""Facts of a simulated binlog, as the parser would return them: a pen that knows file, offset and
GTID."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent, TableMap

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_MAPS: dict[TableId, TableMap] = {}


def rows(table: TableId, body: bytes, *, size: int = 100, defect: CdcError | None = None) -> RowsEvent:
    """An inserting event; equal tables share a TABLE_MAP, as from the parser."""
    table_map = _MAPS.setdefault(table, TableMap(len(_MAPS) + 1, table, ()))
    return RowsEvent(table, table_map, Operation.WRITE, body, size, defect)


def at(offset: int, file: int = 1) -> LogOffset:
    return LogOffset(f"binlog.{file:06d}", offset)


@dataclass
class Pen:
    """Writes transactions one after the other, each 100 bytes long; with `gtids` they are numbered
    from 1."""

    gtids: bool = False
    offset: int = 100
    number: int = 0

    def begin(self) -> facts.TransactionBegin:
        self.number += 1
        return facts.TransactionBegin(self._gtid())

    def id(self) -> TransactionId:
        self.offset += 100
        return TransactionId(at(self.offset), self._gtid())

    def commit(self, timestamp: float = 1.0) -> facts.TransactionEnd:
        return facts.TransactionEnd(self.id(), timestamp)

    def rollback(self) -> facts.TransactionRollback:
        return facts.TransactionRollback(self.id(), 1.0)

    def transaction(self, *inside: facts.Fact) -> Iterator[facts.Fact]:
        """Begin, what is inside, commit."""
        yield self.begin()
        yield from inside
        yield self.commit()

    def _gtid(self) -> Gtid | None:
        return Gtid(UUID, self.number) if self.gtids else None
