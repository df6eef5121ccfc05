"""Tables that come and go on the source while a sync runs: captured, shown with a reason, or left,
and never a reason to stall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.runs.status import TableStatus
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_operator.decision.observed import RunPreflight
from cdcsync_operator.decision.runs.preflights import PREFLIGHT_EVERY, PROMPTED_EVERY
from cdcsync_operator.decision.tables.assignment import assigning
from unit.controller.harness import ControllerHarness, place, resource

LITERAL = {"tables": {"include": ["shop.a", "shop.b", "shop.gone"]}}
GONE = fail(Reason.NO_SUCH_TABLE, "no table matches", table="shop.gone")
NO_KEY = fail(Reason.NO_PRIMARY_KEY, "no primary key and no unique index", table="shop.c")


def entry(world: ControllerHarness, name: str) -> TableStatus:
    found = world.status.table(name)
    assert found is not None
    return found


def look_again(world: ControllerHarness, **parts: Any) -> None:
    """The next regular preflight finds this."""
    for name, value in parts.items():
        setattr(world, name, value)
    world.step(PREFLIGHT_EVERY + 1)
    flowing = [t.name for t in world.status.table_status if t.phase == "Streaming"]
    if flowing:
        world.flow(*flowing)
    world.steps()


def preflights(world: ControllerHarness) -> int:
    return sum(isinstance(a, RunPreflight) for a in world.log)


def definition(database: str, name: str) -> Capture:
    columns = (Column("id", SourceType.parse("int"), nullable=False),)
    return Capture(SourceTable(TableId(database, name), columns), ("id",))


# -- new tables


def test_a_new_table_is_read_beside_the_stream_and_joins_it() -> None:
    """R5: the others flow all the time, and no change of the spec is needed."""
    world = ControllerHarness()
    world.to_streaming()
    stream = world.live(RunKind.STREAM).id
    look_again(world, tables=("shop.a", "shop.b", "shop.c"))
    assert world.live(RunKind.SNAPSHOT).names == {"shop.c"}
    assert world.live(RunKind.STREAM).id == stream
    assert world.condition("Ready") == ("True", "Streaming")
    world.read("shop.c")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert world.live(RunKind.CATCH_UP).names == {"shop.c"}
    world.end(RunKind.CATCH_UP)
    world.steps()
    world.end(RunKind.STREAM)
    world.steps()
    assert world.live(RunKind.STREAM).names == {"shop.a", "shop.b", "shop.c"}
    assert world.status.restarts.consecutive == 0


def test_a_new_table_that_is_to_be_ignored_is_shown_and_taken_when_the_spec_changes() -> None:
    world = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"], "newTables": "ignore"}))
    world.to_streaming()
    look_again(world, tables=("shop.a", "shop.b", "shop.c"))
    assert world.status.tables.unassigned == 1
    assert world.kinds() == {"stream"}
    assert "shop.c" in world.status.condition("Ready").message
    world.change(restartNonce=1)
    world.steps()
    world.end(RunKind.STREAM)
    world.steps()
    assert "shop.c" in world.live(RunKind.SNAPSHOT).names


def test_new_tables_hold_back_no_first_snapshot() -> None:
    """The stream of those that were there waits for no table that appears meanwhile."""
    world = ControllerHarness()
    world.steps()
    look_again(world, tables=("shop.a", "shop.b", "shop.c"))
    assert world.status.tables.unassigned == 1
    world.read("shop.a", "shop.b")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert world.live(RunKind.STREAM).names == {"shop.a", "shop.b"}
    assert world.kinds() == {"stream"}
    world.flow("shop.a", "shop.b")
    world.steps()
    assert world.live(RunKind.SNAPSHOT).names == {"shop.c"}


def test_who_runs_a_snapshot_again_gets_the_tables_that_are_new() -> None:
    world = ControllerHarness()
    world.steps()
    world.read("shop.a", "shop.b")
    world.end(RunKind.SNAPSHOT)
    world.status = world.status.with_(runs=world.status.runs.put(RunKind.SNAPSHOT, None))
    world.runs, world.preflight = {}, None
    world.tables = ("shop.a", "shop.b", "shop.c")
    world.steps()
    assert world.live(RunKind.SNAPSHOT).names == {"shop.c"}


def test_a_new_table_that_cannot_be_captured_is_shown_with_its_reason_and_stalls_nothing() -> None:
    world = ControllerHarness()
    world.to_streaming()
    look_again(world, tables=("shop.a", "shop.b", "shop.c"), table_errors={"shop.c": NO_KEY})
    assert (entry(world, "shop.c").phase, entry(world, "shop.c").reason) == ("Unassigned", "NoPrimaryKey")
    assert entry(world, "shop.c").message == NO_KEY.message
    assert world.condition("Ready") == ("True", "Streaming")
    assert world.condition("Stalled")[0] == "False"
    assert "shop.c (NoPrimaryKey)" in world.status.condition("Ready").message
    world.change(restartNonce=1)
    world.steps()
    assert entry(world, "shop.c").phase == "Unassigned", "an unrelated change asks for nothing more"
    world.end(RunKind.STREAM)
    world.steps()
    world.flow("shop.a", "shop.b")
    look_again(world, table_errors={})
    assert world.live(RunKind.SNAPSHOT).names == {"shop.c"}


def test_a_table_that_the_user_asks_for_and_that_cannot_be_captured_has_failed() -> None:
    world = ControllerHarness()
    world.to_streaming()
    world.tables, world.table_errors = ("shop.a", "shop.b", "shop.c"), {"shop.c": NO_KEY}
    world.change(restartNonce=1)
    world.steps()
    assert entry(world, "shop.c").failed
    assert world.condition("Stalled") == ("True", "NoPrimaryKey")


def test_a_table_whose_fault_is_cured_is_captured() -> None:
    """The fault is one of the source; one that a run found waits for the user."""
    world = ControllerHarness(table_errors={"shop.b": fail(Reason.NO_PRIMARY_KEY, "none", table="shop.b")})
    world.steps()
    world.read("shop.a")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    world.flow("shop.a")
    look_again(world, table_errors={})
    assert world.live(RunKind.SNAPSHOT).names == {"shop.b"}
    assert world.condition("Stalled")[0] == "False"
    message = {"reason": "SinkConflict", "message": "shop.b: another table"}
    world.say(RunKind.SNAPSHOT, tables=[{"name": "shop.b", "phase": "Failed", **message}])
    world.end(RunKind.SNAPSHOT, ExitCode.USER_MUST_ACT, "SinkConflict", "shop.b: another table")
    look_again(world)
    assert (entry(world, "shop.b").phase, entry(world, "shop.b").reason) == ("Failed", "SinkConflict")


@pytest.mark.parametrize("new_tables", ["capture", "ignore"])
def test_a_table_that_appears_in_the_binlog_is_looked_for_at_once(new_tables: str) -> None:
    world = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"], "newTables": new_tables}))
    world.to_streaming()
    before = preflights(world)
    run = world.live(RunKind.STREAM)
    world.tables = ("shop.a", "shop.b", "shop.c")
    world.runs[run.id] = replace(run, appeared=1)
    world.step(PROMPTED_EVERY)
    world.steps()
    assert preflights(world) - before == (new_tables == "capture")
    assert ("shop.c" in {t.name for t in world.status.table_status}) == (new_tables == "capture")
    world.steps(30)
    assert preflights(world) - before == (new_tables == "capture"), "once for what it has seen"


# -- tables that are not there


def test_a_named_table_that_is_not_there_is_reported_at_its_name() -> None:
    world = ControllerHarness(
        tables=("shop.a", "shop.b", "shop.gone"), resource=resource(**LITERAL), table_errors={"shop.gone": GONE}
    )
    world.steps()
    assert world.live(RunKind.SNAPSHOT).names == {"shop.a", "shop.b"}
    assert (entry(world, "shop.gone").phase, entry(world, "shop.gone").reason) == ("Failed", "NoSuchTable")
    world.read("shop.a", "shop.b")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    world.flow("shop.a", "shop.b")
    world.steps()
    assert world.condition("Stalled") == ("True", "NoSuchTable")
    look_again(world, table_errors={})
    assert world.live(RunKind.SNAPSHOT).names == {"shop.gone"}, "it was created meanwhile"


def drop(world: ControllerHarness, name: str) -> None:
    """The stream has met its DROP TABLE; the catalog does not have it any more."""
    words = {"reason": "SchemaChangeRefused", "message": f"{name}: DROP TABLE {name}"}
    world.say(RunKind.STREAM, tables=[{"name": name, "phase": "Failed", **words}], position=place(400))
    world.tables = tuple(t for t in world.tables if t != name)


def test_a_dropped_table_leaves_the_sync_at_once_and_its_copy_is_shown() -> None:
    world = ControllerHarness()
    world.to_streaming()
    stream = world.live(RunKind.STREAM).id
    drop(world, "shop.b")
    world.step(PROMPTED_EVERY)
    world.flow("shop.a")
    world.steps()
    assert (entry(world, "shop.b").phase, entry(world, "shop.b").reason) == ("Unassigned", "NoSuchTable")
    assert world.live(RunKind.STREAM).id == stream, "nothing is restarted for it"
    assert world.condition("Ready") == ("True", "Streaming")
    assert world.condition("Stalled")[0] == "False"
    world.change(restartNonce=1)
    world.steps()
    assert world.status.table("shop.b") is None


def test_a_dropped_table_that_is_named_stays_failed() -> None:
    """The user counts on it."""
    world = ControllerHarness(
        resource=resource(tables={"include": ["shop.a", "shop.b"]}, schemaChange={"behavior": "fail"})
    )
    world.to_streaming()
    drop(world, "shop.b")
    world.step(PROMPTED_EVERY)
    world.flow("shop.a")
    world.steps()
    assert entry(world, "shop.b").reason == "SchemaChangeRefused"
    assert world.condition("Stalled") == ("True", "SchemaChangeRefused")


def test_a_dropped_table_that_is_made_again_goes_on_from_its_target() -> None:
    """The target knows where it stood, and the binlog what happened there (R4, R9)."""
    world = ControllerHarness()
    world.to_streaming()
    drop(world, "shop.b")
    world.step(PROMPTED_EVERY)
    world.flow("shop.a")
    world.steps()
    look_again(world, tables=("shop.a", "shop.b"))
    assert world.live(RunKind.SNAPSHOT).names == {"shop.b"}


def test_the_last_table_of_a_stream_that_is_dropped_fails_no_other() -> None:
    """Its stream ends with its error, while another table is being read beside it."""
    world = ControllerHarness(tables=("shop.a",))
    world.to_streaming()
    look_again(world, tables=("shop.a", "shop.b"))
    assert world.live(RunKind.SNAPSHOT).names == {"shop.b"}
    drop(world, "shop.a")
    world.step(PROMPTED_EVERY)
    world.steps()
    assert entry(world, "shop.a").phase == "Unassigned"
    world.end(RunKind.STREAM, ExitCode.USER_MUST_ACT, "SchemaChangeRefused", "shop.a: DROP TABLE")
    world.steps()
    assert world.status.phase != "Failed"
    assert not entry(world, "shop.b").failed
    world.read("shop.b")
    world.end(RunKind.SNAPSHOT)
    world.steps()
    assert world.live(RunKind.STREAM).names == {"shop.b"}


def test_a_start_is_for_the_tables_that_the_user_asks_for() -> None:
    """One that appears later is read, so that nothing of it is missing."""
    world = ControllerHarness(tables=("shop.a",), resource=resource(start={"from": "latest"}))
    world.to_streaming()
    look_again(world, tables=("shop.a", "shop.new"))
    status, spec = world.status, world.resource.spec
    assert [(t.name, t.appeared) for t in status.table_status] == [("shop.a", False), ("shop.new", True)]
    assignment = assigning(spec, status)
    table = definition("shop", "a")
    assert assignment(table, 0).at_start
    assert not assignment(definition("shop", "new"), 0).at_start


def test_a_table_that_began_without_a_snapshot_is_never_consistent() -> None:
    world = ControllerHarness(tables=("shop.a",), resource=resource(start={"from": "latest"}))
    world.steps()
    world.read("shop.a")
    world.say(RunKind.SNAPSHOT, tables=[{"name": "shop.a", "withoutSnapshot": True}])
    world.end(RunKind.SNAPSHOT)
    world.steps()
    world.flow("shop.a")
    world.steps()
    assert world.condition("Ready")[0] == "True"
    assert world.condition("Consistent") == ("False", "WithoutSnapshot")
    message = world.status.condition("Consistent").message
    assert "shop.a from binlog.000001:100" in message
    assert "0 of 1 tables consistent" in world.status.condition("Ready").message
