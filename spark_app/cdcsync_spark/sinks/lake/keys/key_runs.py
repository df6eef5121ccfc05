"""Sorted runs of key codes: the parts of a key index, in memory or memory-mapped from scratch
space. No knowledge of Delta.

A run is immutable: `codes` ascending, and for each its row and its file. Rows are left out where
they count up from 0, as in a file sorted by an exact key, and in files of which one begins where
the other ends; the file is left out where the whole run is of one. Runs are sorted and merged block
by block, and what is larger than `Scratch.in_memory` lies in scratch space, so memory does not grow
with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cdcsync_spark.sinks.lake.keys.key_codes import Codes
from cdcsync_spark.sinks.lake.keys.scratch import Blocks, Scratch, Steps, address_of, finished, read_ahead, read_whole

#: entries that are sorted or merged at a time; the memory for it is some 64 bytes each
BLOCK = 512 * 1024
#: codes from fence to fence (half a page of them), a power of two
FENCED = 256

Rows = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int32]
Keep = Callable[["Hits"], npt.NDArray[np.bool_]]
#: an entry of a merged run: what a key needs of it is on one page
_ENTRY = np.dtype([("code", np.uint64), ("row", np.uint32), ("file", np.int32)])


class Hits(NamedTuple):
    """Possible places of keys: `query` indexes the codes looked for, `file` numbers the file, `row`
    is the row in it."""

    query: npt.NDArray[np.int64]
    file: Numbers
    row: Rows

    def where(self, flags: npt.NDArray[Any]) -> Hits:
        """The hits of a mask or of indices."""
        return Hits(self.query[flags], self.file[flags], self.row[flags])


def joined(parts: Sequence[Hits]) -> Hits:
    if not parts:
        return Hits(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint32))
    return Hits(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Parts:
    """Whole files one after the other: for each its first entry, ascending, and its number."""

    starts: npt.NDArray[np.int64]
    numbers: Numbers


@dataclass(frozen=True)
class Run:
    """`rows` None: the row is the index in the file's part; `file` is a number, parts, or a number
    for each entry. `fences` has every `FENCED`th code of a run in scratch space, few enough pages
    that most of a search costs little."""

    codes: Codes
    rows: Rows | None
    file: Numbers | Parts | int
    fences: Codes | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def in_memory(self) -> bool:
        return self.fences is None

    @property
    def parts(self) -> Parts | None:
        """Its files where it has all rows of them."""
        if isinstance(self.file, int):
            return Parts(np.zeros(1, np.int64), np.array([self.file], np.int32))
        return self.file if isinstance(self.file, Parts) else None

    def find(self, codes: Codes) -> Hits:
        """All entries with a code of `codes` (ascending, may repeat)."""
        if not len(self) or not len(codes):
            return joined([])
        first, last = np.searchsorted(codes, self.codes[[0, -1]], "left"), len(self) - 1
        begin, end = int(first[0]), int(np.searchsorted(codes, self.codes[-1], "right"))
        query = np.arange(begin, end, dtype=np.int64)
        at = self._search(codes[begin:end])
        parts = []
        while len(query):
            met = self.codes[np.minimum(at, last)] == codes[query]
            met &= at <= last
            query, at = query[met], at[met]
            if len(query):
                parts.append(self._entries(query, at))
            at = at + 1
        return joined(parts)

    def _search(self, codes: Codes) -> npt.NDArray[np.int64]:
        """For each of `codes`, which are not beyond the last code, the first index whose code is
        not less."""
        if self.fences is None:
            return np.searchsorted(self.codes, codes)
        at = np.maximum(np.searchsorted(self.fences, codes) - 1, 0) * FENCED
        read_ahead(address_of(self.codes) + at * self.codes.strides[0], FENCED * self.codes.strides[0])
        last, step = len(self) - 1, FENCED
        while step := step // 2:  # the code at `at` stays less than the wanted one, but for the first of all
            further = np.minimum(at + step, last)
            at = np.where(self.codes[further] < codes, further, at)
        return at + (self.codes[at] < codes)

    def _entries(self, query: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> Hits:
        if isinstance(self.file, Parts):
            part = np.searchsorted(self.file.starts, at, "right") - 1
            return Hits(query, self.file.numbers[part], (at - self.file.starts[part]).astype(np.uint32))
        row = at.astype(np.uint32) if self.rows is None else self.rows[at]
        file = np.full(len(at), self.file, np.int32) if isinstance(self.file, int) else self.file[at]
        return Hits(query, file, row)

    def part(self, start: int, stop: int) -> tuple[Codes, Hits]:
        """Codes and entries from `start` to `stop`; `query` counts them."""
        at = np.arange(start, stop, dtype=np.int64)
        if self.rows is not None:
            read_whole(self.rows[start:stop])
        return self.codes[start:stop], self._entries(at - start, at)


def sorted_runs(blocks: Iterable[Codes], file: int, scratch: Scratch, block: int = BLOCK) -> list[Run]:
    """One file's codes, which come in the order of its rows: one run where they ascend, else one
    for each `block` of them."""
    ascending = _Ascending()
    codes, fences = scratch.written(_with_fences((b,) for b in ascending.watched(blocks)), (np.uint64, np.uint64))
    if ascending:
        return [Run(codes, None, file, fences if len(codes) > scratch.in_memory else None)] if len(codes) else []
    return [_sorted_part(codes, start, file, scratch, block) for start in range(0, len(codes), block)]


def _sorted_part(codes: Codes, start: int, file: int, scratch: Scratch, block: int) -> Run:
    part = read_whole(codes[start : start + block])
    order = np.argsort(part)
    codes, rows = part[order], (order + start).astype(np.uint32)
    if len(codes) <= scratch.in_memory:
        return Run(codes, rows, file)
    mapped = scratch.written([(codes, codes[::FENCED], rows)], (np.uint64, np.uint64, np.uint32))
    return Run(mapped[0], mapped[2], file, mapped[1])


class _Ascending:
    """Whether the codes that went through `watched` ascend, none of them twice."""

    def __init__(self) -> None:
        self._ascending = True

    def __bool__(self) -> bool:
        return self._ascending

    def watched(self, blocks: Iterable[Codes]) -> Iterator[Codes]:
        last: Codes = np.empty(0, np.uint64)
        for block in blocks:
            begins = not len(last) or not len(block) or bool(block[0] > last[0])
            self._ascending = self._ascending and begins and bool((block[1:] > block[:-1]).all())
            last = block[-1:] if len(block) else last
            yield block


def chained(runs: Sequence[Run], scratch: Scratch, block: int = BLOCK) -> Run | None:
    """One run of runs without rows, each of which begins behind the end of another; None where they
    are others."""
    runs = sorted((run for run in runs if len(run)), key=lambda run: int(run.codes[0]))
    parts = [run.parts for run in runs if run.rows is None]
    whole = [part for part in parts if part is not None]
    if not runs or len(whole) < len(runs) or any(one.codes[-1] >= two.codes[0] for one, two in pairwise(runs)):
        return None
    pieces = ((read_whole(run.codes[at : at + block]),) for run in runs for at in range(0, len(run), block))
    codes, fences = scratch.written(_with_fences(pieces), (np.uint64, np.uint64))
    firsts = [0, *accumulate(map(len, runs))][:-1]
    starts = np.concatenate([first + part.starts for first, part in zip(firsts, whole, strict=True)])
    file = Parts(starts, np.concatenate([part.numbers for part in whole]))
    return Run(codes, None, file, fences if len(codes) > scratch.in_memory else None)


def merged(runs: Sequence[Run], keep: Keep, scratch: Scratch, block: int = BLOCK) -> Run:
    """One run of several, without the entries that `keep` refuses."""
    return finished(merging(runs, keep, scratch, block))


def merging(runs: Sequence[Run], keep: Keep, scratch: Scratch, block: int = BLOCK) -> Steps[Run]:
    """`merged`, at most `block` entries at a step."""
    runs = [run for run in runs if len(run)]
    blocks = (_entries(codes, hits, keep) for codes, hits in _merged_blocks(runs, block)) if runs else ()
    entries, fences = yield from scratch.writing_columns(_with_fences(blocks), (_ENTRY, np.uint64))
    large = len(entries) > scratch.in_memory
    return Run(entries["code"], entries["row"], entries["file"], fences if large else None)


def _merged_blocks(runs: Sequence[Run], block: int) -> Iterator[tuple[Codes, Hits]]:
    """All entries in the order of their codes, at most `block` at a time: of each run a window,
    and of the windows what is not beyond the end of any of them."""
    window, at = max(1, block // len(runs)), [0] * len(runs)
    begins = np.array([run.codes[0] for run in runs])
    ends = np.array([read_whole(run.codes[:window])[-1] for run in runs])
    live = np.ones(len(runs), bool)
    while live.any():
        least, parts = ends[live].min(), []
        for number in map(int, np.flatnonzero(live & (begins <= least))):
            run, start = runs[number], at[number]
            stop = start + int(np.searchsorted(run.codes[start : start + window], least, "right"))
            parts.append(run.part(start, stop))
            at[number], live[number] = stop, stop < len(run)
            if live[number]:
                begins[number], ends[number] = run.codes[stop], read_whole(run.codes[stop : stop + window])[-1]
        yield _in_order(parts)


def _in_order(parts: Sequence[tuple[Codes, Hits]]) -> tuple[Codes, Hits]:
    if len(parts) == 1:
        return parts[0]
    codes, hits = np.concatenate([c for c, _ in parts]), joined([h for _, h in parts])
    order = np.argsort(codes, kind="stable")  # of sorted parts
    return codes[order], hits.where(order)


def _entries(codes: Codes, hits: Hits, keep: Keep) -> tuple[npt.NDArray[Any]]:
    flags = keep(hits)
    entries = np.empty(int(np.count_nonzero(flags)), _ENTRY)
    entries["code"], entries["row"], entries["file"] = codes[flags], hits.row[flags], hits.file[flags]
    return (entries,)


def _with_fences(blocks: Blocks) -> Blocks:
    """Codes or entries, and every `FENCED`th code."""
    count = 0
    for (block,) in blocks:
        codes = block["code"] if block.dtype == _ENTRY else block
        yield block, codes[-count % FENCED :: FENCED]
        count += len(block)
