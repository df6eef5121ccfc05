"""The preflight: is this server fit to be captured, and which tables can be. Reads only, and
reports every failure at once.

What it finds is in three parts: checks of the server (one failing stops everything), checks of each
table (one failing stops that table), and what the whole snapshot means for the binlog that must
outlive it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.source_table import TableId, memory_of, too_many_tables
from cdcsync_mysql.checks import Check, Level, failed, refused, warned
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.rds import KEEP_BINLOG
from cdcsync_mysql.readiness.hosts import check_hosts, check_snapshot_host
from cdcsync_mysql.readiness.load import check_load
from cdcsync_mysql.readiness.retention import check_schedule
from cdcsync_mysql.readiness.servercheck import Server, check_server, read_server
from cdcsync_mysql.readiness.tablecheck import TableCheck, check_table
from cdcsync_mysql.reading.selected_tables import resolve
from cdcsync_mysql.reading.table_sizes import table_sizes
from cdcsync_mysql.server import ServerFacts, log_retention_seconds, read_facts
from cdcsync_mysql.sessions.connection import Connection, Source, connect
from cdcsync_mysql.sessions.failures import of_table
from cdcsync_mysql.sessions.source import snapshot_host_of

#: rows a second and a parallel split, at the lower end of what was measured; for estimates only
_ROWS_PER_SECOND = 10_000
#: the snapshot should be done in this part of the binlog's retention
_SAFE_PART = 0.5

#: what compares no row with those that were there before the start
_WITHOUT_ROWS = "spec.start without a snapshot"


@dataclass(frozen=True)
class Preflight:
    """`facts` is None where the server was not reached; `checks` are those of the whole source, in
    order."""

    facts: ServerFacts | None
    checks: tuple[Check, ...]
    tables: tuple[TableCheck, ...] = ()
    estimated_seconds: float = 0.0

    @property
    def failures(self) -> tuple[CdcError, ...]:
        """What concerns the whole source; a table's own are in its `error`."""
        return tuple(c.error for c in self.checks if c.level is Level.FAIL)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line each, those of the source before those of tables."""
        own = [c.line for c in self.checks if c.level is Level.WARN]
        return (*own, *(w for t in self.tables for w in t.warnings))


def preflight(
    source: Source, spec: Spec, *, replica_id: int = 0, unread: Collection[str] | None = None, readers: int = 0
) -> Preflight:
    """Checks the source for the whole manifest; changes nothing and raises no CdcError.

    `replica_id` is the one that our dump will use (0: not checked); `unread` names the tables whose
    snapshot is still to be made (None: all), which is what must end before the binlog expires;
    `readers` is how many splits are read at once, 0 for `snapshot.parallelism`.
    """
    try:
        with connect(source) as connection:
            facts = read_facts(connection)
            server = read_server(source, connection, facts, replica_id)
            checks = check_server(server) + check_hosts(source, connection, facts)
            tables = _tables(server, spec, checks)
            read = [t for t in tables if not spec.begins_at_start(str(t.id))]
            left = _unread(read, unread)
            size = _size(connection, left) if spec.snapshot.max_bytes_per_second else 0
            seconds = _estimate(spec.snapshot, readers or spec.snapshot.parallelism, left, size)
            checks += _reading(source, connection, facts, spec, unread)
            retention = log_retention_seconds(connection)
            checks += _outlives(retention, spec.snapshot.elapsed(seconds, time.time()), server.rds)
            if spec.stream.schedule is not None:
                checks.append(check_schedule(spec.stream.schedule, retention, time.time(), rds=server.rds))
    except CdcError as e:
        return Preflight(None, (refused("connection", e),))
    return Preflight(facts, tuple(checks), tuple(tables), seconds)


def _tables(server: Server, spec: Spec, checks: list[Check]) -> list[TableCheck]:
    try:
        resolved = resolve(server.connection, spec.tables.selection)
    except CdcError as e:
        checks.append(refused("tables", e))
        return []
    ambiguous = [e for e in resolved.absent if e.reason is Reason.SPEC_INVALID]
    checks += [warned("tables", e.found, e.needed, e.remedy) for e in (*resolved.unmatched, *ambiguous)]
    checks += _unknown_overrides(spec, resolved.tables)
    checked = _Checked(server, spec)
    tables = [checked.table(n) for n in resolved.tables]
    checked.raise_what_all_met(len(tables))
    return [*tables, *map(_absent, resolved.absent)]


@dataclass
class _Checked:
    """The tables one by one: what one of them meets is its own, unless each of them meets it and it
    is no lock."""

    server: Server
    spec: Spec
    _unexplained: list[CdcError] = field(default_factory=list)
    _locks: LockBudget = field(default_factory=LockBudget)

    def table(self, table: TableId) -> TableCheck:
        try:
            with self._locks.asking(self.server.connection, table):
                return _check(self.server, table, self.spec)
        except CdcError as e:
            if e.reason is Reason.TABLE_BUSY:
                return _refused(table, e)
            if e.reason is not Reason.INTERNAL_ERROR:
                raise
            error = e
        except Exception as e:  # noqa: BLE001 (whatever its definition holds, others are checked)
            error = fail(Reason.INTERNAL_ERROR, f"the check failed: {type(e).__name__}: {quoted(str(e))}")
        self._unexplained.append(error)
        return _refused(table, error)

    def raise_what_all_met(self, count: int) -> None:
        if count and len(self._unexplained) == count:
            raise self._unexplained[0]


def _check(server: Server, table: TableId, spec: Spec) -> TableCheck:
    tables, begins = spec.tables, spec.begins_at_start(str(table))
    checked = check_table(
        server,
        table,
        tables.override(str(table)),
        spec.snapshot.rows_a_split,
        replaces_invalid=tables.replaces_invalid,
        metadata=spec.sink.kind.event_columns(),
        reserved=spec.sink.kind.reserved_columns,
        needs_key=spec.sink.kind.needs_row_key,
        refuses_declared_key=_WITHOUT_ROWS if begins else spec.sink.kind.refuses_declared_key,
    )
    question = server.source.question
    if question is not None and not question.keep(memory_of(len(checked.columns))):
        raise too_many_tables(question.bound)
    return replace(checked, splits=0) if begins else checked


def _refused(table: TableId, error: CdcError) -> TableCheck:
    return TableCheck(table, checks=(refused("definition", of_table(error, table)),))


def _absent(error: CdcError) -> TableCheck:
    """A table that is named and not there, reported at its name."""
    database, _, name = error.table.partition(".")
    return TableCheck(TableId(database, name), checks=(refused("definition", error),))


def _unknown_overrides(spec: Spec, names: Collection[TableId]) -> list[Check]:
    captured = {str(n) for n in names}
    return [
        warned("tables.overrides", f"{o.table} is not captured", "a captured table", "correct the override's table")
        for o in spec.tables.overrides
        if o.table not in captured
    ]


def _reading(
    source: Source, connection: Connection, facts: ServerFacts, spec: Spec, unread: Collection[str] | None
) -> list[Check]:
    """Checks the server on which rows are read: the source, or a replica while there is anything to
    read."""
    most, replica = spec.snapshot.max_load, snapshot_host_of(spec.source, source)
    if replica is None:
        return check_load(connection, facts.flavor, most)
    return check_snapshot_host(replica, connection, facts, most) if unread is None or unread else []


def _unread(tables: list[TableCheck], unread: Collection[str] | None) -> list[TableCheck]:
    return [t for t in tables if t.error is None and (unread is None or str(t.id) in unread)]


def _size(connection: Connection, tables: list[TableCheck]) -> int:
    """In bytes, of the clustered indexes."""
    return sum(size for _, size in table_sizes(connection, [t.id for t in tables]).values())


def _estimate(spec: SnapshotSpec, readers: int, tables: list[TableCheck], size: int) -> float:
    """Seconds of reading `tables`, whose rows have `size` bytes."""
    rows = sum(t.rows for t in tables)
    seconds = rows / min(_ROWS_PER_SECOND * readers, spec.max_rows_per_second or inf)
    return max(seconds, size / (spec.max_bytes_per_second or inf))


def _outlives(retention: float, seconds: float, rds: bool = False) -> list[Check]:
    """The binlog since the first wave must still be there when the last one is done."""
    name = "binlog retention"
    if not retention or seconds <= _SAFE_PART * retention:
        return []
    found = f"{retention:.0f} s, while the snapshot is estimated at {seconds:.0f} s"
    needed = "a binlog that outlives the snapshot, twice over"
    setting = KEEP_BINLOG if rds else "raise binlog_expire_logs_seconds"
    remedy = f"{setting}, or raise spec.snapshot.parallelism (on a cluster with spec.executors)"
    if seconds > retention:
        return [failed(name, Reason.SNAPSHOT_OUTLIVES_BINLOG, found, needed, remedy)]
    return [warned(name, found, needed, remedy)]
