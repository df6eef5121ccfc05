"""The transactions of a batch as columns: where each ends in which file, and its GTID.

Why it exists: a batch of transactions of one row has as many of them as changes, and an object for
each costs more than its row. Why it is right: it is a sequence of `TransactionId`, to which
`covered` answers for all what `Position.covers` answers for one
(`tests/property/test_transaction_ids.py`). A GTID is a number of a source (MySQL) or of a group,
`domain-server` (MariaDB), which `covered` does not ask for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.positions.gtid import Gtid, GtidSet, Interval
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.position import (
    FilePosition,
    LogOffset,
    Place,
    Position,
    TransactionId,
    binlog_of,
    file_number,
    other_binlog,
    other_kind,
)

_NONE = -1


class TransactionIds(Sequence[TransactionId]):
    """Grows at its end. All of them end in one binlog, which the first one names, as in `Place`."""

    def __init__(self, ids: Iterable[TransactionId] = ()) -> None:
        self.binlog: BinlogId | None = None
        self._names: dict[str, int] = {}
        self._files, self._offsets = array("i"), array("Q")
        self._sources, self._groups, self._numbers = array("i"), array("i"), array("Q")
        for transaction in ids:
            self.append(transaction)

    def append(self, transaction: TransactionId) -> None:
        gtid = transaction.gtid
        group, _, number = transaction.mariadb_gtid.rpartition("-")
        self._enter(transaction.end)
        self._files.append(self._name(transaction.end.file))
        self._offsets.append(transaction.end.offset)
        self._sources.append(_NONE if gtid is None else self._name(gtid.source))
        self._groups.append(self._name(group) if group else _NONE)
        self._numbers.append(gtid.number if gtid else int(number or 0))

    def extend(
        self, begin: LogOffset, offsets: npt.NDArray[np.uint64], source: str | None, numbers: npt.NDArray[np.uint64]
    ) -> None:
        """Transactions of one source in the file of `begin`; `numbers` mean nothing without a
        source."""
        count = len(offsets)
        self._place(begin, offsets)
        self._sources.extend([_NONE if source is None else self._name(source)] * count)
        self._groups.extend([_NONE] * count)
        self._numbers.frombytes((numbers if source is not None else np.zeros(count, np.uint64)).tobytes())

    def extend_mariadb(
        self,
        begin: LogOffset,
        offsets: npt.NDArray[np.uint64],
        domains: npt.NDArray[np.uint32],
        servers: npt.NDArray[np.uint32],
        numbers: npt.NDArray[np.uint64],
    ) -> None:
        """Transactions in the file of `begin` with MariaDB's GTIDs, whose groups may alternate."""
        groups, of = np.unique(domains.astype(np.uint64) << np.uint64(32) | servers, return_inverse=True)
        names = np.array([self._name(f"{group >> 32}-{group & 0xFFFFFFFF}") for group in groups.tolist()], np.int32)
        self._place(begin, offsets)
        self._sources.extend([_NONE] * len(offsets))
        self._groups.frombytes(names[of].tobytes())
        self._numbers.frombytes(numbers.tobytes())

    def _place(self, begin: LogOffset, offsets: npt.NDArray[np.uint64]) -> None:
        self._enter(begin)
        self._files.extend([self._name(begin.file)] * len(offsets))
        self._offsets.frombytes(offsets.tobytes())

    def _enter(self, place: LogOffset) -> None:
        if not self._offsets:
            self.binlog = binlog_of(place)
        self._refuse_other_binlog(place)

    def _refuse_other_binlog(self, place: LogOffset) -> None:
        binlog = binlog_of(place)
        if binlog != self.binlog:
            raise other_binlog(binlog or "", self.binlog or "")

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> TransactionId: ...
    @overload
    def __getitem__(self, index: slice) -> list[TransactionId]: ...
    def __getitem__(self, index: int | slice) -> TransactionId | list[TransactionId]:
        names = list(self._names)
        columns = (self._files, self._offsets, self._sources, self._groups, self._numbers)
        if isinstance(index, slice):
            rows = zip(*(column[index] for column in columns), strict=True)
            return [_transaction(self.binlog, names, *row) for row in rows]
        return _transaction(self.binlog, names, *(column[index] for column in columns))

    def __iter__(self) -> Iterator[TransactionId]:
        names = list(self._names)
        for row in zip(self._files, self._offsets, self._sources, self._groups, self._numbers, strict=True):
            yield _transaction(self.binlog, names, *row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def covered(self, position: Position) -> npt.NDArray[np.bool_]:
        """`position.covers` of each; raises PositionLost as it does."""
        if isinstance(position, FilePosition):
            return self._before(position.at)
        sources, numbers = np.array(self._sources), np.array(self._numbers, np.uint64)
        if (sources == _NONE).any():
            raise other_kind()
        flags = np.zeros(len(self), bool)
        for source, intervals in position.gtids.items():
            if source not in self._names:
                continue
            edges = np.array(intervals, np.uint64)
            place = np.searchsorted(edges[:, 0], numbers, "right") - 1
            inside = (place >= 0) & (numbers <= edges[place, 1])
            flags |= (sources == self._names[source]) & inside
        return flags

    def _before(self, place: LogOffset) -> npt.NDArray[np.bool_]:
        if len(self):
            self._refuse_other_binlog(place)
        files, offsets = np.array(self._files), np.array(self._offsets, np.uint64)
        flags = np.zeros(len(self), bool)
        for file in np.unique(files).tolist():
            name = list(self._names)[file]
            order = 0 if name == place.file else file_number(name) - place.number
            inside = np.full(len(self), order < 0) if order else offsets <= place.offset
            flags |= (files == file) & inside
        return flags

    def gtids(self, indexes: npt.NDArray[np.int32], most: int) -> GtidSet:
        """Covers the GTIDs of those with these indexes, with at most `most` intervals of each
        source."""
        of_mysql, groups = np.array(self._sources)[indexes], np.array(self._groups)[indexes]
        sources, numbers = np.where(of_mysql == _NONE, groups, of_mysql), np.array(self._numbers, np.uint64)[indexes]
        names, numbered = list(self._names), numbers > 0
        sources, numbers = sources[numbered], numbers[numbered]
        intervals = {
            names[source]: intervals_of(np.sort(numbers[sources == source]))
            for source in np.unique(sources).tolist()
            if source != _NONE
        }
        return GtidSet(intervals).filled(most)

    def to_columns(self) -> dict[str, pa.Array]:
        """The inverse of `of_columns`."""
        names = pa.array(list(self._names), pa.string())
        return {
            "file": pa.DictionaryArray.from_arrays(pa.array(np.array(self._files, np.int32)), names),
            "offset": pa.array(np.array(self._offsets, np.uint64)),
            "source": _named(self._sources, names),
            "group": _named(self._groups, names),
            "number": pa.array(np.array(self._numbers, np.uint64)),
        }

    @classmethod
    def of_columns(cls, table: pa.Table, binlog: BinlogId | None = None) -> TransactionIds:
        ids = cls()
        ids.binlog = binlog
        files, sources, groups = (table[name].combine_chunks() for name in ("file", "source", "group"))
        ids._names = {name: i for i, name in enumerate(files.dictionary.to_pylist())}
        ids._files = array("i", files.indices.to_numpy().tobytes())
        ids._sources = array("i", sources.indices.fill_null(_NONE).to_numpy().tobytes())
        ids._groups = array("i", groups.indices.fill_null(_NONE).to_numpy().tobytes())
        ids._offsets = array("Q", table["offset"].to_numpy().tobytes())
        ids._numbers = array("Q", table["number"].to_numpy().tobytes())
        return ids


def _transaction(
    binlog: BinlogId | None, names: Sequence[str], file: int, offset: int, source: int, group: int, number: int
) -> TransactionId:
    end = Place(names[file], offset, binlog) if binlog else LogOffset(names[file], offset)
    gtid = None if source == _NONE else Gtid(names[source], number)
    return TransactionId(end, gtid, "" if group == _NONE else f"{names[group]}-{number}")


def intervals_of(numbers: npt.NDArray[Any]) -> list[Interval]:
    """The intervals of at least one number, each of which is one more than the one before or begins
    another interval."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    first, last = numbers[np.append(0, breaks)], numbers[np.append(breaks, len(numbers)) - 1]
    return list(zip(first.tolist(), last.tolist(), strict=True))


def _named(places: array[int], names: pa.Array) -> pa.DictionaryArray:
    indexes = np.array(places, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indexes, mask=indexes == _NONE), names)
