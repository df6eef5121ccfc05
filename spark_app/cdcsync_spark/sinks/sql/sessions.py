"""Sessions of one process, which its writers share: a server has far fewer connections than a sync
may have tables.

A writer has one while it does something, and gives it back. What was idle for long is not used
again, since a firewall may have forgotten it; nor is what was opened long ago, since the name or
the balancer may lead to another server by now.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from typing import NamedTuple

from cdcsync_spark.sinks.sql.dialects.dialect import Dialect, SqlSession
from cdcsync_spark.sinks.sql.states import States

_MOST_IDLE, _IDLE_SECONDS, _OPEN_SECONDS = 4, 60.0, 600.0


class _Idle(NamedTuple):
    """A session that no writer has, since a time of the monotonic clock."""

    process: int
    dialect: Dialect
    session: SqlSession
    since: float


_idle: deque[_Idle] = deque()
_lock = threading.Lock()


def take(dialect: Dialect) -> SqlSession:
    """An idle session, or a new one; the tables of states and helpers are there. Raises
    `ConnectionLost` and `CdcError`."""
    now = time.monotonic()
    with _lock:
        for idle in reversed(_idle):
            if idle.process == os.getpid() and idle.dialect == dialect and now - idle.since < _IDLE_SECONDS:
                _idle.remove(idle)
                return idle.session
    session = dialect.open()
    try:
        States(dialect, session).create()
    except BaseException:
        session.close()
        raise
    return session


def give_back(dialect: Dialect, session: SqlSession) -> None:
    """Outside of a transaction. The oldest idle ones are closed."""
    if time.monotonic() - session.opened_at > _OPEN_SECONDS:
        session.close()
        return
    with _lock:
        _idle.append(_Idle(os.getpid(), dialect, session, time.monotonic()))
        surplus = [_idle.popleft() for _ in range(len(_idle) - _MOST_IDLE)]
    _close(surplus)


def forget(dialect: Dialect) -> None:
    """Closes the idle ones: the server has ended one of its sessions, and so perhaps all, or takes
    no writes any more."""
    with _lock:
        lost = [idle for idle in _idle if idle.dialect == dialect]
        for idle in lost:
            _idle.remove(idle)
    _close(lost)


@atexit.register
def close_idle() -> None:
    """Closes all, at the end of the process: psycopg warns of a connection that it finds open."""
    with _lock:
        idle = [*_idle]
    _close(idle)


def _close(surplus: list[_Idle]) -> None:
    """A process that was forked leaves its parent's sessions alone."""
    for idle in surplus:
        if idle.process == os.getpid():
            idle.session.close()
