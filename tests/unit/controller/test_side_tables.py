"""Tables of online schema changers: not captured beside the table that they are for, shown with the
reason, and captured where they are tables of their own."""

from __future__ import annotations

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_operator.decision.tables.side_tables import side_table_error
from unit.controller.flows import entry, look_again
from unit.controller.harness import ControllerHarness, resource

WIDE = TableSelection((r"shop\..*",))


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("shop._a_gho", "shop.a"),
        ("shop._a_ghc", "shop.a"),
        ("shop._a_ghk", "shop.a"),
        ("shop._a_del", "shop.a"),
        ("shop._a_new", "shop.a"),
        ("shop.____a_old", "shop.a"),
        ("shop.__b_new", "shop._b"),
        ("shop._odd.name_new", "shop.odd.name"),
    ],
)
def test_a_side_table_is_known_by_the_table_that_it_is_for(name: str, owner: str) -> None:
    error = side_table_error(WIDE, name, {"shop.a", "shop._b", "shop.odd.name", name})
    assert error is not None
    assert error.table == name
    assert owner in error.message


@pytest.mark.parametrize(
    "name", ["shop.a_new", "shop._c_new", "other._a_new", "shop._a", "shop._new", "shop._a_news", "shop.a", "shop._a_"]
)
def test_other_names_are_tables_of_their_own(name: str) -> None:
    assert side_table_error(WIDE, name, {"shop.a", "shop.b", name}) is None


def test_a_literal_name_is_captured_whatever_it_looks_like() -> None:
    named = TableSelection((r"shop\..*", r"shop\._a_old"))
    assert side_table_error(named, "shop._a_old", {"shop.a", "shop._a_old"}) is None
    assert side_table_error(named, "shop._a_new", {"shop.a", "shop._a_new"}) is not None


def test_a_migration_starts_and_drains_nothing() -> None:
    """Its tables come and go; the stream is the same one."""
    harness = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"]}))
    harness.to_streaming()
    stream = harness.live(RunKind.STREAM).id
    look_again(harness, tables=("shop.a", "shop.b", "shop._a_gho", "shop._a_ghc"))
    assert harness.kinds() == {"stream"}
    assert (entry(harness, "shop._a_gho").phase, entry(harness, "shop._a_gho").reason) == ("Unassigned", "SideTable")
    assert harness.condition("Ready") == ("True", "Streaming")
    look_again(harness, tables=("shop.a", "shop.b", "shop._a_del"))
    assert {t.name for t in harness.status.table_status} == {"shop.a", "shop.b", "shop._a_del"}
    look_again(harness, tables=("shop.a", "shop.b"))
    assert {t.name for t in harness.status.table_status} == {"shop.a", "shop.b"}
    assert harness.live(RunKind.STREAM).id == stream


def test_a_change_of_the_spec_meanwhile_asks_for_no_side_table() -> None:
    harness = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"]}))
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.b", "shop._a_new"))
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(RunKind.STREAM)
    harness.steps()
    assert entry(harness, "shop._a_new").reason == "SideTable"
    assert harness.live(RunKind.STREAM).names == {"shop.a", "shop.b"}


def test_a_table_that_is_captured_stays_captured() -> None:
    """The one that it looks like a side table of appears later."""
    harness = ControllerHarness(tables=("shop.b", "shop._a_old"), resource=resource(tables={"include": [r"shop\..*"]}))
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.b", "shop._a_old"))
    assert entry(harness, "shop._a_old").phase == "Streaming"
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.a"}


def test_without_its_table_it_is_one_of_its_own() -> None:
    harness = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"]}))
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.b", "shop._a_new"))
    assert entry(harness, "shop._a_new").reason == "SideTable"
    look_again(harness, tables=("shop.b", "shop._a_new"))
    assert harness.live(RunKind.SNAPSHOT).names == {"shop._a_new"}
