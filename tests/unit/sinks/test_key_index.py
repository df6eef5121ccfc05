"""The key index: every live key is found, no other row ever is, whatever the hash does (R8: the
Delta log alone decides)."""

from __future__ import annotations

import datetime as dt
import errno
import tracemalloc
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.lake.keys import key_index, scratch
from cdcsync_spark.sinks.lake.keys.key_codes import Codes, KeyCodec
from cdcsync_spark.sinks.lake.keys.key_index import FileVersion, KeyIndex, rows_of_files
from contract.sinkcase import Row, keys_of, make_table
from support.traced import traced

EXACT = {
    "tinyint(4)": [-128, -1, 0, 127],
    "smallint(6)": [-(2**15), 0, 2**15 - 1],
    "int(11)": [-(2**31), -1, 0, 1, 2**31 - 1],
    "int(10) unsigned": [0, 2**31, 2**32 - 1],
    "bigint(20)": [-(2**63), -1, 0, 2**63 - 1],
    "bigint(20) unsigned": [Decimal(n) for n in (0, 1, 2**63, 2**64 - 1)],
    "date": [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "datetime(6)": [dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime.max],
    "bit(1)": [False, True],
    "year(4)": [1901, 2155],
}
HASHED = {
    "varchar(40)": ["", "\0", "a", "a\0", "abcdefgh", "abcdefghi", "ä" * 40],
    "varbinary(40)": [b"", b"\0", b"\0" * 8, b"\0" * 9, b"\xff" * 40],
    "decimal(30,3)": [Decimal("-1.000"), Decimal("0.001"), Decimal("9" * 27)],
}


def one_key(declared: str) -> Capture:
    return make_table({"k": declared}, ["k"])


def batch_of(table: Capture, keys: Iterable[Row]) -> pa.RecordBatch:
    return keys_of(table, keys).combine_chunks().to_batches()[0]


def codes_of(table: Capture, keys: list[Row], seed: int = 7) -> Codes:
    return KeyCodec.of(table, seed).codes(batch_of(table, keys))


@pytest.mark.parametrize("declared", EXACT)
def test_exact_codes_are_ordered_as_the_keys(declared: str) -> None:
    table = one_key(declared)
    assert KeyCodec.of(table, 0).exact
    codes = codes_of(table, [(v,) for v in EXACT[declared]])
    assert (codes[1:] > codes[:-1]).all()


def test_short_composite_keys_are_exact_and_ordered() -> None:
    table = make_table({"a": "int(11)", "b": "smallint(6)", "c": "tinyint(3) unsigned"}, ["a", "b", "c"])
    keys = [(a, b, c) for a in (-5, 0, 7) for b in (-1, 0) for c in (0, 255)]
    codes = codes_of(table, keys)
    assert KeyCodec.of(table, 0).exact
    assert (codes[1:] > codes[:-1]).all()
    assert not KeyCodec.of(make_table({"a": "bigint(20)", "b": "int(11)"}, ["a", "b"]), 0).exact


@pytest.mark.parametrize("declared", HASHED)
def test_a_keys_hash_is_its_own_whatever_batch_it_is_in(declared: str) -> None:
    """A hash that depended on its neighbours would find a key in one batch and not in another."""
    table, values = one_key(declared), HASHED[declared]
    together = codes_of(table, [(v,) for v in values])
    alone = [codes_of(table, [(v,)])[0] for v in values]
    sliced = KeyCodec.of(table, 7).codes(batch_of(table, [(values[0],), *((v,) for v in values)]).slice(1))
    assert together.tolist() == alone == sliced.tolist()
    assert len(set(alone)) == len(values)
    assert set(alone).isdisjoint(codes_of(table, [(v,) for v in values], seed=8).tolist())


def test_where_one_column_ends_matters() -> None:
    table = make_table({"a": "varchar(9)", "b": "varchar(9)"}, ["a", "b"])
    codes = codes_of(table, [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")])
    assert len(set(codes.tolist())) == 4


def test_keys_that_the_source_cannot_have_stop_the_table() -> None:
    table = one_key("bigint(20) unsigned")
    for impossible in (None, Decimal(2**64), Decimal(-1)):
        with pytest.raises(PermanentError, match="the target holds") as stopped:
            codes_of(table, [(impossible,)])
        assert stopped.value.reason is Reason.SINK_CONFLICT


class IndexedFiles:
    """Files with keys beside an index of them: the model is the live row of each key."""

    def __init__(self, table: Capture, folder: Path) -> None:
        self.table = table
        self.folder = folder
        self.files: dict[str, list[Row]] = {}
        self.deleted: dict[str, BitMap] = {}
        self.index = KeyIndex(table, folder, seed=7, in_memory=16, fanout=3, block=24)

    def put(self, keys: list[Row]) -> None:
        """A batch: the keys' previous rows are deleted, a new file has them."""
        for path, rows in rows_of_files(self.index.locate(keys_of(self.table, keys))).items():
            self.deleted[path] = self.deleted[path] | rows
            self.index.delete(path, f"{len(self.deleted[path])}", self.deleted[path])
        path = f"file {len(self.files)}"
        self.files[path], self.deleted[path] = keys, BitMap()
        self.index.add(path, [batch_of(self.table, keys)])

    def expected(self, keys: Iterable[Row]) -> dict[str, list[int]]:
        wanted, found = set(keys), dict[str, list[int]]()
        for path, held in self.files.items():
            rows = [i for i, k in enumerate(held) if k in wanted and i not in self.deleted[path]]
            if rows:
                found[path] = rows
        return found

    def found(self, keys: list[Row], index: KeyIndex | None = None) -> dict[str, list[int]]:
        located = (index or self.index).locate(keys_of(self.table, keys))
        for path, numbers, rows in located:
            assert [self.files[path][row] for row in rows] == [keys[number] for number in numbers]
        return {path: list(rows) for path, rows in rows_of_files(located).items()}

    def versions(self) -> dict[str, FileVersion]:
        return {
            path: FileVersion(
                str(len(self.deleted[path])) if self.deleted[path] else "",
                lambda path=path: [batch_of(self.table, self.files[path])],
                lambda path=path: self.deleted[path],
            )
            for path in self.files
        }

    def rebuilt(self) -> KeyIndex:
        index = KeyIndex(self.table, self.folder, seed=8, in_memory=16, fanout=3, block=24)
        assert index.sync(self.versions()) == len(self.files)
        assert index.sync(self.versions()) == 0
        return index


TABLES = {
    "exact": (make_table({"k": "int(11)"}, ["k"]), lambda n: (n,)),
    "text": (one_key("varchar(20)"), lambda n: (f"key {n * 7919 % 100}",)),
    "composite": (make_table({"a": "bigint(20)", "b": "varchar(5)"}, ["a", "b"]), lambda n: (n % 3, f"{n}")),
}


@pytest.mark.parametrize("collide", [False, True], ids=["spread", "colliding"])
@pytest.mark.parametrize("kind", sorted(TABLES))
@settings(max_examples=25, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True), max_size=20))
def test_the_index_finds_the_live_row_of_each_key(
    kind: str, collide: bool, tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    """Also where the hash is so bad that most keys meet: hits are compared with the keys
    themselves."""
    table, key = TABLES[kind]
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(KeyCodec, "_hashed", lambda self, columns: np.arange(len(columns[0]), dtype=np.uint64) // 99)
        indexed = IndexedFiles(table, tmp_path_factory.getbasetemp())
        for numbers in batches:
            indexed.put([key(n) for n in numbers])
            indexed.index.merge_runs()
        everything = [key(n) for n in range(45)]
        assert indexed.found(everything) == indexed.expected(everything)
        assert indexed.found(everything[::3], indexed.rebuilt()) == indexed.expected(everything[::3])
        assert sum(map(len, indexed.found(everything).values())) == len({k for b in indexed.files.values() for k in b})


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_other_programs_changes_are_followed(kind: str, tmp_path: Path) -> None:
    """A file that went, a file that came, deletions that grew, shrank or came back: the next sync
    sees the Delta log's truth."""
    table, key = TABLES[kind]
    indexed = IndexedFiles(table, tmp_path)
    for start in range(0, 40, 10):
        indexed.put([key(n) for n in range(start, start + 10)])
    everything = [key(n) for n in range(50)]
    del indexed.files["file 0"]
    indexed.files["theirs"], indexed.deleted["theirs"] = [key(n) for n in range(5)], BitMap([2])
    indexed.deleted["file 1"] = BitMap([0, 1])
    assert indexed.index.sync(indexed.versions()) == 2
    assert indexed.found(everything) == indexed.expected(everything)
    indexed.deleted["file 1"] = BitMap()
    assert indexed.index.sync(indexed.versions()) == 1
    assert indexed.found(everything) == indexed.expected(everything)


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_file_is_known_with_its_keys_or_not_at_all(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch space was full: the next sync reads the file again, and no key in it is taken for a
    new one."""
    table, key = TABLES[kind]
    indexed = IndexedFiles(table, tmp_path)
    indexed.put([key(1), key(2)])
    with monkeypatch.context() as full:
        full.setattr(scratch.Scratch, "written", _no_space)
        with pytest.raises(OSError, match="No space"):
            indexed.put([key(2), key(3)])
    assert indexed.index.sync(indexed.versions()) == 1
    everything = [key(n) for n in range(5)]
    assert indexed.found(everything) == indexed.expected(everything)


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_key_that_is_live_twice_stops_the_table(kind: str, tmp_path: Path) -> None:
    table, key = TABLES[kind]
    indexed = IndexedFiles(table, tmp_path)
    indexed.put([key(1), key(2)])
    indexed.index.add("theirs", [batch_of(table, [key(2)])])
    assert indexed.found([key(1)]) == {"file 0": [0]}
    with pytest.raises(PermanentError, match="more rows of changed keys") as stopped:
        indexed.found([key(1), key(2)])
    assert stopped.value.reason is Reason.SINK_CONFLICT


def test_a_file_of_many_batches_in_any_order(tmp_path: Path) -> None:
    """Rows are numbered through a file's batches; an unsorted file keeps its row numbers."""
    for declared, value in (("int(11)", lambda n: n), ("varchar(20)", lambda n: f"k{n}")):
        table = one_key(declared)
        order: list[Any] = [n * 37 % 101 for n in range(101)]
        keys = [(value(n),) for n in order]
        index = KeyIndex(table, tmp_path, seed=1)
        index.add("f", [batch_of(table, keys[i : i + 10]) for i in range(0, 101, 10)])
        for row, key in enumerate(keys):
            assert rows_of_files(index.locate(keys_of(table, [key])))["f"] == BitMap([row])


@pytest.mark.parametrize(("declared", "spread"), [("int(11)", 1), ("int(11)", 7919), ("varchar(20)", 7919)])
def test_the_memory_for_the_index_does_not_grow_with_the_table(
    declared: str, spread: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with rows in large files nor with small files: what is built and merged is in scratch
    space, and only blocks of it are in memory. One file is read at a time, and none waits to be
    taken in: how many do depends on the machine, and so does what they hold."""
    monkeypatch.setattr(key_index, "_AT_ONCE", 1)
    monkeypatch.setattr(key_index, "_WAITING", 1)
    table, few, many = one_key(declared), 40_000, 120_000
    for file_rows in (10_000, 1_000):
        assert peak_of(table, few, file_rows, spread, tmp_path) + 2**21 > peak_of(
            table, many, file_rows, spread, tmp_path
        )


def peak_of(table: Capture, rows: int, file_rows: int, spread: int, folder: Path) -> int:
    """Bytes of Python and of Arrow at the peak of building an index, which then finds its keys."""

    def keys_from(start: int, stop: int) -> pa.RecordBatch:
        numbers = pa.array(np.arange(start, stop) * spread % rows)
        return pa.record_batch([numbers.cast(kind)], ["k"])

    def version(start: int) -> FileVersion:
        pieces = range(start, start + file_rows, 5000)
        return FileVersion("", lambda: (keys_from(at, min(at + 5000, start + file_rows)) for at in pieces), BitMap)

    kind = captured_schema(table).field("k").type
    index = KeyIndex(table, folder, seed=7, in_memory=2000, block=8 * 1024)
    starts = range(0, rows - file_rows + 1, file_rows)
    last = starts[-1]
    held = pa.total_allocated_bytes()

    def build() -> int:
        assert index.sync({f"f{start}": version(start) for start in starts}) == len(starts)
        peak = tracemalloc.get_traced_memory()[1] + max(0, pa.total_allocated_bytes() - held)
        located = rows_of_files(index.locate(pa.table([keys_from(last, last + 3)[0]], ["k"])))
        assert located == {f"f{last}": BitMap([0, 1, 2])}
        return peak

    return traced(build)


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_stale_entries_never_outnumber_the_live_ones_by_far(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a stream updates the same rows, and while runs are as large as the largest,
    which no merge of small runs takes: the index is half as large again as the table at most, and
    as stale, beside what a purge is not begun for. Lookups are right at each step of a purge."""
    monkeypatch.setattr(key_index, "LARGE", 0)
    table, key = TABLES[kind]
    indexed, random = IndexedFiles(table, tmp_path), Random(1)
    indexed.put([key(n) for n in range(100)])
    few, purged = key_index._STALE * indexed.index._scratch.in_memory, 0
    for _ in range(150):
        before = entries_of(indexed.index)
        indexed.put([key(n) for n in random.sample(range(100), 30)])
        indexed.index.merge_runs()
        purged += entries_of(indexed.index) < before
        assert entries_of(indexed.index) <= 100 + 1.5 * few + 30
        some = [key(n) for n in random.sample(range(110), 20)]
        assert indexed.found(some) == indexed.expected(some)
    assert purged > 5


def entries_of(index: KeyIndex) -> int:
    return sum(map(len, index._runs))


def test_a_purge_that_fails_leaves_the_index_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch space was full: the runs are those of before, and the next purge begins anew."""
    monkeypatch.setattr(key_index, "LARGE", 0)
    table, key = TABLES["text"]
    indexed, everything = IndexedFiles(table, tmp_path), [key(n) for n in range(100)]
    for _ in range(5):
        indexed.put(everything)
    before = entries_of(indexed.index)
    with monkeypatch.context() as full:
        full.setattr(scratch.Scratch, "writing", _no_space)
        with pytest.raises(OSError, match="No space"):
            merge_until(indexed.index, before)
    assert entries_of(indexed.index) == before
    assert indexed.found(everything) == indexed.expected(everything)
    merge_until(indexed.index, before)
    assert indexed.found(everything) == indexed.expected(everything)


def merge_until(index: KeyIndex, fewer: int) -> None:
    for _ in range(100):
        if entries_of(index) < fewer:
            return
        index.merge_runs()
    raise AssertionError("nothing was purged")


def test_large_runs_leave_neither_names_nor_descriptors(tmp_path: Path) -> None:
    """A table of thousands of files must not run out of descriptors."""
    table = one_key("varchar(20)")
    index = KeyIndex(table, tmp_path, seed=1, in_memory=4)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(50):
        index.add(f"f{number}", [batch_of(table, [(f"{number} {i}",) for i in range(10)])])
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    assert list(tmp_path.iterdir()) == []
    assert rows_of_files(index.locate(keys_of(table, [("7 3",)])))["f7"] == BitMap([3])


def test_small_files_take_no_memory_maps(tmp_path: Path) -> None:
    """A process may have 65,530 of them, and thousands of tables have many small files each; a
    large file may take one."""
    table = one_key("varchar(40)")
    index = KeyIndex(table, tmp_path, seed=1)
    before = maps_of(tmp_path)
    for number in range(20):
        index.add(f"f{number}", [batch_of(table, [(f"{number} {i}",) for i in range(10)])])
    assert maps_of(tmp_path) == before
    index.add("large", [batch_of(table, [(f"{i:040}",) for i in range(scratch.IN_MEMORY // 4)])])
    assert maps_of(tmp_path) == before + 1
    found = rows_of_files(index.locate(keys_of(table, [("7 3",), (f"{9:040}",)])))
    assert found == {"f7": BitMap([3]), "large": BitMap([9])}


def maps_of(folder: Path) -> int:
    return Path("/proc/self/maps").read_text().count(f"{folder}/")
