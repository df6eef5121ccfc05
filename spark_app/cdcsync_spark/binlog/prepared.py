"""XA transactions that are prepared and wait for their end: their rows, or why these are not known.

They wait for longer than a batch, so their rows are held in a part of the memory of their own, and
beyond it on disk (`Spool.hold`).
"""

from __future__ import annotations

from cdcsync_spark.binlog.open_transaction import OpenTransaction
from cdcsync_spark.binlog.spool import Spool


class PreparedTransactions:
    """By xid."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._by_xid: dict[str, OpenTransaction | str] = {}

    def __contains__(self, xid: str) -> bool:
        return xid in self._by_xid

    def learn(self, xid: str, prepared: OpenTransaction | str) -> None:
        """A text says why the rows cannot be known."""
        if isinstance(prepared, str):
            self._by_xid[xid] = prepared
        else:
            self.hold(xid, prepared)

    def hold(self, xid: str, prepared: OpenTransaction) -> None:
        """Until its end. After a crash of the server an application may prepare again what the
        binlog has as prepared."""
        self.take(xid)
        prepared.rows = self._spool.hold(prepared.rows)
        self._by_xid[xid] = prepared

    def take(self, xid: str) -> OpenTransaction | str | None:
        """What is known of it; it is no longer held."""
        found = self._by_xid.pop(xid, None)
        if isinstance(found, OpenTransaction):
            self._spool.release(found.rows)
        return found
