"""Digests of all rows of both sides on local disk, partitioned by the hash of their keys, and their
comparison.

A row is 32 bytes: the digest of its key, the digest of the row. Rows of one key lie in the
partition of the same number on both sides, so partitions are compared one by one, and those of a
very large table piece by piece, in memory that does not depend on the table's size. Processes write
files of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from cdcsync_spark.verify.digest import Digests

#: shape (rows, 4): key digest, row digest
Records = npt.NDArray[np.uint64]

_ROWS_IN_MEMORY = 1_000_000
_MOST_PARTITIONS = 256
_BUFFER = 1 << 16
_RECORD_BYTES = 32
#: records that are read at a time
_BLOCK = 1 << 13


def partitions_for(rows: int) -> int:
    """A power of two, so that a partition of a table of so many rows fits in memory well."""
    count = max(1, -(-rows // _ROWS_IN_MEMORY))
    return min(_MOST_PARTITIONS, 1 << (count - 1).bit_length())


class SpoolWriter:
    """Appends one process's records of one side to `folder`. A context manager."""

    def __init__(self, folder: Path, partitions: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._partitions = partitions
        self._files: list[IO[bytes]] = [
            open(folder / f"{n:03d}-{os.getpid()}.rows", "ab", buffering=_BUFFER)  # noqa: SIM115 (closed by __exit__)
            for n in range(partitions)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def add(self, keys: Digests, rows: Digests) -> None:
        """Shapes (n, 2): the digests of the keys and of the rows."""
        records = np.hstack([keys, rows])
        if self._partitions == 1:
            self._files[0].write(records.tobytes())
            return
        numbers = keys[:, 0] % np.uint64(self._partitions)
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(self._partitions, dtype=np.uint64), side="right")
        start = 0
        for file, end in zip(self._files, ends, strict=True):
            file.write(records[order[start:end]].tobytes())
            start = end


class Compared(NamedTuple):
    """`candidates`: digests of keys whose rows differ, shape (n, 2); `uncounted`: how many more
    there are."""

    source_rows: int
    target_rows: int
    candidates: Digests
    uncounted: int = 0

    def followed_by(self, other: Compared, most: int) -> Compared:
        """Both, with at most `most` candidates."""
        together = np.concatenate([self.candidates, other.candidates])
        return Compared(
            self.source_rows + other.source_rows,
            self.target_rows + other.target_rows,
            together[:most],
            self.uncounted + other.uncounted + len(together[most:]),
        )


_NOTHING = Compared(0, 0, np.empty((0, 2), np.uint64))


@dataclass(frozen=True)
class RecordSpool:
    """The records of both sides of one table: `<folder>/source`, `<folder>/target`."""

    folder: Path
    partitions: int

    def source(self) -> SpoolWriter:
        return SpoolWriter(self.folder / "source", self.partitions)

    def target(self) -> SpoolWriter:
        return SpoolWriter(self.folder / "target", self.partitions)

    def compare(self, most: int, rows_in_memory: int = 2 * _ROWS_IN_MEMORY) -> Compared:
        """Partition by partition, when all writers are closed; at most `most` candidates. A
        partition of more than `rows_in_memory` is compared in pieces."""
        compared = _NOTHING
        for number in range(self.partitions):
            largest = max(self._rows("source", number), self._rows("target", number))
            pieces = max(1, -(-largest // rows_in_memory))
            for piece in range(pieces):
                sides = (self._read(side, number, piece, pieces) for side in ("source", "target"))
                compared = compared.followed_by(compare(*sides), most)
        return compared

    def _files(self, side: str, partition: int) -> list[Path]:
        return sorted((self.folder / side).glob(f"{partition:03d}-*.rows"))

    def _rows(self, side: str, partition: int) -> int:
        return sum(file.stat().st_size for file in self._files(side, partition)) // _RECORD_BYTES

    def _read(self, side: str, partition: int, piece: int, pieces: int) -> Records:
        """The records of one of so many pieces, by bits of the key's digest that name no
        partition."""
        parts = [np.empty((0, 4), np.uint64)]
        for file in self._files(side, partition):
            for records in _blocks(file):
                in_piece = (records[:, 0] >> np.uint64(32)) % np.uint64(pieces) == np.uint64(piece)
                parts.append(records if pieces == 1 else records[in_piece])
        return np.concatenate(parts)


def _blocks(path: Path) -> Iterator[Records]:
    with path.open("rb") as file:
        while len(records := np.fromfile(file, np.uint64, 4 * _BLOCK)):
            yield records.reshape(-1, 4)


def compare(source: Records, target: Records) -> Compared:
    """Which keys are not exactly once on both sides with the same row.

    Sums of digests would be quicker and are not safe: multilinear digests of rows that swapped
    their values can have the same sum.
    """
    both = np.concatenate([source, target])
    side = np.repeat(np.array([0, 1], np.int8), [len(source), len(target)])
    order = np.argsort(both[:, 0])
    both, side = both[order], side[order]
    rest = ~_paired(both, side)
    return Compared(len(source), len(target), _differing(both[rest], side[rest]))


def _paired(both: Records, side: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Which records stand beside their equal of the other side, with no other record of the same
    first word."""
    paired = np.zeros(len(both), bool)
    if len(both) < 2:
        return paired
    same = np.concatenate([[False], both[1:, 0] == both[:-1, 0], [False]])
    first = same[1:-1] & ~same[:-2] & ~same[2:]
    first &= (side[1:] != side[:-1]) & np.all(both[1:] == both[:-1], axis=1)
    paired[:-1] |= first
    paired[1:] |= first
    return paired


def _differing(both: Records, side: npt.NDArray[np.int8]) -> Digests:
    """The keys, over all records that are left, whatever their order."""
    if not len(both):
        return np.empty((0, 2), np.uint64)
    order = np.lexsort((both[:, 1], both[:, 0]))
    both, side = both[order], side[order]
    starts = np.flatnonzero(np.concatenate([[True], np.any(both[1:, :2] != both[:-1, :2], axis=1)]))
    counts = np.diff(np.append(starts, len(both)))
    in_target = np.add.reduceat(side.astype(np.int64), starts)
    first, last = both[starts, 2:], both[starts + counts - 1, 2:]
    equal = (counts == 2) & (in_target == 1) & np.all(first == last, axis=1)
    return both[starts[~equal], :2]
