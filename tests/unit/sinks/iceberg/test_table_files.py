"""Manifests, lists and vectors against files that Iceberg's own library wrote (1.12.0, by Spark: a
table of two inserts and a DELETE), and against hostile ones."""

from __future__ import annotations

import io
import json
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import DecimalType
from pyroaring import BitMap

from cdcsync_core.errors import PermanentError
from cdcsync_spark.sinks.iceberg.table.avro import BROKEN, Encoder, read_container
from cdcsync_spark.sinks.iceberg.table.avro_schemas import MANIFEST_ENTRY, MANIFEST_FILE
from cdcsync_spark.sinks.iceberg.table.bounds import column_metrics, file_bounds
from cdcsync_spark.sinks.iceberg.table.manifests import (
    ListedManifest,
    ManifestContent,
    Snapshotting,
    WrittenManifest,
    read_list,
    read_manifest,
    write_list,
)
from cdcsync_spark.sinks.iceberg.table.metadata import parsing
from cdcsync_spark.sinks.iceberg.table.puffin import vector_file
from cdcsync_spark.sinks.iceberg.table.schema import TableSchema
from cdcsync_spark.sinks.iceberg.table.tree import SnapshotDifference, next_manifests
from cdcsync_spark.sinks.iceberg.table.view import TablePaths
from cdcsync_spark.sinks.lake.files.bounds import BoundKind, ColumnBounds, FileBounds
from support.traced import traced

GOLDEN = Path(__file__).parent / "golden"
MOST = 2**24


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def golden_schema(name: str) -> Any:
    return json.loads(read_container(golden(name), MOST).metadata["avro.schema"])


def golden_table() -> TableSchema:
    return TableSchema.of(json.loads(read_container(golden("data-m0.avro"), MOST).metadata["schema"]))


def golden_manifest(name: str) -> ListedManifest:
    rows = read_list(golden("snap.avro"), MOST)
    row = next(
        r
        for r in rows
        if r["content"] == (ManifestContent.DELETES if name.startswith("deletes") else ManifestContent.DATA)
    )
    return read_manifest(row, golden(name), MOST)[0]


def test_the_schemas_are_icebergs_own() -> None:
    assert golden_schema("data-m0.avro") == golden_schema("deletes-m0.avro") == MANIFEST_ENTRY
    assert golden_schema("snap.avro") == MANIFEST_FILE


def test_entries_inherit_from_their_manifest() -> None:
    (entry,) = golden_manifest("data-m0.avro").entries.values()
    row = read_list(golden("snap.avro"), MOST)[0]
    assert (entry.rows, entry.sequence_number) == (2, row["sequence_number"])
    assert entry.file["first_row_id"] == row["first_row_id"]
    (vector,) = golden_manifest("deletes-m0.avro").entries.values()
    assert (vector.name, vector.rows) == (vector.file["referenced_data_file"], 1)


def test_bounds_are_written_as_iceberg_writes_them() -> None:
    """Floats, booleans and binaries have none of ours."""
    (entry,) = golden_manifest("data-m0.avro").entries.values()
    schema = golden_table()
    bounds = file_bounds(entry.file, schema)
    assert bounds.columns["dec"] == ColumnBounds(BoundKind.DECIMAL, Decimal("-12.34"), Decimal("12.34"))
    assert bounds.columns["dt"] == ColumnBounds(BoundKind.DATE, date(1969, 2, 28), date(2024, 2, 29))
    written = column_metrics(bounds, 2, schema)
    ours = {schema.by_name[name]["id"] for name in bounds.columns}
    for name in ("lower_bounds", "upper_bounds"):
        assert written[name] == [pair for pair in entry.file[name] if pair["key"] in ours]
    assert written["null_value_counts"] == entry.file["null_value_counts"]
    assert len(ours) == 7


@pytest.mark.parametrize("text", ["0.00", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "9" * 36 + ".99"])
def test_decimals_have_the_fewest_bytes(text: str) -> None:
    schema = TableSchema(0, ({"id": 1, "name": "d", "required": False, "type": "decimal(38, 2)"},))
    value = Decimal(text)
    bounds = FileBounds({"d": 0}, {"d": ColumnBounds(BoundKind.DECIMAL, value, value)})
    metrics = column_metrics(bounds, 1, schema)
    assert metrics["lower_bounds"] == [{"key": 1, "value": to_bytes(DecimalType(38, 2), value)}]
    assert file_bounds(metrics, schema) == bounds


def test_a_vectors_file_is_icebergs() -> None:
    """But for the program's name in its footer."""
    (vector,) = golden_manifest("deletes-m0.avro").entries.values()
    theirs, ours = golden("deletes.puffin"), vector_file(vector.name, BitMap([1]))
    assert (ours.offset, ours.size) == (vector.file["content_offset"], vector.file["content_size_in_bytes"])
    frame = slice(0, ours.offset + ours.size + 4)
    assert ours.content[frame] == theirs[frame]
    footers = [json.loads(content[frame.stop : -12]) for content in (ours.content, theirs)]
    assert footers[0]["blobs"] == footers[1]["blobs"]


def data_file(path: str, rows: int = 10) -> dict[str, Any]:
    return {
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": rows,
        "file_size_in_bytes": 100,
    }


def vector_of(path: str, name: str, rows: int) -> dict[str, Any]:
    return {**data_file(name, rows), "content": 1, "file_format": "PUFFIN", "referenced_data_file": path}


def snapshot(number: int, first_row_id: int) -> Snapshotting:
    return Snapshotting(1000 + number, 999 + number, number, first_row_id, golden_table())


def encoded(manifest: ListedManifest) -> dict[str, bytes]:
    return {name: entry.existing for name, entry in manifest.entries.items()}


def written(
    before: list[ListedManifest], change: SnapshotDifference, of: Snapshotting
) -> tuple[list[ListedManifest], list[str]]:
    """The next manifests, each new one read back; and the names of deleted entries."""
    tree, after = next_manifests(before, change, of), []
    for number, manifest in enumerate(tree.manifests):
        if isinstance(manifest, WrittenManifest):
            placed = manifest.at(f"m{of.sequence_number}-{number}")
            again, _ = read_manifest(placed.row, manifest.content, MOST)
            assert encoded(again) == encoded(placed)
            assert len(list(fastavro.reader(io.BytesIO(manifest.content)))) == sum(
                placed.row[f"{kind}_files_count"] for kind in ("added", "existing", "deleted")
            )
        after.append(placed if isinstance(manifest, WrittenManifest) else manifest)
    assert [r["manifest_path"] for r in read_list(write_list(of, after), MOST)] == [m.path for m in after]
    return after, [entry.path for entry in tree.deleted]


def test_a_tree_of_manifests_keeps_numbers_and_row_ids_of_what_stays() -> None:
    first, _ = written([], SnapshotDifference([data_file("a", 5), data_file("b", 7)]), snapshot(1, 0))
    second, gone = written(
        first, SnapshotDifference([data_file("c", 3)], vectors={"a": vector_of("a", "v1", 2)}), snapshot(2, 12)
    )
    assert gone == []
    data, vectors = second
    rows = {name: (e.file["first_row_id"], e.sequence_number) for name, e in data.entries.items()}
    assert rows == {"a": (0, 1), "b": (5, 1), "c": (12, 2)}
    assert (data.row["min_sequence_number"], vectors.row["first_row_id"]) == (1, None)
    third, gone = written(
        second, SnapshotDifference(removed=["b"], vectors={"a": vector_of("a", "v2", 4)}), snapshot(3, 15)
    )
    assert gone == ["b", "v1"]
    assert [sorted(m.entries) for m in third] == [["a", "c"], ["a"]]
    fourth, gone = written(third, SnapshotDifference(removed=["a", "c"]), snapshot(4, 15))
    assert sorted(gone) == ["a", "c", "v2"]
    assert [dict(m.entries) for m in fourth] == [{}, {}]
    assert written(fourth, SnapshotDifference(), snapshot(5, 15)) == ([], [])


def test_a_large_manifest_stays_as_it_is() -> None:
    first, _ = written([], SnapshotDifference([data_file(f"{n}", 1) for n in range(501)]), snapshot(1, 0))
    assert [len(m.entries) for m in first] == [500, 1]
    assert [m.row["first_row_id"] for m in first] == [0, 500]
    second, _ = written(first, SnapshotDifference([data_file("new", 1)], removed=["7"]), snapshot(2, 501))
    assert [len(m.entries) for m in second] == [499, 2]
    third, _ = written(second, SnapshotDifference([data_file("newer", 1)]), snapshot(3, 502))
    assert third[0] is second[0]


def container(schema: Any, records: int, block: bytes, codec: str = "null") -> bytes:
    """A file whose block says that it has so many records."""
    made = Encoder(MANIFEST_ENTRY)
    made.text = json.dumps(schema)
    plain = made.container({}, [])
    header = plain[:-16].replace(b"\x0edeflate", bytes([2 * len(codec)]) + codec.encode())
    sync = plain[-16:]
    return header + sync + number(records) + number(len(block)) + block + sync


def number(value: int) -> bytes:
    value, out = value * 2, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def deflated(content: bytes) -> bytes:
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packing.compress(content) + packing.flush()


EMPTY = {"type": "record", "name": "e", "fields": []}
LISTS = {"type": "record", "name": "l", "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}
HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "text": lambda: b"<html>",
    "cut": lambda: golden("data-m0.avro")[:-20],
    "cut in its header": lambda: golden("data-m0.avro")[:100],
    "a changed byte": lambda: golden("data-m0.avro")[:-30] + b"\xff" + golden("data-m0.avro")[-29:],
    "records without bytes": lambda: container(EMPTY, 2**60, b""),
    "items without bytes": lambda: container(LISTS, 1, number(2**60) + b"\0"),
    "another codec": lambda: container(MANIFEST_ENTRY, 1, b"x", "snappy"),
    "a bomb": lambda: container(MANIFEST_ENTRY, 1, deflated(bytes(50 * 2**20)), "deflate"),
    "no schema": lambda: container({"type": "what"}, 1, b"x"),
    "deep": lambda: container([[]] * 3, 1, b"x"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_the_tables_named_error(kind: str) -> None:
    content = HOSTILE[kind]()
    with pytest.raises(BROKEN):
        list(read_container(content, MOST).records)
    with pytest.raises(PermanentError, match='"the manifest" cannot be read'), parsing("the manifest"):
        read_list(content, MOST)


@pytest.mark.parametrize(
    "path", ["/lake/tother/x", "/lake/t", "/lake/t/", "/lake/t/../x", "/lake/t//x", "s3://lake/t/x"]
)
def test_a_file_that_lies_elsewhere_is_refused(path: str) -> None:
    paths = TablePaths("/lake/t")
    assert paths.relative(paths.whole("data/x")) == "data/x"
    with pytest.raises(PermanentError, match="files below the table's location"):
        paths.relative(path)


def _entry(**file: Any) -> dict[str, Any]:
    return {
        "status": 1,
        "data_file": {
            "content": 0, "file_path": "a", "file_format": "PARQUET", "partition": {}, "record_count": 1,
            "file_size_in_bytes": 1, **file,
        },
    }  # fmt: skip


ITEMS = [{"key": 0, "value": 0}]


@pytest.mark.parametrize(
    ("records", "refused"),
    [([_entry(column_sizes=ITEMS * 300_000)], True), ([_entry()] * 30_000, True),
     ([_entry(column_sizes=ITEMS * 30_000)] * 10, False)],
    ids=["one-record", "many-records", "one-at-a-time"],
)  # fmt: skip
def test_records_are_bounded_by_what_they_take_in_memory(records: list[dict[str, Any]], refused: bool) -> None:
    """An item of two bytes takes two hundred."""
    encoder, most = Encoder(MANIFEST_ENTRY), 2**23
    content = encoder.container({}, [encoder.encoded(record) for record in records])
    assert len(content) < 2**17

    def read() -> int:
        with pytest.raises(BROKEN) if refused else nullcontext():
            assert sum(1 for _ in read_container(content, most).records) == len(records)
        return tracemalloc.get_traced_memory()[1]

    assert traced(read) < 2 * most


def test_a_list_of_manifests_is_bounded_by_what_its_rows_take_in_memory() -> None:
    row = {
        "manifest_path": "a", "manifest_length": 1, "partition_spec_id": 0, "content": 0, "sequence_number": 1,
        "min_sequence_number": 1, "added_snapshot_id": 1, "added_files_count": 1, "existing_files_count": 0,
        "deleted_files_count": 0, "added_rows_count": 1, "existing_rows_count": 0, "deleted_rows_count": 0,
        "partitions": [{"contains_null": False}] * 1000,
    }  # fmt: skip
    encoder = Encoder(MANIFEST_FILE)
    rows = encoder.container({}, [encoder.encoded(row)] * 15)
    assert len(read_list(rows, 2**23)) == 15
    with pytest.raises(ValueError, match="bytes of memory"):
        read_list(encoder.container({}, [encoder.encoded(row)] * 20), 2**23)


def test_records_within_the_bound_are_read_whatever_the_size_of_their_block_is() -> None:
    encoder = Encoder(MANIFEST_ENTRY)
    records = [_entry(file_path=f"{n}" * 20, column_sizes=ITEMS * (n % 50)) for n in range(2000)]
    content = encoder.container({}, [encoder.encoded(record) for record in records])
    found = list(read_container(content, 2**26).records)
    assert [r["data_file"]["file_path"] for r in found] == [f"{n}" * 20 for n in range(2000)]
    assert [len(r["data_file"]["column_sizes"]) for r in found] == [n % 50 for n in range(2000)]


@pytest.mark.parametrize(
    "items",
    [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}, {"type": "record", "name": "r", "fields": []},
     {"type": "record", "name": "r", "fields": [{"name": f"f{n}", "type": "int"} for n in range(5)]}, "manifest_entry"],
)  # fmt: skip
def test_arrays_of_items_that_take_any_memory_are_refused(items: Any) -> None:
    schema = {"type": "record", "name": "m", "fields": [{"name": "x", "type": {"type": "array", "items": items}}]}
    with pytest.raises(BROKEN, match=r"array of other items|a map"):
        read_container(container(schema, 1, b"\0"), MOST)
