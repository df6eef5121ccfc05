"""Whether the rows of a replica are those of its source, as far as the replica shows it.

A replica may say that it has executed a transaction of which it has no row: a filter left it out,
an error was skipped, or a crash took it back. And it may have rows of its own. So its settings must
allow none of that, and it must log what its own sessions write: that has a GTID then, by which it
shows. What was done to it in the past and left no GTID does not show: a row written with
sql_log_bin=0, an empty transaction in the place of one that failed, a filter that is gone. Sources:
MySQL manual, "Handling an Unexpected Halt of a Replica", "SHOW REPLICA STATUS", "gtid_owned".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_mysql.checks import Check, failed
from cdcsync_mysql.server import ServerFacts, global_variables
from cdcsync_mysql.sessions.connection import Connection, fetch, fetch_dicts
from cdcsync_mysql.sessions.replication import either, statuses

NAME = "snapshotHost"
#: names since MySQL 8.0.26 and those before -> the value that hides nothing
_NEEDED = {
    "log_bin": "ON",
    "replica_skip_errors": "OFF",
    "slave_skip_errors": "OFF",
    "replica_exec_mode": "STRICT",
    "slave_exec_mode": "STRICT",
}
_LOGGED = ("log_replica_updates", "log_slave_updates")
_FLUSHED = "innodb_flush_log_at_trx_commit"
#: the threads that own GTIDs of `gtid_owned`
_OWNERS = re.compile(r"#\d+")


def replica_faults(connection: Connection, facts: ServerFacts, source: ServerFacts) -> Iterator[Check]:
    """What keeps rows of the server of `facts`, which `connection` reaches, from being those of the
    server of `source`; each of it a failure. Raises PrivilegeMissing where the account may not see
    whether it is a replica."""
    if facts.log == source.log:
        yield _fault(f"it is the source itself ({facts.log})", "a replica of it")
    elif source.flavor != "mysql" or not (source.gtid and facts.gtid):
        yield _fault("the source and it have no GTIDs of MySQL", "gtid_mode=ON on both")
    else:
        yield from _channel_faults(statuses(connection, fetch_dicts), source)
        yield from _setting_faults(global_variables(connection, *_NEEDED, *_LOGGED, _FLUSHED))
        yield from _binlog_filters(connection, facts)


def _channel_faults(rows: list[dict[str, Any]], source: ServerFacts) -> Iterator[Check]:
    if len(rows) != 1:
        yield _fault(f"it replicates from {len(rows)} servers", f"one, which is {source.log}")
        return
    uuid = either(rows[0], "SOURCE_UUID", "MASTER_UUID")
    if uuid != source.server_uuid:
        yield _fault(f"it replicates from mysql:{uuid}", f"a direct replica of {source.log}")
    for name, value in rows[0].items():
        if name.startswith("REPLICATE_") and value:
            yield _fault(f"its replication has a filter, {name.lower()}={value}", "a replica without filters")
    delay = int(rows[0].get("SQL_DELAY") or 0)
    if delay:
        yield _fault(f"it applies each transaction {delay} s late (SOURCE_DELAY)", "a replica without a delay")


def _setting_faults(variables: Mapping[str, str]) -> Iterator[Check]:
    for name, needed in _NEEDED.items():
        value = variables.get(name, needed)
        if value.upper() != needed:
            yield _fault(f"{name}={value}", f"{name}={needed}, without which its rows may differ and nothing shows it")
    logged = next((variables[name] for name in _LOGGED if name in variables), "ON")
    if logged == "ON" and variables.get(_FLUSHED, "1") != "1":
        yield _fault(
            f"{_FLUSHED}={variables[_FLUSHED]}: in a crash it may lose rows of transactions that its binlog keeps",
            f"{_FLUSHED}=1 since before its last crash",
        )


def _binlog_filters(connection: Connection, facts: ServerFacts) -> Iterator[Check]:
    renamed = facts.numbers >= (8, 2)
    row = fetch(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    for name, value in zip(("binlog_do_db", "binlog_ignore_db"), row[0][2:4] if row else (), strict=False):
        if value:
            yield _fault(f"{name}={value}: what sessions write there may have no GTID", f"no {name}")


def _fault(found: str, needed: str) -> Check:
    remedy = "correct the replica, name another one as spec.source.snapshotHost, or leave it out"
    return failed(NAME, Reason.SNAPSHOT_HOST_UNFIT, found, needed, remedy)


def applied(connection: Connection) -> GtidSet:
    """The transactions of which a SELECT that has ended may have seen rows: a MySQL server makes
    them visible while a session owns their GTIDs, and then adds these to those that it executed."""
    owned = str(fetch(connection, "SELECT @@GLOBAL.gtid_owned")[0][0])
    return GtidSet.parse(_OWNERS.sub("", owned)).union(executed(connection))


def executed(connection: Connection) -> GtidSet:
    """The transactions that every later SELECT sees."""
    return GtidSet.parse(str(fetch(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]))


def lacking(connection: Connection, gtids: GtidSet, seconds: int = 0) -> GtidSet:
    """The part of `gtids` that the server has not executed, after at most so many seconds."""
    missing = gtids.subtract(executed(connection))
    if missing and seconds:  # the server takes 0 for a wait without end
        fetch(connection, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(missing), seconds))
        missing = gtids.subtract(executed(connection))
    return missing


def errant_error(host: str, errant: GtidSet) -> CdcError:
    """The refusal of a replica that has transactions of its own."""
    return fail(
        Reason.SNAPSHOT_HOST_UNFIT,
        f"{host} has transactions that the source has not: {errant}",
        needed="a replica with the source's transactions and no others",
        remedy="rebuild the replica and keep it read-only (super_read_only=ON), or name another one as"
        " spec.source.snapshotHost",
    )
