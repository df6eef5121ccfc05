"""Opening a Delta log that has no end, or more of it than memory has room for."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.peer_json import parsed_size
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.delta.table import open as opening
from cdcsync_spark.sinks.delta.table import weight
from cdcsync_spark.sinks.delta.table.log import Log, entry_name
from cdcsync_spark.sinks.delta.table.open import catch_up, open_view
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import Action, TableView, actions_of
from cdcsync_spark.sinks.lake.storage import checked_parquet
from cdcsync_spark.sinks.lake.storage.checked_parquet import spelled_out
from cdcsync_spark.sinks.lake.storage.stores import open_store
from support.traced import traced

_SCHEMA = json.dumps({"type": "struct", "fields": []})
_FIRST = json.dumps({"metaData": {"id": "x", "schemaString": _SCHEMA, "configuration": {}}}).encode()


def _log(last: int, entry: bytes) -> Log:
    return _log_of(last, lambda _: entry)


def _log_of(last: int, entry: Callable[[int], bytes]) -> Log:
    """Entries up to `last`, of which the listing names the first two."""
    files: Any = None

    def read(path: str) -> bytes | None:
        version = int(path.rpartition("/")[2].removesuffix(".json"))
        return None if version > last else entry(version) if version else _FIRST

    names = [entry_name(n).rpartition("/")[2] for n in (0, 1)]
    return Log(files, "t", read, lambda path: read(path) is not None, lambda _: names)


def test_entries_without_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_ENTRIES", 100)
    entry = b'{"commitInfo": {"operation": "OPTIMIZE"}}\n'
    view = open_view(_log(99, entry))
    assert view is not None
    assert view.version == 99
    assert catch_up(_log(199, entry), view) == 100
    for use in (lambda: open_view(_log(10**9, entry)), lambda: catch_up(_log(10**9, entry), TableView(5))):
        with pytest.raises(CdcError, match="more than 100 entries") as found:
            use()
        assert found.value.reason is Reason.SINK_CONFLICT


def test_entries_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them could be read."""
    entry = b'{"commitInfo": {"operation": "OPTIMIZE", "x": "' + bytes(1000).hex().encode() + b'"}}\n'
    monkeypatch.setattr(opening, "LARGEST_READ", 10 * len(entry))
    assert open_view(_log(8, entry)) is not None
    with pytest.raises(CdcError, match="bytes, to be read"):
        open_view(_log(12, entry))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the process may have 4 MiB."""
    monkeypatch.setattr(weight, "bounds", lambda: weight.ViewBounds(entry=2**20, view=2**21))


def _added(path: str, **more: Any) -> bytes:
    return json.dumps({"add": {"path": path, "size": 1, "dataChange": False, **more}}).encode() + b"\n"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "entry",
    [
        b'{"add": [' + b"[]," * 10_000 + b"[]]}\n",
        b'{"add": ' + b"[" * 15_000 + b"]" * 15_000 + b"}\n",
        b'{"commitInfo": {"x": "' + b"y" * 600_000 + b'"}}\n',
        b"".join(_added(f"{n}.parquet") for n in range(3000)),
        b"{}\n" * 15_000,
    ],
    ids=["values", "nested", "long", "actions", "empty"],
)
def test_an_entry_is_bounded_by_what_it_takes_in_memory(entry: bytes) -> None:
    with pytest.raises(CdcError, match="bytes of memory once it is parsed") as found:
        open_view(_log(1, entry))
    assert found.value.reason is Reason.SINK_CONFLICT


@pytest.mark.usefixtures("small")
def test_files_are_bounded_together_whatever_their_entries_are() -> None:
    """Each entry could be read."""

    def read(count: int, **more: Any) -> TableView | None:
        def entry(version: int) -> bytes:
            return b"".join(_added(f"{version}-{n}.parquet", **more) for n in range(10))

        return open_view(_log_of(count, entry))

    usual = read(100)
    assert usual is not None
    assert usual.held == 1000 * weight.FILE
    for count, more in ((110, {}), (20, {"tags": {str(n): "x" for n in range(200)}})):
        with pytest.raises(CdcError, match="bytes of memory as its Delta log names them") as found:
            read(count, **more)
        assert found.value.reason is Reason.SINK_CONFLICT


@pytest.mark.usefixtures("small")
def test_a_file_that_was_taken_away_weighs_no_more() -> None:
    removed = json.dumps({"remove": {"path": "a", "dataChange": False, "deletionTimestamp": 1}}).encode()
    heavy = _added("a", tags={str(n): "x" for n in range(2000)})
    view = open_view(_log_of(51, lambda version: heavy if version % 2 == 0 else removed))
    assert view is not None
    assert (view.files, view.held) == ({}, weight.GONE)


def _stats(columns: int) -> str:
    def of(value: Any) -> dict[str, Any]:
        return {f"column_{n}": value for n in range(columns)}

    return json.dumps({"numRecords": 9, "minValues": of(1), "maxValues": of("a text"), "nullCount": of(0)})


@pytest.mark.parametrize("columns", [8, 32, 100])
def test_files_with_statistics_weigh_what_they_take(columns: int) -> None:
    """Whether they are read from an entry, read from a checkpoint, or our own."""
    paths = [f"{n}-0123456789abcdef0123456789abcdef.parquet" for n in range(500)]
    text = b"".join(_added(path, stats=_stats(columns)) for path in paths).decode()
    read = TableView()

    def read_entry() -> int:
        read.entry(0, text)
        sizes = [file.rows for file in read.files.values()]
        taken = tracemalloc.get_traced_memory()[0]
        assert sizes == [9] * 500
        return taken

    taken = traced(read_entry)
    read_entry()
    assert taken < read.held < max(1.5 * taken, 500 * weight.FILE + 1)
    own = TableView()
    actions = list(actions_of(text))
    expected = own.held_after(actions)
    own.apply(0, actions, None, b"")
    assert own.held == expected == pytest.approx(read.held, rel=0.01)
    rows = [{"add": {"path": path, "size": 1, "stats": _stats(columns)}} for path in paths]
    checkpointed = open_view(_log_with(_checkpoint(rows)))
    assert checkpointed is not None
    assert checkpointed.held == pytest.approx(read.held, rel=0.1)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": 1, "b": [2]}', 3),
        ('{"a": "1,{[2"}', 1),
        (r'{"a": "1\\", "b": "\"[,", "c": "\\\"{"}', 3),
        ('"\n{"commitInfo": [[],[]]}', 6),
        ("\n\n", 2),
        ('"open,', 0),
    ],
)
def test_what_lies_in_strings_is_no_value(text: str, values: int) -> None:
    """A string ends with its line, as each line is parsed by itself."""
    assert parsed_size(text) == 2 * len(text) + 80 * values


@pytest.mark.usefixtures("small")
def test_an_entry_of_ours_with_statistics_is_read() -> None:
    """Commas within statistics would be four times the bound."""
    entry = b"".join(_added(f"{n}", stats=_stats(32)) for n in range(190))
    assert 80 * entry.count(b",") > 1.3 * weight.bounds().entry
    view = open_view(_log(1, entry))
    assert view is not None
    assert len(view.files) == 190


@pytest.mark.usefixtures("small")
def test_no_entry_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    path = TablePath(open_store(str(tmp_path)), "sync", TableId("shop", "orders"))
    path.store.make_folder("_delta_log")

    def adding(count: int, first: int = 0) -> list[Action]:
        return [json.loads(_added(f"{n}")) for n in range(first, first + count)]

    view = TableView()
    assert path.put_entry(0, [json.loads(_FIRST), *adding(900)], view)
    view.apply(0, [json.loads(_FIRST), *adding(900)], None, b"")
    for actions, found in (
        (adding(5000), "bytes of memory once it is parsed"),
        (adding(200, 900), "bytes of memory as its Delta log names them"),
    ):
        with pytest.raises(CdcError, match=found) as refused:
            path.put_entry(1, actions, view)
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert refused.value.remedy.startswith("raise spec.driver.memory, or spec.stream.driver.memory")
    assert not path.log().has_entry(1)
    assert path.put_entry(1, adding(200, 700), view)
    assert path.view() is not None


def test_what_an_entry_takes_away_weighs_no_more_before_it_is_written() -> None:
    view = TableView()
    view.apply(0, [json.loads(_added(f"{n}", stats=_stats(100))) for n in range(10)], None, b"")
    taken = [view.files[f"{n}"].removed(5, data_change=True) for n in range(7)]
    actions = [*taken, json.loads(_added("0", stats=_stats(32))), json.loads(_added("new"))]
    expected = view.held_after(actions)
    view.apply(1, actions, None, b"")
    assert view.held == expected


def _checkpoint(rows: list[dict[str, Any]], **options: Any) -> bytes:
    kind = pa.struct([("path", pa.string()), ("size", pa.int64()), ("stats", pa.string())])
    about = pa.struct([("id", pa.string()), ("schemaString", pa.string())])
    meta = [{"metaData": {"id": "x", "schemaString": _SCHEMA}}]
    out = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist([*meta, *rows], pa.schema([("add", kind), ("metaData", about)])), out, **options
    )
    return out.getvalue()


def _log_with(checkpoint: bytes) -> Log:
    files: Any = None
    name = f"{5:020d}.checkpoint.parquet"

    def read(path: str) -> bytes | None:
        return checkpoint if path.endswith(name) else None

    return Log(files, "t", read, lambda path: read(path) is not None, lambda _: [name])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([{"add": {"path": str(n), "size": 1, "stats": "{}"}} for n in range(1100)], {}),
        ([{"add": {"path": str(n), "size": 1, "stats": "x" * 30_000}} for n in range(100)], {"use_dictionary": False}),
        ([{"add": {"path": str(n), "size": 1, "stats": "x" * 30_000}} for n in range(100)], {}),
    ],
    ids=["actions", "pages", "dictionary"],
)
def test_a_checkpoint_is_bounded_by_what_it_takes_in_memory(rows: list[dict[str, Any]], options: Any) -> None:
    """However small it is in the store."""
    checkpoint = _checkpoint(rows, compression="zstd", **options)
    assert len(checkpoint) < 20_000
    with pytest.raises(CdcError, match="bytes of memory as its Delta log names them") as found:
        open_view(_log_with(checkpoint))
    assert found.value.reason is Reason.SINK_CONFLICT


def _varint(number: int) -> bytes:
    parts = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([part | 0x80 for part in parts[:-1]] + parts[-1:])


def test_a_checkpoint_whose_footer_lies_is_bounded_by_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"add": {"path": str(n), "size": 1, "stats": "x" * 300_000}} for n in range(100)]
    checkpoint = _checkpoint(rows, compression="zstd", use_dictionary=False)
    sizes = [pq.read_metadata(io.BytesIO(checkpoint)).row_group(0).column(n).total_uncompressed_size for n in range(5)]
    told, lied = _varint(2 * max(sizes)), bytearray(_varint(2 * max(sizes)))
    lied[:-1], lied[-1] = b"\x80" * (len(lied) - 1), 1
    assert checkpoint.count(told) >= 1
    lying = checkpoint.replace(told, bytes(lied))
    assert opening.announced(pq.ParquetFile(io.BytesIO(lying))) < 2**23
    monkeypatch.setattr(checked_parquet, "memory_limit", lambda: 2**24)
    checked_parquet.most.cache_clear()
    before = pa.default_memory_pool().max_memory()
    try:
        with pytest.raises(CdcError, match="takes too much memory") as found:
            open_view(_log_with(lying))
    finally:
        checked_parquet.most.cache_clear()
    assert found.value.reason is Reason.SINK_CONFLICT
    assert pa.default_memory_pool().max_memory() == before


@pytest.mark.usefixtures("small")
def test_a_checkpoint_within_its_bounds_is_read() -> None:
    view = open_view(_log_with(_checkpoint([{"add": {"path": str(n), "size": 1, "stats": "{}"}} for n in range(900)])))
    assert view is not None
    assert (len(view.files), view.version) == (900, 5)


@pytest.mark.parametrize("size", [100, 5000, 8192, 20_000])
def test_a_checkpoint_is_read_whatever_its_row_groups_are(size: int) -> None:
    rows = [{"add": {"path": f"{n}", "size": 1, "stats": json.dumps({"numRecords": n})}} for n in range(9003)]
    view = open_view(_log_with(_checkpoint(rows, row_group_size=size)))
    assert view is not None
    assert {path: file.rows for path, file in view.files.items()} == {f"{n}": n for n in range(9003)}


@pytest.mark.parametrize(("plain", "numbered", "read"), [(9, 8, 0), (8, 9, 0), (5000, 4096, 4096)])
def test_rows_that_were_not_weighed_are_not_read(plain: int, numbered: int, read: int) -> None:
    def file(rows: int) -> pq.ParquetFile:
        content = _checkpoint([{"add": {"path": str(n), "size": 1}} for n in range(rows - 1)])
        return pq.ParquetFile(pa.BufferReader(content))

    batches, rows = opening.weighed_batches("x", file(plain), file(numbered), ["add"]), list[int]()
    with pytest.raises(ValueError, match=r"two numbers of rows|has 4096 rows, and its footer says 5000"):
        rows.extend(batch.num_rows for batch in batches)
    assert sum(rows) == read


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("column", ["path", "tags"])
def test_a_dictionary_that_stands_for_gigabytes_is_not_spelled_out(column: str) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 2**20]))
    tags = pa.MapArray.from_arrays(pa.array(range(1001), pa.int32()), pa.array(["a"] * 1000), texts)
    rows = pa.StructArray.from_arrays([texts if column == "path" else tags], [column])
    out = io.BytesIO()
    pq.write_table(pa.table({"add": rows}), out, compression="zstd", store_schema=False)
    file = pq.ParquetFile(out)
    assert file.metadata.num_row_groups == 1
    assert opening.announced(file) < weight.bounds().view
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CdcError, match="bytes of memory as its Delta log names them") as found:
        open_view(_log_with(out.getvalue()))
    assert int(found.value.message.split(" take ")[1].split()[0]) > 1000 * 2**20
    assert pa.default_memory_pool().max_memory() - before < 2**25


def test_what_is_spelled_out_is_counted() -> None:
    numbers = pa.array(["abc", "abc", None, "d"]).dictionary_encode()
    whole = 4 * 4 + 1 + 7  # indices, which of them are NULL, texts
    assert spelled_out(numbers) == whole
    nested = pa.StructArray.from_arrays([numbers, pa.array([1, 2, 3, 4])], ["a", "b"])
    assert spelled_out(nested) == whole + 4 * 8
    assert spelled_out(pa.ListArray.from_arrays(pa.array([0, 1, 4]), numbers)) == whole
