"""Images that lack columns are whole to a table that does not capture these, and unusable to every
other; columns that a server hides are no columns of the table."""

from __future__ import annotations

import struct

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.wire.binlog.facts import RowsEvent
from cdcsync_spark.wire.binlog.predicted_map import differences
from cdcsync_spark.wire.binlog.rows import decode
from cdcsync_spark.wire.binlog.table_map import parse_map
from cdcsync_spark.wire.binlog.tables import MappedTables
from support.events import names, rows, table_map

T = TableId("shop", "t")
WRITE, UPDATE, DELETE = 30, 31, 32
LONG, LONGLONG, VARCHAR = (3, b""), (8, b""), (15, b"\x28\0")


def table(*columns: str, excluded: tuple[str, ...] = (), generated: tuple[str, ...] | None = None) -> Capture:
    """The first column is the key; one that begins with `t` is a text."""
    found = tuple(
        Column(c, SourceType.parse(*(("varchar(10)", "utf8mb4") if c[0] == "t" else ("int",)))) for c in columns
    )
    known = None if generated is None else frozenset(generated)
    return Capture(SourceTable(T, found, generated=known), (columns[0],), frozenset(excluded))


def mapped(*columns: str, extra: tuple[tuple[str, tuple[int, bytes], bool], ...] = ()) -> bytes:
    """The event of such columns; `extra` are name, type and sign of others behind them."""
    types = [VARCHAR if c[0] == "t" else LONG for c in columns] + [kind for _, kind, _ in extra]
    signs = [False for c in columns if c[0] != "t"] + [unsigned for _, kind, unsigned in extra if kind != VARCHAR]
    bits = sum(0x80 >> i for i, unsigned in enumerate(signs) if unsigned)
    return table_map(18, types, optional=[(1, bytes([bits])), (2, b"\x2d"), names(*columns, *(e[0] for e in extra))])


def event(body: bytes, kind: int, images: bytes, width: int, present: int) -> RowsEvent:
    tables = MappedTables(mariadb=True, is_wanted=lambda _: True)
    tables.learn(body, "binlog.000001", 100)
    found = tables.rows(kind, 50, rows(18, images, width=width, present=present, update=kind == UPDATE))
    assert found is not None
    return found


def decoded(capture: Capture, *events: RowsEvent) -> dict[str, list[object]]:
    found = [decode(capture, list(events), [0] * len(events), decoder).batch for decoder in Decoder]
    assert found[0].equals(found[1])
    values: dict[str, list[object]] = found[0].select([c.name for c in capture.captured]).to_pydict()
    return values


def number(*values: int) -> bytes:
    return b"".join(struct.pack("<i", v) for v in values)


def text(value: str) -> bytes:
    return bytes([len(value.encode())]) + value.encode()


BODY = mapped("id", "g", "t", "n")
#: id, t, n; the bitmap has three bits of NULLs
CUT = b"\xf8" + number(1) + text("a") + number(7) + b"\xfa" + number(2) + number(8)


def test_what_lacks_a_column_that_is_not_captured_is_whole() -> None:
    """In one batch with images that have it."""
    whole = event(BODY, WRITE, b"\xf0" + number(1, 3) + text("ü") + number(9), 4, 0b1111)
    cut = event(BODY, UPDATE, CUT, 4, 0b1101)
    assert (cut.defect is not None, cut.left_out) == (True, (1,))
    assert decoded(table("id", "g", "t", "n", excluded=("g",)), whole, cut, whole) == {
        "id": [1, 1, 2, 1],
        "t": ["ü", "a", None, "ü"],
        "n": [9, 7, 8, 9],
    }


@pytest.mark.parametrize(
    ("generated", "needed"),
    [(("g",), "captured columns that every row in the binlog has"), (None, "FULL"), ((), "FULL"), (("n",), "FULL")],
)
def test_what_lacks_a_captured_column_is_refused(generated: tuple[str, ...] | None, needed: str) -> None:
    """For a generated column with the remedy to leave it out."""
    capture = table("id", "g", "t", "n", excluded=("t",), generated=generated)
    with pytest.raises(CdcError) as caught:
        decoded(capture, event(BODY, DELETE, CUT, 4, 0b1101))
    assert caught.value.reason is Reason.ROW_IMAGE_NOT_FULL
    assert needed in caught.value.needed
    assert ("columns: {exclude: [g]}" in caught.value.remedy) is (generated == ("g",))


def test_an_updates_images_that_lack_different_columns_are_refused() -> None:
    body = number(18)[:4] + b"\0\0\1\0\2\0" + bytes([4, 0b1101, 0b1011]) + CUT
    tables = MappedTables(mariadb=True, is_wanted=lambda _: True)
    tables.learn(BODY, "binlog.000001", 100)
    found = tables.rows(UPDATE, 50, body)
    assert found is not None
    assert found.left_out == ()
    with pytest.raises(CdcError) as caught:
        decoded(table("id", "g", "t", "n", excluded=("g", "t")), found)
    assert caught.value.reason is Reason.ROW_IMAGE_NOT_FULL


def test_images_end_with_their_event() -> None:
    with pytest.raises(CdcError) as caught:
        decoded(table("id", "g", "t", "n", excluded=("g",)), event(BODY, WRITE, CUT[:-1], 4, 0b1101))
    assert "missing" in caught.value.found


HASH = ("DB_ROW_HASH_1", LONGLONG, True)


def test_the_hidden_column_of_a_long_unique_key_is_no_column() -> None:
    """In an INSERT it has a value; MariaDB 11.8 leaves it out of the others."""
    body, capture = mapped("id", "t", extra=(HASH, ("DB_ROW_HASH_12", LONGLONG, True))), table("id", "t")
    whole = event(body, WRITE, b"\xf8" + number(1) + text("a") + bytes(8) + b"", 4, 0b0111)
    cut = event(body, DELETE, b"\xfc" + number(1) + text("b"), 4, 0b0011)
    both = event(body, WRITE, b"\xf0" + number(2) + text("c") + bytes(16), 4, 0b1111)
    assert decoded(capture, whole, cut, both) == {"id": [1, 1, 2], "t": ["a", "b", "c"]}
    assert differences(Capture(capture.source, ("id",), key_index="other"), parse_map(body, mariadb=True)) == []


@pytest.mark.parametrize(
    "extra", [("DB_ROW_HASH_1", LONG, True), ("DB_ROW_HASH_1", LONGLONG, False), ("X", LONG, True)]
)
def test_another_column_is_a_changed_definition(extra: tuple[str, tuple[int, bytes], bool]) -> None:
    with pytest.raises(CdcError) as caught:
        decoded(table("id"), event(mapped("id", extra=(extra,)), WRITE, b"\xfc" + number(1, 1, 1), 2, 0b11))
    assert caught.value.reason is Reason.SCHEMA_CHANGE_REFUSED


def test_a_table_may_have_a_column_of_such_a_name() -> None:
    body = mapped("id", extra=(HASH, ("DB_ROW_HASH_2", LONGLONG, True)))
    capture = Capture(
        SourceTable(
            T, (Column("id", SourceType.parse("int")), Column("DB_ROW_HASH_1", SourceType.parse("bigint unsigned")))
        ),
        ("id",),
    )
    images = b"\xf8" + number(1) + (7).to_bytes(8, "little") + bytes(8)
    assert decoded(capture, event(body, WRITE, images, 3, 0b111)) == {"id": [1], "DB_ROW_HASH_1": [7]}


@pytest.mark.parametrize("name", ["!hidden!functional_index!0!0", "2a86b4202bcad184a408c5a79e5c0adf"])
@pytest.mark.parametrize(("width", "present"), [(3, 0b101), (2, 0b11)])
def test_the_hidden_column_of_a_functional_index_is_in_no_image(name: str, width: int, present: int) -> None:
    """MySQL 8.0.13 to 8.0.17; one that was added later is behind it."""
    types, hidden = [LONG, VARCHAR, LONG], names("id", name, "n")
    body = table_map(18, types, optional=[(1, b"\0"), (2, b"\x2d"), hidden])
    found = event(body, UPDATE, b"\xfc" + number(1, 5) + b"\xfc" + number(1, 6), width, present)
    assert decoded(table("id", "n"), found) == {"id": [1, 1], "n": [5, 6]}


def test_old_times_in_images_that_lack_columns_are_refused() -> None:
    """How long they are is in the catalog only."""
    body = table_map(18, [LONG, (11, b""), LONG], optional=[(1, b"\0"), names("id", "at", "n")])
    found = event(body, DELETE, b"\xfc" + number(1) + bytes(5), 3, 0b011)
    assert found.defect is not None
    assert found.left_out == ()
    assert "ALTER TABLE `shop`.`t` FORCE" in found.defect.remedy
