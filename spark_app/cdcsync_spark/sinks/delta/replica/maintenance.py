"""What keeps a Delta table quick to open and small on disk, in steps between commits
(`sinks.lake.maintenance`).

A stream leaves an entry of the Delta log, a small file and a few deletion vectors per commit:

- *checkpoint*: log entries older than `delta.logRetentionDuration` and before the *last* checkpoint
  go, then there is a new one. Our newest entry, which holds the state, is newer than the last
  checkpoint whatever the retention;
- *remove files* that no version within `delta.deletedFileRetentionDuration` has, by what the Delta
  log says of them;
- *remove orphans*, once per run, and again once the table's snapshot is done in it: files of ours
  that the Delta log does not name and that are older than the retention, those of a run that died
  before its commit, or whose removal a checkpoint forgot; of a snapshot that is done its staged
  waves, too. Staged copies have other names;
- *remove staged copies*, once per run: those of resnapshots up to the published one, which a
  run that died has left.

Users change both retentions in the table's properties.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from cdcsync_spark.own_process import in_own_process
from cdcsync_spark.sinks.contract.writer import MaintenanceStep
from cdcsync_spark.sinks.delta.table.paths import inside
from cdcsync_spark.sinks.delta.table.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.delta.table.vector_files import FOLDER
from cdcsync_spark.sinks.delta.table.view import TableView
from cdcsync_spark.sinks.lake.format import Writing
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.table_folder import AT_ONCE

_RETENTION = "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(millisecond|second|minute|hour|day|week)s?", re.I)
_MILLISECONDS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_WAVE = re.compile(r"[A-Za-z0-9_-]{1,80}-[0-9a-f]{32}\.zstd\.parquet")
_OURS = re.compile(r"(stream|compacted|version-\d+)-[0-9a-f]{32}\.zstd\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")


def retention(properties: Mapping[str, str]) -> int | None:
    """How long files are kept after they were taken away, in milliseconds; None for an interval
    that is not understood."""
    return _interval(properties.get(_RETENTION, "interval 7 days"))


def max_idle_seconds(properties: Mapping[str, str]) -> float:
    """A quarter of the Delta log's retention, a minute at least: another program may clean it up
    (rule R4)."""
    milliseconds = _interval(properties.get("delta.logRetentionDuration", "interval 30 days"))
    return math.inf if milliseconds is None else max(60.0, milliseconds / 4000)


def _interval(text: str) -> int | None:
    match = _INTERVAL.fullmatch(text.strip())
    return int(match[1]) * _MILLISECONDS[match[2].lower()] if match else None


def removable(view: TableView, now: int, most: int) -> list[str]:
    """Files that a step may remove, relative to the table."""
    milliseconds = retention(view.properties)
    return [] if milliseconds is None else view.dead(now - milliseconds)[:most]


def remove(table_path: TablePath, view: TableView, paths: Iterable[str]) -> None:
    """Removes dead files. One that cannot be removed is the last to be tried again, so that it
    stops no other."""

    def delete(path: str) -> None:
        since = view.gone.pop(path)
        try:
            _delete(table_path, path)
        except BaseException:
            view.gone[path] = since
            raise

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(delete, paths))


def delete_files(table_path: TablePath, paths: Iterable[str]) -> None:
    """One that is not there any more is no error."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(_delete, table_path), paths))


def _delete(table_path: TablePath, path: str) -> None:
    """Another program's entry may name a file elsewhere, behind a link or of the Delta log itself:
    it is no data file of the table, and not for us to remove."""
    if inside(path) and path.split("/", maxsplit=1)[0] != "_delta_log" and not table_path.store.linked(path):
        table_path.lake.delete(f"{table_path.folder}/{path}")


def checkpoint_due(view: TableView, policy: MaintenancePolicy) -> bool:
    return view.version - view.checkpoint >= policy.checkpoint_entries


def checkpoint(table_path: TablePath, view: TableView) -> None:
    """delta-rs makes it in a process of its own: it leaves 30 MiB behind where it did."""
    view.checkpoint = in_own_process(_write_checkpoint, table_path)


def _write_checkpoint(table_path: TablePath) -> int:
    """The version that it is of. A staged copy keeps its Delta log whole: its files are published
    from it."""
    from deltalake import DeltaTable

    with table_path.translating_errors("maintenance"):
        handle = DeltaTable(table_path.store.uri, storage_options=table_path.lake.storage_options())
        if not table_path.staged:
            handle.cleanup_metadata()
        handle.create_checkpoint()
        version = handle.version()
        if table_path.store.local_folder is not None:
            # the next one removes the entries that it stands for
            names = (n for n in table_path.store.listed("_delta_log") if n.startswith(f"{version:020d}.checkpoint"))
            table_path.store.make_durable(f"_delta_log/{name}" for name in [*names, "_last_checkpoint"])
    return version


def unnamed(view: TableView, paths: Iterable[str]) -> list[str]:
    """The paths that no version within the retention names."""
    files = view.files.values()
    named = {f.path for f in files} | {f.vector.path for f in files if f.vector} | view.gone.keys()
    return [path for path in paths if path not in named]


def aged(table_path: TablePath, view: TableView) -> list[str]:
    """Files of ours, relative to the table, that are older than the retention: no run is still
    writing them."""
    milliseconds = retention(view.properties)
    if milliseconds is None or table_path.staged:
        return []
    oldest = time.time() - milliseconds / 1000
    paths = []
    for folder in ("", f"/{FOLDER}"):
        for name, modified in table_path.lake.listed(table_path.folder + folder).items():
            ours = _OURS.fullmatch(name) or (_snapshot_done(view) and _WAVE.fullmatch(name))
            if ours and modified and modified < oldest:
                paths.append(f"{folder}/{name}".lstrip("/"))
    return paths


def staged_copies(table_path: TablePath, generation: int) -> list[TablePath]:
    """The staged copies of generations up to this one, by their folders."""
    numbers = [n.removeprefix(STAGED_PREFIX) for n in table_path.lake.listed(table_path.folder) if STAGED_PREFIX in n]
    return [
        replace(table_path, staged=f"{STAGED_PREFIX}{number}")
        for number in numbers
        if number.isdecimal() and int(number) <= generation
    ]


def remove_staged_copy(main: TableView | None, copy: TablePath) -> None:
    """Only its Delta log goes once its files have been published: they belong to the table then. A
    file that has left the table since may still be read by readers of an older version."""
    paths = [*(f.path for f in main.files.values()), *main.gone] if main else []
    published = any(path.startswith(copy.prefix) for path in paths)
    copy.lake.delete_folder(f"{copy.folder}/_delta_log" if published else copy.folder)


class DeltaExpiry:
    """The steps for one table that another program could take, too: `steps`, by their names. Not
    thread safe."""

    def __init__(self, path: TablePath, writing: Writing[TableView], policy: MaintenancePolicy) -> None:
        self._path = path
        self._writing = writing
        self._policy = policy
        self._orphans_removed = self._waves_removed = self._copies_removed = False
        self.steps: dict[str, Callable[[TableView], MaintenanceStep | None]] = {
            "checkpoint": self._checkpoint,
            "remove files": self._remove_files,
            "remove orphans": self._remove_orphans,
            "remove staged copies": self._remove_staged_copies,
        }

    def _checkpoint(self, view: TableView) -> MaintenanceStep | None:
        if not checkpoint_due(view, self._policy):
            return None
        checkpoint(self._path, view)
        return MaintenanceStep("checkpoint")

    def _remove_files(self, view: TableView) -> MaintenanceStep | None:
        dead = [] if self._path.staged else removable(view, milliseconds(), self._policy.removed_files)
        log = self._path.log()
        if not dead or log.has_entry(view.version + 1) or not log.still_has(view.version, view.digest):
            return None  # another program may have brought them back
        remove(self._path, view, dead)
        return MaintenanceStep("remove files", files_removed=len(dead))

    def _remove_orphans(self, view: TableView) -> MaintenanceStep | None:
        due = not self._orphans_removed or (_snapshot_done(view) and not self._waves_removed)
        if self._path.staged or not self._writing.has_written() or not due:
            return None
        old, epoch = aged(self._path, view), view.state.epoch if view.state else None
        newest = self._writing.newest()
        # where this run slept they are its successor's
        is_ours = newest is not None and newest.state is not None and newest.state.epoch == epoch
        orphans = unnamed(newest, old) if newest and is_ours else []
        delete_files(self._path, orphans)
        self._orphans_removed, self._waves_removed = True, _snapshot_done(view)
        return MaintenanceStep("remove orphans", files_removed=len(orphans))

    def _remove_staged_copies(self, view: TableView) -> MaintenanceStep | None:
        """Removes the staged copies up to the published generation: a run that died after the
        publication has left them, and no run fills them any more."""
        if self._path.staged or self._copies_removed or view.state is None or not _snapshot_done(view):
            return None
        copies = staged_copies(self._path, view.state.generation)
        for copy in copies:
            remove_staged_copy(view, copy)
        self._copies_removed = True
        return MaintenanceStep("remove staged copies") if copies else None


def _snapshot_done(view: TableView) -> bool:
    return view.state is not None and view.state.consistent


def milliseconds() -> int:
    """Now, as a Delta log gives times."""
    return time.time_ns() // 1_000_000
