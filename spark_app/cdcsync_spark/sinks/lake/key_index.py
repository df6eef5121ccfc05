"""Which row of which file holds a key: the index with which a batch finds the rows that it
replaces.

The index is a set of sorted runs (`key_runs`), one for each large file and merged ones for the
small, and per file the rows that are deleted. Entries are never removed: an entry counts only while
its file is live and its row is not deleted, so the Delta log alone decides and a stale entry does
no harm. Hence `sync` can bring the index to any version of the table, by any writer: files that are
gone are dropped, files that are new, or whose deletions another program changed, are reread. It
also builds the index, which therefore needs no persistence.

Keys that are not exact (`key_codes`) are kept with it, many of them in scratch space, and every
hit is compared with them: two keys of one hash are told apart, and a wrong row is never deleted. A
key that is live twice was written by another program: the table is stopped.

Costs: 8 bytes of scratch space a row for exact keys in sorted files, 12 for others, plus the keys
themselves where they are hashed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.capture import Capture
from cdcsync_core.errors import Reason, fail
from cdcsync_core.remedies import STOP_OTHER_WRITER
from cdcsync_spark.sinks.lake.key_codes import Codes, KeyCodec, same_keys
from cdcsync_spark.sinks.lake.key_runs import IN_MEMORY, Hits, Rows, Run, Scratch, joined, merged, run_of_file
from cdcsync_spark.wire.columns.typemap import arrow_type

#: so many small runs of one size class are merged into one
FANOUT = 8
#: runs of this class and above (2 million entries) stay as they are
LARGE = 4
#: keys that are looked up at a time
_BATCH = 1 << 20
_NO_CODES = np.empty(0, np.uint64)

#: what of a table is read at the same time while the index is built
_AT_ONCE = 4


@dataclass(frozen=True)
class FileVersion:
    """A live file: `vector` identifies its deletion vector, empty where there is none; `read_keys`
    reads the key columns of all its rows in physical order, `deleted` the rows that are not live.
    """

    vector: str
    read_keys: Callable[[], Iterable[pa.RecordBatch]]
    deleted: Callable[[], BitMap]


@dataclass(frozen=True)
class _Loaded:
    codes: Codes
    keys: StoredKeys | None
    deleted: BitMap


@dataclass
class _Entry:
    number: int
    rows: int
    vector: str
    deleted: BitMap
    keys: StoredKeys | None


class KeyIndex:
    """The index of `table`; `folder` is scratch space, `seed` 64 bits that cannot be guessed.

    Runs of more than `in_memory` entries lie in scratch space; `fanout` runs of one size class are
    merged.
    """

    def __init__(
        self, table: Capture, folder: Path, seed: int, *, in_memory: int = IN_MEMORY, fanout: int = FANOUT
    ) -> None:
        self.table = table
        self._codec = KeyCodec.of(table, seed)
        self._scratch = Scratch(folder, in_memory)
        self._fanout = fanout
        self._files: dict[str, _Entry] = {}
        self._paths: list[str] = []
        self._runs: list[Run] = []

    def serves(self, table: Capture) -> bool:
        """Whether its entries hold for `table`, too: the same key of the same types."""
        return KeyCodec.of(table, 0) == KeyCodec.of(self.table, 0) and _types(table) == _types(self.table)

    # -- following the table

    def sync(self, files: Mapping[str, FileVersion]) -> int:
        """Makes `files` (by path) the live ones; the number of files that were read."""
        for path in [p for p, e in self._files.items() if p not in files or files[p].vector != e.vector]:
            self.remove(path)
        missing = [path for path in files if path not in self._files]
        if missing:
            with ThreadPoolExecutor(min(_AT_ONCE, len(missing))) as pool:
                for path, loaded in zip(missing, pool.map(self._load, (files[p] for p in missing)), strict=True):
                    self._register(path, files[path].vector, loaded)
            self.merge_runs()
        return len(missing)

    def add(self, path: str, keys: Iterable[pa.RecordBatch]) -> None:
        """One more live file with the key columns of its rows, none of them deleted."""
        self._register(path, "", self._load(FileVersion("", lambda: keys, BitMap)))

    def _load(self, version: FileVersion) -> _Loaded:
        if self._codec.exact:
            codes, stored = [self._codec.codes(batch) for batch in version.read_keys()], None
        else:
            codes, stored = self._stored(version.read_keys())
        return _Loaded(np.concatenate([_NO_CODES, *codes]), stored, version.deleted())

    def _register(self, path: str, vector: str, loaded: _Loaded) -> None:
        """The file counts as known when its run is kept: where scratch space is full, neither
        is."""
        number = len(self._paths)
        run = self._scratch.keep(run_of_file(loaded.codes, number))
        self._paths.append(path)
        self._files[path] = _Entry(number, len(loaded.codes), vector, loaded.deleted, loaded.keys)
        self._runs.append(run)

    def _stored(self, keys: Iterable[pa.RecordBatch]) -> tuple[list[Codes], StoredKeys]:
        """Codes, and the keys in scratch space; one batch after the other, so that memory holds no
        file's keys."""
        codes = []
        with self._scratch.writing() as written, ExitStack() as stack:
            writer: pa.ipc.RecordBatchFileWriter | None = None
            for batch in keys:
                codes.append(self._codec.codes(batch))
                writer = writer or stack.enter_context(pa.ipc.new_file(written.file, batch.schema))
                writer.write_batch(batch)
        if writer is None:
            return codes, StoredKeys([])
        reader = pa.ipc.open_file(written.content)
        return codes, StoredKeys([reader.get_batch(i) for i in range(reader.num_record_batches)])

    def delete(self, path: str, vector: str, deleted: BitMap) -> None:
        """A live file's deleted rows, all of them, and their vector."""
        entry = self._files[path]
        entry.vector, entry.deleted = vector, deleted

    def remove(self, path: str) -> None:
        """A file that is live no more; its number stays used, its path need not be remembered. One
        that is not known, because another program brought it, needs nothing."""
        entry = self._files.pop(path, None)
        if entry is not None:
            self._paths[entry.number] = ""

    def rename(self, path: str, now: str) -> None:
        """A live file has another path; the one it had is known no more. A file that is not known,
        because another program brought it, is read by the next `sync`."""
        entry = self._files.pop(path, None)
        if entry is not None:
            self._files[now] = entry
            self._paths[entry.number] = now

    def deleted(self, path: str) -> BitMap:
        """A live file's deleted rows."""
        return self._files[path].deleted

    def rows(self, path: str) -> int:
        """A live file's rows, deleted ones included."""
        return self._files[path].rows

    def merge_runs(self) -> bool:
        """Drops runs of dead files and merges small ones, which keeps lookups fast; whether
        there was something to merge."""
        live = {e.number for e in self._files.values()}
        classes: dict[int, list[Run]] = {}
        for run in self._runs:
            if not isinstance(run.file, int) or run.file in live:
                classes.setdefault(_size_class(run, self._fanout), []).append(run)
        crowded = [size for size, runs in classes.items() if len(runs) >= self._fanout and size < LARGE]
        for size in crowded:
            classes[size] = [self._scratch.keep(merged(classes[size], self._counts))]
        self._runs = [run for runs in classes.values() for run in runs]
        return bool(crowded)

    # -- lookups

    def locate(self, keys: pa.Table) -> dict[str, Rows]:
        """The live rows of `keys` (the key columns, each key once): path -> rows. Raises
        `SinkConflict` for a key that is there twice."""
        found: dict[str, list[Rows]] = {}
        for start in range(0, keys.num_rows, _BATCH):
            # in one piece: every run is searched once, however many pieces the batch came in
            for batch in keys.slice(start, _BATCH).combine_chunks().to_batches():
                for path, rows in self._locate(batch):
                    found.setdefault(path, []).append(rows)
        return {path: np.sort(np.concatenate(parts)) for path, parts in found.items()}

    def _locate(self, keys: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
        codes = self._codec.codes(keys)
        order = np.argsort(codes, kind="stable")
        wanted = codes[order]
        found = joined([run.find(wanted) for run in self._runs])
        found = Hits(order[found.query], found.file, found.row)
        if not self._codec.exact:
            found = found.where(self._verified(found, keys))
        found = found.where(self._counts(found))
        self._refuse_twice(found)
        return ((self._paths[e.number], found.row[at]) for e, at in self._entries_of(found))

    def _counts(self, hits: Hits) -> npt.NDArray[np.bool_]:
        """Whether each entry's file is live and its row not deleted."""
        kept = np.zeros(len(hits.query), bool)
        for entry, at in self._entries_of(hits):
            kept[at] = ~_in(hits.row[at], entry.deleted)
        return kept

    def _verified(self, hits: Hits, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Whether the row of each hit holds the very key."""
        kept = np.zeros(len(hits.query), bool)
        for entry, at in self._entries_of(hits):
            assert entry.keys is not None
            kept[at] = entry.keys.equal(hits.row[at], keys.take(pa.array(hits.query[at])))
        return kept

    def _entries_of(self, hits: Hits) -> Iterable[tuple[_Entry, npt.NDArray[np.int64]]]:
        """Live files that were hit, and the indices of their hits."""
        if not len(hits.file):
            return
        order = np.argsort(hits.file, kind="stable")
        numbers, starts = np.unique(hits.file[order], return_index=True)
        for number, at in zip(numbers, np.split(order, starts[1:]), strict=True):
            entry = self._files.get(self._paths[number])
            if entry is not None and entry.number == number:
                yield entry, at

    def _refuse_twice(self, hits: Hits) -> None:
        twice = len(hits.query) - int(np.count_nonzero(np.bincount(hits.query)))
        if twice:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the target holds {twice} more rows of changed keys than keys",
                needed="each key once in the target: no other program writes rows there",
                remedy=STOP_OTHER_WRITER,
                table=str(self.table.id),
            )


class StoredKeys:
    """The keys of one file's rows, memory-mapped if they are many."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches
        self._ends = np.cumsum([b.num_rows for b in batches])

    def equal(self, rows: Rows, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Whether row `rows[i]` holds key `i` of `keys`."""
        same = np.zeros(len(rows), bool)
        batch_of = np.searchsorted(self._ends, rows, "right")
        for number in np.unique(batch_of):
            at = np.flatnonzero(batch_of == number)
            batch = self._batches[number]
            stored = batch.take(pa.array(rows[at] - (self._ends[number] - batch.num_rows)))
            same[at] = same_keys(stored, keys.take(pa.array(at)))
        return same


def _types(table: Capture) -> list[pa.DataType]:
    return [arrow_type(column.type) for column in table.key_columns]


def row_set(rows: Rows) -> BitMap:
    return BitMap(array("I", rows.astype(np.uint32, copy=False).tobytes()))


def _in(rows: Rows, deleted: BitMap) -> npt.NDArray[np.bool_]:
    """Which of `rows` are deleted."""
    if len(deleted) > len(rows):
        deleted = deleted & row_set(rows)
    if not deleted:
        return np.zeros(len(rows), bool)
    gone = np.frombuffer(deleted.to_array(), np.uint32)
    return gone[np.minimum(np.searchsorted(gone, rows), len(gone) - 1)] == rows


def _size_class(run: Run, fanout: int) -> int:
    """Powers of `fanout` from 4096 entries on."""
    size = 0
    while len(run) > 4096 * fanout**size and size < LARGE:
        size += 1
    return size
