"""Rows events to one Arrow batch: the definition is compared first, images end with their event,
errors name table and column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, DecodeError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.wire.binlog.definition import check_table_map
from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent, TableMap
from cdcsync_spark.wire.binlog.rows import decode
from cdcsync_spark.wire.binlog.table_map import parse_map
from support.events import ID_V, image, names, table_map

T = TableId("shop", "t")
TABLE = Capture(
    SourceTable(
        T,
        (
            Column("id", SourceType.parse("int(11)"), nullable=False),
            Column("v", SourceType.parse("varchar(10)", "utf8mb4"), collation="utf8mb4_general_ci"),
        ),
    ),
    ("id",),
)
MAP = parse_map(ID_V, mariadb=False)
NULL_V = b"\xfe\x07\x00\x00\x00"


def rows(operation: Operation, body: bytes, table: TableMap = MAP, defect: CdcError | None = None) -> RowsEvent:
    return RowsEvent(T, table, operation, body, len(body), defect)


def test_changes_are_in_the_order_of_the_log() -> None:
    events = [
        rows(Operation.WRITE, image(1, "a") + image(2, "b")),
        rows(Operation.UPDATE, image(1, "a") + image(9, "ü")),
        rows(Operation.DELETE, image(2, "b") + NULL_V),
    ]
    decoded = decode(TABLE, events, [4, 5, 5])
    assert decoded.batch.schema == changes_schema(captured_schema(TABLE))
    insert, before, after, delete = (
        ChangeKind.INSERT,
        ChangeKind.UPDATE_BEFORE,
        ChangeKind.UPDATE_AFTER,
        ChangeKind.DELETE,
    )
    assert decoded.batch.to_pydict() == {
        "_cdc_kind": [insert, insert, before, after, delete, delete],
        "_cdc_transaction": [4, 4, 5, 5, 5, 5],
        "id": [1, 2, 1, 9, 2, 7],
        "v": ["a", "b", "a", "ü", "b", None],
    }
    assert decoded.nulled == 0


def test_nothing_is_an_empty_batch() -> None:
    batch = decode(TABLE, [], []).batch
    assert batch.num_rows == 0
    assert batch.schema == changes_schema(captured_schema(TABLE))


def test_another_table_map_in_between_changes_nothing() -> None:
    other = parse_map(ID_V, mariadb=False)
    events = [rows(Operation.WRITE, image(i, "a"), m) for i, m in enumerate([MAP, other, MAP])]
    assert decode(TABLE, events, [0, 0, 1]).batch["id"].to_pylist() == [0, 1, 2]


def test_excluded_columns_are_left_out_and_need_no_character_set() -> None:
    table = Capture(
        SourceTable(T, (*TABLE.columns[:1], Column("v", SourceType.parse("frobnitz")))), ("id",), frozenset({"v"})
    )
    batch = decode(table, [rows(Operation.WRITE, image(1, "a"))], [0]).batch
    assert batch.to_pydict() == {"_cdc_kind": [0], "_cdc_transaction": [0], "id": [1]}


def test_dates_that_become_null_are_counted_where_they_stay() -> None:
    """Not in before images and deletes."""
    table = Capture(SourceTable(T, (TABLE.columns[0], Column("d", SourceType.parse("date")))), ("id",))
    dates = parse_map(table_map(18, [(3, b""), (10, b"")], optional=[(1, b"\0"), names("id", "d")]), mariadb=False)
    zero = b"\xfc\x01\x00\x00\x00\x00\x00\x00"
    events = [
        rows(Operation.WRITE, zero, dates),
        rows(Operation.UPDATE, zero * 2, dates),
        rows(Operation.DELETE, zero, dates),
    ]
    decoded = decode(table, events, [0, 0, 0])
    assert decoded.batch["d"].to_pylist() == [None] * 4
    assert decoded.nulled == 2


def test_an_events_defect_is_raised() -> None:
    defect = DecodeError("no", table="shop.t")
    with pytest.raises(DecodeError) as caught:
        decode(TABLE, [rows(Operation.WRITE, b"", defect=defect)], [0])
    assert caught.value is defect


@pytest.mark.parametrize("body", [image(1, "a")[:-1], image(1, "a") + b"\xfc", image(1, "a") + b"\x00\x01", b"\xfc"])
def test_an_image_that_ends_elsewhere_is_an_error(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(TABLE, [rows(Operation.WRITE, body)], [0])
    assert caught.value.table == "shop.t"


def test_an_update_without_its_after_image_is_an_error() -> None:
    with pytest.raises(DecodeError, match="after image"):
        decode(TABLE, [rows(Operation.UPDATE, image(1, "a"))], [0])


def test_a_value_that_cannot_be_read_names_table_and_column() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(TABLE, [rows(Operation.WRITE, b"\xfc\x01\x00\x00\x00\x01\xff")], [0])
    assert (caught.value.table, caught.value.column) == ("shop.t", "v")


def _optional(*fields: tuple[int, bytes]) -> TableMap:
    return parse_map(table_map(18, [(3, b""), (15, b"\x28\0")], optional=list(fields)), mariadb=False)


SIGNED, UNSIGNED, UTF8, LATIN1, ID_AND_V = (1, b"\0"), (1, b"\x80"), (2, b"\x2d"), (2, b"\x08"), names("id", "v")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (_optional(UNSIGNED, UTF8), Reason.SCHEMA_CHANGE_REFUSED),
        (_optional(SIGNED, LATIN1), Reason.SCHEMA_CHANGE_REFUSED),
        (parse_map(table_map(18, [(8, b""), (15, b"\x28\0")]), mariadb=False), Reason.SCHEMA_CHANGE_REFUSED),
        (parse_map(table_map(18, [(3, b"")]), mariadb=False), Reason.SCHEMA_CHANGE_REFUSED),
        (parse_map(table_map(18, [(3, b"")] * 3), mariadb=False), Reason.ROW_METADATA_NOT_FULL),
        (_optional(ID_AND_V, UTF8), Reason.ROW_METADATA_NOT_FULL),
        (_optional(ID_AND_V, SIGNED), Reason.ROW_METADATA_NOT_FULL),
        (_optional(SIGNED, UTF8, names("v", "id")), Reason.SCHEMA_CHANGE_REFUSED),
        (_optional(SIGNED, UTF8, names("id", "w")), Reason.SCHEMA_CHANGE_REFUSED),
        (_optional(UNSIGNED, UTF8, ID_AND_V), Reason.SCHEMA_CHANGE_REFUSED),
        (_optional(SIGNED, LATIN1, ID_AND_V), Reason.SCHEMA_CHANGE_REFUSED),
        (_optional(SIGNED, (3, b"\x08"), ID_AND_V), Reason.SCHEMA_CHANGE_REFUSED),
        # exceptions to the default: character column 0 has collation 8
        (_optional(SIGNED, (2, b"\x2d\x00\x08"), ID_AND_V), Reason.SCHEMA_CHANGE_REFUSED),
        (
            parse_map(table_map(18, [(3, b"")], optional=[SIGNED, names("id")]), mariadb=False),
            Reason.SCHEMA_CHANGE_REFUSED,
        ),
        (
            parse_map(table_map(18, [(8, b""), (15, b"\x28\0")], optional=[SIGNED, UTF8, ID_AND_V]), mariadb=False),
            Reason.SCHEMA_CHANGE_REFUSED,
        ),
    ],
)
def test_another_definition_is_refused(found: TableMap, reason: Reason) -> None:
    """R9."""
    with pytest.raises(CdcError) as caught:
        check_table_map(found, TABLE)
    assert caught.value.reason is reason
    assert caught.value.table == "shop.t"


def test_another_collation_of_the_same_character_set_is_the_same() -> None:
    """46 is utf8mb4_bin, 1070 its twin without padding, 2304 the first of MariaDB's UCA 14.0.0."""
    for collation in (b"\x2e", b"\xfc\x2e\x04", b"\xfc\x00\x09"):
        check_table_map(_optional(SIGNED, (2, collation), ID_AND_V), TABLE)


@pytest.mark.parametrize(
    ("declared", "members", "same"),
    [
        ("enum('a','b')", [b"a", b"b"], True),
        ("enum('a','b')", [b"b", b"a"], False),
        ("enum('a','b')", [b"a"], False),
        (r"enum('a\\b','c''d','e\nf')", [b"a\\b", b"c'd", b"e\nf"], True),
        ("enum('a\\b')", [b"a\\b"], True),  # shown under NO_BACKSLASH_ESCAPES
    ],
)
def test_members_are_compared(declared: str, members: list[bytes], same: bool) -> None:
    table = Capture(SourceTable(T, (TABLE.columns[0], Column("e", SourceType.parse(declared, "utf8mb4")))), ("id",))
    listed = bytes([len(members)]) + b"".join(bytes([len(m)]) + m for m in members)
    fields = [SIGNED, names("id", "e"), (6, listed), (10, b"\x2d")]
    found = parse_map(table_map(18, [(3, b""), (254, b"\xf7\x01")], optional=fields), mariadb=False)
    if same:
        check_table_map(found, table)
    else:
        with pytest.raises(CdcError):
            check_table_map(found, table)


def test_a_wide_table_has_a_wide_bitmap() -> None:
    """Nine columns: two bytes of NULL bits, the lowest bit first."""
    columns = tuple(Column(f"c{i}", SourceType.parse("tinyint(4)")) for i in range(9))
    table = Capture(SourceTable(T, columns), ("c0",))
    field = [(1, b"\0\0"), names(*(c.name for c in columns))]
    nine = parse_map(table_map(18, [(1, b"")] * 9, optional=field), mariadb=False)
    batch = decode(table, [rows(Operation.WRITE, b"\x02\x01" + bytes(range(7)), nine)], [0]).batch
    assert batch.slice(0, 1).to_pylist()[0] == {
        "_cdc_kind": 0,
        "_cdc_transaction": 0,
        "c0": 0,
        "c1": None,
        **{f"c{i}": i - 1 for i in range(2, 8)},
        "c8": None,
    }
    assert batch.schema.field("c1").type == pa.int8()
