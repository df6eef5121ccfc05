"""Which of several hosts a connection takes.

A server can be used that answers and was not demoted: a primary that a switchover left answers as
before, and gets no changes any more; it is read-only and no replica. Among those that can be used a
replica that does not apply what its source writes comes last; then the server that the sync follows
comes first, then the order of the spec. A demoted one is taken where no other answers. Each
question has a few seconds, so that a server that hangs holds no choice.

Why it is right: this is a preference and proves nothing. Before anything is taken from a
server, it is proved to have the binlog of the position (rule R6), as behind a name that moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_mysql.sessions.replication import Channel, FetchRows, shown_channels
from cdcsync_mysql.sessions.version import flavor_of

if TYPE_CHECKING:
    from cdcsync_mysql.sessions.connection import Connection
    from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
    from cdcsync_mysql.sessions.source import Source

#: for each answer of a host that is asked whether it can be used
ASKED_SECONDS = 10
#: for which a run asks the server that its sync follows again before it takes another one
PATIENT_SECONDS = 30.0
AGAIN_SECONDS = 1.0


class Rank(NamedTuple):
    """The least is taken: whether it was demoted, whether it is a stalled replica, and whether it
    is another server than the one that is followed."""

    demoted: bool
    stalled: bool
    other: bool


_BEST = Rank(demoted=False, stalled=False, other=False)


@dataclass
class _Round:
    """What the hosts answered: the errors of those that cannot be used, the best of the others, and
    whether the server that is followed is among these."""

    errors: list[CdcError] = field(default_factory=list)
    taken: tuple[Rank, SourceConnection] | None = None
    followed: bool = False

    @property
    def is_best(self) -> bool:
        return self.taken is not None and self.taken[0] == _BEST

    def offer(self, rank: Rank, connection: SourceConnection) -> None:
        self.followed = self.followed or not rank.other
        worse = connection
        if self.taken is None or rank < self.taken[0]:
            taken, self.taken = self.taken, (rank, connection)
            if taken is None:
                return
            worse = taken[1]
        worse.close()

    def close(self) -> None:
        if self.taken is not None:
            self.taken[1].close()


def first_fit(
    source: Source, open_one: Callable[[Source], SourceConnection], fetch: FetchRows, patience: float = 0.0
) -> SourceConnection:
    """For `patience` seconds, hosts that cannot be used are asked again before another server than
    the one that is followed is taken. Raises what all hosts raise, SourceUnreachable where they
    raise various errors."""
    deadline = time.monotonic() + (patience if source.followed else 0.0)
    while True:
        asked = _ask(source, open_one, fetch)
        if asked.followed or not asked.errors or time.monotonic() >= deadline:
            break
        asked.close()
        time.sleep(AGAIN_SECONDS)
    if asked.taken is None:
        raise _none_fits(asked.errors)
    return asked.taken[1]


def _ask(source: Source, open_one: Callable[[Source], SourceConnection], fetch: FetchRows) -> _Round:
    """All hosts in their order, up to one that is as good as can be."""
    asked = _Round()
    for host in source.hosts:
        try:
            asked.offer(*_ranked(open_one(source.of_hosts(host)), source.followed, fetch))
        except CdcError as e:
            asked.errors.append(e)
        if asked.is_best:
            break
    return asked


def is_demoted(connection: Connection, fetch: FetchRows) -> bool:
    """Whether the server is read-only and no replica. A server that does not show its replication
    to the account counts as a replica."""
    return _is_read_only(_variables(connection, fetch)) and shown_channels(connection, fetch) == []


def is_stalled(connection: Connection, fetch: FetchRows) -> bool:
    """Whether the server is a replica that does not apply what its source writes, as far as the
    account may see that."""
    return _is_stalled(_variables(connection, fetch), shown_channels(connection, fetch))


def _is_stalled(variables: dict[str, str], channels: list[Channel] | None) -> bool:
    """One that was stopped, and is written, was promoted."""
    if not channels:
        return False
    promoted = not _is_read_only(variables) and not any(c.working or c.failed for c in channels)
    return not promoted and any(c.is_stuck for c in channels)


def _ranked(connection: SourceConnection, followed: str, fetch: FetchRows) -> tuple[Rank, SourceConnection]:
    try:
        with connection.answers_within(ASKED_SECONDS):
            variables = _variables(connection, fetch)
            channels = shown_channels(connection, fetch)
        demoted = _is_read_only(variables) and channels == []
        other = followed not in ("", _binlog(connection, variables))
        return Rank(demoted, _is_stalled(variables, channels), other), connection
    except BaseException:
        connection.close()
        raise


def _variables(connection: Connection, fetch: FetchRows) -> dict[str, str]:
    names = "'read_only', 'server_id', 'server_uuid'"
    rows = fetch(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(row["VARIABLE_NAME"]).lower(): str(row["VALUE"]) for row in rows}


def _is_read_only(variables: dict[str, str]) -> bool:
    return variables.get("read_only", "OFF").upper() != "OFF"


def _binlog(connection: Connection, variables: dict[str, str]) -> str:
    """As `ServerFacts.log`."""
    is_mysql = flavor_of(str(cast(Any, connection).get_server_info())) == "mysql"
    return f"mysql:{variables.get('server_uuid')}" if is_mysql else f"mariadb:{variables.get('server_id')}"


def _none_fits(errors: list[CdcError]) -> CdcError:
    reasons = {e.reason for e in errors}
    if len(reasons) == 1 and errors[0].reason is not Reason.SOURCE_UNREACHABLE:
        return errors[0]
    return fail(
        Reason.SOURCE_UNREACHABLE,
        "; ".join(e.found for e in errors),
        needed="a server of spec.source.hosts that answers",
        remedy="check spec.source.hosts and port",
    )
