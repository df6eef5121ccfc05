"""Checks of the server as a whole: settings, privileges, what the binlog leaves out (rules R1, R6,
R9, R10).

Each check is a small function of what was read from the server and names the variable, the value
found, the value needed and the statement that fixes it; the list at the end is the registry. What
it says may hide changes is asked at each connection of a run as well, because a restart of the
server takes on what its configuration has meanwhile.
Privileges are not read from SHOW GRANTS, which says little about roles, but tried: the preflight
does once what the run will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.checks import Check, failed, passed, refused, warned
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.rds import KEEP_BINLOG, is_purged_soon, is_rds, on_rds, retention_seconds
from cdcsync_mysql.readiness.failover_check import failover
from cdcsync_mysql.readiness.reach import fault_of_reading
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source, fetch, fetch_dicts
from cdcsync_mysql.sessions.failures import for_account, grant
from cdcsync_mysql.sessions.replication import channels
from cdcsync_mysql.sessions.version import SUPPORTED, TESTED

#: the host name under which our own dumps register
REPLICA_HOST = "cdcsync"


@dataclass(frozen=True)
class Server:
    """What checks judge. `variables` are the global ones, names in lower case; `replica_id` is
    that of our dump, 0 for none."""

    source: Source
    connection: Connection
    facts: ServerFacts
    variables: dict[str, str]
    account: str
    replica_id: int = 0
    rds: bool = False

    @property
    def is_mysql(self) -> bool:
        return self.facts.flavor == "mysql"


def read_server(source: Source, connection: Connection, facts: ServerFacts, replica_id: int) -> Server:
    """Reads what most checks need; raises CdcError."""
    variables = {str(n).lower(): str(v) for n, v in fetch(connection, "SHOW GLOBAL VARIABLES")}
    user, _, host = str(fetch(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    rds = is_rds(connection, variables)
    return Server(source, connection, facts, variables, f"'{user}'@'{host}'", replica_id, rds)


def check_server(server: Server) -> list[Check]:
    """All checks, none of which hides another."""
    checks = [check for row in CHECKS for check in carry_out(row, server)]
    return [on_rds(check) for check in checks] if server.rds else checks


def carry_out(row: ServerCheck, server: Server) -> list[Check]:
    """The row's checks, and the error that ended them as another one."""
    checks: list[Check] = []
    try:
        checks.extend(row.check(server))
    except CdcError as e:
        checks.append(refused(row.name, for_account(e, server.account)))
    return checks


def _version(server: Server) -> Iterator[Check]:
    facts = server.facts
    found = f"{facts.flavor} {facts.version}"
    tested = ", ".join(".".join(map(str, v)) for v in TESTED[facts.flavor])
    if not facts.supported:
        oldest = ".".join(map(str, SUPPORTED[facts.flavor]))
        yield failed("version", Reason.SPEC_INVALID, found, f"{facts.flavor} {oldest} or newer")
    elif not facts.tested:
        yield warned("version", found, f"a version that is tested: {tested}")
    else:
        yield passed("version", found)


def _verification(server: Server) -> Iterator[Check]:
    """Who answers in the place of a server that is not verified reads and forges what is copied."""
    from cdcsync_core.resource.connection_spec import is_loopback  # with the models, which a reader does without

    source = server.source
    if source.tls.verified:
        yield passed("tls", f"the server is verified ({source.tls.mode})")
    elif all(map(is_loopback, source.hosts)):
        yield passed("tls", "not verified, on this machine")
    else:
        yield warned(
            "tls",
            f"the server is not verified (tls.mode: {source.tls.mode}); another one in its place could read and forge what is copied",
            "a certificate that is checked",
            "spec.source.tls.caSecretRef with the server's authority",
        )


def _setting(name: str, reason: Reason, needed: str, remedy: str = "") -> Callable[[Server], Iterator[Check]]:
    """A check of a variable that must have one value; a server that does not know the variable
    passes if it has no such choice."""

    def check(server: Server) -> Iterator[Check]:
        value = server.variables.get(name)
        if value is not None and value.upper() == needed.upper():
            yield passed(name, value or "(empty)")
        elif value is not None:
            statement = remedy or f"SET {'PERSIST' if server.is_mysql else 'GLOBAL'} {name} = '{needed}'"
            yield failed(name, reason, value or "(empty)", needed or "(empty)", statement)

    check.__name__ = name
    return check


def _row_metadata(server: Server) -> Iterator[Check]:
    name = "binlog_row_metadata"
    value = server.variables.get(name)
    remedy = f"SET {'PERSIST' if server.is_mysql else 'GLOBAL'} {name} = 'FULL', and in the server's configuration"
    if value is None:
        yield failed(name, Reason.ROW_METADATA_NOT_FULL, "unknown to this server", "FULL", remedy)
    elif value.upper() == "FULL":
        yield passed(name, value)
    else:
        needed = "FULL, with which each row shows a change of its table that the binlog does not have (sql_log_bin=0)"
        found = f"{value}: rows do not name their columns; their definition is the catalog's, changed by statements"
        yield warned(name, found, needed, remedy)


def _storage(server: Server) -> Iterator[Check]:
    """MariaDB 12.3 can keep its binlog in tablespaces of InnoDB, in another format."""
    name = "binlog_storage_engine"
    value = server.variables.get(name)
    if value:
        found = f"{value}: the binlog is in tablespaces of an engine, in a format that is not read"
        remedy = f"start the server without --{name.replace('_', '-')}, which begins another binlog"
        yield failed(name, Reason.LOG_INCOMPLETE, found, "binlog files", remedy)


def _gtids(server: Server) -> Iterator[Check]:
    """Positions without GTIDs are files and offsets, which is as good on one server; a mode in
    between is a change under way."""
    mode = server.variables.get("gtid_mode", "positions are files and offsets")
    if mode.endswith("_PERMISSIVE"):
        yield warned(
            "gtid_mode", mode, "ON or OFF, for good: positions of the two kinds do not mix", "SET PERSIST gtid_mode"
        )
    else:
        yield passed("gtid_mode", mode)


def _commit_order(server: Server) -> Iterator[Check]:
    """Out of order, a transaction may be in `gtid_executed` before the one that wrote the same row
    before it: a low watermark with the second and without the first would replay the first over
    what the second left (rule R1)."""
    name = "binlog_order_commits"
    value = server.variables.get(name, "ON")
    if value.upper() != "ON" and server.facts.gtid:
        yield failed(name, Reason.LOG_INCOMPLETE, value, "ON", f"SET PERSIST {name} = ON")
    else:
        yield passed(name, value)


def _log_status(server: Server) -> Iterator[Check]:
    """REPLICATION CLIENT, BINLOG MONITOR: where the binlog ends."""
    end = watermark.high(server.connection, server.facts)
    fetch(server.connection, "SHOW BINARY LOGS", doing="listing the binlog files")
    yield passed("binlog", f"ends at {end}")


def _dump(server: Server) -> Iterator[Check]:
    """REPLICATION SLAVE: reading the binlog."""
    end = watermark.high(server.connection, server.facts)
    try:
        file_created_at(server.source, end.file)
    except CdcError as e:
        if e.reason is not Reason.PRIVILEGE_MISSING and e.reason is not Reason.AUTHENTICATION_FAILED:
            raise
        remedy = grant("REPLICATION SLAVE", "*.*", server.account)
        yield failed("dump", Reason.PRIVILEGE_MISSING, e.found, "REPLICATION SLAVE", remedy)
        return
    yield passed("dump", "the binlog can be read")


def _low_watermark(server: Server) -> Iterator[Check]:
    """BACKUP_ADMIN and XA_RECOVER_ADMIN where MySQL has no GTIDs (rule R1)."""
    low = watermark.low(server.source, server.facts)
    if server.is_mysql and not server.facts.gtid:
        watermark.prepared(server.connection)
    yield passed("low watermark", str(low) or "(no transaction yet)")


def _replica(server: Server) -> Iterator[Check]:
    """A replica's binlog lacks what it applies, unless it is configured to write it."""
    name = "log_replica_updates" if "log_replica_updates" in server.variables else "log_slave_updates"
    value = server.variables.get(name, "ON")
    if value == "ON":
        yield passed(name, value)
        return
    replica = _is_replica(server)
    if replica:
        found, remedy = f"{value} on a server that is a replica", f"start the server with --{name.replace('_', '-')}"
        yield failed(name, Reason.LOG_INCOMPLETE, found, "ON", remedy)
    elif replica is None:
        remedy = grant("SLAVE MONITOR" if not server.is_mysql else "REPLICATION CLIENT", "*.*", server.account)
        yield warned(name, f"{value}, and whether the server is a replica cannot be seen", "a primary, or ON", remedy)
    else:
        yield passed(name, f"{value} on a primary")


def _is_replica(server: Server) -> bool | None:
    """None where the account may not know and nothing shows it."""
    running = fetch(server.connection, "SHOW GLOBAL STATUS LIKE 'Slaves_running'")
    if server.variables.get("gtid_slave_pos") or (running and int(running[0][1]) > 0):
        return True
    try:
        return bool(channels(server.connection, fetch_dicts))
    except CdcError as e:
        if e.reason is Reason.PRIVILEGE_MISSING:
            return None
        raise


def _filters(server: Server) -> Iterator[Check]:
    """Filters also drop DDL by the session's default database, so no filter is harmless."""
    renamed = server.is_mysql and server.facts.numbers >= (8, 2)
    row = fetch(server.connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    for name, value in zip(("binlog_do_db", "binlog_ignore_db"), row[0][2:4] if row else (), strict=False):
        if value:
            remedy = f"start the server without --{name.replace('_', '-')}"
            yield failed(name, Reason.LOG_INCOMPLETE, str(value), "no filter", remedy)
        else:
            yield passed(name, "(empty)")


def _rds_retention(server: Server) -> Iterator[Check]:
    """What RDS purges as soon as it can may be gone before a stopped sync runs again."""
    if not server.rds:
        return
    seconds = retention_seconds(server.connection)
    if seconds is None:
        found = "it cannot be seen in mysql.rds_configuration"
        yield warned(
            "binlog retention hours", found, "SELECT on it", grant("SELECT", "mysql.rds_configuration", server.account)
        )
    elif is_purged_soon(seconds):
        yield warned(
            "binlog retention hours", "NULL: binlog files are purged as soon as possible", "some days", KEEP_BINLOG
        )
    else:
        yield passed("binlog retention hours", f"{seconds / 3600:g}")


def _rds_heartbeat(server: Server) -> Iterator[Check]:
    """RDS writes it in statement format, which passes only where its table can be seen."""
    name = "mysql.rds_heartbeat2"
    if not server.rds:
        return
    if fault_of_reading(server.connection, TableId("mysql", "rds_heartbeat2")):
        found = "it cannot be seen, and where RDS writes it each of its statements would stop every table"
        yield warned(name, found, "SELECT on it", grant("SELECT", name, server.account))
    else:
        yield passed(name, "can be seen")


def _triggers_on_replica(server: Server) -> Iterator[Check]:
    name = "slave_run_triggers_for_rbr"
    value = server.variables.get(name)
    if value in ("YES", "ENFORCE"):
        yield failed(name, Reason.LOG_INCOMPLETE, value, "NO or LOGGING", f"SET GLOBAL {name} = 'LOGGING'")
    elif value is not None:
        yield passed(name, value)


def _prepared_transactions(server: Server) -> Iterator[Check]:
    """What is prepared is read from the binlog when it is committed, however long that takes (rule
    R9, XA)."""
    try:
        prepared = fetch(server.connection, "XA RECOVER")
    except CdcError as e:
        if e.reason is not Reason.PRIVILEGE_MISSING:
            raise
        yield passed("XA RECOVER", "cannot be seen without XA_RECOVER_ADMIN")
        return
    if prepared:
        yield warned(
            "XA RECOVER",
            f"{len(prepared)} prepared transactions, whose rows are read from the binlog at XA COMMIT",
            "binlog files that go back to their XA PREPARE by then",
            "XA COMMIT or XA ROLLBACK those that are forgotten",
        )
    else:
        yield passed("XA RECOVER", "none prepared")


_FORGOTTEN = {
    "sync_binlog": "a power failure may cut the end of the binlog: a copy that has more is refused (PositionLost) and must be"
    " resnapshotted; rows that only the tables kept are in no copy, so run cdcsync verify after a power failure",
    "innodb_flush_log_at_trx_commit": "a crash may take back the last transactions, which the binlog keeps: the stream then reads"
    " the keys of the binlog's last part from the source again and corrects the copy, which is wrong until then",
}


def _durability(server: Server) -> Iterator[Check]:
    """What the source forgets in a crash, and what becomes of the copy then."""
    for name, effect in _FORGOTTEN.items():
        value = server.variables.get(name, "1")
        yield passed(name, value) if value == "1" else warned(name, f"{value}: {effect}", "1", f"SET GLOBAL {name} = 1")


def _server_id(server: Server) -> Iterator[Check]:
    if not server.replica_id:
        return
    name = f"serverId {server.replica_id}"
    if server.replica_id == server.facts.server_id:
        yield _id_taken(name, "it is the source's own server_id")
        return
    listed = "SHOW REPLICAS" if server.is_mysql and server.facts.numbers >= (8, 0, 22) else "SHOW SLAVE HOSTS"
    try:
        rows = fetch_dicts(server.connection, listed)
    except CdcError as e:
        if e.reason is not Reason.PRIVILEGE_MISSING:
            raise
        yield passed(name, f"whether another replica uses it cannot be seen ({listed} is not allowed)")
        return
    others = [r["HOST"] for r in rows if int(r["SERVER_ID"]) == server.replica_id and r["HOST"] != REPLICA_HOST]
    yield _id_taken(name, f"in use by the replica {others[0] or '(unnamed)'}") if others else passed(name, "free")


def _lost_dumps(server: Server) -> Iterator[Check]:
    """MariaDB ends a dump whose client is gone only when the system gives up its connection; an
    account sees its own ones."""
    if server.is_mysql:
        return
    dumps = fetch(server.connection, _LOST_DUMPS)
    ids = ", ".join(str(row[0]) for row in dumps)
    if dumps:
        yield warned(
            "dumps",
            f"the dump of a lost driver has not ended (connections {ids}); a new one may take a spare replica id",
            "the end of the server's connection to a client that is gone, some 16 minutes after it went",
        )
    else:
        yield passed("dumps", "none of a lost driver")


_LOST_DUMPS = """SELECT id FROM information_schema.processlist
 WHERE command = 'Killed' AND state = 'Writing to net' AND user = SUBSTRING_INDEX(USER(), '@', 1)"""


def _id_taken(name: str, found: str) -> Check:
    return failed(name, Reason.SERVER_ID_IN_USE, found, "a replica id of its own", "set spec.source.serverId")


@dataclass(frozen=True)
class ServerCheck:
    """A row of `CHECKS`. `hides` are the variables by which the server could hide changes: such a
    check is made at each connection of a run, too (`proof`)."""

    check: Callable[[Server], Iterator[Check]]
    hides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.check.__name__.lstrip("_")


def _hiding(name: str, reason: Reason, needed: str, remedy: str = "") -> ServerCheck:
    return ServerCheck(_setting(name, reason, needed, remedy), (name,))


CHECKS: tuple[ServerCheck, ...] = (
    ServerCheck(_version),
    ServerCheck(_verification),
    _hiding("log_bin", Reason.BINLOG_DISABLED, "ON", "start the server with --log-bin"),
    _hiding("binlog_format", Reason.BINLOG_FORMAT_NOT_ROW, "ROW"),
    _hiding("binlog_row_image", Reason.ROW_IMAGE_NOT_FULL, "FULL"),
    ServerCheck(_row_metadata, ("binlog_row_metadata",)),
    ServerCheck(_storage, ("binlog_storage_engine",)),
    ServerCheck(_gtids),
    ServerCheck(_commit_order, ("binlog_order_commits",)),
    ServerCheck(_log_status),
    ServerCheck(_dump),
    ServerCheck(_low_watermark),
    ServerCheck(_replica, ("log_replica_updates", "log_slave_updates", "gtid_slave_pos")),
    ServerCheck(_filters, ("binlog_do_db", "binlog_ignore_db")),
    ServerCheck(_rds_retention),
    ServerCheck(_rds_heartbeat),
    ServerCheck(_triggers_on_replica, ("slave_run_triggers_for_rbr",)),
    _hiding("wsrep_on", Reason.LOG_INCOMPLETE, "OFF", "capture from a server outside of the Galera cluster"),
    ServerCheck(_prepared_transactions),
    ServerCheck(_durability),
    ServerCheck(_server_id),
    ServerCheck(_lost_dumps),
    ServerCheck(failover),
)
