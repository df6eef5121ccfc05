"""What a table's metadata say: the state that its rows have, snapshots that expire, field ids."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_core.state import SinkWrite, TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.schema_change import Converted, Filled, Kept
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.history.rows import HISTORY, mark
from cdcsync_spark.sinks.iceberg.table.defaults import default_json, default_value
from cdcsync_spark.sinks.iceberg.table.expiry import (
    DEFAULT_AGE,
    HISTORY_AGE,
    MOST,
    MOST_AGE,
    NEWEST,
    Gone,
    dead,
    expired,
)
from cdcsync_spark.sinks.iceberg.table.metadata import TableMetadata
from cdcsync_spark.sinks.iceberg.table.schema import evolved_schema, file_schema, in_files, new_schema, widens
from cdcsync_spark.sinks.iceberg.table.state import RecordedState, found_state, property_of
from cdcsync_spark.sinks.lake.files.field_ids import FIELD_ID, FieldIds
from contract.sinkcase import ORDERS, first_state, make_table, rows_of

COPY = "cdcsync-resnapshot-1"
NOW = 10_000_000_000


def snapshot(number: int, parent: int | None, at: int = 0, **summary: str) -> dict[str, Any]:
    before = {} if parent is None else {"parent-snapshot-id": parent}
    return {
        "snapshot-id": number,
        **before,
        "sequence-number": number,
        "timestamp-ms": at,
        "manifest-list": f"/t/metadata/{number}",
        "summary": {"operation": "append", **summary},
    }


def ours(state: TableState, number: int, parent: int | None, ref: str = "main") -> dict[str, Any]:
    return snapshot(number, parent, **RecordedState(state, number, number).summary(ref))


def table(
    snapshots: list[dict[str, Any]], head: int | None, properties: dict[str, str] | None = None, **refs: Any
) -> TableMetadata:
    main = {} if head is None else {"main": {"type": "branch", "snapshot-id": head}}
    return TableMetadata(
        {
            "format-version": 3,
            "table-uuid": "u",
            "location": "/t",
            "last-column-id": 2,
            "snapshots": snapshots,
            "properties": properties or {},
            "refs": main | refs,
        }
    )


def recorded(state: TableState, number: int) -> dict[str, str]:
    return {property_of("main"): RecordedState(state, number, number or None).text}


def recorded_without_id(state: TableState, number: int) -> dict[str, str]:
    """As an earlier release did."""
    text = json.dumps({"sequence": number, "state": state.to_dict()})
    return {property_of("main"): text}


STATE = replace(first_state(), commit_number=7)
BEFORE = replace(STATE, commit_number=6)


def test_a_new_table_has_its_first_state_without_a_snapshot() -> None:
    assert found_state(table([], None, recorded(STATE, 0)), "main") == STATE
    assert found_state(table([], None), "main") is None


def test_the_newest_commit_of_ours_proves_the_state() -> None:
    found = found_state(table([ours(BEFORE, 1, None), ours(STATE, 2, 1)], 2, recorded(STATE, 2)), "main")
    assert found == STATE


@pytest.mark.parametrize("operation", ["append", "overwrite", "delete"])
def test_rows_that_another_program_changed_are_noted(operation: str) -> None:
    theirs = snapshot(3, 2, 5000, operation=operation, **{"engine-name": "spark", "engine-version": "4"})
    metadata = table([ours(STATE, 2, 1), theirs, snapshot(4, 3, operation="replace")], 4, recorded(STATE, 2))
    found = found_state(metadata, "main")
    assert found is not None
    assert found.written is not None
    assert found.written.to_dict() == {"version": 3, "program": "spark 4", "operation": operation, "at": 5.0}


def test_upkeep_of_others_keeps_the_state_when_ours_has_expired() -> None:
    """And so does another program's first snapshot in a table without one of ours."""
    rewritten = snapshot(4, 2, operation="replace")
    assert found_state(table([rewritten], 4, recorded(STATE, 2)), "main") == STATE
    for properties in (recorded(STATE, 0), recorded_without_id(STATE, 0)):
        state = found_state(table([snapshot(1, None, 5000)], 1, properties), "main")
        assert state == replace(STATE, written=SinkWrite(1, operation="append", at=5))


def test_rows_that_another_program_changed_are_noted_when_ours_has_expired() -> None:
    changes = [snapshot(3, 2, 5000, operation="delete"), snapshot(4, 3, operation="replace")]
    state = found_state(table(changes, 4, recorded(STATE, 2)), "main")
    assert state == replace(STATE, written=SinkWrite(3, operation="delete", at=5))


UNSEEN = {
    "between": table([snapshot(4, 3, 5000, operation="replace")], 4, recorded(STATE, 2)),
    "before our first": table([snapshot(4, 3, 5000, operation="replace")], 4, recorded(STATE, 0)),
    "before our first, by PyIceberg": table([snapshot(4, None, 5000, operation="replace")], 4, recorded(STATE, 0)),
    "after PyIceberg expired ours": table([snapshot(4, None, 5000, operation="replace")], 4, recorded(STATE, 3)),
    "without our id": table([snapshot(4, 3, 5000, operation="replace")], 4, recorded_without_id(STATE, 3)),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_what_no_snapshot_shows_is_noted(case: str) -> None:
    """A DELETE whose snapshot has expired with ours, or none."""
    state = found_state(UNSEEN[case], "main")
    assert state is not None
    assert (state.written, replace(state, written=None)) == (
        SinkWrite(4, operation="not known: snapshots before it have expired", at=5),
        STATE,
    )


REFUSED = {
    "taken back": table([ours(BEFORE, 1, None), ours(STATE, 2, 1)], 1, recorded(STATE, 2)),
    "taken back to before us": table([snapshot(1, None), ours(STATE, 2, 1)], 1, recorded(STATE, 2)),
    "emptied": table([ours(STATE, 2, None)], None, recorded(STATE, 2)),
    "ahead": table([ours(BEFORE, 1, None), ours(STATE, 2, 1)], 2, recorded(BEFORE, 1)),
    "another's state": table([ours(STATE, 2, 1)], 2, recorded(replace(STATE, rows=9), 2)),
    "a copy's snapshot": table([ours(STATE, 2, 1, COPY)], 2, recorded(STATE, 2)),
    "rows changed and ours expired": table([snapshot(4, 3)], 4, recorded(STATE, 2)),
    "made again": table([snapshot(3, None)], 3, recorded(STATE, 2)),
    "taken back and ours expired": table([snapshot(1, 0, operation="replace")], 1, recorded(STATE, 2)),
    "taken back, then rewritten, and ours expired": table(
        [snapshot(1, 0, operation="replace"), snapshot(3, 1, operation="replace")], 3, recorded(STATE, 2)
    ),
    "taken back, then rewritten, and all before it expired": table(
        [snapshot(3, 1, operation="replace")], 3, recorded(STATE, 2)
    ),
    "taken back without our id": table([snapshot(2, 1, operation="replace")], 2, recorded_without_id(STATE, 2)),
    "made again without our id": table([snapshot(3, None)], 3, recorded_without_id(STATE, 2)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_property_that_is_not_of_these_rows_is_refused(case: str) -> None:
    with pytest.raises(PermanentError, match="the branch main is not as our commit") as stopped:
        found_state(REFUSED[case], "main")
    assert stopped.value.table == str(ORDERS.id)
    assert stopped.value.remedy


def test_the_newest_snapshots_stay_and_one_a_minute_of_the_older_ones() -> None:
    """A snapshot a second for a day; those before the table's limit of two hours go."""
    seconds = range(1, 3600 * 3)
    snapshots = [snapshot(n, n - 1, NOW - 1000 * (3600 * 3 - n)) for n in seconds]
    gone = set(expired(table(snapshots, seconds[-1]), NOW))
    kept = [n for n in seconds if n not in gone]
    assert kept[-NEWEST:] == list(seconds[-NEWEST:])
    assert 115 <= len(kept) - NEWEST <= 120
    assert kept[0] >= 3600
    again = table([s for s in snapshots if s["snapshot-id"] in kept], seconds[-1])
    assert expired(again, NOW) == []


def test_a_history_keeps_each_snapshot_that_a_reader_may_be_at() -> None:
    snapshots = [snapshot(n, n - 1, NOW - 1000 * (3600 * 2 - n)) for n in range(1, 3600 * 2)]
    properties = {HISTORY: mark(EventColumns()), MOST_AGE: str(HISTORY_AGE)}
    assert expired(table(snapshots, 3600 * 2 - 1, properties), NOW) == list(range(1, 3600))


@pytest.mark.parametrize("properties", [{HISTORY: mark(EventColumns())}, {}], ids=["a history", "a replica"])
def test_however_long_snapshots_are_kept_their_number_has_a_bound(properties: dict[str, str]) -> None:
    snapshots = [snapshot(n, n - 1, NOW + 60_000 * n) for n in range(1, MOST + 1001)]
    kept_for_ever = properties | {MOST_AGE: str(10**14)}
    assert expired(table(snapshots, MOST + 1000, kept_for_ever), NOW + 60_000 * MOST) == list(range(1, 1001))


def test_what_others_hold_stays() -> None:
    snapshots = [snapshot(n, n - 1) for n in range(1, 60)]
    tag = {"type": "tag", "snapshot-id": 3}
    branch = {"type": "branch", "snapshot-id": 7}
    assert {3} == set(range(1, 60 - NEWEST)) - set(expired(table(snapshots, 59, tag=tag), NOW))
    assert set(range(1, 8)) == set(range(1, 60 - NEWEST)) - set(expired(table(snapshots, 59, theirs=branch), NOW))


def test_what_others_staged_stays_as_long_as_the_table_says() -> None:
    staged = {**snapshot(100, 1, NOW - DEFAULT_AGE), "summary": {"operation": "append", "wap.id": "audit"}}
    snapshots = [*(snapshot(n, n - 1, NOW) for n in range(1, 60)), staged]
    assert 100 not in expired(table(snapshots, 59), NOW)
    assert 100 in expired(table(snapshots, 59), NOW + 1)


def test_a_copys_snapshots_go_but_for_its_newest() -> None:
    copies = [ours(STATE, n, n - 1, COPY) for n in (3, 4, 5)]
    snapshots, properties = [snapshot(1, None), *copies], {property_of(COPY): "x"}
    of_copy = {COPY: {"type": "branch", "snapshot-id": 5}}
    assert expired(table(snapshots, 1, properties, **of_copy), NOW) == [3, 4]
    assert expired(table(snapshots, 1, properties), NOW) == [3, 4, 5]


def test_a_file_is_dead_when_no_snapshot_and_no_reader_has_it() -> None:
    late = DEFAULT_AGE + 1000
    gone = {"old": Gone(1, 3, 0), "tagged": Gone(3, 5, 0), "new": Gone(8, 9, 0), "just": Gone(1, 3, 2000)}
    metadata = table([snapshot(4, None), snapshot(8, None), snapshot(9, 8)], 9)
    assert dead(gone, metadata, late) == ["old"]
    assert dead(gone, metadata, 3 * late) == ["old", "just"]
    theirs = table([snapshot(9, None)], 9, theirs={"type": "branch", "snapshot-id": 9})
    assert dead(gone, theirs, late) == []


@pytest.mark.parametrize(
    ("tagged", "removed"),
    [
        (snapshot(7, 2), []),
        (ours(STATE, 7, 2, COPY), []),
        (ours(STATE, 7, 6), ["old"]),
        (snapshot(8, 7), ["old"]),
    ],
    ids=["of a branch that is gone", "of a copy", "of ours", "on main"],
)
def test_a_tag_may_be_all_that_is_left_of_a_branch(tagged: dict[str, Any], removed: list[str]) -> None:
    """Snapshot 7 of that branch has what left `main` by snapshot 3."""
    snapshots = [tagged, snapshot(9, 8)]
    metadata = table(snapshots, 9, tag={"type": "tag", "snapshot-id": tagged["snapshot-id"]})
    assert dead({"old": Gone(1, 3, 0)}, metadata, DEFAULT_AGE + 1000) == removed


WIDE = make_table({"a": "int(11)", "b": "tinyint(4)", "c": "varchar(9)"}, ["a"])


def test_columns_keep_their_ids_and_new_ones_get_others() -> None:
    before = new_schema(TargetSchema.of(WIDE), 0, 0)
    assert [(f["id"], f["required"]) for f in before.fields] == [(1, True), (2, False), (3, False)]
    after = TargetSchema.of(make_table({"z": "int(11)", "c": "varchar(9)", "b": "varchar(9)", "n": "int(11)"}, ["z"]))
    origins = (Kept("a"), Filled(None), Converted("b", 0), Kept("b"))
    theirs = [{"id": 9, "name": name, "required": False, "type": "int"} for name in ("B", "theirs")]
    found = evolved_schema(before, after, origins, theirs, 1, 9)
    assert [(f["name"], f["id"]) for f in found.fields] == [("z", 1), ("c", 10), ("b", 11), ("n", 2), ("theirs", 9)]
    assert (found.id, found.identifiers, found.last_id) == (1, (1,), 11)


@pytest.mark.parametrize(
    ("before", "after", "widened"),
    [
        ("tinyint(4)", "int(11)", "int"),
        ("int(11)", "bigint(20)", "long"),
        ("decimal(9,2)", "decimal(12,2)", "decimal(12, 2)"),
        ("decimal(9,2)", "decimal(12,3)", ""),
        ("int(11)", "decimal(12,0)", ""),
        ("time(0)", "time(3)", ""),
        ("float", "double", ""),
    ],
)
def test_a_column_keeps_its_id_where_iceberg_widens_its_type(before: str, after: str, widened: str) -> None:
    tables = [TargetSchema.of(make_table({"a": "int(11)", "b": kind}, ["a"])) for kind in (before, after)]
    schema = new_schema(tables[0], 0, 0)
    field = evolved_schema(schema, tables[1], (Kept("a"), Converted("b")), [], 1, 2).by_name["b"]
    assert (field["id"], field["type"] if widened else "") == (2 if widened else 3, widened)
    assert widens(schema.by_name["b"], arrow_schema(tables[1]).field("b").type) == bool(widened)


DEFAULTS: list[tuple[pa.DataType, Any, str, Any]] = [
    (pa.int8(), -5, "int", -5),
    (pa.bool_(), True, "boolean", True),
    (pa.string(), "ü'", "string", "ü'"),
    (pa.binary(), b"\x00\xff", "binary", "00ff"),
    (pa.decimal128(20, 2), Decimal("-0.50"), "decimal(20, 2)", "-0.50"),
    (pa.date32(), date(1, 2, 3), "date", "0001-02-03"),
    (pa.timestamp("us"), datetime(2024, 2, 29, 1), "timestamp", "2024-02-29T01:00:00.000000"),
    (pa.timestamp("us", "UTC"), datetime(1970, 1, 1, tzinfo=UTC), "timestamptz", "1970-01-01T00:00:00.000000+00:00"),
]


@pytest.mark.parametrize(("kind", "value", "name", "text"), DEFAULTS, ids=str)
def test_defaults_have_icebergs_form(kind: pa.DataType, value: Any, name: str, text: Any) -> None:
    assert default_json(value, kind) == text
    assert default_value(text, name) == value


def test_columns_are_found_by_their_ids() -> None:
    """A file from before a column was renamed, one was added, and another took the old name."""
    ids = FieldIds({"id": 1, "title": 2, "note": 5, "n": 4}, {"n": 7})
    fields = [
        pa.field(n, t, metadata={FIELD_ID: i}) for n, t, i in (("id", pa.int32(), b"1"), ("note", pa.string(), b"2"))
    ]
    file = pa.record_batch([[1, 2], ["a", None]], schema=pa.schema(fields))
    names = ids.in_file("x", file.schema)
    schema = pa.schema([("note", pa.string()), ("title", pa.string()), ("n", pa.int64()), ("id", pa.int8())])
    assert names.of(schema.names) == ["note", "id"]
    rows = names.batch(file, schema).to_pylist()
    assert rows == [{"note": None, "title": "a", "n": 7, "id": 1}, {"note": None, "title": None, "n": 7, "id": 2}]
    with pytest.raises(PermanentError, match='the data file "x" have no field ids'):
        ids.in_file("x", schema)


def test_rows_get_the_form_of_files() -> None:
    target = TargetSchema.of(WIDE)
    schema = file_schema(new_schema(target, 0, 6), target)
    rows = in_files(rows_of(WIDE, [(1, -128, None)]), schema)
    assert rows.schema.types == [pa.int32(), pa.int32(), pa.string()]
    assert [f.metadata for f in rows.schema] == [{b"PARQUET:field_id": n} for n in (b"7", b"8", b"9")]
    assert [f.nullable for f in rows.schema] == [False, True, True]
