"""What keeps a Delta table quick to open and small on disk, in steps between commits and never
instead of one.

A stream leaves a log entry, a small file and a few deletion vectors per commit. The steps, each
bounded in time and memory:

- *tidy*: the key index merges its small runs;
- *checkpoint*, every `EVERY` entries: log entries older than `delta.logRetentionDuration` and
  before the *last* checkpoint go, then there is a new one. Our newest entry, which holds the state,
  is newer than the last checkpoint whatever the retention;
- *remove*: files that no version within `delta.deletedFileRetentionDuration` has go, by what the
  log says of them;
- *sweep*, once per run: files of ours that the log does not name and that are older than the
  retention go: those of a run that died before its commit, or whose removal a checkpoint forgot.
  Staged waves and side targets have other names;
- *move*: small files are gathered, files with many deleted rows are rewritten piece by piece
  (`sinks.delta.compaction`).

Users change both retentions in the table's properties. A failure is a warning: the commits before
it stand. The step then rests, so that one that cannot succeed, such as a removal without the right
to delete, stops no other.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
from deltalake import DeltaTable

from cdcsync_core.errors import CdcError
from cdcsync_spark.sinks.delta.paths import inside
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import TableView
from cdcsync_spark.sinks.lake.deletion_vectors import FOLDER

#: log entries from one checkpoint to the next
EVERY = 50
#: files that one step removes at most
REMOVED = 200
#: how long a step that failed is left out
REST_SECONDS = 300.0
_AT_ONCE = 8
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
_OURS = re.compile(r"(stream|compacted)-[0-9a-f]{32}\.zstd\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")

_log = structlog.get_logger()


class Failures:
    """Which steps of one table's upkeep failed and rest; a kind of failure is told once, not each
    time."""

    def __init__(self, table: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._until: dict[str, float] = {}
        self._kinds: dict[str, str] = {}

    def resting(self, step: str) -> bool:
        return self._clock() < self._until.get(step, -math.inf)

    def add(self, step: str, error: Exception) -> None:
        kind = error.reason if isinstance(error, CdcError) else type(error).__name__
        if self._kinds.get(step) != kind:
            _log.warning("upkeep failed; it will be tried again", table=self._table, step=step, error=str(error))
        self._kinds[step] = kind
        self._until[step] = self._clock() + REST_SECONDS

    def end(self, step: str) -> None:
        """It was done."""
        self._kinds.pop(step, None)


def retention(properties: Mapping[str, str]) -> int | None:
    """How long files are kept after they were taken away, in milliseconds; None for an interval
    that is not understood."""
    return _interval(properties.get(_RETENTION, "interval 7 days"))


def max_idle_seconds(properties: Mapping[str, str]) -> float:
    """A quarter of the log's retention, a minute at least: somebody may clean it up (rule R4)."""
    kept = _interval(properties.get("delta.logRetentionDuration", "interval 30 days"))
    return math.inf if kept is None else max(60.0, kept / 4000)


def _interval(text: str) -> int | None:
    found = _INTERVAL.fullmatch(text.strip())
    return int(found[1]) * _MILLISECONDS[found[2].lower()] if found else None


def removable(view: TableView, now: int) -> list[str]:
    """Files that a step may remove, relative to the table."""
    kept = retention(view.properties)
    return [] if kept is None else view.dead(now - kept)[:REMOVED]


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

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(delete, paths))


def delete_files(table_path: TablePath, paths: Iterable[str]) -> None:
    """One that is not there any more is no error."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(partial(_delete, table_path), paths))


def _delete(table_path: TablePath, path: str) -> None:
    """Another program's entry may name a file elsewhere: it is not the table's to remove."""
    if inside(path):
        table_path.lake.delete(f"{table_path.folder}/{path}")


def checkpoint_due(view: TableView) -> bool:
    return view.version - view.checkpoint >= EVERY


def checkpoint(table_path: TablePath, view: TableView) -> None:
    """A side target keeps its log whole: its files are published from it."""
    handle = DeltaTable(table_path.store.uri, storage_options=table_path.lake.storage_options())
    if not table_path.staged:
        handle.cleanup_metadata()
    handle.create_checkpoint()
    if table_path.store.local_folder is not None:
        # the next one removes the entries that it stands for
        names = (
            n for n in table_path.store.listed("_delta_log") if n.startswith(f"{handle.version():020d}.checkpoint")
        )
        table_path.store.make_durable(f"_delta_log/{name}" for name in [*names, "_last_checkpoint"])
    view.checkpoint = handle.version()


def unnamed(view: TableView, paths: Iterable[str]) -> list[str]:
    """Those that no version within the retention names."""
    files = view.files.values()
    named = {f.path for f in files} | {f.vector.path for f in files if f.vector} | view.gone.keys()
    return [path for path in paths if path not in named]


def aged(table_path: TablePath, view: TableView) -> list[str]:
    """Files of ours, relative to the table, that are older than the retention: nobody is writing
    them any more."""
    kept = retention(view.properties)
    if kept is None or table_path.staged:
        return []
    oldest = time.time() - kept / 1000
    found = []
    for folder in ("", f"/{FOLDER}"):
        for name, modified in table_path.lake.listed(table_path.folder + folder).items():
            if _OURS.fullmatch(name) and modified and modified < oldest:
                found.append(f"{folder}/{name}".lstrip("/"))
    return found
