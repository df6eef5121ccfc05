"""Databases that no include pattern can match, so that their tables need not be listed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cdcsync_core.tables.table_selection import TableSelection, check_pattern, matches

_PARTS = ("a", "b", "A", r"\.", ".", "|", "(", ")", "(?:", "[", "]", "*", "+", "?", "^", "$", r"\Q", r"\E", "{1}", "-")
_DATABASES = ("a", "b", "A", "aa", "ab", "a.b", "b.a", "-", "a-")
_NAMES = [(d, f"{d}.{t}") for d, t in itertools.product(_DATABASES, ("a", "b", "ab", "A", "a.b", "-"))]


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (r"shop\..*", "tenant_1"),
        (r"shop.orders", "tenant_1"),
        (r"shop\.(orders|lines)", "tenant_1"),
        (r"shop\.orders\|lines", "tenant_1"),
        (r"my\-shop\.[a-z]+", "my"),
    ],
)
def test_a_database_that_a_pattern_names_is_the_only_one(pattern: str, other: str) -> None:
    selection = TableSelection((pattern,))
    assert not selection.may_include_of(other)
    own = pattern.split(".", maxsplit=1)[0].replace("\\", "")
    assert selection.may_include_of(own)
    assert selection.may_include_of(own.upper()), "its case is named in the refusal"
    assert selection.may_include_of(f"{own}.x"), "a name may have dots"
    assert TableSelection((pattern, r"tenant_.*\.x")).may_include_of(other)


@pytest.mark.parametrize(
    "pattern",
    [
        r".*\.x",
        r"shop\.a|other\.b",
        r"shop\.[(]a|other\.b",
        r"shop\.\Q(\E|other\.b",
        r"(?i)shop\.x",
        r"shop\.?x",
        r"s..*",
    ],
)
def test_what_a_pattern_leaves_open_is_listed(pattern: str) -> None:
    assert TableSelection((pattern,)).may_include_of("other")


@given(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=9).map("".join))
@example(r"a\.[(]a|b\.b")
def test_no_database_of_a_table_that_matches_is_left_out(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except ValueError:
        assume(False)
    selection = TableSelection((pattern,))
    for database, name in _NAMES:
        if matches(pattern, name):
            assert selection.may_include_of(database)
