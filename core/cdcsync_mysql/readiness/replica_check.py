"""Whether the rows of a replica are those of its source, as far as the replica shows it.

A replica may say that it has executed a transaction of which it has no row: a filter left it out,
an error was skipped, or a crash took it back. And it may have rows of its own. So its settings must
allow none of that, and it must log what its own sessions write: that has a GTID then, by which it
shows. On MariaDB it must log what it applies, too, because only its binlog shows which transactions
a SELECT may have seen (`replica_gtids`). What was done to it in the past and left no GTID does not
show: a row written with sql_log_bin=0, an empty transaction in the place of one that failed, a
filter that is gone. Nor does, on MariaDB, that it is the replica of another server with the
source's server_id. Sources: MySQL manual, "Handling an Unexpected Halt of a Replica", "SHOW REPLICA
STATUS"; MariaDB knowledge base, "SHOW REPLICA STATUS", "Running Triggers on the Replica for
Row-based Events".
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcsync_core.errors import Reason
from cdcsync_mysql.checks import Check, failed
from cdcsync_mysql.readiness.left_out import APPLIED, APPLIED_BY_MARIADB
from cdcsync_mysql.server import ServerFacts, global_variables
from cdcsync_mysql.sessions.connection import Connection, fetch, fetch_dicts
from cdcsync_mysql.sessions.replication import Row, either, statuses

NAME = "snapshotHost"
#: the values that hide nothing
_NEEDED = {"log_bin": "ON"} | APPLIED
_LOGGED = ("log_replica_updates", "log_slave_updates")
_NEEDED_OF_MARIADB = APPLIED_BY_MARIADB | {
    "log_bin": "ON",
    "log_slave_updates": "ON",
    "slave_run_triggers_for_rbr": "NO",
    "gtid_strict_mode": "ON",
}
_FLUSHED = "innodb_flush_log_at_trx_commit"
#: of `_FLUSHED`, with which a commit survives a crash; 3 is MariaDB's
_DURABLE = ("1", "3")


def replica_faults(connection: Connection, facts: ServerFacts, source: ServerFacts) -> Iterator[Check]:
    """What keeps rows of the server of `facts`, which `connection` reaches, from being those of the
    server of `source`; each of it a failure. Raises PrivilegeMissing where the account may not see
    whether it is a replica."""
    if facts.log == source.log:
        yield _fault(f"it is the source itself ({facts.log})", "a replica of it")
    elif facts.flavor != source.flavor:
        yield _fault(f"it is {facts.flavor}", f"a replica of the source, which is {source.flavor}")
    elif facts.flavor == "mysql" and not (source.gtid and facts.gtid):
        yield _fault("the source and it have no GTIDs of MySQL", "gtid_mode=ON on both")
    else:
        yield from _channel_faults(statuses(connection, fetch_dicts), source)
        yield from _setting_faults(connection, facts)
        yield from _binlog_filters(connection, facts)


def _channel_faults(rows: list[Row], source: ServerFacts) -> Iterator[Check]:
    if len(rows) != 1:
        yield _fault(f"it replicates from {len(rows)} servers", f"one, which is {source.log}")
        return
    followed = _followed(rows[0], source)
    if followed != source.log:
        yield _fault(f"it replicates from {followed}", f"a direct replica of {source.log}")
    if str(rows[0].get("USING_GTID", "")).upper() == "NO":
        needed = "MASTER_USE_GTID=slave_pos, without which it may apply transactions again after a crash"
        yield _fault("it replicates from a file and offset (MASTER_USE_GTID=no)", needed)
    for name, value in rows[0].items():
        if name.startswith("REPLICATE_") and value:
            yield _fault(f"its replication has a filter, {name.lower()}={value}", "a replica without filters")
    delay = int(rows[0].get("SQL_DELAY") or 0)
    if delay:
        needed = "no delay (SOURCE_DELAY=0; on MariaDB MASTER_DELAY=0)"
        yield _fault(f"it applies each transaction {delay} s late", needed)


def _followed(row: Row, source: ServerFacts) -> str:
    """The binlog that a replica reads, as `ServerFacts.log`."""
    if source.flavor == "mariadb":
        return f"mariadb:{row.get('MASTER_SERVER_ID')}"
    return f"mysql:{either(row, 'SOURCE_UUID', 'MASTER_UUID')}"


def _setting_faults(connection: Connection, facts: ServerFacts) -> Iterator[Check]:
    settings = _NEEDED_OF_MARIADB if facts.flavor == "mariadb" else _NEEDED
    variables = global_variables(connection, *settings, *_LOGGED, _FLUSHED)
    for name, needed in settings.items():
        value = variables.get(name, needed)
        if value.upper() != needed:
            yield _fault(f"{name}={value}", f"{name}={needed}, without which its rows may differ and nothing shows it")
    logged = next((variables[name] for name in _LOGGED if name in variables), "ON")
    if logged == "ON" and variables.get(_FLUSHED, "1") not in _DURABLE:
        yield _fault(
            f"{_FLUSHED}={variables[_FLUSHED]}: in a crash it may lose rows of transactions that its binlog keeps",
            f"{_FLUSHED}=1 since before its last crash",
        )


def _binlog_filters(connection: Connection, facts: ServerFacts) -> Iterator[Check]:
    renamed = facts.flavor == "mysql" and facts.numbers >= (8, 2)
    row = fetch(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    for name, value in zip(("binlog_do_db", "binlog_ignore_db"), row[0][2:4] if row else (), strict=False):
        if value:
            yield _fault(f"{name}={value}: what sessions write there may have no GTID", f"no {name}")


def _fault(found: str, needed: str) -> Check:
    remedy = "correct the replica, name another one as spec.source.snapshotHost, or leave it out"
    return failed(NAME, Reason.SNAPSHOT_HOST_UNFIT, found, needed, remedy)
