"""One table's folder in a lake, whatever the table's format."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from pyroaring import BitMap

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.lake.files.deletion_vectors import deleted_rows
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.files.snapshot import read_range
from cdcsync_spark.sinks.lake.files.staging import DataFile, Stamp
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.storage.store import Store

#: files that are removed at the same time
AT_ONCE = 8


@dataclass(frozen=True)
class TableFolder:
    """The folder of `table`, which the sync `sync` writes, in the lake `lake`; `staged` is the
    folder of a staged copy below it, empty for the table itself."""

    lake: Store
    sync: str
    table: TableId
    staged: str = ""

    @property
    def root(self) -> str:
        """The table's folder, relative to the lake: names of staged files are relative to it."""
        return f"{segment(self.table.database)}/{segment(self.table.name)}"

    @property
    def folder(self) -> str:
        """The folder of this target, relative to the lake: names in its metadata are relative to
        it."""
        return f"{self.root}/{self.staged}" if self.staged else self.root

    @property
    def prefix(self) -> str:
        """What staged names have more than names in the metadata."""
        return f"{self.staged}/" if self.staged else ""

    @property
    def store(self) -> Store:
        return self.lake.below(self.folder)

    @property
    def stamp(self) -> Stamp | None:
        """What makes staged rows what the table will have; None where they are that already."""
        return None

    def translating_errors(self, doing: str) -> AbstractContextManager[None]:
        return self.lake.translating_errors(str(self.table), doing)

    def deleted(self, file: LiveFile) -> BitMap:
        """The deleted rows of a file."""
        files = self.lake.files()
        return deleted_rows(
            file.deleted, lambda path, offset, size: read_range(files, f"{self.folder}/{path}", offset, size)
        )

    def remove(self, paths: Iterable[str]) -> None:
        """Files of ours, relative to the folder; one that is not there any more is no error."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(partial(_remove, self), paths))

    def refuse_missing(self, files: tuple[DataFile, ...]) -> None:
        """Staged files are checked once more before a commit names them, so that a wave staged on
        another machine's disk, or removed by an eager clean-up, stops the run instead of making a
        table that cannot be read."""
        if not files:
            return
        infos = self.lake.files().get_file_info([f"{self.root}/{f.path}" for f in files])
        missing = [f.path for f, info in zip(files, infos, strict=True) if info.size != f.size]
        if missing:
            raise _missing_files_error(str(self.table), self.store.uri, missing, len(files))

    def contention_error(self, attempts: int) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"{attempts} attempts to commit to {self.store.uri} met other programs' commits",
            remedy="let OPTIMIZE and other writers run less often",
            table=str(self.table),
        )


def _remove(folder: TableFolder, path: str) -> None:
    folder.lake.delete(f"{folder.folder}/{path}")


def _missing_files_error(table: str, uri: str, missing: list[str], count: int) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"{len(missing)} of {count} staged files are not whole in {uri}, such as {missing[0]}",
        needed="a sink path that the driver and all executors share, and no other program that removes files there",
        remedy=f"mount a shared volume there, {RUN_AGAIN}; or create the sync again in an object store",
        table=table,
    )
