"""What was read is handed over once the source's engine has committed it.

A dump gets a transaction when it is in the binlog: with lossless semi-synchronous replication that
is before any replica has acknowledged it, and so before any SELECT sees it. If the source dies
then, the promoted replica may never have it. `gtid_executed` has a transaction when its commit is
done, so what is applied only then is on a replica as well (MySQL with GTIDs).

MariaDB has a place for it, `binlog_snapshot_position`: the end of the last commit that is done.
Where the binlog is rotated while a commit waits, it is in the new file at once, so in each file it
counts from when that file shows that all before is committed, as for a low watermark. After some
writes it stays before the end of the binlog although all is committed, so all counts as committed,
too, where no session has waited for a replica for a second.

Why it is cheap: one query for each batch, on a connection that stays open, and it is answered at
once unless a commit waits. On MariaDB it is asked further only where commits wait for replicas.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from cdcsync_core.errors import TransientError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset, Place, Position
from cdcsync_mysql.positions.watermark import is_settled
from cdcsync_mysql.readiness.proof import SourceMoved, open_session
from cdcsync_mysql.sessions.connection import Source, fetch
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.logs import get_logger

_log = get_logger()
#: how long the server waits for a commit before it answers
_WAIT_SECONDS = 1
_READ_SECONDS = 10.0
#: between two questions to MariaDB, whose answers do not wait
_PAUSE_SECONDS = 0.02
_STATUS = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN"
    " ('Binlog_snapshot_file', 'Binlog_snapshot_position', 'Rpl_semi_sync_master_wait_sessions')"
)


class HoldBack:
    """Holds batches back until the source whose binlog `lineage` ends with has committed them;
    nothing is held unless `active`. It gives batches to one thread; any may close it."""

    def __init__(self, source: Source, lineage: Lineage, active: bool = True) -> None:
        self._source, self._lineage, self._active = source, lineage, active
        self._asking = threading.Lock()
        self._open = ExitStack()
        self._connection: SourceConnection | None = None
        self._known = GtidSet()
        #: the file in which MariaDB's place counts
        self._settled = ""
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
        """Whether all of it is committed: True for MySQL's position by offset, False where it
        cannot be known now."""
        if isinstance(position, FilePosition):
            return not self._is_mariadb or self._answer(partial(self._is_reached, at=position.at))
        asked = position.gtids.subtract(self._known)
        if asked and not self._answer(partial(_are_executed, gtids=asked)):
            return False
        self._known = position.gtids
        return True

    @property
    def _is_mariadb(self) -> bool:
        return self._lineage.newest.startswith("mariadb:")

    def _answer(self, question: Callable[[SourceConnection], bool]) -> bool:
        try:
            with self._asking:
                return question(self._connected())
        except SourceMoved:
            raise
        except TransientError as e:
            _log.warning("what the source has committed is not known", error=e.message)
            self.close()
            time.sleep(_WAIT_SECONDS)
            return False

    def _connected(self) -> SourceConnection:
        if self._connection is None:
            session = self._open.enter_context(open_session(self._source, read_timeout=_READ_SECONDS))
            self._connection = session.proved(self._lineage)
        return self._connection

    def _is_reached(self, connection: SourceConnection, at: LogOffset) -> bool:
        """Whether MariaDB has committed all before that place."""
        if not _waits_for_replicas(connection):
            return True
        deadline, some_wait = time.monotonic() + _WAIT_SECONDS, False
        while True:
            status = {str(name).lower(): str(value) for name, value in fetch(connection, _STATUS)}
            some_wait |= status["rpl_semi_sync_master_wait_sessions"] != "0"
            committed = Place(
                status["binlog_snapshot_file"], int(status["binlog_snapshot_position"]), self._lineage.newest
            )
            if committed.covers(at) and self._counts(connection, committed):
                return True
            if time.monotonic() >= deadline:
                return not some_wait
            time.sleep(_PAUSE_SECONDS)

    def _counts(self, connection: SourceConnection, committed: Place) -> bool:
        if committed.file != self._settled and is_settled(connection, committed):
            self._settled = committed.file
        return committed.file == self._settled

    def close(self) -> None:
        """May be used again."""
        with self._asking:
            self._connection = None
            self._open.close()


def _are_executed(connection: SourceConnection, gtids: GtidSet) -> bool:
    statement = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
    return str(fetch(connection, statement, (str(gtids), _WAIT_SECONDS))[0][0]) == "0"


def _waits_for_replicas(connection: SourceConnection) -> bool:
    """Whether a commit is in the binlog before a replica has it and before any SELECT sees it."""
    statement = "SELECT @@GLOBAL.rpl_semi_sync_master_enabled, @@GLOBAL.rpl_semi_sync_master_wait_point"
    enabled, wait_point = fetch(connection, statement)[0]
    return bool(enabled) and str(wait_point) == "AFTER_SYNC"
