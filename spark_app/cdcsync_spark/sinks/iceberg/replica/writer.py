"""The writer of one Iceberg table: the lake's (`sinks.lake.writer`), made when the table is there.

Where a table's files are is known from its catalog only. So a writer may be asked for before there
is a table, and finds the one that was made since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cdcsync_core.state import TableState
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import Build, Commit
from cdcsync_spark.sinks.contract.writer import WriterStatus
from cdcsync_spark.sinks.iceberg.replica.folder_mark import mark_folder
from cdcsync_spark.sinks.iceberg.replica.format import IcebergFormat, TableMoved
from cdcsync_spark.sinks.iceberg.replica.place import IcebergFolder, TablePlace
from cdcsync_spark.sinks.iceberg.table.view import IcebergVersion
from cdcsync_spark.sinks.lake.maintenance import HARMLESS
from cdcsync_spark.sinks.lake.policy import CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.writer import LakeWriter

Inner = LakeWriter[IcebergVersion]
_log = get_logger()


class IcebergWriter:
    """Writes one table; `scratch` is a folder on a local disk. Thread safe."""

    def __init__(
        self,
        place: TablePlace,
        scratch: Path,
        policy: MaintenancePolicy,
        limits: CommitLimits,
        make: Callable[[IcebergFormat], Inner] | None = None,
    ) -> None:
        """`make` makes the writer of a table in its place; without it that of a replica."""
        self._place = place
        self._make: Callable[[IcebergFormat], Inner] = make or (
            lambda table: LakeWriter(table, table.folder, scratch, policy, limits)
        )
        self._policy = policy
        self._lock = threading.Lock()
        self._inner: Inner | None = None
        self._unmarked: IcebergFolder | None = None
        self._closed = False

    def _opened(self) -> Inner | None:
        """None where there is no table."""
        with self._lock:
            if self._inner is None and (loaded := self._place.load()) is not None:
                folder = self._place.folder(loaded)
                table = IcebergFormat(self._place, folder, loaded.metadata.location, self._policy)
                self._inner, self._unmarked = self._make(table), folder
                if self._closed:
                    self._inner.close()
            return self._inner

    def _needed(self) -> Inner:
        writer = self._opened()
        if writer is None:
            raise self._place.foreign_table_error()
        return writer

    @contextmanager
    def _used(self, writer: Inner) -> Iterator[Inner]:
        """Where the table has moved, its next use finds it there."""
        try:
            yield writer
        except TableMoved:
            writer.close()
            self._inner = None
            raise

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        """See `Writer.last_commit`."""
        writer = self._opened()
        if writer is None:
            return None
        with self._used(writer):
            return writer.last_commit(wait=wait)

    @property
    def last_known(self) -> TableState | None:
        """See `LakeWriter.last_known`."""
        return None if self._inner is None else self._inner.last_known

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`."""
        writer = self._needed()
        with self._used(writer):
            return writer.commit(epoch, lambda state: self._marking(build(state)))

    def _marking(self, commit: Commit | None) -> Commit | None:
        """Marks the folder before the first commit: `build` has refused a table that is not its
        own."""
        if commit is not None and self._unmarked is not None:
            mark_folder(self._unmarked)
            self._unmarked = None
        return commit

    def newest(self) -> IcebergVersion | None:
        """See `Writing`."""
        writer = self._opened()
        return None if writer is None else writer.newest()

    def has_news(self) -> bool:
        """See `Writer.has_news`."""
        return self._inner is None or self._inner.has_news()

    def maintain(self) -> str:
        """See `Writer.maintain`."""
        return "" if self._inner is None else self._inner.maintain()

    def warm(self) -> None:
        """See `Warming`."""
        try:
            writer = self._opened()
        except HARMLESS as error:
            _log.warning("the key index is built later", table=str(self._place.table), error=str(error))
            return
        if writer is not None:
            writer.warm()

    def close(self) -> None:
        """See `Writer.close`."""
        self._closed = True
        if self._inner is not None:
            self._inner.close()

    @property
    def status(self) -> WriterStatus:
        """See `Writer.status`."""
        return WriterStatus() if self._inner is None else self._inner.status
