"""What Parquet files may take in memory: their pages are weighed by their own headers, whatever the
footer says, before Arrow has them."""

from __future__ import annotations

import io
import itertools
import random
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.lake.files.snapshot import StoredRows, file_batches, key_batches, read_range
from cdcsync_spark.sinks.lake.storage import checked_parquet
from cdcsync_spark.sinks.lake.storage.checked_parquet import most
from cdcsync_spark.sinks.lake.storage.parquet_deltas import LENGTHS, PREFIXES
from cdcsync_spark.sinks.lake.storage.parquet_pages import (
    Chunk,
    Incomplete,
    Most,
    PageWatch,
    TooHeavy,
    _PageWalk,
    page_at,
)
from support.traced import traced

_ROWS = 30_000
_TABLE = pa.table(
    {
        "id": range(_ROWS),
        "word": [f"word {n % 100}" for n in range(_ROWS)],
        "text": [f"{n:x}" * 9 for n in range(_ROWS)],
        "part": [None if n % 3 else n / 7 for n in range(_ROWS)],
        "list": [[n] * (n % 3) for n in range(_ROWS)],
    }
)
_FORMS: list[dict[str, Any]] = [
    {"compression": "zstd"},
    {"compression": "none", "use_dictionary": False},
    {"compression": "snappy", "data_page_version": "2.0", "row_group_size": 7000},
    {"compression": "gzip", "data_page_size": 500, "write_page_checksum": True},
    {"compression": "lz4", "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED"},
     "use_dictionary": ["word"], "write_page_index": True},
]  # fmt: skip


def _written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def _chunks(content: bytes) -> list[Chunk]:
    footer = pq.read_metadata(pa.BufferReader(content))
    return checked_parquet._chunks(footer, len(content), range(footer.num_columns))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process with 16 MiB: pages of 4 MiB, row groups of 8."""
    monkeypatch.setattr(checked_parquet, "memory_limit", lambda: 2**24)
    most.cache_clear()
    yield
    most.cache_clear()


@pytest.mark.parametrize("options", _FORMS)
@pytest.mark.parametrize("piece", [97, 4096, 2**30])
def test_pages_add_up_to_what_an_honest_footer_says(options: dict[str, Any], piece: int) -> None:
    """They come in any pieces."""
    content = _written(_TABLE, **options)
    footer = pq.read_metadata(pa.BufferReader(content))
    columns = (footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns))
    for chunk, column in zip(_chunks(content), columns, strict=True):
        walk = _PageWalk(chunk, 2**30)
        pages = []
        for start in range(chunk.start, chunk.end, piece):
            pages += walk.pages(start, memoryview(content)[start : min(start + piece, chunk.end)])
        assert sum(page.header + page.unpacked for page in pages) == column.total_uncompressed_size
        assert sum(page.header + page.packed for page in pages) == column.total_compressed_size
        assert sum(page.values for page in pages) == column.num_values


@pytest.mark.parametrize("options", _FORMS)
def test_files_are_read_as_they_are(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "a").write_bytes(_written(_TABLE, **options))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    schema = _TABLE.schema
    reads: list[tuple[list[str], Iterator[pa.RecordBatch]]] = [
        (schema.names, file_batches(files, "a", schema, schema.names)),
        (["text", "id"], file_batches(files, "a", schema, ["text", "id"])),
        (["id", "word"], key_batches(files, "a", schema, ["id", "word"])),
        (schema.names, StoredRows.of(files, "a", BitMap(), None).live(schema, 0, _ROWS)),
    ]
    for names, batches in reads:
        assert pa.Table.from_batches(batches) == _TABLE.select(names)


def test_a_footer_beyond_the_first_read_is_found(tmp_path: Path) -> None:
    """Arrow asks for it by itself."""
    table = pa.table({f"column_{n:0200}": range(3) for n in range(1000)})
    (tmp_path / "a").write_bytes(_written(table))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    batches = file_batches(files, "a", table.schema, table.schema.names)
    assert pa.Table.from_batches(batches) == table


def _zeros() -> pa.Table:
    """A table of one page."""
    return pa.table({"id": [1, 2], "text": ["x" * 2**25, ""]})


def _groups() -> pa.Table:
    """A table of many small pages."""
    return pa.table({"id": range(20_000), "text": ["x" * 1000] * 20_000})


def _nulls() -> pa.Table:
    """Whose values take no bytes of a page."""
    return pa.table({"id": pa.nulls(2**21, pa.int64()), "text": pa.nulls(2**21, pa.string())})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("table", "text"), [(_zeros, "a page unpacks to"), (_groups, "unpack to more than"), (_nulls, "unpack to more")]
)
def test_a_file_that_unpacks_to_more_than_there_is_memory_is_refused(
    tmp_path: Path, table: Callable[[], pa.Table], text: str
) -> None:
    content = _written(table(), compression="zstd", use_dictionary=False)
    assert len(content) < 2**20
    (tmp_path / "a").write_bytes(content)
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    for batches in (
        file_batches(files, "a", schema, schema.names),
        StoredRows.of(files, "a", BitMap(), None).live(schema, 0, 2),
    ):
        before = pa.default_memory_pool().max_memory()
        with pytest.raises(CdcError, match=text) as found:
            list(batches)
        assert found.value.reason is Reason.SINK_CONFLICT
        assert pa.default_memory_pool().max_memory() - before < 2**23


def _words(longest: int, others: int, often: int) -> bytes:
    """A dictionary of a long text and short ones; the long one stands in so many of 20,000 rows."""
    words = ["x" * longest, *(f"{n}" for n in range(others))]
    numbers = [0] * often + [1 + n % others for n in range(20_000 - often)]
    texts = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(words))
    table = pa.table({"id": range(20_000), "text": texts, "more": texts, "fewer": texts})
    return _written(table, compression="zstd", store_schema=False)


_TEXTS = pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.string()), ("fewer", pa.string())])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_a_dictionary_that_stands_for_gigabytes_is_not_spelled_out(tmp_path: Path, compression: str) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 2**18]))
    table = pa.table({"id": range(20_000), "text": texts})
    (tmp_path / "a").write_bytes(_written(table, compression=compression, store_schema=False))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CdcError, match="unpack to more than"):
        list(file_batches(files, "a", schema, ["id", "text"]))
    with pytest.raises(CdcError, match="the texts of 65536 rows take more than"):
        list(key_batches(files, "a", schema, ["text"]))
    assert pa.default_memory_pool().max_memory() - before < 2**23


@pytest.mark.usefixtures("small")
def test_a_large_dictionary_is_not_unpacked(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["x" * 2**26]))
    (tmp_path / "a").write_bytes(_written(pa.table({"text": texts}), compression="zstd", store_schema=False))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    schema = pa.schema([("text", pa.string())])

    def refuse(batches: Iterator[pa.RecordBatch]) -> int:
        with pytest.raises(CdcError, match="a page unpacks to 67108868 bytes"):
            list(batches)
        return tracemalloc.get_traced_memory()[1]

    for batches in (file_batches(files, "a", schema, ["text"]), key_batches(files, "a", schema, ["text"])):
        assert traced(partial(refuse, batches)) < 2**23


@pytest.mark.usefixtures("small")
def test_a_long_text_among_short_ones_is_counted_as_often_as_it_stands_there(tmp_path: Path) -> None:
    """Counted by the longest text, each column would take 2 GB."""
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    (tmp_path / "a").write_bytes(_words(100_000, 50, often=10))
    read = pa.Table.from_batches(file_batches(files, "a", _TEXTS, _TEXTS.names))
    assert [read["fewer"][0].as_py(), read["text"][19_999].as_py()] == ["x" * 100_000, "39"]
    assert sum(b.num_rows for b in key_batches(files, "a", _TEXTS, ["text", "id"])) == 20_000
    (tmp_path / "b").write_bytes(_words(100_000, 50, often=30))
    with pytest.raises(CdcError, match="unpack to more than"):
        list(file_batches(files, "b", _TEXTS, _TEXTS.names))
    assert sum(b.num_rows for b in file_batches(files, "b", _TEXTS, ["id", "text"])) == 20_000


def test_a_range_that_memory_has_no_room_for_is_not_read(tmp_path: Path) -> None:
    """The sizes of deletion vectors are what a log says."""
    (tmp_path / "a").write_bytes(b"content")
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    assert read_range(files, "a", 2, 3) == b"nte"
    with pytest.raises(CdcError, match="a part of the driver's memory"):
        read_range(files, "a", 0, 2**50)


@pytest.mark.usefixtures("small")
def test_keys_are_bounded_by_the_rows_that_are_read_at_a_time(tmp_path: Path) -> None:
    """A file may have one row group."""
    many = pa.table({"text": ["x" * 50] * 400_000})
    (tmp_path / "a").write_bytes(_written(many, compression="zstd", use_dictionary=False))
    (tmp_path / "b").write_bytes(_written(_zeros(), compression="zstd", use_dictionary=False))
    (tmp_path / "c").write_bytes(_written(_groups(), compression="zstd", use_dictionary=False))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    assert sum(b.num_rows for b in key_batches(files, "a", many.schema, ["text"])) == 400_000
    with pytest.raises(CdcError, match="a page unpacks to"):
        list(key_batches(files, "b", _zeros().schema, ["text"]))
    with pytest.raises(CdcError, match="the pages of 65536 rows unpack to more than"):
        list(key_batches(files, "c", _groups().schema, ["text"]))


def _by_prefixes(texts: pa.Array, **options: Any) -> bytes:
    encoding = {"text.list.element" if pa.types.is_list(texts.type) else "text": "DELTA_BYTE_ARRAY"}
    return _written(pa.table({"text": texts}), use_dictionary=False, column_encoding=encoding, **options)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
@pytest.mark.parametrize("listed", [False, True])
def test_prefixes_that_stand_for_gigabytes_are_not_spelled_out(
    tmp_path: Path, version: str, compression: str, listed: bool
) -> None:
    texts = pa.array(["x" * 2**11, None] * 10_000, pa.string())
    texts = pa.array([texts.to_pylist()]) if listed else texts
    (tmp_path / "a").write_bytes(_by_prefixes(texts, compression=compression, data_page_version=version))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    schema = pa.schema([("text", texts.type)])
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CdcError, match="the pages of row group 0 unpack to more than"):
        list(file_batches(files, "a", schema, ["text"]))
    with pytest.raises(CdcError, match="the pages of 65536 rows unpack to more than"):
        list(key_batches(files, "a", schema, ["text"]))
    assert pa.default_memory_pool().max_memory() - before < 2**23


def _shared(first: str, second: str) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", max_size=40), max_size=700), st.sampled_from(["1.0", "2.0"]), st.integers(1, 2**12))
def test_prefixes_count_as_the_reader_adds_them_up(texts: list[str], version: str, piece: int) -> None:
    """The bytes come in any pieces."""
    content = _by_prefixes(pa.array(texts, pa.string()), compression="snappy", data_page_version=version)
    (chunk,) = _chunks(content)
    walk, pages = _PageWalk(chunk, 2**30), 0
    for start in range(chunk.start, chunk.end, piece):
        part = memoryview(content)[start : min(start + piece, chunk.end)]
        pages += sum(page.encoding == PREFIXES for page in walk.pages(start, part))
    prefixes = sum(_shared(*pair) for pair in itertools.pairwise(texts))
    assert pages == bool(texts)
    assert walk.deltas == 2 * prefixes + 2 * 4 * len(texts)


def test_texts_by_lengths_of_another_writer_are_read(tmp_path: Path) -> None:
    """Its blocks have 2048 lengths."""
    texts = [None if n % 7 == 0 else f"{n // 50:0200}{n}" for n in range(10_000)]
    table = pa.table({"text": texts})
    with duckdb.connect() as other:
        other.register("texts", table)
        other.execute(
            f"COPY texts TO '{tmp_path}/a' (FORMAT parquet, PARQUET_VERSION v2, DICTIONARY_SIZE_LIMIT 1, "
            "STRING_DICTIONARY_PAGE_SIZE_LIMIT 1)"
        )
    assert "DELTA_LENGTH_BYTE_ARRAY" in str(pq.read_metadata(tmp_path / "a").row_group(0).column(0).encodings)
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    assert pa.Table.from_batches(file_batches(files, "a", table.schema, ["text"])) == table


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + _varint(number >> 7) if number > 127 else bytes([number])


def _page(encoding: int, content: bytes) -> bytes:
    """A page of 1000 values, with its header."""
    sizes = b"".join(b"\x15" + _varint(number << 1) for number in (0, len(content), len(content)))
    kinds = b"".join(b"\x15" + _varint(number << 1) for number in (1000, encoding, 3, 3))
    return sizes + b"\x2c" + kinds + b"\0\0" + content


def _crafted(page: bytes) -> bytes:
    """A file whose one page is that."""
    schema = pa.schema([pa.field("text", pa.string(), nullable=False)])
    texts = [random.Random(n).randbytes(9).hex() for n in range(1000)]
    content = _written(pa.table([texts], schema=schema), compression="none", use_dictionary=False)
    (chunk,) = _chunks(content)
    assert len(page) < chunk.end - chunk.start
    return content[: chunk.start] + page + content[chunk.start + len(page) :]


def _numbers(count: int, first: int = 0, block: int = 1024) -> bytes:
    """All of them the first, as many as 1024 of which would have to be there."""
    return _varint(block) + b"\4" + _varint(count) + _varint(first << 1) + b"\0" * 5


@pytest.mark.parametrize(
    ("encoding", "content", "text"),
    [
        (PREFIXES, _numbers(500_000_000, block=2**30) * 2, "announces 500000000"),
        (PREFIXES, _numbers(1000) + _numbers(500_000_000, block=2**30), "announces 500000000"),
        (LENGTHS, _numbers(500_000_000, block=2**30), "announces 500000000"),
        (PREFIXES, _numbers(1000, block=2**30) * 2, "blocks of 1073741824"),
        (PREFIXES, _numbers(1000, first=2**20) + _numbers(1000), "unpack to more than"),
        (PREFIXES, _numbers(1000)[:-1], "ends within their lengths"),
        (PREFIXES, _varint(1024) + b"\4" + _varint(1000) + b"\1" + b"\0" * 5 + _numbers(1000), "a length that is none"),
        (PREFIXES, _varint(2**33), "more than 32 bits"),
    ],
)
@pytest.mark.usefixtures("small")
def test_texts_that_lie_are_refused_before_the_reader_takes_room(
    tmp_path: Path, encoding: int, content: bytes, text: str
) -> None:
    (tmp_path / "a").write_bytes(_crafted(_page(encoding, _numbers(1000) * 2)))
    (tmp_path / "b").write_bytes(_crafted(_page(encoding, content)))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    schema = pa.schema([pa.field("text", pa.string(), nullable=False)])
    assert pa.Table.from_batches(file_batches(files, "a", schema, ["text"]))["text"].to_pylist() == [""] * 1000
    for read in (file_batches, key_batches):
        before = pa.default_memory_pool().max_memory()
        with pytest.raises(CdcError, match=text) as refused:
            list(read(files, "b", schema, ["text"]))
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert pa.default_memory_pool().max_memory() - before < 2**23


@pytest.mark.usefixtures("small")
def test_a_large_footer_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    table = pa.table({f"column_{n:0200}": range(3) for n in range(1000)})
    (tmp_path / "a").write_bytes(_written(table))
    files = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    with pytest.raises(CdcError, match="its footer has"):
        list(file_batches(files, "a", table.schema, table.schema.names))


_HEAD = b"\x15\x00\x15\x80\x02\x15\x40"  # a page of data, 128 bytes unpacked, 32 packed
_DATA = b"\x2c\x15\x08\x15\x00\x15\x00\x15\x00\x00\x00"  # of 4 values


def test_a_header_is_parsed_as_the_reader_parses_it() -> None:
    page = page_at(memoryview(_HEAD + _DATA + b"rest"))
    assert (page.header, page.unpacked, page.packed, page.values) == (len(_HEAD + _DATA), 128, 32, 4)
    overlong = page_at(memoryview(b"\x15\x80\x80\x00\x15\x80\x82\x80\x80\x00\x15\x40" + _DATA))
    assert overlong.unpacked == 128, "a number may have more bytes than it needs"
    second = page_at(memoryview(b"\x15\x06" + _HEAD[2:] + _DATA[:-1] + b"\x3c\x15\x0c\x00\x00"))
    assert second.values == 6, "the kind of the page decides whose number counts"


@pytest.mark.parametrize("size", range(len(_HEAD + _DATA)))
def test_a_header_that_is_cut_is_incomplete(size: int) -> None:
    with pytest.raises(Incomplete):
        page_at(memoryview((_HEAD + _DATA)[:size]))


@pytest.mark.parametrize(
    "header",
    [b"\x00", b"\x15\x00\x15\x01\x15\x40" + _DATA, _HEAD + b"\x00", b"\x1f", b"\x1c" * 100, b"\x15" + b"\x80" * 20,
     b"\x19\x00" + _HEAD],
    ids=["nothing", "negative", "no-values", "unknown-type", "nested", "endless-number", "list"],
)  # fmt: skip
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="page"):
        page_at(memoryview(header))


def test_random_bytes_end_as_an_error_or_a_page() -> None:
    numbers = random.Random(7)
    for _ in range(3000):
        head = bytearray(_HEAD + _DATA)
        for _ in range(numbers.randrange(1, 4)):
            head[numbers.randrange(len(head))] = numbers.randrange(256)
        try:
            page = page_at(memoryview(bytes(head)))
        except (ValueError, Incomplete):
            continue
        assert 0 < page.header <= len(head)
        assert min(page.unpacked, page.packed, page.values) >= 0


def test_bytes_that_were_passed_over_are_refused() -> None:
    content = _written(_TABLE, compression="gzip", data_page_size=500)
    chunk = _chunks(content)[0]
    watch = PageWatch([chunk], Most(2**30, 2**30), lambda *_: 0)
    with pytest.raises(ValueError, match="were passed over"):
        watch.take(chunk.start + 10, memoryview(content)[chunk.start + 10 : chunk.end])


def test_a_page_is_refused_before_its_content_is_there() -> None:
    chunk = Chunk(0, 4, 2**30, 10, 8)
    with pytest.raises(TooHeavy, match="a page unpacks to 128 bytes"):
        PageWatch([chunk], Most(100, 1000), lambda *_: 0).take(4, memoryview(_HEAD + _DATA))
