"""The time that is spent on tables which other sessions lock, all of them together.

Why it exists: one table's lock is waited for as the session's profile says, which forty in a row
would make minutes, in which the tables behind them wait. A table that is not waited for is held
back and asked for again later, as any locked one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Connection, fetch
from cdcsync_mysql.sessions.failures import is_unexplained, locked
from cdcsync_mysql.sessions.version import flavor_of

#: for one table at most
_ONE_SECONDS = 20.0
#: for MySQL to open a table once all time is spent: a part of the shortest wait for a lock
_OPENING_MILLISECONDS = 500


class LockBudget:
    """For the first locked table there is the profile's time, then a second for each, and none once
    all have taken theirs. MySQL knows no wait below a second, so there is more of them: what bounds
    it below that, a statement's time, would take a loaded server's slowness for a lock."""

    #: for all
    seconds = 30.0
    #: beyond them, on MySQL
    more_seconds = 60.0

    def __init__(self) -> None:
        self._left = self.seconds
        self._met = False

    @contextmanager
    def asking(self, connection: Connection, table: TableId) -> Iterator[None]:
        """What is asked inside is about the table."""
        begun = time.monotonic()
        try:
            if self._met:
                self._shorten(connection, table)
            yield
        except CdcError as e:
            if e.reason is Reason.TABLE_BUSY:
                self._met = True
                self._left -= min(_ONE_SECONDS, time.monotonic() - begun)
            raise

    def _shorten(self, connection: Connection, table: TableId) -> None:
        is_mysql = flavor_of(str(connection.get_server_info())) == "mysql"
        seconds = 1 if self._left > 0 or is_mysql else 0
        fetch(connection, f"SET SESSION lock_wait_timeout = {seconds}")
        if is_mysql and self._left <= -self.more_seconds:
            _open(connection, table)


def _open(connection: Connection, table: TableId) -> None:
    """Raises TableBusy where it takes long, and what concerns more than the table; what else is the
    matter with the table is left to what is asked of it next."""
    hint = f"/*+ MAX_EXECUTION_TIME({_OPENING_MILLISECONDS}) */"
    try:
        fetch(connection, f"SELECT {hint} 1 FROM {table.quoted} LIMIT 0", doing="opening the table, not waiting long")
    except CdcError as e:
        if e.reason is Reason.TABLE_BUSY:
            raise locked(e.found) from e
        if e.reason.retried and not is_unexplained(e):
            raise
