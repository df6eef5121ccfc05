"""R9: what a followed statement makes of a target's columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.evolve import DroppedColumns, NotCopied, evolve, rewrites
from cdcsync_core.tables.schema_change import Converted, Filled, Followed, Kept, Origin
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema

KEEP, DROP = DroppedColumns


def capture(*columns: str, excluded: frozenset[str] = frozenset(), key: str = "id") -> Capture:
    """A capture of columns as `name type`."""
    parsed = tuple(Column(name, SourceType.parse(kind)) for name, kind in (c.split(" ", 1) for c in columns))
    return Capture(SourceTable(TableId("shop", "orders"), parsed), (key,), excluded)


BEFORE = capture("id int", "a int", "b varchar(10)")
SCHEMA = TargetSchema.of(BEFORE)


def follow(
    after: Capture,
    *origins: Origin,
    dropped: DroppedColumns = KEEP,
    before: Capture = BEFORE,
    schema: TargetSchema | None = None,
) -> tuple[TargetSchema, tuple[Origin, ...], bool]:
    """The next schema, the origins, and whether files are rewritten."""
    schema = schema or TargetSchema.of(before)
    made, found = evolve(schema, Followed(before, after, origins), dropped)
    return made, found, rewrites(schema, made, found)


def columns(schema: TargetSchema) -> list[tuple[str, str | None]]:
    return [(c.name, c.source) for c in schema.columns]


ID, A, B = Kept("id"), Kept("a"), Kept("b")


def test_a_new_nullable_column_anywhere_is_metadata_alone() -> None:
    schema, origins, again = follow(capture("id int", "n int", "a int", "b varchar(10)"), ID, Filled(), A, B)
    assert columns(schema) == [("id", "id"), ("n", "n"), ("a", "a"), ("b", "b")]
    assert (origins, again) == ((ID, Filled(None), A, B), False)


def test_another_order_is_metadata_alone() -> None:
    schema, _, again = follow(capture("b varchar(10)", "id int", "a int"), B, ID, A)
    assert (schema.names, again) == (("b", "id", "a"), False)


def test_a_wider_text_changes_nothing_of_the_target() -> None:
    schema, origins, again = follow(capture("id int", "a int", "b varchar(20)"), ID, A, Converted("b"))
    assert (schema, origins, again) == (SCHEMA, (ID, A, B), False)


def test_a_column_with_a_value_is_filled() -> None:
    after = capture("id int", "a int", "b varchar(10)", "n int")
    assert follow(after, ID, A, B, Filled(7))[1:] == ((ID, A, B, Filled(7)), True)


def test_a_renamed_column_keeps_its_values_under_the_new_name() -> None:
    schema, origins, again = follow(capture("id int", "x int", "b varchar(10)"), ID, A, B)
    assert (columns(schema)[1], origins[1], again) == (("x", "x"), A, True)


def test_names_that_are_exchanged_are_no_plain_order() -> None:
    """ALTER TABLE ... RENAME COLUMN a TO b, RENAME COLUMN b TO a."""
    _, origins, again = follow(capture("id int", "b int", "a varchar(10)"), ID, A, B)
    assert (origins, again) == ((ID, A, B), True)


def test_the_key_follows_its_new_name() -> None:
    schema, _, _ = follow(capture("no int", "a int", "b varchar(10)", key="no"), ID, A, B)
    assert schema.key == ("no",)


def test_a_wider_number_is_converted() -> None:
    _, origins, again = follow(capture("id int", "a bigint", "b varchar(10)"), ID, Converted("a"), B)
    assert (origins[1], again) == (Converted("a"), True)


# -- dropped columns

DROPPED = capture("id int", "b varchar(10)")


def test_a_dropped_column_is_kept_without_a_source() -> None:
    schema, origins, again = follow(DROPPED, ID, B)
    assert columns(schema) == [("id", "id"), ("b", "b"), ("a", None)]
    assert (origins, again) == ((ID, B, A), False)


def test_a_dropped_column_is_dropped_where_the_policy_says_so() -> None:
    schema, origins, again = follow(DROPPED, ID, B, dropped=DROP)
    assert (columns(schema), origins, again) == ([("id", "id"), ("b", "b")], (ID, B), True)


def test_a_kept_column_stays_through_later_changes_until_the_policy_drops_it() -> None:
    kept, _, _ = follow(DROPPED, ID, B)
    wider = capture("id int", "b varchar(10)", "n int")
    later = follow(wider, ID, B, Filled(), before=DROPPED, schema=kept)
    assert (columns(later[0])[-1], later[1], later[2]) == (("a", None), (ID, B, Filled(None), A), False)
    gone = follow(wider, ID, B, Filled(), before=DROPPED, schema=kept, dropped=DROP)
    assert (columns(gone[0])[-1], gone[2]) == (("n", "n"), True)


@pytest.mark.parametrize("name", ["a", "A"])
def test_a_name_that_comes_back_brings_no_old_value_back(name: str) -> None:
    """Also in another case: readers of lakes do not tell the names apart."""
    kept, _, _ = follow(DROPPED, ID, B)
    after = capture("id int", "b varchar(10)", f"{name} int")
    schema, origins, again = follow(after, ID, B, Filled(), before=DROPPED, schema=kept)
    assert (columns(schema), origins, again) == (
        [("id", "id"), ("b", "b"), (name, name)],
        (ID, B, Filled(None)),
        True,
    )


def test_a_column_that_is_dropped_and_added_in_one_statement_is_a_new_one() -> None:
    schema, origins, again = follow(capture("id int", "a int", "b varchar(10)"), ID, Filled(), B)
    assert (columns(schema), origins, again) == (columns(SCHEMA), (ID, Filled(None), B), True)


# -- excluded columns

HIDDEN = frozenset({"b"})


def test_excluded_columns_are_not_in_the_target() -> None:
    before = capture("id int", "a int", "b varchar(10)", excluded=HIDDEN)
    after = capture("id int", "a int", "b varchar(10)", "n int", excluded=HIDDEN | {"n"})
    schema, origins, again = follow(after, ID, A, B, Filled(7), before=before)
    assert (schema, origins, again) == (TargetSchema.of(before), (ID, A), False)


def test_values_that_were_left_out_cannot_be_followed_into_the_copy() -> None:
    before = capture("id int", "a int", "b varchar(10)", excluded=HIDDEN)
    with pytest.raises(NotCopied, match="'b', now 'c', was left out"):
        follow(capture("id int", "a int", "c varchar(10)", excluded=HIDDEN), ID, A, B, before=before)


def test_a_column_that_is_excluded_by_its_new_name_is_a_dropped_one() -> None:
    after = capture("id int", "a int", "c varchar(10)", excluded=frozenset({"c"}))
    schema, origins, _ = follow(after, ID, A, B)
    assert (columns(schema)[-1], origins) == (("b", None), (ID, A, B))


# -- values and digits as the target has them


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("bit(1)", 1, True),
        ("bit(12)", 5, b"\x00\x05"),
        ("bigint unsigned", 2**64 - 1, Decimal(2**64 - 1)),
        ("decimal(10,2)", Decimal("1.50"), Decimal("1.50")),
        ("decimal(65,3)", Decimal("1.5"), "1.500"),
        ("decimal(65,3)", Decimal(0), "0.000"),
        ("time", dt.timedelta(hours=23, minutes=5, seconds=9), "23:05:09"),
        ("time(3)", dt.timedelta(hours=1), "01:00:00.000"),
        ("time(6)", dt.timedelta(), "00:00:00.000000"),
        ("year", 2024, 2024),
        ("varchar(3)", "x", "x"),
        ("binary(2)", b"\0\0", b"\0\0"),
        ("double", 0.0, 0.0),
        ("date", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ("date", None, None),
    ],
)
def test_values_are_filled_as_the_target_has_them(kind: str, value: Any, wanted: Any) -> None:
    after = capture("id int", "a int", "b varchar(10)", f"n {kind}")
    found = follow(after, ID, A, B, Filled(value))[1][-1]
    assert (found, type(found.value)) == (Filled(wanted), type(wanted))


@pytest.mark.parametrize(
    ("before", "after", "origin"),
    [
        ("time", "time(3)", Converted("c", 3)),
        ("time(3)", "time(3)", Kept("c")),
        ("decimal(50,2)", "decimal(60,4)", Converted("c", 4)),
        ("decimal(50,2)", "decimal(60,2)", Kept("c")),
        ("decimal(10,2)", "decimal(60,2)", Converted("c", 2)),
        ("decimal(10,2)", "decimal(12,4)", Converted("c", 0)),
        ("datetime", "datetime(6)", Kept("c")),
        ("int unsigned", "bigint", Kept("c")),
        ("int unsigned", "bigint unsigned", Converted("c", 0)),
        ("char(3)", "longtext", Kept("c")),
    ],
)
def test_a_conversion_is_one_only_where_the_target_has_another_value(before: str, after: str, origin: Origin) -> None:
    old, new = capture("id int", f"c {before}"), capture("id int", f"c {after}")
    assert follow(new, ID, Converted("c"), before=old)[1][-1] == origin


def test_the_schema_is_kept_by_a_state() -> None:
    kept, _, _ = follow(DROPPED, ID, B)
    assert TargetSchema.from_dict(kept.to_dict()) == kept
    assert TargetColumn("a", kept.columns[-1].type, None) in kept.columns
