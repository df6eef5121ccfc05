"""What the preflight finds of the hosts of a source that has several, and of the replica on which
its snapshots read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cdcsync_core.errors import CdcError, Reason, TransientError
from cdcsync_mysql.checks import Check, failed, passed, refused, warned
from cdcsync_mysql.readiness.left_out import GLOBAL_FILTERS, shows_global_filters
from cdcsync_mysql.readiness.load import check_load
from cdcsync_mysql.readiness.replica_check import NAME as REPLICA
from cdcsync_mysql.readiness.replica_check import replica_faults
from cdcsync_mysql.readiness.replica_gtids import applied, errant, errant_error
from cdcsync_mysql.server import ServerFacts, read_facts
from cdcsync_mysql.sessions.connection import Connection, Source, connect, fetch_dicts
from cdcsync_mysql.sessions.failures import grant
from cdcsync_mysql.sessions.hosts import ASKED_SECONDS, is_demoted, is_stalled
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection

if TYPE_CHECKING:  # see `sessions.source`
    from cdcsync_core.resource.snapshot_spec import MaxLoad

_NAME = "hosts"


def check_hosts(source: Source, connection: Connection, facts: ServerFacts) -> list[Check]:
    """`connection` is the preflight's, `facts` are its server's; nothing for a single host."""
    others = source.without(cast(SourceConnection, connection).source.host)
    if others is None:
        return []
    if facts.flavor == "mysql" and not facts.gtid:
        return [_without_gtids()]
    return [_used(connection, facts), *(_of_other(others.of_hosts(host), facts) for host in others.hosts)]


def check_snapshot_host(replica: Source, connection: Connection, facts: ServerFacts, most: MaxLoad) -> list[Check]:
    """Checks the replica on which rows are read; `connection` is to the source, `facts` are its
    server's. One that does not answer is waited for by the run."""
    try:
        with connect(replica) as there:
            of_replica = read_facts(there)
            faults = list(replica_faults(there, of_replica, facts))
            if faults:
                return faults
            own = errant(connection, facts, applied(there, facts.flavor))
            load = check_load(there, facts.flavor, most)
    except CdcError as e:
        if isinstance(e, TransientError):
            return [warned(REPLICA, f"{replica.host} cannot be used: {e.found}", e.needed, e.remedy)]
        return [refused(REPLICA, e)]
    if own:
        return [refused(REPLICA, errant_error(replica.host, own, facts.flavor))]
    return [passed(REPLICA, f"{replica.host} is a replica of the source ({of_replica.log})"), *load]


def _used(connection: Connection, facts: ServerFacts) -> Check:
    used = f"{cast(SourceConnection, connection).source.host} is used ({facts.log})"
    if shows_global_filters(connection, facts):
        return passed(_NAME, used)
    unseen = f"{used}, and the account does not see the filters of a replica that was promoted"
    return warned(_NAME, unseen, f"SELECT on {GLOBAL_FILTERS}", grant("SELECT", GLOBAL_FILTERS))


def _of_other(source: Source, taken: ServerFacts) -> Check:
    try:
        with connect(source, max_seconds=ASKED_SECONDS, read_timeout=ASKED_SECONDS) as connection:
            facts, demoted = read_facts(connection), is_demoted(connection, fetch_dicts)
            stalled = is_stalled(connection, fetch_dicts)
    except CdcError as e:
        return warned(_NAME, f"{source.host} cannot be used: {e.found}", e.needed, e.remedy)
    answer = f"{source.host} answers ({facts.log})"
    if demoted:
        return passed(_NAME, f"{answer}; it is read-only and no replica, so others are preferred")
    if stalled:
        return passed(_NAME, f"{answer}; it does not apply what its source writes, so others are preferred")
    if facts.log == taken.log:
        needed = "another server; on MariaDB an own server_id of each"
        return warned(_NAME, f"{answer} as the same server", needed, "correct spec.source.hosts or server_id")
    return passed(_NAME, answer)


def _without_gtids() -> Check:
    return failed(
        _NAME,
        Reason.SPEC_INVALID,
        "several, and gtid_mode is not ON",
        "gtid_mode=ON, without which no other server is proved to lead on",
        "SET PERSIST gtid_mode in its four steps, or name one server as spec.source.host",
    )
