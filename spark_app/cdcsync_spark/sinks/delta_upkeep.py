"""What keeps a Delta table quick to open and small on disk, in steps between commits and never instead of one.

A stream leaves a log entry, a small file and a few deletion vectors per commit. The steps, each bounded in time and memory:

- *tidy*: the key index merges its small runs;
- *checkpoint*, every `EVERY` entries: log entries older than `delta.logRetentionDuration` and before the *last* checkpoint go,
  then there is a new one. Our newest entry, which holds the state, is newer than the last checkpoint whatever the retention;
- *remove*: files that no version within `delta.deletedFileRetentionDuration` has go, by what the log says of them;
- *sweep*, once per run: files of ours that the log does not name and that are older than the retention go: those of a run that
  died before its commit, or whose removal a checkpoint forgot. Staged waves and side targets have other names;
- *move*: small files are gathered, files with many deleted rows are rewritten piece by piece (`delta_compaction`).

Users change both retentions in the table's properties. A failure is a warning: the commits before it stand.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs as pafs
from deltalake import DeltaTable

from cdcsync_spark.sinks.deletion_vectors import FOLDER
from cdcsync_spark.sinks.delta_home import DeltaHome
from cdcsync_spark.sinks.delta_view import TableView

#: log entries from one checkpoint to the next
EVERY = 50
#: files that one step removes at most
REMOVED = 200
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


def retention(properties: dict[str, str]) -> int | None:
    """How long files are kept after they were taken away, in milliseconds; None for an interval that is not
    understood."""
    found = _INTERVAL.fullmatch(properties.get(_RETENTION, "interval 7 days").strip())
    return int(found[1]) * _MILLISECONDS[found[2].lower()] if found else None


def removable(view: TableView, now: int) -> list[str]:
    """Files that a step may remove, relative to the table."""
    kept = retention(dict(view.properties))
    return [] if kept is None else view.dead(now - kept)[:REMOVED]


def remove(home: DeltaHome, view: TableView, paths: Iterable[str]) -> None:
    """Removes dead files; one that is not there any more is no error."""
    chosen = list(paths)
    delete_files(home, chosen)
    for path in chosen:
        view.gone.pop(path, None)


def delete_files(home: DeltaHome, paths: Iterable[str]) -> None:
    files = home.lake.files()

    def delete(path: str) -> None:
        try:
            files.delete_file(f"{home.folder}/{path}")
        except FileNotFoundError:
            return

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(delete, paths))


def checkpoint_due(view: TableView) -> bool:
    return view.version - view.checkpoint >= EVERY


def checkpoint(home: DeltaHome, view: TableView) -> None:
    """A side target keeps its log whole: its files are published from it."""
    handle = DeltaTable(home.place.uri, storage_options=home.lake.storage_options())
    if not home.side:
        handle.cleanup_metadata()
    handle.create_checkpoint()
    view.checkpoint = handle.version()


def orphans(home: DeltaHome, view: TableView) -> list[str]:
    """Files of ours that no version within the retention names and nobody is writing any more, relative to the
    table."""
    kept = retention(dict(view.properties))
    if kept is None or home.side:
        return []
    named = (
        {f.path for f in view.files.values()}
        | {f.vector.path for f in view.files.values() if f.vector}
        | view.gone.keys()
    )
    oldest = time.time() - kept / 1000
    found = []
    for folder in ("", f"{FOLDER}/"):
        selector = pafs.FileSelector(f"{home.folder}/{folder}".rstrip("/"), allow_not_found=True)
        for info in home.lake.files().get_file_info(selector):
            path = folder + info.base_name
            if _OURS.fullmatch(info.base_name) and path not in named and info.mtime and info.mtime.timestamp() < oldest:
                found.append(path)
    return found
