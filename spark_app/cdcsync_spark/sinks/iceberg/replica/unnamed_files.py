"""Which files of a table no snapshot of it has.

A history has thousands of snapshots, each with a list and a manifest of its own. So these are read
several at once, each one time, and in parts, between which a caller may do other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.iceberg.replica.place import IcebergFolder
from cdcsync_spark.sinks.iceberg.table.avro import Record
from cdcsync_spark.sinks.iceberg.table.manifests import read_list, read_manifest
from cdcsync_spark.sinks.iceberg.table.metadata import TableMetadata, parsing
from cdcsync_spark.sinks.iceberg.table.view import TablePaths
from cdcsync_spark.sinks.lake.table_folder import AT_ONCE

#: lists or manifests that are read between two returns to the caller: about a second in S3
FILES_AT_A_TIME = 200
#: of the memory, for the records of one list or manifest
_SHARE = 4


class UnnamedFiles:
    """Files by their `paths` in the table's location, without those that snapshots have, as far as
    these were read."""

    def __init__(self, folder: IcebergFolder, paths: Iterable[str]) -> None:
        self.paths = set(paths)
        self._folder = folder
        self._done: set[str] = set()
        self._manifests: dict[str, Record] = {}

    def read(self, metadata: TableMetadata) -> bool:
        """Reads a part of the lists and manifests of all snapshots; whether none was left before
        the part was full."""
        paths, room = TablePaths(metadata.location), FILES_AT_A_TIME
        while self.paths and room > 0:
            if self._manifests:
                chosen = list(self._manifests)[:room]
                self._read_manifests(paths, chosen)
            elif lists := [s.manifest_list for s in metadata.snapshots.values() if s.manifest_list not in self._done]:
                chosen = lists[:room]
                self._read_lists(paths, chosen)
            else:
                return True
            room -= len(chosen)
        return not self.paths

    def _read_lists(self, paths: TablePaths, lists: Sequence[str]) -> None:
        for path, content in self._contents(paths, lists):
            with parsing(path):
                rows = read_list(content, memory_limit() // _SHARE)
            self._manifests |= {r["manifest_path"]: r for r in rows if r["manifest_path"] not in self._done}
            self._add(paths, path, [])

    def _read_manifests(self, paths: TablePaths, manifests: Sequence[str]) -> None:
        for path, content in self._contents(paths, manifests):
            with parsing(path):
                manifest, _ = read_manifest(self._manifests[path], content, memory_limit() // _SHARE)
            self._add(paths, path, [entry.path for entry in manifest.entries.values()])
            del self._manifests[path]

    def _add(self, paths: TablePaths, path: str, named: Iterable[str]) -> None:
        """A list or manifest that was read, and the data files and vectors that it names."""
        self._done.add(path)
        self.paths.difference_update(map(paths.relative, (path, *named)))

    def _contents(self, paths: TablePaths, chosen: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for start in range(0, len(chosen), AT_ONCE):
                together = chosen[start : start + AT_ONCE]
                yield from zip(together, pool.map(partial(self._folder.reader.content, paths), together), strict=True)
