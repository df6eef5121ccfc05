"""The low watermark (rule R1) where XA transactions are committed, too.

MariaDB writes the XA COMMIT of another connection to the binlog first and lets the engine commit
afterwards, outside of the order that a consistent snapshot sees, and MySQL's `log_status` does not
wait for it either. For that moment the position covers a commit whose rows no SELECT sees: measured
in 16 of 4,940 snapshots of MariaDB beside eight writers, in 2 of 60 of MySQL beside six. Until the
engine has committed, XA RECOVER still lists the transaction.

So, after the position is taken, XA RECOVER is asked. Of those that it lists the binlog up to the
position says whether they are prepared, or ended and about to be committed; for the latter is
waited. What the server does not list any more, every later SELECT sees. Where nothing is listed,
which is the rule, nothing is read. With GTIDs there is no such moment: `gtid_executed` follows the
engine. MySQL shows the list to accounts with XA_RECOVER_ADMIN only, so without GTIDs a low
watermark needs that right, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, Position
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.search.xa_search import Known, XaSearch

_XA_END_SECONDS = 60.0
_POLL_SECONDS = 0.01


@dataclass
class LowMark:
    """Takes low watermarks on one server, one later than the other. Raises CdcError."""

    source: Source
    facts: ServerFacts

    def __post_init__(self) -> None:
        self._search = XaSearch(self.source, self.facts.lineage)

    def take(self) -> Position:
        """A position whose transactions every later SELECT sees."""
        low = watermark.low(self.source, self.facts)
        if isinstance(low, FilePosition):
            at = low.at
            wait_for_ended(
                lambda: prepared_xids(self.source, self.facts.lineage),
                lambda xid: self._search.last(xid, at) is Known.ENDED,
                time.monotonic,
                time.sleep,
            )
        return low


def prepared_xids(source: Source, lineage: Lineage) -> set[str]:
    """The XA transactions that are prepared, as the binlog spells them. Raises PrivilegeMissing
    where the account may not see them."""
    with open_session(source) as session:
        return {_xid(*row) for row in watermark.prepared(session.proved(lineage))}


def _xid(format_id: int, first: int, second: int, data: bytes | str) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return f"X'{raw[:first].hex()}',X'{raw[first : first + second].hex()}',{format_id}"


def wait_for_ended(
    listed: Callable[[], set[str]],
    ended: Callable[[str], bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Until the server lists none of those that the binlog has as `ended`; raises SourceUnreachable
    after a while."""
    deadline = clock() + _XA_END_SECONDS
    waiting = {xid for xid in listed() if ended(xid)}
    while waiting:
        if clock() > deadline:
            raise fail(
                Reason.SOURCE_UNREACHABLE,
                f"XA COMMIT {min(waiting)} is in the binlog, and XA RECOVER has listed it for {_XA_END_SECONDS:.0f} s since",
                needed="a server that commits what its binlog has",
                remedy="see what holds up the server's commits",
            )
        sleep(_POLL_SECONDS)
        waiting &= listed()
