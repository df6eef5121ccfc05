"""What the preflight finds of the hosts of a source that has several."""

from __future__ import annotations

from typing import cast

from cdcsync_core.errors import CdcError, Reason
from cdcsync_mysql.checks import Check, failed, passed, warned
from cdcsync_mysql.server import ServerFacts, read_facts
from cdcsync_mysql.sessions.connection import Connection, Source, connect, fetch_dicts
from cdcsync_mysql.sessions.hosts import ASKED_SECONDS, is_demoted, is_stalled
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection

_NAME = "hosts"


def check_hosts(source: Source, connection: Connection, facts: ServerFacts) -> list[Check]:
    """`connection` is the preflight's, `facts` are its server's; nothing for a single host."""
    others = source.without(cast(SourceConnection, connection).source.host)
    if others is None:
        return []
    if facts.flavor == "mysql" and not facts.gtid:
        return [_without_gtids()]
    used = f"{cast(SourceConnection, connection).source.host} is used ({facts.log})"
    return [passed(_NAME, used), *(_of_other(others.of_hosts(host), facts) for host in others.hosts)]


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
