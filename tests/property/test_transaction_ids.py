"""Transactions as columns are the same sequence, also after a file, and positions cover the same of
them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtid
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position, TransactionId
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.batch import Transactions, read_transactions, write_transactions

SOURCES = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429562:tag")
PLACES = st.builds(
    LogOffset,
    st.sampled_from(["binlog.000001", "binlog.000002", "binlog.1000000", "other.000002"]),
    st.one_of(st.integers(4, 9), st.just((1 << 64) - 1)),
)
GTIDS = st.builds(Gtid, st.sampled_from(SOURCES), st.one_of(st.integers(1, 9), st.just((1 << 63) - 1)))
GROUPS = st.tuples(st.sampled_from([0, 1, (1 << 32) - 1]), st.sampled_from([1, (1 << 32) - 1]))
SEQUENCES = st.sampled_from([0, 7, (1 << 63) - 1, (1 << 64) - 1])
MARIADB = st.builds(lambda group, sequence: str(MariaDbGtid(*group, sequence)), GROUPS, SEQUENCES)
IDS = st.lists(
    st.one_of(
        st.builds(TransactionId, PLACES, st.one_of(st.none(), GTIDS)),
        st.builds(TransactionId, PLACES, st.none(), MARIADB),
    ),
    max_size=6,
)
POSITIONS: st.SearchStrategy[Position] = st.one_of(
    st.builds(FilePosition, PLACES),
    st.lists(GTIDS, max_size=5).map(lambda gtids: GtidPosition(GtidSet().with_gtids(gtids))),
)


#: of a batch, and of a position: "" is that of one connection
BINLOGS = st.sampled_from(["", "mysql:a", "mysql:b"])


def _in_binlog(ids: list[TransactionId], binlog: str) -> list[TransactionId]:
    return [replace(t, end=t.end.in_binlog(binlog)) for t in ids] if binlog else ids


@given(ids=IDS, position=POSITIONS, of_ids=BINLOGS, of_position=BINLOGS)
def test_a_position_covers_the_same(
    ids: list[TransactionId], position: Position, of_ids: str, of_position: str
) -> None:
    """In another binlog, too, where both raise."""
    ids = _in_binlog(ids, of_ids)
    position = position.in_binlog(of_position) if of_position else position
    columns = TransactionIds(ids)
    assert columns == ids
    assert [columns[i] for i in range(len(ids))] == columns[:] == ids
    try:
        expected = [position.covers(t) for t in ids]
    except CdcError as e:
        with pytest.raises(type(e), match=re.escape(e.found)):
            columns.covered(position)
    else:
        assert columns.covered(position).tolist() == expected


@given(ids=IDS.filter(bool), time=st.one_of(st.none(), st.floats(allow_nan=False)), binlog=BINLOGS)
def test_a_file_gives_them_back(ids: list[TransactionId], time: float | None, binlog: str) -> None:
    ids = _in_binlog(ids, binlog)
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "transactions")
        write_transactions(path, Transactions(ids, [time] * len(ids)))
        found = read_transactions(path)
    assert (found.ids, found.committed_at) == (ids, [time] * len(ids))


def test_transactions_of_two_binlogs_are_no_batch() -> None:
    columns = TransactionIds([TransactionId(LogOffset("binlog.000001", 4).in_binlog("mysql:a"))])
    for end in (LogOffset("binlog.000001", 9), LogOffset("binlog.000001", 9).in_binlog("mysql:b")):
        with pytest.raises(CdcError, match="no order"):
            columns.append(TransactionId(end))


@given(numbers=st.lists(st.integers(1, 9), max_size=4), source=st.sampled_from([None, *SOURCES]))
def test_many_are_added_as_one_by_one(numbers: list[int], source: str | None) -> None:
    columns = TransactionIds()
    values = np.array(numbers, np.uint64)
    columns.extend(LogOffset("binlog.000001", 4), values + np.uint64(4), source, values)
    single = [TransactionId(LogOffset("binlog.000001", n + 4), Gtid(source, n) if source else None) for n in numbers]
    assert columns == single


@given(gtids=st.lists(st.tuples(GROUPS, st.integers(0, (1 << 63) - 1)), max_size=6))
def test_many_of_mariadb_are_added_as_one_by_one(gtids: list[tuple[tuple[int, int], int]]) -> None:
    columns = TransactionIds()
    offsets = np.arange(4, 4 + len(gtids), dtype=np.uint64)
    domains, servers = (np.array([group[i] for group, _ in gtids], np.uint32) for i in (0, 1))
    numbers = np.array([number for _, number in gtids], np.uint64)
    columns.extend_mariadb(LogOffset("binlog.000001", 4), offsets, domains, servers, numbers)
    assert columns == [
        TransactionId(LogOffset("binlog.000001", 4 + i), None, str(MariaDbGtid(*group, number)))
        for i, (group, number) in enumerate(gtids)
    ]


@given(ids=IDS, most=st.integers(1, 3))
def test_the_gtids_of_some_of_them_cover_each(ids: list[TransactionId], most: int) -> None:
    indexes = np.arange(0, len(ids), 2, dtype=np.int32)
    some = GtidSet().with_gtids([gtid for i in indexes.tolist() if (gtid := ids[i].numbered) is not None])
    assert TransactionIds(ids).gtids(indexes, most) == some.filled(most)
