"""Which patterns are names: a table that is named is counted on, one that a pattern happens to
match is not."""

from __future__ import annotations

import pytest

from cdcsync_core.resource.spec import Tables
from cdcsync_core.tables.table_selection import literal_name


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("shop.orders", "shop.orders"),
        (r"shop\.orders", "shop.orders"),
        (r"shop\.a\-b", "shop.a-b"),
        ("sh op.über", "sh op.über"),
        (r"shop\.a\\b", r"shop.a\b"),
        (r"shop\..*", ""),
        (r"shop\.o.ders", ""),
        (r"shop\.\d", ""),
        (r"shop\.\Qorders\E", ""),
        (r"(?i:shop)\.orders", ""),
        (r"^shop\.orders$", ""),
        (r"shop\.(a|b)", ""),
        (r"shop\.a{2}", ""),
        ("shop", ""),
        (r"\.orders", ""),
        (r"shop\.", ""),
    ],
)
def test_a_pattern_is_a_name_where_it_can_match_nothing_else(pattern: str, name: str) -> None:
    assert literal_name(pattern) == name


def test_a_named_table_is_one_that_is_not_left_out() -> None:
    tables = Tables(include=("shop.a", r"shop\.b.*", "shop.c"), exclude=("shop.c",))
    assert [tables.selection.names(f"shop.{t}") for t in "abc"] == [True, False, False]
    assert tables.new_tables == "capture"
