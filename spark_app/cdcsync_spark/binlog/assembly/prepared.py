"""XA transactions that are prepared and wait for their end: their rows, or why these are not known.

The rows of an XA PREPARE are held until its end: with XA COMMIT they count as a part of that
transaction, at its position and for the tables that lack it; with XA ROLLBACK they never count. The
PREPARE's own position means nothing for its rows, because no SELECT sees them before the commit. A
commit whose PREPARE was not read (it is before the start of this reader) has it searched
(`xa_search`). Where no binlog file has the PREPARE any more its rows may be anything, and every
table stops.

They wait for longer than a batch, so their rows are held in a part of the memory of their own, and
beyond it on disk (`Spool.hold`).
"""

from __future__ import annotations

from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.spool import Spool


class PreparedTransactions:
    """The transactions that are prepared, by xid."""

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
        prepared = self._by_xid.pop(xid, None)
        if isinstance(prepared, OpenTransaction):
            self._spool.release(prepared.rows)
        return prepared
