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
from cdcsync_core.source_table import TableId
from cdcsync_mysql.connection import Connection, fetch
from cdcsync_mysql.version import flavor_of

#: for one table at most
_ONE_SECONDS = 20.0


class LockBudget:
    """For the first locked table there is the profile's time, then a second for each, and none once
    all have taken theirs."""

    #: for all
    seconds = 30.0

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
        """MySQL knows no wait below a second, but ends a SELECT that waits."""
        is_mysql = flavor_of(str(connection.get_server_info())) == "mysql"
        seconds = 1 if self._left > 0 or is_mysql else 0
        fetch(connection, f"SET SESSION lock_wait_timeout = {seconds}")
        if self._left <= 0 and is_mysql:
            hint = "/*+ MAX_EXECUTION_TIME(200) */"
            fetch(
                connection, f"SELECT {hint} 1 FROM {table.quoted} LIMIT 0", doing="opening the table, not waiting long"
            )
