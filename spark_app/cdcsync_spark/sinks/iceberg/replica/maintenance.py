"""What keeps an Iceberg table small, in steps between commits (`sinks.lake.maintenance`). Snapshots
expire within commits; here their files go:

- *remove files* that this process saw go, when no snapshot has them any more and none was kept
  that long (`history.expire.max-snapshot-age-ms`): readers may be at a snapshot that has expired;
- *remove orphans*, once per run and in parts, and where more files went than a process knows: files
  of ours that no snapshot names and that are older than any is kept, those of a run that died
  before its commit, or that went while no run was there; and `metadata.json` files, where the
  catalog only names the newest one, that it cannot name any more. Staged waves go once the
  snapshot is done, and so do the files of staged copies up to the published one: no run names them
  any more.

Nothing is removed while another program has a branch of its own: that may have files that `main`
lost before. Nor where another table of ours lies in the same folder, whose mark
(`sinks.iceberg.replica.folder_mark`) is checked after the files were chosen: a table that comes
meanwhile has none of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator

from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.writer import MaintenanceStep
from cdcsync_spark.sinks.iceberg.replica.commit import MOST_GONE, remove
from cdcsync_spark.sinks.iceberg.replica.folder_mark import MARKS, has_other_tables
from cdcsync_spark.sinks.iceberg.replica.place import FOLDER, IcebergFolder, TablePlace
from cdcsync_spark.sinks.iceberg.replica.unnamed_files import UnnamedFiles
from cdcsync_spark.sinks.iceberg.table.expiry import dead, most_age, others_have_branches
from cdcsync_spark.sinks.iceberg.table.view import DATA, METADATA, IcebergVersion
from cdcsync_spark.sinks.lake.format import Writing
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy

_OURS = re.compile(
    r"(stream|compacted|version-\d+)-[0-9a-f]{32}\.zstd\.parquet|dv-[0-9a-f]{32}\.puffin|deletes-[0-9a-f]{32}\.parquet"
    r"|[0-9a-f]{32}-m\d+\.avro|snap-\d+-1-[0-9a-f]{32}\.avro"
)
_WAVE = re.compile(r"s\d{1,9}-[A-Za-z0-9_-]{0,80}-[0-9a-f]{32}\.zstd\.parquet")
_COPY = re.compile(rf"{FOLDER}(\d{{1,9}})")
#: what no run is still writing, whatever the table's properties say
_LEAST_AGE = 3600.0
#: seconds until orphans are looked for again
_AGAIN = 3600.0
_log = get_logger()


class IcebergExpiry:
    """The steps for one table: `steps`, by their names. Not thread safe."""

    def __init__(
        self, place: TablePlace, folder: IcebergFolder, writing: Writing[IcebergVersion], policy: MaintenancePolicy
    ) -> None:
        self._place = place
        self._folder = folder
        self._writing = writing
        self._policy = policy
        self._orphans_removed: float | None = None
        self._waves_removed = False
        self._warned = False
        self._unnamed: UnnamedFiles | None = None
        self.steps: dict[str, Callable[[IcebergVersion], MaintenanceStep | None]] = {
            "remove files": self._remove_files,
            "remove orphans": self._remove_orphans,
        }

    def _remove_files(self, version: IcebergVersion) -> MaintenanceStep | None:
        """A snapshot that has expired never comes back, so a version that is not the newest one is
        right, too."""
        if self._folder.staged:
            return None
        metadata = version.metadata
        chosen = dead(version.gone, metadata, milliseconds())[: self._policy.removed_files]
        if not chosen or not self._remove(chosen):
            return None
        for path in chosen:
            del version.gone[path]
        return MaintenanceStep("remove files", files_removed=len(chosen))

    def _remove_orphans(self, version: IcebergVersion) -> MaintenanceStep | None:
        """In parts, each of which is a step, because a table may have thousands of snapshots. Where
        another program expires some in between, a file is not there, and all begins again."""
        if self._folder.staged or not self._writing.has_written():
            return None
        unnamed, self._unnamed = self._unnamed, None
        if unnamed is None:
            if not self._orphans_due(version):
                return None
            self._orphans_removed, self._waves_removed = None, _snapshot_done(version)
            unnamed = UnnamedFiles(self._folder, aged(self._place, self._folder, version))
        if unnamed.read(version.metadata):
            step = self._remove_unnamed(version, unnamed)
            self._orphans_removed = time.monotonic()
            return step
        self._unnamed = unnamed
        return MaintenanceStep("remove orphans")

    def _remove_unnamed(self, version: IcebergVersion, unnamed: UnnamedFiles) -> MaintenanceStep | None:
        newest = self._writing.newest()
        # where this run slept they are its successor's
        if newest is None or not _same_run(newest, version) or others_have_branches(newest.metadata):
            return None
        while not unnamed.read(newest.metadata):
            pass  # what came meanwhile
        unnamed.paths.difference_update(newest.gone)  # which readers may need still
        if not self._remove(unnamed.paths):
            return None
        return MaintenanceStep("remove orphans", files_removed=len(unnamed.paths))

    def _remove(self, chosen: Collection[str]) -> bool:
        """As `remove_own`. What keeps files from being removed may be a table that is gone."""
        removed = remove_own(self._folder, chosen)
        if not removed and not self._warned:
            _log.warning("no file is removed beside another table's mark", table=str(self._folder.table), marks=MARKS)
        self._warned = not removed
        return removed

    def _orphans_due(self, version: IcebergVersion) -> bool:
        if self._orphans_removed is None or (_snapshot_done(version) and not self._waves_removed):
            return True
        return len(version.gone) >= MOST_GONE and time.monotonic() - self._orphans_removed > _AGAIN


def remove_own(folder: IcebergFolder, chosen: Collection[str]) -> bool:
    """Removes files by their paths in the table's location; False: another table has files there,
    so none was."""
    if has_other_tables(folder):
        return False
    remove(folder, chosen)
    return True


def _same_run(one: IcebergVersion, other: IcebergVersion) -> bool:
    return one.state is not None and other.state is not None and one.state.epoch == other.state.epoch


def _snapshot_done(version: IcebergVersion) -> bool:
    return version.state is not None and version.state.consistent


def milliseconds() -> int:
    """Now, as metadata have times."""
    return time.time_ns() // 1_000_000


def aged(place: TablePlace, folder: IcebergFolder, version: IcebergVersion) -> Iterator[str]:
    """Files of ours, by their paths in the table's location, that no run is still writing, nor
    going to commit."""
    oldest = time.time() - max(_LEAST_AGE, most_age(version.metadata.properties) / 1000)
    for inside in (METADATA, DATA, *_copies(folder, version)):
        old = [name for name, modified in folder.lake.listed(inside).items() if modified and modified < oldest]
        ours = [n for n in old if _OURS.fullmatch(n) or (_snapshot_done(version) and _WAVE.fullmatch(n))]
        ours += place.catalog.unnamed(place.name, old) if inside == METADATA else []
        yield from (f"{inside}/{name}" for name in ours)


def _copies(folder: IcebergFolder, version: IcebergVersion) -> Iterator[str]:
    """The folders of staged copies up to the published one."""
    if version.state is None or not version.state.consistent:
        return
    for name in folder.lake.listed(DATA):
        named = _COPY.fullmatch(name)
        if named and int(named[1]) <= version.state.generation:
            yield f"{DATA}/{name}"
