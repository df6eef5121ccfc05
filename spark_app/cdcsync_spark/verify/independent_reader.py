"""The history of keys in the binlog, read by mysql-replication: a decoder that is not this
project's.

Why it exists: what the binlog says decides whether a difference is one (`confirm`). The stream that
wrote the target and the search that confirms it decode with code of one origin, so a fault that
both share would confirm itself. mysql-replication shares nothing with it but PyMySQL, which
connects.

Why it is right: nothing is passed over. An event that may decide about rows and that
mysql-replication does not read ends the search with its number, and a table with a type that it is
not known to read exactly (`_READ_EXACTLY`, held to real servers by `tests/servers/test_verify.py`)
is not judged, with that as its error. It is slow (some ten thousand rows a second), which candidate
keys can bear.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pymysql.cursors import DictCursor

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.lineage import BinlogId, Lineage
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Place, Position, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import SourceType, TableId
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import read_facts, refuse_other_server
from cdcsync_mysql.sessions.connection import Connection, Source, connect
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.verify.key_history import Transaction, Watched, passed

_READ_EXACTLY = frozenset({
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "date", "datetime", "timestamp",
    "varchar", "char", "tinytext", "text", "mediumtext", "longtext", "varbinary", "tinyblob", "blob", "mediumblob", "longblob",
})  # fmt: skip
#: Python decodes them as the server does
_CHARSETS = frozenset(("", "utf8mb4", "utf8mb3", "utf8", "ascii", "binary"))
#: events without rows, by their number in the binlog: STOP, INTVAR, RAND and USER_VAR (what a
#: statement needs), FORMAT_DESCRIPTION, TABLE_MAP, HEARTBEAT, IGNORABLE, ROWS_QUERY,
#: ANONYMOUS_GTID, PREVIOUS_GTIDS, HEARTBEAT_V2, Amazon Aurora's padding, and MariaDB's
#: ANNOTATE_ROWS, BINLOG_CHECKPOINT, GTID_LIST and START_ENCRYPTION
_WITHOUT_ROWS = frozenset((3, 5, 13, 14, 15, 19, 27, 28, 29, 34, 35, 41, 100, 160, 161, 163, 164))
#: a flag of MariaDB's GTID event: a statement of its own follows, such as a DDL
_STANDALONE = 1
_ROWS_AT_ONCE = 1000


@dataclass
class IndependentSearch:
    """Searches as `key_history.BinlogSearch` does. Reading takes `timeout` seconds at most."""

    source: Source
    lineage: Lineage
    replica_id: int
    timeout: float

    def between(self, start: Position, place: LogOffset, watched: Mapping[TableId, Watched]) -> None:
        """Fills the histories with what changes from `start` until `place` and all targets'
        positions are passed. Raises CdcError; a table that mysql-replication cannot read has it."""
        for subject in watched.values():
            subject.stop = unreadable(subject.table)
        readable = {table: w for table, w in watched.items() if w.stop is None}
        goals = [w.until for w in readable.values()]
        if not readable or passed(start, place, goals):
            return
        with open_session(self.source) as session:
            session.proved(self.lineage, start)
        reading = _BinlogReading(readable, start)
        for event, end in self._events(start, readable):
            reading.take(event, end)
        if not passed(reading.position, place, goals):
            raise _unread(f"mysql-replication read the binlog from {start} to {reading.position}", f"{place}")

    def _events(self, start: Position, tables: Mapping[TableId, Watched]) -> Iterator[tuple[Any, LogOffset]]:
        """All events up to the end of the binlog, each with the place behind it."""
        reader = _open(self.source, self.lineage.newest, self.replica_id, start, tables)
        deadline = time.monotonic() + self.timeout
        try:
            while (event := _next(reader)) is not None:
                yield event, Place(reader.log_file, max(4, reader.log_pos), self.lineage.newest)
                if time.monotonic() > deadline:
                    raise _unread(f"the binlog was not read within {self.timeout:.0f} s", "a longer --wait")
        finally:
            reader.close()


@dataclass
class _BinlogReading:
    """The binlog up to `position`, and what is open there: `inside` a transaction that is named
    `gtid`, with the rows of each table in it."""

    watched: Mapping[TableId, Watched]
    position: Position
    gtid: str = ""
    inside: bool = False
    open: dict[TableId, Transaction] = field(default_factory=dict)

    def take(self, event: Any, end: LogOffset) -> None:
        name = type(event).__name__
        if name in _HANDLERS:
            _HANDLERS[name](self, event, end)
        elif event.event_type not in _WITHOUT_ROWS:
            raise _unread(f"an event {name} (number {event.event_type}) before {end}", "events that it reads")

    def begin(self, event: Any, _end: LogOffset) -> None:
        self.gtid = event.gtid
        # MariaDB's begins a transaction unless it is standalone; MySQL writes BEGIN as a statement
        self.inside = type(event).__name__ == "MariadbGtidEvent" and not event.flags & _STANDALONE

    def rows(self, event: Any, _end: LogOffset) -> None:
        table = TableId(event.schema, event.table)
        watched = self.watched.get(table)
        if watched is None:
            return
        if watched.stop is None and not _is_whole(event):
            watched.stop = _not_whole(table)
        if watched.stop is not None:
            return
        transaction = self.open.setdefault(table, Transaction())
        for batch in _batches(watched.table, list(_changes_of(event))):
            for _, change in watched.changes(batch):
                watched.change(change, transaction)

    def commit(self, _event: Any, end: LogOffset) -> None:
        gtid = Gtid.parse(self.gtid) if isinstance(self.position, GtidPosition) and self.gtid else None
        committed = TransactionId(end, gtid)
        for table, transaction in self.open.items():
            watched = self.watched[table]
            transaction.in_target = watched.position.covers(committed)
            transaction.may_be = watched.catching_up or watched.until.covers(committed)
            watched.end(transaction)
        self.open.clear()
        self.position = _after(self.position, end, gtid)
        self.gtid, self.inside = "", False

    def statement(self, event: Any, end: LogOffset) -> None:
        """BEGIN and SAVEPOINT change nothing; any other statement that names a table may."""
        words = event.query.split(None, 2)[:2]
        verb = words[0].upper().rstrip(";") if words else ""
        if verb in ("BEGIN", "SAVEPOINT"):
            self.inside = True
            return
        if verb in ("ROLLBACK", "XA"):
            raise _unread(f"a statement {verb} before {end}", "transactions that are committed")
        if verb != "COMMIT":
            for table, watched in self.watched.items():
                if table.name.lower() in event.query.lower():
                    watched.stop = watched.stop or _redefined(table)
        if verb == "COMMIT" or not self.inside:
            self.commit(event, end)

    def move(self, event: Any, end: LogOffset) -> None:
        at = replace(end, file=event.next_binlog, offset=max(4, event.position))
        self.position = replace(self.position, at=at)


_HANDLERS: dict[str, Callable[[_BinlogReading, Any, LogOffset], None]] = {
    "GtidEvent": _BinlogReading.begin,
    "MariadbGtidEvent": _BinlogReading.begin,
    "WriteRowsEvent": _BinlogReading.rows,
    "UpdateRowsEvent": _BinlogReading.rows,
    "DeleteRowsEvent": _BinlogReading.rows,
    "XidEvent": _BinlogReading.commit,
    "QueryEvent": _BinlogReading.statement,
    "RotateEvent": _BinlogReading.move,
}


def unreadable(table: Capture) -> CdcError | None:
    """Why mysql-replication is not trusted with a table's rows; None where it is."""
    unknown = [c for c in table.captured if not _exact(c.type)]
    if not unknown:
        return None
    names = ", ".join(f"{c.name} {c.type.declared} {c.type.charset}".rstrip() for c in unknown)
    return fail(
        Reason.TYPE_UNSUPPORTED,
        f"columns that mysql-replication is not known to read exactly: {names}",
        needed="numbers, dates, times of day with a date, texts in UTF-8 or ASCII, or bytes of varying length",
        remedy="verify this table without --reader mysql-replication",
        table=str(table.id),
    )


def _exact(kind: SourceType) -> bool:
    wide = kind.base == "decimal" and kind.size > 38
    return kind.base in _READ_EXACTLY and kind.charset in _CHARSETS and not kind.replaced and not wide


def _open(source: Source, binlog: BinlogId, replica_id: int, start: Position, tables: Mapping[TableId, Watched]) -> Any:
    try:
        from pymysqlreplication import BinLogStreamReader  # takes a while, and only this reader needs it
    except ImportError as e:
        raise fail(
            Reason.SPEC_INVALID,
            f"--reader mysql-replication, which cannot be imported here: {e}",
            needed="the package mysql-replication, which is part of cdcsync[spark]",
            remedy="pip install 'mysql-replication>=1.0.9,<2', or leave --reader out",
        ) from e
    place: dict[str, Any] = {"auto_position": str(start.gtids)} if isinstance(start, GtidPosition) else {}
    if isinstance(start, FilePosition):
        place = {"log_file": start.at.file, "log_pos": start.at.offset, "resume_stream": True}
    return BinLogStreamReader(
        connection_settings={},
        server_id=replica_id,
        only_schemas=sorted({t.database for t in tables}),
        only_tables=sorted({t.name for t in tables}),
        filter_non_implemented_events=False,
        verify_checksum=True,
        enable_logging=False,
        pymysql_wrapper=lambda **settings: _connection(source, binlog, settings),
        **place,
    )


def _connection(source: Source, binlog: BinlogId, settings: Mapping[str, Any]) -> Connection:
    """Made as every connection is: TLS, logins, limits. One of the two that mysql-replication asks
    for reads dictionaries."""
    catalog = settings.get("cursorclass") is DictCursor
    connection = connect(source, stream=not catalog)
    try:
        refuse_other_server(read_facts(connection), binlog)
    except CdcError:
        connection.close()
        raise
    if catalog:
        connection.cursorclass = DictCursor
    return connection


def _next(reader: Any) -> Any:
    """The next event, its rows decoded; None at the end of the binlog."""
    try:
        event = reader.fetchone()
        if hasattr(event, "rows"):
            event.rows  # noqa: B018 (decoded here, where its errors are met)
        return event
    except CdcError:
        raise
    except Exception as e:
        raise _unread(f"mysql-replication: {type(e).__name__}: {str(e)[:200]}", "a binlog that it reads") from e


def _changes_of(event: Any) -> Iterator[tuple[ChangeKind, dict[str, Any]]]:
    name = type(event).__name__
    for row in event.rows:
        if name == "WriteRowsEvent":
            yield ChangeKind.INSERT, row["values"]
        elif name == "DeleteRowsEvent":
            yield ChangeKind.DELETE, row["values"]
        else:
            yield ChangeKind.UPDATE_BEFORE, row["before_values"]
            yield ChangeKind.UPDATE_AFTER, row["after_values"]


def _is_whole(event: Any) -> bool:
    """Whether its rows have all columns, named by the binlog: where it does not name them,
    mysql-replication takes the names that the source has now."""
    every = (1 << event.number_of_columns) - 1
    bitmaps = [getattr(event, name, None) for name in ("columns_present_bitmap", "columns_present_bitmap2")]
    present = [int.from_bytes(bitmap, "little") for bitmap in bitmaps if bitmap is not None]
    named: bool = event.table_map[event.table_id].column_name_flag
    return named and all(bits & every == every for bits in present)


def _batches(table: Capture, changes: list[tuple[ChangeKind, dict[str, Any]]]) -> Iterator[pa.RecordBatch]:
    """Raises CdcError where the rows are not those of the definition."""
    for first in range(0, len(changes), _ROWS_AT_ONCE):
        try:
            yield _batch(table, changes[first : first + _ROWS_AT_ONCE])
        except (KeyError, TypeError, ValueError, pa.ArrowException) as e:
            raise _unread(f"rows of {table.id} that are not of its definition: {e}", "one definition") from e


def _batch(table: Capture, changes: list[tuple[ChangeKind, dict[str, Any]]]) -> pa.RecordBatch:
    """The captured columns of the rows, in the types of a target, with kind and transaction."""
    schema = captured_schema(table)
    columns = [pa.array([_value(row[c.name], c.type) for _, row in changes], c.type) for c in schema]
    kinds = pa.array([int(kind) for kind, _ in changes], pa.int8())
    numbers = pa.array([0] * len(changes), pa.int32())
    return pa.RecordBatch.from_arrays([kinds, numbers, *columns], schema=changes_schema(schema))


def _value(value: Any, kind: pa.DataType) -> Any:
    return value.encode() if isinstance(value, str) and pa.types.is_binary(kind) else value


def _after(position: Position, end: LogOffset, gtid: Gtid | None) -> Position:
    if isinstance(position, FilePosition):
        return FilePosition(end)
    return GtidPosition(position.gtids.with_gtids([gtid] if gtid else []), end)


def _not_whole(table: TableId) -> CdcError:
    return fail(
        Reason.ROW_IMAGE_NOT_FULL,
        "rows in the binlog without some columns, or without the columns' names",
        needed="binlog_row_image=FULL and binlog_row_metadata=FULL, to confirm by mysql-replication",
        remedy="verify this table without --reader mysql-replication",
        table=str(table),
    )


def _redefined(table: TableId) -> CdcError:
    return fail(Reason.SCHEMA_CHANGE_REFUSED, "a statement that names the table", table=str(table))


def _unread(problem: str, needed: str) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        problem,
        needed=f"{needed}, to confirm by mysql-replication",
        remedy="verify again, or without --reader mysql-replication",
    )
