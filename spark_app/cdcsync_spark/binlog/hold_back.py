"""What was read is handed over once the source's engine has committed it.

A dump gets a transaction when it is in the binlog: with lossless semi-synchronous replication that
is before any replica has acknowledged it, and so before any SELECT sees it. If the source dies
then, the promoted replica may never have it. `gtid_executed` has a transaction when its commit is
done, so what is applied only then is on a replica as well (MySQL with GTIDs).

Why it is cheap: one query for each batch, on a connection that stays open, and it is answered at
once unless a commit waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from cdcsync_core.errors import TransientError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import GtidPosition, Position
from cdcsync_mysql.readiness.proof import SourceMoved, open_session
from cdcsync_mysql.sessions.connection import Source, fetch
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.logs import get_logger

_log = get_logger()
#: how long the server waits for a commit before it answers
_WAIT_SECONDS = 1
_READ_SECONDS = 10.0


class HoldBack:
    """Holds batches back until the source whose binlog `lineage` ends with has committed them;
    nothing is held unless `active`. It gives batches to one thread; any may close it."""

    def __init__(self, source: Source, lineage: Lineage, active: bool = True) -> None:
        self._source, self._lineage, self._active = source, lineage, active
        self._asking = threading.Lock()
        self._open = ExitStack()
        self._connection: SourceConnection | None = None
        self._known = GtidSet()
        self._held: BinlogBatch | None = None

    def release(self, take: Callable[[], BinlogBatch | None]) -> BinlogBatch | None:
        """The batch that is held, or else the next one that `take` gives, once all of it is
        committed; None before. Raises what no further attempt cures."""
        batch = self._held or take()
        if not self._active or batch is None or batch.fatal is not None:
            return batch
        self._held = None if self.covers(batch.end) else batch
        return None if self._held else batch

    def covers(self, position: Position) -> bool:
        """Whether all of it is committed: True for a position by offset, False where it cannot be
        known now."""
        if not isinstance(position, GtidPosition):
            return True
        asked = position.gtids.subtract(self._known)
        if asked and not self._wait(asked):
            return False
        self._known = position.gtids
        return True

    def _wait(self, asked: GtidSet) -> bool:
        statement = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
        try:
            with self._asking:
                answer = fetch(self._connected(), statement, (str(asked), _WAIT_SECONDS))[0][0]
        except SourceMoved:
            raise
        except TransientError as e:
            _log.warning("what the source has committed is not known", error=e.message)
            self.close()
            time.sleep(_WAIT_SECONDS)
            return False
        return str(answer) == "0"

    def _connected(self) -> SourceConnection:
        if self._connection is None:
            session = self._open.enter_context(open_session(self._source, read_timeout=_READ_SECONDS))
            self._connection = session.proved(self._lineage)
        return self._connection

    def close(self) -> None:
        """May be used again."""
        with self._asking:
            self._connection = None
            self._open.close()
