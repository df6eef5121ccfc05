"""Checks of one table: can it be cut, read, decoded and followed without a gap (rules R3, R9,
R10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import rebuild_times
from cdcsync_core.resource.spec import Override
from cdcsync_core.tables.capture import Capture, generated_left_out, hidden_unknown, members_unknown, uncertain_members
from cdcsync_core.tables.declared_key import unguarded
from cdcsync_core.tables.event_columns import EventColumns, taken_error
from cdcsync_core.tables.logical_type import logical_type, lossy
from cdcsync_core.tables.reserved_columns import reserved_error
from cdcsync_core.tables.source_table import Column, TableId, quote
from cdcsync_mysql.checks import Check, Level, refused, warned
from cdcsync_mysql.readiness.cascades import LOGGED_SINCE, cascades, unlogged_error
from cdcsync_mysql.readiness.servercheck import Server
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.declared import declare, refuse_beside_key
from cdcsync_mysql.reading.planner import estimate_rows
from cdcsync_mysql.sessions.connection import fetch
from cdcsync_mysql.sessions.failures import grant

#: MariaDB from here on leaves generated columns out of the images of UPDATE, DELETE and REPLACE
_GENERATED_LEFT_OUT_SINCE = (11, 8)
_ONE_READ = (
    ", so the table is read by one SELECT in one transaction, for which the server keeps old versions of"
    " its rows; its rows are not compared by verify, and a crash of the source that may have lost some of them stops it"
)
_HASHES = (
    "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " AND INDEX_TYPE = 'HASH'"
)
_OLD_TIMES_AND_HASHES = (
    "SELECT (SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY ORDINAL_POSITION SEPARATOR ', ')"
    " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " AND COLUMN_TYPE REGEXP '^(time|datetime|timestamp).* mariadb-5.3 '),"
    f" ({_HASHES})"
)


@dataclass(frozen=True)
class ColumnCheck:
    """A captured column: its type on the server and in the target, and what the conversion loses
    (empty: nothing)."""

    name: str
    source_type: str
    target_type: str
    lossy: str = ""


@dataclass(frozen=True)
class TableCheck:
    """What is known of a table before it is read.

    `table` is None where its definition cannot be used; `rows` and `splits` are estimates;
    `unlogged_cascades`: the binlog has gaps that the user accepted, so it can never be called
    consistent.
    """

    id: TableId
    table: Capture | None = None
    checks: tuple[Check, ...] = ()
    columns: tuple[ColumnCheck, ...] = ()
    rows: int = 0
    splits: int = 0
    unlogged_cascades: bool = False

    @property
    def error(self) -> CdcError | None:
        """What forbids to capture it: its first failure."""
        return next((c.error for c in self.checks if c.level is Level.FAIL), None)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(c.line for c in self.checks if c.level is Level.WARN)


@dataclass
class _Findings:
    checks: list[Check] = field(default_factory=list)
    columns: list[ColumnCheck] = field(default_factory=list)
    unlogged_cascades: bool = False


def check_table(
    server: Server,
    table_id: TableId,
    override: Override,
    chunk_size: int,
    *,
    replaces_invalid: bool = False,
    metadata: EventColumns | None = None,
    reserved: frozenset[str] = frozenset(),
    needs_key: bool = True,
    refuses_declared_key: str = "",
) -> TableCheck:
    """`replaces_invalid`: bytes that are no character are replaced; `metadata` are the columns that
    the target has beside the source's; `reserved`: names that none of its columns may have;
    `needs_key`: it needs a key that identifies a row; `refuses_declared_key`: which part of the
    manifest does not guard a declared key. Raises CdcError only for a lost connection."""
    connection = server.connection
    try:
        table = _defined(server, table_id, override, needs_key, refuses_declared_key)
    except CdcError as e:
        if e.reason.retried:
            raise
        return TableCheck(table_id, checks=(refused("definition", e),))
    findings = _Findings()
    for column in (table.replacing() if replaces_invalid else table).captured:
        _check_column(table_id, column, findings)
    _add_metadata(table, metadata, findings)
    if error := reserved_error((c.name for c in findings.columns), reserved, str(table_id)):
        findings.checks.append(refused("columns", error))
    if not server.is_mysql and server.facts.numbers >= _GENERATED_LEFT_OUT_SINCE:
        findings.checks.extend(_cut_images(server, table))
    if server.variables.get("binlog_row_metadata", "").upper() != "FULL":
        findings.checks.extend(_undescribed(server, table))
    findings.checks.extend(_readable(server, table))
    if table.chunk_key is None:
        missing = "the source has no index of the declared one" if table.declared else "there is none"
        findings.checks.append(warned("key", f"{missing}{_ONE_READ}", table=str(table_id)))
    _check_cascades(server, table_id, accepted=override.accept_unlogged_cascades, findings=findings)
    rows = estimate_rows(connection, table_id)
    return TableCheck(
        table_id,
        table,
        tuple(findings.checks),
        tuple(findings.columns),
        rows,
        max(1, -(-rows // chunk_size)) if table.chunk_key else 1,
        findings.unlogged_cascades,
    )


def _defined(server: Server, table_id: TableId, override: Override, needs_key: bool, refuses: str) -> Capture:
    """The definition with the key that identifies a row; `refuses` as in `check_table`."""
    excluded = frozenset(override.columns.exclude)
    if not override.key:
        return read_table(server.connection, table_id, excluded, needs_key=needs_key)
    if refuses:
        raise unguarded(table_id, refuses)
    table = read_table(server.connection, table_id, excluded, needs_key=False)
    refuse_beside_key(table)
    return declare(table, override.key)


def _check_column(table_id: TableId, column: Column, findings: _Findings) -> None:
    try:
        target = str(logical_type(column.type))
    except CdcError as e:
        error = fail(
            e.reason, f"column {column.name}: {e.found}", needed=e.needed, remedy=e.remedy, table=str(table_id)
        )
        findings.checks.append(refused("type", error))
        return
    findings.columns.append(ColumnCheck(column.name, column.type.declared, target, lossy(column)))


def _add_metadata(table: Capture, metadata: EventColumns | None, findings: _Findings) -> None:
    if metadata is None:
        return
    taken = metadata.taken(c.name for c in table.captured)
    if taken:
        findings.checks.append(refused("columns", taken_error(taken, str(table.id))))
    findings.columns += [ColumnCheck(name, "", target) for name, target in metadata.typed()]


def _cut_images(server: Server, table: Capture) -> Iterator[Check]:
    """What cannot be read of row images without the columns that the server computes: a UNIQUE key
    by hash has one, too."""
    computed = table.source.generated or ()
    names = [c.name for c in table.captured if c.name in computed]
    if names:
        yield refused("row images", generated_left_out(str(table.id), names))
    place = (table.id.database, table.id.name)
    [(old, hashed)] = fetch(server.connection, _OLD_TIMES_AND_HASHES, place * 2)
    if old and (computed or hashed):
        found = f"the columns {old} in the format of before MariaDB 10.1, beside columns that the binlog leaves out"
        needed, remedy = "times in today's format", rebuild_times(table.id.quoted)
        yield refused(
            "row images", fail(Reason.TYPE_UNSUPPORTED, found, needed=needed, remedy=remedy, table=str(table.id))
        )


def _undescribed(server: Server, table: Capture) -> Iterator[Check]:
    """What the catalog does not show either of rows that do not name their columns."""
    doubtful = uncertain_members(table)
    if doubtful:
        yield refused("row metadata", members_unknown(table, doubtful))
    place = (table.id.database, table.id.name)
    if not server.is_mysql and fetch(server.connection, _HASHES, place)[0][0]:
        yield refused("row metadata", hidden_unknown(table.id))


def _readable(server: Server, table: Capture) -> Iterator[Check]:
    """SELECT on the captured columns, tried."""
    columns = ", ".join(quote(c.name) for c in table.captured)
    try:
        fetch(server.connection, f"SELECT {columns} FROM {table.id.quoted} LIMIT 0", doing="reading the table")
    except CdcError as e:
        if e.reason.retried:
            raise
        yield refused("SELECT", _select_needed(server, table.id, e))


def _select_needed(server: Server, table_id: TableId, error: CdcError) -> CdcError:
    needed, remedy = error.needed, error.remedy
    if error.reason is Reason.PRIVILEGE_MISSING:
        needed, remedy = "SELECT on the whole table", grant("SELECT", table_id.quoted, server.account)
    return fail(error.reason, error.found, needed=needed, remedy=remedy, table=str(table_id))


def _check_cascades(server: Server, table_id: TableId, *, accepted: bool, findings: _Findings) -> None:
    name = "foreign keys"
    try:
        definition = str(fetch(server.connection, f"SHOW CREATE TABLE {table_id.quoted}")[0][1])
    except CdcError as e:
        if e.reason.retried:
            raise
        findings.checks.append(refused(name, _select_needed(server, table_id, e)))
        return
    actions = cascades(definition)
    if not actions or cascades_logged(server):
        return
    error = unlogged_error(table_id, actions)
    if accepted:
        findings.unlogged_cascades = True
        warning = f"{error.found}; accepted by the manifest, never consistent"
        findings.checks.append(warned(name, warning, table=str(table_id)))
        return
    findings.checks.append(refused(name, error))


def cascades_logged(server: Server) -> bool:
    """Whether the server writes row events for what foreign keys change (MySQL from 9.6, unless
    InnoDB does it itself)."""
    native = server.variables.get("innodb_native_foreign_keys", "OFF")
    return server.is_mysql and server.facts.numbers >= LOGGED_SINCE and native == "OFF"
