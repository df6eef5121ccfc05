"""The fold of a batch, case by case."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, PermanentError
from cdcsync_spark.delivery import last_images
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.mapped import mapped
from cdcsync_spark.delivery.upsert import fold
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from support.traced import traced

SCHEMA = changes_schema(pa.schema([("id", pa.string()), ("v", pa.int32())]))
INSERT, BEFORE, AFTER, DELETE = ChangeKind


def changes(*images: tuple[ChangeKind, str | None, int]) -> pa.Table:
    return pa.table(
        [[i[0] for i in images], list(range(len(images))), [i[1] for i in images], [i[2] for i in images]],
        schema=SCHEMA,
    )


@pytest.mark.parametrize(
    ("images", "upserts", "deletes"),
    [
        ([], [], []),
        ([(INSERT, "a", 1)], [("a", 1)], []),
        ([(DELETE, "a", 1)], [], ["a"]),
        ([(BEFORE, "a", 1), (AFTER, "a", 2)], [("a", 2)], []),
        ([(INSERT, "a", 1), (DELETE, "a", 1)], [], ["a"]),
        ([(DELETE, "a", 1), (INSERT, "a", 2)], [("a", 2)], []),
        # a changed key is a delete and an insert
        ([(BEFORE, "a", 1), (AFTER, "b", 1)], [("b", 1)], ["a"]),
        # ... there and back again
        ([(BEFORE, "a", 1), (AFTER, "b", 1), (BEFORE, "b", 1), (AFTER, "a", 1)], [("a", 1)], ["b"]),
        # two keys change places by way of a third
        (
            [(BEFORE, "a", 1), (AFTER, "x", 1), (BEFORE, "b", 2), (AFTER, "a", 2), (BEFORE, "x", 1), (AFTER, "b", 1)],
            [("a", 2), ("b", 1)],
            ["x"],
        ),
        # a change of case is a change of key under a case-insensitive collation: bytes count
        ([(BEFORE, "a", 1), (AFTER, "A", 1)], [("A", 1)], ["a"]),
        # trailing blanks are part of a VARCHAR key
        ([(INSERT, "a", 1), (INSERT, "a ", 2)], [("a", 1), ("a ", 2)], []),
    ],
)
def test_the_last_image_of_a_key_wins(
    images: list[tuple[ChangeKind, str, int]], upserts: list[tuple[str, int]], deletes: list[str]
) -> None:
    """Rule R2."""
    folded = fold(Changelog(changes(*images)), ["id"])
    assert sorted((r["id"], r["v"]) for r in folded.upserts.to_pylist()) == upserts
    assert folded.deletes["id"].to_pylist() == deletes


def test_what_is_kept_of_many_images_is_in_a_file_without_a_name(tmp_path: Path) -> None:
    """In several pieces, of which some keep nothing."""
    pieces = [[(INSERT, "a", 1), (INSERT, "b", 1)], [(BEFORE, "a", 1)], [(AFTER, "c", 1), (DELETE, "b", 1)]]
    images = pa.concat_tables(changes(*piece) for piece in pieces)
    inside = fold(Changelog(images), ["id"])
    outside = fold(Changelog(images, scratch=tmp_path), ["id"], in_memory_bytes=0)
    assert outside.upserts.to_pylist() == inside.upserts.to_pylist() == [{"id": "c", "v": 1}]
    assert outside.upserts.schema == inside.upserts.schema
    assert outside.deletes == inside.deletes
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_the_memory_of_a_fold_does_not_grow_with_the_transaction(kind: pa.DataType, tmp_path: Path) -> None:
    """Every key is changed twice: keys of a part are in memory, and a few bits an image."""
    assert peak_of(kind, 400_000, tmp_path) < peak_of(kind, 100_000, tmp_path) + 2**20


def test_one_key_may_change_any_number_of_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All images of a key are in one part, however many they are: of a part there are never many
    more in memory than its keys. The key's column may have any name."""
    compared, last = [0], last_images._last

    def noted(placed: pa.Table) -> pa.Table:
        compared.append(placed.num_rows)
        return last(placed)

    monkeypatch.setattr(last_images, "_last", noted)
    count, batch = 50_000, 1000
    schema = changes_schema(pa.schema([("_i", pa.string()), ("v", pa.int32())]))
    kinds, places = pa.array(np.full(count, AFTER, np.int8)), pa.array(np.arange(count, dtype=np.int32))
    keys = pa.array(["counter" if n % 25 else f"{n}" for n in range(count)])
    images = pa.table([kinds, places, keys, places], schema=schema)
    many = pa.Table.from_batches(images.to_batches(batch))
    folded = fold(Changelog(many, scratch=tmp_path), ["_i"], in_memory_bytes=0, rows_in_memory=5000)
    assert max(compared) <= 2 * 5000 + batch
    assert folded.upserts.sort_by("v") == fold(Changelog(images), ["_i"]).upserts.sort_by("v")
    assert folded.upserts.num_rows == count // 25 + 1


def peak_of(kind: pa.DataType, rows: int, folder: Path) -> int:
    """Bytes of Python and, between the parts, of Arrow."""
    schema = changes_schema(pa.schema([("id", kind)]))
    count = 20_000

    def pieces() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, count):
            keys = pa.array(np.arange(start, start + count) * 7919 % (rows // 2)).cast(kind)
            number = pa.array(np.zeros(count, np.int32))
            yield pa.record_batch([pa.array(np.full(count, 2, np.int8)), number, keys], schema=schema)

    images = mapped(folder, schema, pieces())
    held = pa.total_allocated_bytes()

    def fold_all() -> int:
        folded = fold(Changelog(images, scratch=folder), ["id"], in_memory_bytes=0, rows_in_memory=20_000)
        peak = tracemalloc.get_traced_memory()[1]
        assert folded.upserts.num_rows == rows // 2
        return peak + pa.total_allocated_bytes() - held

    return traced(fold_all)


def test_all_images_of_many_keys_stay_where_they_are(tmp_path: Path) -> None:
    images = changes(*((AFTER, f"{n}", n) for n in range(1000)))
    upserts = fold(Changelog(images, scratch=tmp_path / "none"), ["id"], in_memory_bytes=0).upserts
    here, there = (table["v"].chunk(0).buffers()[1].address for table in (upserts, images))
    assert here == there


def test_a_scratch_disk_that_fails_is_named(tmp_path: Path) -> None:
    images = changes((INSERT, "a", 1), (INSERT, "a", 2))
    with pytest.raises(CdcError, match="scratch disk"):
        fold(Changelog(images, scratch=tmp_path / "none"), ["id"], in_memory_bytes=0)


def test_the_results_have_the_targets_columns() -> None:
    """Also where a batch folds to nothing."""
    for images in ([], [(INSERT, "a", 1)]):
        folded = fold(Changelog(changes(*images)), ["id"])
        assert folded.upserts.schema == pa.schema([("id", pa.string()), ("v", pa.int32())])
        assert folded.deletes.schema == pa.schema([("id", pa.string())])


def test_a_null_in_a_key_stops_the_table() -> None:
    """A zero date in a key became NULL: it would match no row of the target and be inserted at
    every replay."""
    with pytest.raises(PermanentError, match="key"):
        fold(Changelog(changes((INSERT, None, 1))), ["id"])


def test_a_batch_whose_texts_exceed_an_array_is_folded() -> None:
    """Rows come in pieces; one array of 32-bit offsets cannot hold more than 2 GiB of text, so
    pieces must not be joined."""
    wide = pa.array(["x" * (1 << 20)] * 40)
    schema = changes_schema(pa.schema([("id", pa.int32()), ("v", pa.string())]))
    pieces = [
        pa.table(
            [pa.array([0] * 40, pa.int8()), pa.array([0] * 40, pa.int32()), pa.array([n % 3] * 40, pa.int32()), wide],
            schema=schema,
        )
        for n in range(55)
    ]
    folded = fold(Changelog(pa.concat_tables(pieces)), ["id"])
    assert sorted(folded.upserts["id"].to_pylist()) == [0, 1, 2]
