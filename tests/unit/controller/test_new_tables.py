"""Tables that come and go on the source while a sync runs: captured, shown with a reason, or left,
and never a reason to stall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_operator.decision.observed import RunPreflight
from cdcsync_operator.decision.runs.preflights import PROMPTED_EVERY
from cdcsync_operator.decision.tables.assignment import assigning
from unit.controller.flows import entry, look_again
from unit.controller.harness import ControllerHarness, place, resource

LITERAL = {"tables": {"include": ["shop.a", "shop.b", "shop.gone"]}}
GONE = fail(Reason.NO_SUCH_TABLE, "no table matches", table="shop.gone")
NO_KEY = fail(Reason.NO_PRIMARY_KEY, "no primary key and no unique index", table="shop.c")


def preflights(harness: ControllerHarness) -> int:
    return sum(isinstance(a, RunPreflight) for a in harness.log)


def definition(database: str, name: str) -> Capture:
    columns = (Column("id", SourceType.parse("int"), nullable=False),)
    return Capture(SourceTable(TableId(database, name), columns), ("id",))


# -- new tables


def test_a_new_table_is_read_beside_the_stream_and_joins_it() -> None:
    """R5: the others flow all the time, and no change of the spec is needed."""
    harness = ControllerHarness()
    harness.to_streaming()
    stream = harness.live(RunKind.STREAM).id
    look_again(harness, tables=("shop.a", "shop.b", "shop.c"))
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.c"}
    assert harness.live(RunKind.STREAM).id == stream
    assert harness.condition("Ready") == ("True", "Streaming")
    harness.read("shop.c")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert harness.live(RunKind.CATCH_UP).names == {"shop.c"}
    harness.end(RunKind.CATCH_UP)
    harness.steps()
    harness.end(RunKind.STREAM)
    harness.steps()
    assert harness.live(RunKind.STREAM).names == {"shop.a", "shop.b", "shop.c"}
    assert harness.status.restarts.consecutive == 0


def test_a_new_table_that_is_to_be_ignored_is_shown_and_taken_when_the_spec_changes() -> None:
    harness = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"], "newTables": "ignore"}))
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.b", "shop.c"))
    assert harness.status.tables.unassigned == 1
    assert harness.kinds() == {"stream"}
    assert "shop.c" in harness.status.condition("Ready").message
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(RunKind.STREAM)
    harness.steps()
    assert "shop.c" in harness.live(RunKind.SNAPSHOT).names


def test_new_tables_hold_back_no_first_snapshot() -> None:
    """The stream of those that were there waits for no table that appears meanwhile."""
    harness = ControllerHarness()
    harness.steps()
    look_again(harness, tables=("shop.a", "shop.b", "shop.c"))
    assert harness.status.tables.unassigned == 1
    harness.read("shop.a", "shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert harness.live(RunKind.STREAM).names == {"shop.a", "shop.b"}
    assert harness.kinds() == {"stream"}
    harness.flow("shop.a", "shop.b")
    harness.steps()
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.c"}


def test_who_runs_a_snapshot_again_gets_the_tables_that_are_new() -> None:
    harness = ControllerHarness()
    harness.steps()
    harness.read("shop.a", "shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.status = harness.status.with_(runs=harness.status.runs.put(RunKind.SNAPSHOT, None))
    harness.runs, harness.preflight = {}, None
    harness.tables = ("shop.a", "shop.b", "shop.c")
    harness.steps()
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.c"}


def test_a_new_table_that_cannot_be_captured_is_shown_with_its_reason_and_stalls_nothing() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.b", "shop.c"), table_errors={"shop.c": NO_KEY})
    assert (entry(harness, "shop.c").phase, entry(harness, "shop.c").reason) == ("Unassigned", "NoPrimaryKey")
    assert entry(harness, "shop.c").message == NO_KEY.message
    assert harness.condition("Ready") == ("True", "Streaming")
    assert harness.condition("Stalled")[0] == "False"
    assert "shop.c (NoPrimaryKey)" in harness.status.condition("Ready").message
    harness.change(restartNonce=1)
    harness.steps()
    assert entry(harness, "shop.c").phase == "Unassigned", "an unrelated change asks for nothing more"
    harness.end(RunKind.STREAM)
    harness.steps()
    harness.flow("shop.a", "shop.b")
    look_again(harness, table_errors={})
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.c"}


def test_a_table_that_the_user_asks_for_and_that_cannot_be_captured_has_failed() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.tables, harness.table_errors = ("shop.a", "shop.b", "shop.c"), {"shop.c": NO_KEY}
    harness.change(restartNonce=1)
    harness.steps()
    assert entry(harness, "shop.c").failed
    assert harness.condition("Stalled") == ("True", "NoPrimaryKey")


def test_a_table_whose_fault_is_cured_is_captured() -> None:
    """The fault is one of the source; one that a run found waits for the user."""
    harness = ControllerHarness(table_errors={"shop.b": fail(Reason.NO_PRIMARY_KEY, "none", table="shop.b")})
    harness.steps()
    harness.read("shop.a")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    harness.flow("shop.a")
    look_again(harness, table_errors={})
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.b"}
    assert harness.condition("Stalled")[0] == "False"
    message = {"reason": "SinkConflict", "message": "shop.b: another table"}
    harness.say(RunKind.SNAPSHOT, tables=[{"name": "shop.b", "phase": "Failed", **message}])
    harness.end(RunKind.SNAPSHOT, ExitCode.USER_MUST_ACT, "SinkConflict", "shop.b: another table")
    look_again(harness)
    assert (entry(harness, "shop.b").phase, entry(harness, "shop.b").reason) == ("Failed", "SinkConflict")


@pytest.mark.parametrize("new_tables", ["capture", "ignore"])
def test_a_table_that_appears_in_the_binlog_is_looked_for_at_once(new_tables: str) -> None:
    harness = ControllerHarness(resource=resource(tables={"include": [r"shop\..*"], "newTables": new_tables}))
    harness.to_streaming()
    before = preflights(harness)
    run = harness.live(RunKind.STREAM)
    harness.tables = ("shop.a", "shop.b", "shop.c")
    harness.runs[run.id] = replace(run, appeared=1)
    harness.step(PROMPTED_EVERY)
    harness.steps()
    assert preflights(harness) - before == (new_tables == "capture")
    assert ("shop.c" in {t.name for t in harness.status.table_status}) == (new_tables == "capture")
    harness.steps(30)
    assert preflights(harness) - before == (new_tables == "capture"), "once for what it has seen"


# -- tables that are not there


def test_a_named_table_that_is_not_there_is_reported_at_its_name() -> None:
    harness = ControllerHarness(
        tables=("shop.a", "shop.b", "shop.gone"), resource=resource(**LITERAL), table_errors={"shop.gone": GONE}
    )
    harness.steps()
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.a", "shop.b"}
    assert (entry(harness, "shop.gone").phase, entry(harness, "shop.gone").reason) == ("Failed", "NoSuchTable")
    harness.read("shop.a", "shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    harness.flow("shop.a", "shop.b")
    harness.steps()
    assert harness.condition("Stalled") == ("True", "NoSuchTable")
    look_again(harness, table_errors={})
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.gone"}, "it was created meanwhile"


def drop(harness: ControllerHarness, name: str) -> None:
    """The stream has met its DROP TABLE; the catalog does not have it any more."""
    words = {"reason": "SchemaChangeRefused", "message": f"{name}: DROP TABLE {name}"}
    harness.say(RunKind.STREAM, tables=[{"name": name, "phase": "Failed", **words}], position=place(400))
    harness.tables = tuple(t for t in harness.tables if t != name)


def test_a_dropped_table_leaves_the_sync_at_once_and_its_copy_is_shown() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    stream = harness.live(RunKind.STREAM).id
    drop(harness, "shop.b")
    harness.step(PROMPTED_EVERY)
    harness.flow("shop.a")
    harness.steps()
    assert (entry(harness, "shop.b").phase, entry(harness, "shop.b").reason) == ("Unassigned", "NoSuchTable")
    assert harness.live(RunKind.STREAM).id == stream, "nothing is restarted for it"
    assert harness.condition("Ready") == ("True", "Streaming")
    assert harness.condition("Stalled")[0] == "False"
    harness.change(restartNonce=1)
    harness.steps()
    assert harness.status.table("shop.b") is None


def test_a_dropped_table_that_is_named_stays_failed() -> None:
    """The user counts on it."""
    harness = ControllerHarness(
        resource=resource(tables={"include": ["shop.a", "shop.b"]}, schemaChange={"behavior": "fail"})
    )
    harness.to_streaming()
    drop(harness, "shop.b")
    harness.step(PROMPTED_EVERY)
    harness.flow("shop.a")
    harness.steps()
    assert entry(harness, "shop.b").reason == "SchemaChangeRefused"
    assert harness.condition("Stalled") == ("True", "SchemaChangeRefused")


def test_a_dropped_table_that_is_made_again_goes_on_from_its_target() -> None:
    """The target knows where it stood, and the binlog what happened there (R4, R9)."""
    harness = ControllerHarness()
    harness.to_streaming()
    drop(harness, "shop.b")
    harness.step(PROMPTED_EVERY)
    harness.flow("shop.a")
    harness.steps()
    look_again(harness, tables=("shop.a", "shop.b"))
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.b"}


def test_the_last_table_of_a_stream_that_is_dropped_fails_no_other() -> None:
    """Its stream ends with its error, while another table is being read beside it."""
    harness = ControllerHarness(tables=("shop.a",))
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.b"))
    assert harness.live(RunKind.SNAPSHOT).names == {"shop.b"}
    drop(harness, "shop.a")
    harness.step(PROMPTED_EVERY)
    harness.steps()
    assert entry(harness, "shop.a").phase == "Unassigned"
    harness.end(RunKind.STREAM, ExitCode.USER_MUST_ACT, "SchemaChangeRefused", "shop.a: DROP TABLE")
    harness.steps()
    assert harness.status.phase != "Failed"
    assert not entry(harness, "shop.b").failed
    harness.read("shop.b")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    assert harness.live(RunKind.STREAM).names == {"shop.b"}


def test_a_start_is_for_the_tables_that_the_user_asks_for() -> None:
    """One that appears later is read, so that nothing of it is missing."""
    harness = ControllerHarness(tables=("shop.a",), resource=resource(start={"from": "latest"}))
    harness.to_streaming()
    look_again(harness, tables=("shop.a", "shop.new"))
    status, spec = harness.status, harness.resource.spec
    assert [(t.name, t.appeared) for t in status.table_status] == [("shop.a", False), ("shop.new", True)]
    assignment = assigning(spec, status)
    table = definition("shop", "a")
    assert assignment(table, 0).at_start
    assert not assignment(definition("shop", "new"), 0).at_start


def test_a_table_that_began_without_a_snapshot_is_never_consistent() -> None:
    harness = ControllerHarness(tables=("shop.a",), resource=resource(start={"from": "latest"}))
    harness.steps()
    harness.read("shop.a")
    harness.say(RunKind.SNAPSHOT, tables=[{"name": "shop.a", "withoutSnapshot": True}])
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    harness.flow("shop.a")
    harness.steps()
    assert harness.condition("Ready")[0] == "True"
    assert harness.condition("Consistent") == ("False", "WithoutSnapshot")
    message = harness.status.condition("Consistent").message
    assert "shop.a from binlog.000001:100" in message
    assert "0 of 1 tables consistent" in harness.status.condition("Ready").message


def test_a_run_knows_which_tables_were_copied_until_the_user_asks_for_another_try() -> None:
    """A target that is gone then was removed on purpose, as many a remedy says."""
    harness = ControllerHarness()
    harness.to_streaming()

    def copied() -> list[bool]:
        assignment = assigning(harness.resource.spec, harness.status)
        return [assignment(definition("shop", name), 0).copied for name in ("a", "b")]

    assert copied() == [True, True]
    harness.say(
        RunKind.STREAM, tables=[{"name": "shop.b", "phase": "Failed", "reason": "SinkConflict", "message": "gone"}]
    )
    harness.steps()
    harness.change(restartNonce=1)
    harness.steps()
    harness.end(RunKind.STREAM)
    harness.steps()
    assert copied() == [True, False]
