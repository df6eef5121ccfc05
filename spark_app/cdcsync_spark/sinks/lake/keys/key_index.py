"""Which row of which file holds a key: the index with which a batch finds the rows that it
replaces.

The index is a set of sorted runs (`key_runs`), one for each large file and merged ones for the
small, and per file the rows that are deleted. An entry counts only while its file is live and its
row is not deleted, so the metadata alone decides and a stale entry does no harm. Merging leaves
stale entries out, and where they outnumber the live ones, a purge does (`key_purge`). Hence `sync`
can bring the index to any version of the table, by any writer: files that are gone are dropped,
files that are new, or whose deletions another program changed, are reread. It also builds the
index, which therefore needs no persistence.

Keys that are not exact (`key_codes`) are kept with it, many of them in scratch space, and every
hit is compared with them: two keys of one hash are told apart, and a wrong row is never deleted. A
key that is live twice was written by another program: the table is stopped.

Costs: 8 bytes of scratch space a row for exact keys in sorted files that do not overlap, 16 for
others, plus the keys themselves where they are hashed; stale entries count as rows. The memory for
building, merging and lookups is that of some blocks, whatever the table; what grows is a bit a row
for deleted rows at most.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.errors import Reason, fail
from cdcsync_core.remedies import STOP_OTHER_WRITER
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.rows.arrow_types import arrow_type
from cdcsync_spark.sinks.lake.keys.key_codes import Codes, KeyCodec
from cdcsync_spark.sinks.lake.keys.key_purge import Purge, worth_purging
from cdcsync_spark.sinks.lake.keys.key_runs import BLOCK, Hits, Rows, Run, chained, joined, merged, sorted_runs
from cdcsync_spark.sinks.lake.keys.scratch import IN_MEMORY, Scratch
from cdcsync_spark.sinks.lake.keys.stored_keys import StoredKeys

#: so many small runs of one size class are merged into one
FANOUT = 8
#: runs of this class and above (2 million entries) stay as they are
LARGE = 4
#: runs that are merged into one at most
_WAYS = 64
#: what small files may have in memory together, in runs of the largest size that stays there;
#: a run counts as so many entries more
_SMALL, _RUN = 4, 256
#: the index is purged when there are more stale entries than live ones, and than so many runs of
#: the largest size that stays in memory have
_STALE = 16
#: entries that a purge reads at each step for each one that has come, and blocks at least
_PURGED, _PURGED_BLOCKS = 4, 2
#: keys that are looked up at a time
_BATCH = 1 << 18

#: files that are read at the same time while the index is built, and whose index waits in memory
#: to be taken in
_AT_ONCE, _WAITING = 4, 32


@dataclass(frozen=True)
class FileVersion:
    """A live file: `vector` identifies its deletion vector, empty where there is none; `read_keys`
    reads the key columns of all its rows in physical order, `deleted` the rows that are not live.
    """

    vector: str
    read_keys: Callable[[], Iterable[pa.RecordBatch]]
    deleted: Callable[[], BitMap]


class Located(NamedTuple):
    """Live rows of the file `path` that hold keys: row `rows[i]` the one of number `keys[i]` among
    those asked for."""

    path: str
    keys: npt.NDArray[np.int64]
    rows: Rows


@dataclass(frozen=True)
class _Loaded:
    runs: list[Run]
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
    merged, `block` entries at a time.
    """

    def __init__(
        self,
        table: Capture,
        folder: Path,
        seed: int,
        *,
        in_memory: int = IN_MEMORY,
        fanout: int = FANOUT,
        block: int = BLOCK,
    ) -> None:
        self.table = table
        self._codec = KeyCodec.of(table, seed)
        self._scratch = Scratch(folder, in_memory)
        self._fanout = fanout
        self._block = block
        self._files: dict[str, _Entry] = {}
        self._paths: list[str] = []
        self._runs: list[Run] = []
        self._in_memory = 0
        self._small_keys: list[StoredKeys] = []
        self._purge: Purge | None = None
        self._added = 0

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
                for start in range(0, len(missing), _WAITING):
                    some = missing[start : start + _WAITING]
                    for path, loaded in zip(some, pool.map(self._load, (files[p] for p in some)), strict=True):
                        self._register(path, files[path].vector, loaded)
            self.merge_runs()
        return len(missing)

    def add(self, path: str, keys: Iterable[pa.RecordBatch]) -> None:
        """One more live file with the key columns of its rows, none of them deleted."""
        self._register(path, "", self._load(FileVersion("", lambda: keys, BitMap)))

    def _load(self, version: FileVersion) -> _Loaded:
        if self._codec.exact:
            stored, runs = None, self._sorted(map(self._codec.codes, version.read_keys()))
        else:
            stored, runs = self._stored(version.read_keys())
        return _Loaded(runs, stored, version.deleted())

    def _sorted(self, codes: Iterable[Codes]) -> list[Run]:
        return sorted_runs(codes, 0, self._scratch, self._block)

    def _stored(self, keys: Iterable[pa.RecordBatch]) -> tuple[StoredKeys, list[Run]]:
        """The keys in scratch space, and their codes; one batch after the other, so that memory
        holds no file's keys."""
        with self._scratch.writing() as written, ExitStack() as stack:
            writer: pa.ipc.RecordBatchFileWriter | None = None

            def codes() -> Iterator[Codes]:
                nonlocal writer
                for batch in keys:
                    writer = writer or stack.enter_context(pa.ipc.new_file(written.file, batch.schema))
                    writer.write_batch(batch)
                    yield self._codec.codes(batch)

            runs = self._sorted(codes())
        return StoredKeys(written.content), runs

    def _register(self, path: str, vector: str, loaded: _Loaded) -> None:
        """The file counts as known when scratch space has what belongs there: where it is full, the
        file is read again."""
        self._make_room()
        number = len(self._paths)
        self._paths.append(path)
        rows = sum(map(len, loaded.runs))
        self._files[path] = _Entry(number, rows, vector, loaded.deleted, loaded.keys)
        self._runs += [replace(run, file=number) for run in loaded.runs]
        self._added += rows
        self._in_memory += sum(len(run) + _RUN for run in loaded.runs if run.in_memory)
        if loaded.keys is not None and loaded.keys.size <= self._scratch.read_bytes:
            self._small_keys.append(loaded.keys)

    def _make_room(self) -> None:
        """Many small files have no more in memory than one large."""
        if self._in_memory > _SMALL * self._scratch.in_memory:
            small = [run for run in self._live_runs() if run.in_memory]
            self._take_runs([*(run for run in self._runs if not run.in_memory), *self._merged(small)])
        if sum(keys.size for keys in self._small_keys) > _SMALL * self._scratch.read_bytes:
            live = {id(entry.keys) for entry in self._files.values()}
            self._scratch.move([keys for keys in self._small_keys if id(keys) in live])
            self._small_keys = []

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
        """Drops runs of dead files and merges small ones, which keeps lookups fast; whether there
        was something to merge. A purge goes on a little, so that it holds up no commit."""
        self._advance_purge()
        classes: dict[int, list[Run]] = {}
        for run in self._live_runs():
            merges = self._purge is None or not self._purge.has(run)
            classes.setdefault(_size_class(run, self._fanout) if merges else LARGE, []).append(run)
        crowded = [size for size, runs in classes.items() if len(runs) >= self._fanout and size < LARGE]
        for size in crowded:
            classes[size] = self._merged(classes[size])
        self._take_runs([run for runs in classes.values() for run in runs])
        return bool(crowded)

    def _advance_purge(self) -> None:
        """A purge that fails leaves the runs as they are."""
        purge, self._purge = self._purge or self._new_purge(), None
        if purge is None:
            return
        run = purge.advance(max(_PURGED * self._added, _PURGED_BLOCKS * self._block))
        self._added = 0
        if run is None:
            self._purge = purge
        else:
            self._take_runs([*(other for other in self._runs if not purge.has(other)), run])

    def _new_purge(self) -> Purge | None:
        """None where there are not too many stale entries."""
        entries, few = sum(map(len, self._runs)), _STALE * self._scratch.in_memory
        if entries <= few:
            return None
        live = np.zeros(len(self._paths), np.int64)
        for entry in self._files.values():
            live[entry.number] = entry.rows - len(entry.deleted)
        rows = int(live.sum())
        if entries - rows <= max(rows, few):
            return None
        self._added = 0
        runs = [run for run in self._runs if worth_purging(run, live)]
        return Purge(runs, self._counts, self._scratch, self._block)

    def _live_runs(self) -> list[Run]:
        live = np.array([e.number for e in self._files.values()], np.int32)
        return [run for run in self._runs if run.parts is None or np.isin(run.parts.numbers, live).any()]

    def _merged(self, runs: Sequence[Run]) -> list[Run]:
        """One run, or as few as `_WAYS` allows."""
        if not runs:
            return []
        if chain := chained(runs, self._scratch, self._block):
            return [chain]
        group = -(-len(runs) // -(-len(runs) // _WAYS))
        return [
            merged(runs[start : start + group], self._counts, self._scratch, self._block)
            for start in range(0, len(runs), group)
        ]

    def _take_runs(self, runs: list[Run]) -> None:
        self._runs = runs
        self._in_memory = sum(len(run) + _RUN for run in runs if run.in_memory)

    # -- lookups

    def locate(self, keys: pa.Table) -> list[Located]:
        """The live rows of `keys` (the key columns, each key once); a file may come several times.
        Raises `SinkConflict` for a key that is there twice."""
        located: list[Located] = []
        for start in range(0, keys.num_rows, _BATCH):
            # in one piece: every run is searched once, however many pieces the batch came in
            for batch in keys.slice(start, _BATCH).combine_chunks().to_batches():
                located += self._locate(batch, start)
                start += batch.num_rows
        return located

    def _locate(self, keys: pa.RecordBatch, first: int) -> Iterator[Located]:
        """`first` is the number of the first key."""
        codes = self._codec.codes(keys)
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        hits = joined([run.find(ordered) for run in self._runs])
        hits = Hits(order[hits.query], hits.file, hits.row)
        if not self._codec.exact:
            hits = hits.where(self._verified(hits, keys))
        hits = hits.where(self._counts(hits))
        self._refuse_twice(hits)
        return (
            Located(self._paths[e.number], first + hits.query[at], hits.row[at]) for e, at in self._entries_of(hits)
        )

    def _counts(self, hits: Hits) -> npt.NDArray[np.bool_]:
        """Whether each entry's file is live and its row not deleted."""
        counts = np.zeros(len(hits.query), bool)
        for entry, at in self._entries_of(hits):
            counts[at] = ~_in(hits.row[at], entry.deleted)
        return counts

    def _verified(self, hits: Hits, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Whether the row of each hit holds the very key."""
        equal = np.zeros(len(hits.query), bool)
        for entry, at in self._entries_of(hits):
            assert entry.keys is not None
            equal[at] = entry.keys.equal(hits.row[at], keys.take(pa.array(hits.query[at])))
        return equal

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


def _types(table: Capture) -> list[pa.DataType]:
    return [arrow_type(column.type) for column in table.key_columns]


def rows_of_files(located: Iterable[Located]) -> dict[str, BitMap]:
    """The rows of each file, by its path."""
    rows_by_path: dict[str, BitMap] = {}
    for path, _, rows in located:
        rows_by_path[path] = rows_by_path[path] | row_set(rows) if path in rows_by_path else row_set(rows)
    return rows_by_path


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
