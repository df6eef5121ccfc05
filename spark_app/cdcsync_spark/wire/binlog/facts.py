"""The facts of the binlog as frozen values: the only interface between parser and stream.

Only `TransactionEnd` (or a whole `TransactionRollback`) completes a transaction; rows before it
count for nothing until it comes. `Progress` moves the reader where no transaction is. A fact about
a table that cannot be used carries its `defect`, so that one table stops and the others flow on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.syntax.text import Statement


class Operation(IntEnum):
    """What a rows event did; an UPDATE's images come in pairs, before and after."""

    WRITE = 0
    UPDATE = 1
    DELETE = 2


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One column as a TABLE_MAP event describes it.

    `code` is the binlog's type (ENUM 247 and SET 248 already unpacked from STRING), `meta` its
    metadata as one little endian number, or for CHAR and BINARY the length in bytes, for DECIMAL
    `precision | scale << 8`, for BIT the number of bits. None means: not in the event. `members`
    are the encoded names of an ENUM or SET.
    """

    code: int
    meta: int
    nullable: bool
    name: str | None = None
    unsigned: bool | None = None
    collation: int | None = None
    members: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TableMap:
    """A TABLE_MAP event. Compared by identity: the parser returns one object for equal events, so
    readers cache by it.

    `key` holds the places of the columns of the primary key, or of the first unique index over NOT
    NULL columns where there is none, each with the length of its prefix (0: the whole column).
    None: not in the event, because there is no such index or the metadata is not full.
    """

    number: int
    table: TableId
    columns: tuple[MappedColumn, ...]
    key: tuple[tuple[int, int], ...] | None = None

    @property
    def described(self) -> bool:
        """Whether it names the columns, as with `binlog_row_metadata=FULL`."""
        return not self.columns or self.columns[0].name is not None


class RowsEvent(NamedTuple):
    """The row images of one rows event, of one table and one operation; `body` is owned and
    outlives the parser's input.

    `size` is the event's bytes in the binlog, unpacked where the binlog is compressed or has
    differences. `defect` is why the rows cannot be used (incomplete image, JSON differences that do
    not fit, an unreadable TABLE_MAP); `map` and `body` mean nothing then, unless it is that the
    images lack the columns at the places `left_out` (`cut_images`).
    """

    table: TableId
    map: TableMap
    operation: Operation
    body: bytes
    size: int
    defect: CdcError | None = None
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """`gtid` is MySQL's; `mariadb_gtid` is MariaDB's `domain-server-sequence`, else empty."""

    gtid: Gtid | None = None
    mariadb_gtid: str = ""


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A transaction is complete. `timestamp` is the commit's, in unix seconds (microseconds where
    the server logs them).

    `gtid_pos` is MariaDB's GTID position after it: the last GTID of each domain, sorted by domain
    (`BINLOG_GTID_POS(file, offset)` prints the same ones in an order of its own). It is empty while
    unknown and on MySQL.
    """

    id: TransactionId
    timestamp: float
    gtid_pos: str = ""


@dataclass(frozen=True, slots=True)
class TransactionRollback:
    """A transaction in the binlog whose rows do not count.

    With `id` it is a whole one that ended in ROLLBACK, and its end is as good as a commit's for the
    position. Without, the binlog was cut inside it (the server crashed): nothing of it happened,
    its GTID will be used again.
    """

    id: TransactionId | None
    timestamp: float
    gtid_pos: str = ""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """`name` is in lower case: names of savepoints have no case. An earlier one of the same name is
    gone."""

    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    """Rows since the savepoint do not count."""

    name: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Heartbeat, rotation or MariaDB's list of GTIDs: the reader stands at `at` outside any
    transaction.

    `gtid_pos` is MariaDB's GTID position there where the binlog states it: a domain may be gone
    from it (FLUSH ... DELETE_DOMAIN_ID). `waits`: a heartbeat, which the server sends while it has
    nothing else to send.
    """

    at: LogOffset
    timestamp: float | None = None
    gtid_pos: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class FileLeft:
    """The binlog goes on in file `next`, and no event that ends `file` was seen: the server crashed
    while it wrote `file`, or a dump by GTIDs begins behind it."""

    file: str
    next: str


@dataclass(frozen=True, slots=True)
class ServerStarted:
    """The file that begins was begun when the server with this id started: sessions of before are
    gone."""

    server: int


@dataclass(frozen=True, slots=True)
class Incident:
    """The server reports that its binlog misses something."""

    text: str


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """The rows of this transaction so far are only prepared; `xid` is as in XA START (hexadecimal
    literals)."""

    xid: str


@dataclass(frozen=True, slots=True)
class XaEnd:
    """A prepared transaction was committed or rolled back."""

    xid: str
    committed: bool


Fact = (
    RowsEvent
    | TransactionBegin
    | TransactionEnd
    | TransactionRollback
    | Savepoint
    | RollbackTo
    | Statement
    | Progress
    | FileLeft
    | ServerStarted
    | Incident
    | XaPrepare
    | XaEnd
)
