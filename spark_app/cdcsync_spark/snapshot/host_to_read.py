"""Which of several hosts a snapshot reads on.

One that a run before has begun goes on where it was begun: what is there of a table was read from
one server, and no other may go on with it (rule R6). Until the first table is read to its end, the
status knows no binlog that the sync follows, so a connection takes the first host of the spec.

A server that the sync has left since is not read on, an old primary that came back: its rows would
take the place of the content that its successor is to give. A table of the run was on it, and the
sync follows another one. Nor is a replica that may have left out changes of the tables, unless the
sync follows it: what is missing there would be missing on the next server, whose binlog is proved
to lead on. Another host is taken then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_mysql.readiness.left_out import read_left_out
from cdcsync_mysql.readiness.proof import SourceSession, open_session
from cdcsync_mysql.sessions.connection import Source, fetch_dicts
from cdcsync_mysql.sessions.hosts import AGAIN_SECONDS, ASKED_SECONDS, PATIENT_SECONDS, is_demoted, is_stalled
from cdcsync_mysql.sessions.replication import shown_channels
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.snapshot.table import unpublished

OpenSession = Callable[[Source], AbstractContextManager[SourceSession]]


def choose_host_to_read(
    context: RunContext, open_host: OpenSession | None = None, patience: float = PATIENT_SECONDS
) -> None:
    """The context goes on with the host of what is read and not published, where it can be used;
    else with the one that was reached. Hosts that do not answer are asked again for `patience`
    seconds. Raises Draining, and SourceUnreachable where the tables must not be read there."""
    if context.others is None:
        return
    left = _left(context)
    begun = set(_binlogs(context)) - left
    _stay_with_parts(context, begun, open_host, patience)
    if context.facts.log in left:
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            f"{context.source.host} is the server of {context.facts.log}, which the sync has left for another one",
            needed=f"{context.config.followed}, which it follows",
            remedy="start that server; to give it up, name another one alone as spec.source.host",
        )
    _go_where_nothing_is_left_out(context, left, begun, open_host or _open)


def _go_where_nothing_is_left_out(
    context: RunContext, left: Collection[BinlogId], begun: Collection[BinlogId], open_host: OpenSession
) -> None:
    """Tables that were begun on the server that was reached are read on no other one."""
    assert context.others is not None
    with open_host(context.source) as session:
        left_out = _left_out(context, session)
    if not left_out:
        return
    others = context.others.hosts if context.facts.log not in begun else ()
    for host in others:
        with suppress(CdcError), open_host(context.source.of_hosts(host)) as session:
            if session.facts.log not in left and _is_current(session) and not _left_out(context, session):
                context.go_to(session.source, session.facts)
                return
    raise fail(
        Reason.SOURCE_UNREACHABLE,
        f"{context.source.host}: {left_out}",
        needed="a server that leaves out no change of the tables",
        remedy="correct it, or leave it out of spec.source.hosts",
    )


def _left_out(context: RunContext, session: SourceSession) -> str:
    """What the server may have left out of the tables as a replica; empty for the one that the sync
    follows, and for a sync that follows none yet on a server that is no replica: its rows are the
    source's."""
    connection, followed = session.unproved(), context.config.followed
    if followed == session.facts.log or (not followed and shown_channels(connection, fetch_dicts) == []):
        return ""
    return read_left_out(connection, session.facts).of(a.table.id for a in context.config.tables)


def _is_current(session: SourceSession) -> bool:
    connection = session.unproved()
    return not is_demoted(connection, fetch_dicts) and not is_stalled(connection, fetch_dicts)


def _left(context: RunContext) -> set[BinlogId]:
    """The binlogs in which the published content of tables of the run was, but for the one that the
    sync follows; none where that is not known."""
    if not context.config.followed:
        return set()
    return set(_published_binlogs(context)) - {context.config.followed}


def _published_binlogs(context: RunContext) -> Iterator[BinlogId]:
    """A table whose target cannot be read is refused where it is opened."""
    for assignment in context.config.tables:
        with suppress(PermanentError):
            state = context.sink.target(assignment.table.id).last_commit()
            if state is not None and state.snapshot_complete:
                yield from state.identity.lineage.binlogs


def _stay_with_parts(
    context: RunContext, binlogs: Collection[BinlogId], open_host: OpenSession | None, patience: float
) -> None:
    if not binlogs or context.facts.log in binlogs:
        return
    deadline = time.monotonic() + patience
    while not _settles(context, binlogs, open_host or _open) and time.monotonic() < deadline:
        context.wait(AGAIN_SECONDS)


def _open(source: Source) -> AbstractContextManager[SourceSession]:
    return open_session(source, max_seconds=ASKED_SECONDS, read_timeout=ASKED_SECONDS)


def _settles(context: RunContext, binlogs: Collection[BinlogId], open_host: OpenSession) -> bool:
    """Goes to the host of one of the binlogs; False where a host may be it that does not
    answer."""
    assert context.others is not None
    silent = False
    for host in context.others.hosts:
        try:
            with open_host(context.source.of_hosts(host)) as session:
                if session.facts.log in binlogs and not is_demoted(session.unproved(), fetch_dicts):
                    context.go_to(session.source, session.facts)
                    return True
        except CdcError:
            silent = True
    return not silent


def _binlogs(context: RunContext) -> Iterator[BinlogId]:
    """A table whose target cannot be read is refused where it is opened."""
    for assignment in context.config.tables:
        with suppress(PermanentError):
            state = unpublished(assignment, context.sink)
            if state is not None:
                yield state.identity.lineage.newest
