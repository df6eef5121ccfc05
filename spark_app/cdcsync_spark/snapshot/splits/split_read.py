"""Reads one split: in a Spark task, on its own connection, in bounded memory.

Why the rows are right: the connection proves that it reaches the binlog of LOW (R6), or a replica
that has all of LOW and nothing that the binlog has not (`snapshot_host`); the session
profile is the driver's own (R1), the SELECT runs in a REPEATABLE READ transaction (for a table
whose key no index of the source has in an exact view, `exact_view`), and before that ends the
table's definition is read in it again and must say of rows what the planned one says. A result
without its end packet raises, whichever protocol it came by. The transaction, and with it the
metadata lock, ends with the last row: rows go to a local file first, staging to a store follows
later. Why it ends: the server ends a SELECT after `max_seconds`; where it does not, because it
means harm, a clock here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from cdcsync_core.errors import Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import Position
from cdcsync_core.remedies import resnapshot
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.readiness.proof import SourceSession, open_session
from cdcsync_mysql.readiness.snapshot_host import SnapshotHost
from cdcsync_mysql.reading.catalog import as_planned
from cdcsync_mysql.reading.splitquery import where
from cdcsync_mysql.sessions.connection import Source, map_error
from cdcsync_mysql.sessions.protocol import answered_within
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_spark.snapshot.splits import binary_select, text_select
from cdcsync_spark.snapshot.splits.declared_key import once_a_key
from cdcsync_spark.snapshot.splits.exact_view import ExactView
from cdcsync_spark.snapshot.splits.key_query import condition
from cdcsync_spark.snapshot.splits.text_select import Cell
from cdcsync_spark.wire.resultset.binary_row import DecodedResult

_ROWS = 2_000
_BYTES = 8 << 20
_KEYS_A_QUERY = 200
#: the shortest wait for a lock that both servers have
_BRIEF_SECONDS = 1
#: beyond the server's own limit: for what it has sent to be read, on a machine that is loaded
_GRACE_SECONDS = 120.0
Row = tuple[Cell, ...]


@dataclass
class SplitReader:
    """One split of `table`; iterate `batches()` once. `rows` and `nulled` count what was read,
    `size` is in bytes, as the server sent the rows. `position` is what the rows of a table without
    a key, or with a declared one, are as of. A table that another session locks is waited for as
    the session's profile says, or `briefly`. Rows of a table with a key are read on a `replica`, if
    there is one."""

    source: Source
    lineage: Lineage
    table: Capture
    split: Split
    low: Position
    max_seconds: int
    decoder: Decoder = Decoder.VECTORIZED
    grace_seconds: float = _GRACE_SECONDS
    briefly: bool = False
    replica: SnapshotHost | None = None
    rows: int = field(default=0, init=False)
    nulled: int = field(default=0, init=False)
    size: int = field(default=0, init=False)
    position: Position | None = field(default=None, init=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches of `typemap.arrow_schema(table)`; raises CdcError, after which nothing of
        them may be kept."""
        source = self.source if self.replica is None else self.replica.replica
        with open_session(source, max_seconds=self.max_seconds, stream=True) as session:
            connection = self._proved(session)
            try:
                self._begin(session, connection)
                yield from once_a_key(self.table, self._select(connection))
                gate("split-read")
                self._same_definition(connection)
                connection.query("COMMIT")
                if self.replica is not None:
                    self.replica.confirm(connection, self.lineage, self.low)
            except pymysql.MySQLError as e:
                raise map_error(e, f"reading {self.table.id}") from e

    def _proved(self, session: SourceSession) -> SourceConnection:
        if self.replica is None:
            return session.proved(self.lineage, self.low)
        return self.replica.proved(session, self.low)

    def _begin(self, session: SourceSession, connection: pymysql.Connection) -> None:
        if self.briefly:
            connection.query(f"SET SESSION lock_wait_timeout = {_BRIEF_SECONDS}")
        if self.table.chunk_key is not None:
            connection.query("START TRANSACTION READ ONLY")
        else:
            view = ExactView(self.source, self.lineage, session.facts, self.table.id)
            self.position = view.open(connection)
            gate("view-opened")

    def _conditions(self) -> Iterator[str]:
        """The WHERE clauses of the SELECTs that together read the rows."""
        yield where(self.table, self.split)

    def _select(self, connection: pymysql.Connection) -> Iterator[pa.RecordBatch]:
        read = READERS[self.decoder]
        for rows in self._conditions():
            with answered_within(connection, self.max_seconds + self.grace_seconds):
                for decoded in read(connection, self.table, f"FROM {self.table.id.quoted} WHERE {rows}"):
                    self.rows += decoded.batch.num_rows
                    self.nulled += decoded.nulled
                    self.size += decoded.size
                    yield decoded.batch

    def _same_definition(self, connection: pymysql.Connection) -> None:
        if not as_planned(connection, self.table):
            raise fail(
                Reason.SCHEMA_CHANGE_REFUSED,
                "the table's definition changed while it was read",
                needed="the definition of the plan",
                remedy=resnapshot(self.table.id),
                table=str(self.table.id),
            )


@dataclass
class KeyReader(SplitReader):
    """The rows of `keys`, and those of keys that the server holds for equal to one of them; `split`
    is the whole table."""

    keys: pa.Table = field(kw_only=True)

    def _conditions(self) -> Iterator[str]:
        for start in range(0, self.keys.num_rows, _KEYS_A_QUERY):
            yield condition(self.table, self.keys.slice(start, _KEYS_A_QUERY))


def _read_in_step(connection: pymysql.Connection, table: Capture, rest: str) -> Iterator[DecodedResult]:
    return binary_select.read_select(connection, table, f"SELECT {binary_select.select_list(table)} {rest}")


def _read_plain(connection: pymysql.Connection, table: Capture, rest: str) -> Iterator[DecodedResult]:
    with _raw(connection), SSCursor(connection) as cursor:
        cursor.execute(f"SELECT {text_select.select_list(table)} {rest}")
        for rows in pieces(iter(cursor.fetchone, None)):
            yield text_select.decode(table, rows)


READERS: dict[Decoder, Callable[[pymysql.Connection, Capture, str], Iterator[DecodedResult]]] = {
    Decoder.VECTORIZED: _read_in_step,
    Decoder.REFERENCE: _read_plain,
}


@contextmanager
def _raw(connection: pymysql.Connection) -> Iterator[None]:
    """Cells are the bytes of the wire meanwhile."""
    settings = connection.use_unicode, connection.decoders
    connection.use_unicode, connection.decoders = False, {}
    try:
        yield
    finally:
        connection.use_unicode, connection.decoders = settings


def pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows by the thousand, or fewer where they are wide: a piece exceeds 8 MiB by one row at
    most."""
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += sum(map(len, filter(None, row)))
        if size >= _BYTES or len(piece) == _ROWS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
