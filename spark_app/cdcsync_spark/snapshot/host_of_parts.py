"""Which of several hosts a snapshot goes on with that a run before has begun.

Why it exists: until the first table is read to its end, the status knows no binlog that the sync
follows, so a connection takes the first host of the spec. What is there of a table was read from
one server, and no other may go on with it (rule R6): it would be lost although its server answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress

from cdcsync_core.errors import CdcError, PermanentError
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_mysql.readiness.proof import SourceSession, open_session
from cdcsync_mysql.sessions.connection import Source, fetch_dicts
from cdcsync_mysql.sessions.hosts import AGAIN_SECONDS, ASKED_SECONDS, PATIENT_SECONDS, is_demoted
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.snapshot.table import unpublished

OpenSession = Callable[[Source], AbstractContextManager[SourceSession]]


def stay_with_parts(
    context: RunContext, open_host: OpenSession | None = None, patience: float = PATIENT_SECONDS
) -> None:
    """The context goes on with the host of what is read and not published, where it can be used;
    else with the one that was reached. Hosts that do not answer are asked again for `patience`
    seconds. Raises Draining."""
    if context.others is None:
        return
    binlogs = set(_binlogs(context))
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
