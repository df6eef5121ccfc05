"""Sorted runs of key codes: the parts of a key index, in memory or memory-mapped from scratch
space. No knowledge of Delta.

A run is immutable: `codes` ascending, and for each its row and its file. Rows are left out where
they count up from 0, as in a file sorted by an exact key; the file is left out where the whole run
is of one. What is larger than `Scratch.in_memory` lies in a scratch file whose pages the system may
drop at will, so memory does not grow with the table. That file loses its name at once: it ends with
the process, however that ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_spark.sinks.lake.key_codes import Codes

#: entries that a run may have in memory
IN_MEMORY = 64 * 1024
#: codes from fence to fence (half a page of them), a power of two
FENCED = 256

Rows = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int32]


class Hits(NamedTuple):
    """Possible places of keys: `query` indexes the codes looked for, `file` numbers the file, `row`
    is the row in it."""

    query: npt.NDArray[np.int64]
    file: Numbers
    row: Rows

    def where(self, kept: npt.NDArray[Any]) -> Hits:
        """Those of a mask or of indices."""
        return Hits(self.query[kept], self.file[kept], self.row[kept])


def joined(parts: Sequence[Hits]) -> Hits:
    if not parts:
        return Hits(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint32))
    return Hits(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Run:
    """`rows` None: the row is the index; `file` is a number, or one for each entry. `fences` has
    every `FENCED`th code of a large run, near enough to the processor that most of a search costs
    little."""

    codes: Codes
    rows: Rows | None
    file: Numbers | int
    fences: Codes | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def find(self, wanted: Codes) -> Hits:
        """All entries with a code of `wanted` (ascending, may repeat)."""
        if not len(self) or not len(wanted):
            return joined([])
        first, last = np.searchsorted(wanted, self.codes[[0, -1]], "left"), len(self) - 1
        begin, end = int(first[0]), int(np.searchsorted(wanted, self.codes[-1], "right"))
        query = np.arange(begin, end, dtype=np.int64)
        at = self._search(wanted[begin:end])
        parts = []
        while len(query):
            met = self.codes[np.minimum(at, last)] == wanted[query]
            met &= at <= last
            query, at = query[met], at[met]
            if len(query):
                parts.append(self._entries(query, at))
            at = at + 1
        return joined(parts)

    def _search(self, wanted: Codes) -> npt.NDArray[np.int64]:
        """For each of `wanted`, which are not beyond the last code, the first index whose code is
        not less."""
        if self.fences is None:
            return np.searchsorted(self.codes, wanted)
        at = np.maximum(np.searchsorted(self.fences, wanted) - 1, 0) * FENCED
        last, step = len(self) - 1, FENCED
        while step := step // 2:  # the code at `at` stays less than the wanted one, but for the first of all
            further = np.minimum(at + step, last)
            at = np.where(self.codes[further] < wanted, further, at)
        return at + (self.codes[at] < wanted)

    def _entries(self, query: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> Hits:
        row = at.astype(np.uint32) if self.rows is None else self.rows[at]
        file = np.full(len(at), self.file, np.int32) if isinstance(self.file, int) else self.file[at]
        return Hits(query, file, row)

    def everything(self) -> tuple[Codes, Hits]:
        """Codes and their entries; `query` counts them."""
        count = np.arange(len(self), dtype=np.int64)
        return np.asarray(self.codes), self._entries(count, count)


def run_of_file(codes: Codes, file: int) -> Run:
    """The run of one file's codes in the order of its rows."""
    if len(codes) < 2 or bool((codes[1:] > codes[:-1]).all()):
        return Run(codes, None, file)
    order = np.argsort(codes, kind="stable")
    return Run(codes[order], order.astype(np.uint32), file)


def merged(runs: Sequence[Run], keep: Callable[[Hits], npt.NDArray[np.bool_]]) -> Run:
    """One run of several, without the entries that `keep` refuses."""
    parts = [run.everything() for run in runs]
    codes, hits = np.concatenate([c for c, _ in parts]), joined([h for _, h in parts])
    kept = keep(hits)
    codes, hits = codes[kept], hits.where(kept)
    order = np.argsort(codes, kind="stable")
    return Run(codes[order], hits.row[order], hits.file[order])


@dataclass(frozen=True)
class Scratch:
    """A folder on a local disk for what must not fill the memory: runs of more than `in_memory`
    entries."""

    folder: Path
    in_memory: int = IN_MEMORY

    def keep(self, run: Run) -> Run:
        """The same run, memory-mapped if it is large."""
        if len(run) <= self.in_memory:
            return run
        return Run(
            self._mapped(run.codes),
            None if run.rows is None else self._mapped(run.rows),
            run.file if isinstance(run.file, int) else self._mapped(run.file),
            run.codes[::FENCED].copy(),
        )

    def _mapped(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with self.writing() as written:
            written.file.write(np.ascontiguousarray(values).data)
        return np.frombuffer(memoryview(written.content), values.dtype)

    @contextmanager
    def writing(self) -> Iterator[Written]:
        """A new file; when the block ends it is mapped, and has neither a name nor a descriptor any
        more.

        What has no more bytes than the codes of a run in memory is read instead: a process may have
        65,530 maps, and each table has small files.
        """
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="index-") as file:
            written = Written(file)
            yield written
            size = file.tell()
            file.seek(0)
            if size <= self.in_memory * np.uint64().nbytes:
                written.content = pa.py_buffer(file.read())
                return
            with pa.memory_map(file.name) as mapped:
                written.content = mapped.read_buffer()


@dataclass
class Written:
    """A scratch file: `file` to write to, then `content` to read from."""

    file: IO[bytes]
    content: Any = None
