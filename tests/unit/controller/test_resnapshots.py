"""Resnapshots that the controller decides by itself: of tables whose change cannot be followed, and
of tables whose position is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from unit.controller.harness import WHOLE, ControllerHarness, place, reported, resource

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
EVOLVE = {"schemaChange": {"behavior": "evolve"}}
MESSAGE = "shop.b: a statement that may change the table: ALTER; needed: no DDL; remedy: resnapshot"


def stopped(generation: int = 0, reason: str = "SchemaChangeRefused") -> dict[str, Any]:
    return {"name": "shop.b", "phase": "Failed", "reason": reason, "message": MESSAGE, "generation": generation}


def flowing(*, names: tuple[str, ...] = ("shop.a", "shop.b"), rows: int = 10, **spec: Any) -> ControllerHarness:
    harness = ControllerHarness(names, resource(**spec), rows=dict.fromkeys(names, rows))
    harness.to_streaming()
    return harness


def entry(harness: ControllerHarness, name: str = "shop.b") -> TableStatus:
    found = harness.status.table(name)
    assert found is not None
    return found


def read(harness: ControllerHarness, generation: int, *names: str, nonce: int = 0) -> None:
    """The snapshot run has published that generation."""
    whole = {"finished": WHOLE, "low": place(300), "high": {"file": place(0)["file"], "offset": 310}}
    more = {"phase": "CatchingUp", "position": place(300), "generation": generation, "nonce": nonce}
    harness.say(SNAPSHOT, tables=[{"name": name, **whole, **more} for name in names or ("shop.b",)])


def wait_for_definition(harness: ControllerHarness) -> None:
    """At most as long as two preflights are apart."""
    harness.steps(12)


def test_a_table_that_cannot_be_followed_is_resnapshotted_beside_the_stream() -> None:
    harness = flowing(**EVOLVE)
    stream = harness.live(STREAM).id
    harness.say(STREAM, tables=[stopped()])
    harness.step()
    assert entry(harness).phase is TablePhase.PENDING
    assert harness.condition("Consistent") == ("False", "Resnapshotting")
    assert harness.status.condition("Stalled").status == "False"
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert (harness.live(STREAM).id, harness.live(STREAM).stop_asked) == (stream, False)
    read(harness, 1)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.live(CATCH_UP).tables == (("shop.b", 1),)
    harness.end(CATCH_UP)
    harness.step()
    harness.end(STREAM)
    harness.steps()
    assert dict(harness.live(STREAM).tables) == {"shop.a": 0, "shop.b": 1}
    harness.flow("shop.a", "shop.b", offset=400)
    harness.steps()
    assert harness.condition("Consistent") == ("True", "Consistent")
    assert not entry(harness).is_resnapshotted


def test_nothing_is_read_before_a_preflight_that_was_asked_for_after_the_stop() -> None:
    """What an earlier one found of the table is its definition before the statement."""
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    harness.step()
    asked = harness.preflight
    assert asked is not None
    harness.preflight = replace(asked, prompt="")
    harness.steps()
    assert SNAPSHOT.value not in harness.kinds()
    wait_for_definition(harness)
    assert SNAPSHOT.value in harness.kinds()


def test_a_sync_of_one_table_goes_on_too() -> None:
    """Its stream has ended with all its tables."""
    harness = flowing(names=("shop.b",), **EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    harness.step()
    harness.end(STREAM, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(harness)
    assert harness.status.phase is not Phase.FAILED
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    read(harness, 1)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.live(STREAM).tables == (("shop.b", 1),)


def test_a_first_snapshot_begins_again_under_the_new_definition() -> None:
    harness = ControllerHarness(("shop.b",), resource(**EVOLVE))
    harness.steps()
    harness.say(SNAPSHOT, tables=[stopped()])
    harness.step()
    harness.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert entry(harness).resnapshot.at == (entry(harness).resnapshot.at[0],), "one stop is one decision"  # type: ignore[union-attr]


def test_a_second_statement_meanwhile_makes_the_next_generation() -> None:
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    harness.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "generation": 1, "nonce": 0}])
    harness.step()
    harness.say(SNAPSHOT, tables=[stopped(1)])
    harness.step()
    harness.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 2),)


def test_a_report_of_the_same_stop_decides_nothing_more() -> None:
    """A stream reports all its tables when it ends."""
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    harness.steps()
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    harness.say(STREAM, tables=[stopped()])
    harness.steps()
    assert entry(harness).resnapshot.generation == 1  # type: ignore[union-attr]
    assert len(entry(harness).resnapshot.at) == 1  # type: ignore[union-attr]


def stop_again(harness: ControllerHarness, generation: int) -> None:
    harness.say(SNAPSHOT, tables=[stopped(generation)])
    harness.step()
    harness.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(harness)


def test_after_three_decisions_within_an_hour_the_user_is_asked() -> None:
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    stop_again(harness, 1)
    stop_again(harness, 2)
    stop_again(harness, 3)
    assert SNAPSHOT.value not in harness.kinds()
    assert harness.condition("Stalled") == ("True", "SchemaChangePending")
    assert "spec.resnapshot: [{table: shop.b" in entry(harness).message
    harness.change(**EVOLVE, resnapshot=[{"table": "shop.b", "nonce": 1}])
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 4),)


@pytest.mark.parametrize(
    ("seconds", "more", "decisions"),
    [
        (100, {"generation": 1, "finished": []}, 1),
        (100, {}, 1),
        (400, {"generation": 1, "finished": []}, 2),
        (100, {"generation": 1, "finished": [{"start": None, "end": [10]}]}, 2),
        (100, {"generation": 1, "finished": WHOLE}, 2),
    ],
    ids=["nothing-read", "nothing-staged", "too-late", "a-split-was-read", "published"],
)
def test_statements_in_a_row_count_as_one_decision(seconds: int, more: dict[str, Any], decisions: int) -> None:
    """While the resnapshot that the first of them needs has read nothing, and for a while only; the
    generation is another one each time."""
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    harness.now += seconds
    harness.say(SNAPSHOT, tables=[stopped() | more])
    harness.step()
    decided = entry(harness).resnapshot
    assert decided is not None
    assert (decided.generation, len(decided.at)) == (2, decisions)


def test_an_hour_later_it_is_decided_again() -> None:
    harness = flowing(**EVOLVE)
    for generation in range(4):
        if generation:
            harness.say(SNAPSHOT, tables=[stopped(generation)])
            harness.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
        else:
            harness.say(STREAM, tables=[stopped()])
        wait_for_definition(harness)
        harness.step(1300)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 4),)


HIDDEN = (
    "shop.b: rows with the columns id, b, DB_ROW_HASH_1, without a statement in the binlog that changed them;"
    " needed: the planned definition: id, b; remedy: resnapshot the table (spec.resnapshot)"
)


def read_and_stopped_again(harness: ControllerHarness, generation: int, message: str, nonce: int = 0) -> None:
    """The resnapshot is published, and the first rows behind it stop the table."""
    wait_for_definition(harness)
    read(harness, generation, nonce=nonce)
    harness.end(SNAPSHOT)
    harness.steps()
    harness.say(CATCH_UP, tables=[stopped(generation) | {"message": message}])
    harness.end(CATCH_UP)
    harness.steps()


def test_what_a_resnapshot_did_not_cure_is_not_resnapshotted_again() -> None:
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped() | {"message": HIDDEN}])
    read_and_stopped_again(harness, 1, HIDDEN)
    wait_for_definition(harness)
    assert SNAPSHOT.value not in harness.kinds()
    assert harness.condition("Stalled") == ("True", "SchemaChangeRefused")
    message = entry(harness).message
    assert message.startswith(HIDDEN.partition("; remedy")[0])
    assert "tables.exclude" in message
    assert len(harness.started()) == 4, "a snapshot, a stream, a resnapshot, a catch-up"
    harness.step(4000)
    wait_for_definition(harness)
    assert (SNAPSHOT.value not in harness.kinds(), entry(harness).message) == (True, message), "nor an hour later"
    harness.change(**EVOLVE, resnapshot=[{"table": "shop.b", "nonce": 1}])
    read_and_stopped_again(harness, 2, HIDDEN, nonce=1)
    wait_for_definition(harness)
    assert (SNAPSHOT.value not in harness.kinds(), entry(harness).message) == (True, message), (
        "nor after the user's own"
    )


@pytest.mark.parametrize(
    "again",
    [HIDDEN.replace("DB_ROW_HASH_1", "c"), HIDDEN.replace("definition: id, b", "definition: id, b, c"), MESSAGE],
    ids=["other-rows", "other-definition", "a-statement"],
)
def test_another_cause_behind_a_resnapshot_is_another_stop(again: str) -> None:
    """A statement, too, that has the words of the one before."""
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped() | {"message": MESSAGE if again == MESSAGE else HIDDEN}])
    read_and_stopped_again(harness, 1, again)
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 2),)


def test_a_table_above_the_row_limit_asks() -> None:
    harness = flowing(rows=101, schemaChange={"behavior": "evolve", "resnapshotMaxRows": 100})
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    assert SNAPSHOT.value not in harness.kinds()
    assert harness.condition("Stalled") == ("True", "SchemaChangePending")
    assert "about 101 rows" in entry(harness).message
    harness.change(schemaChange={"behavior": "evolve", "resnapshotMaxRows": 100}, resnapshot=[
        {"tables": r"shop\..*", "nonce": 3},
    ])  # fmt: skip
    wait_for_definition(harness)
    assert dict(harness.live(SNAPSHOT).tables)["shop.b"] == 1, "the user is not bound by the limit"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schemaChange": {"behavior": "fail"}}, "SchemaChangeRefused"),
        ({"schemaChange": {"behavior": "evolve", "resnapshot": "ask"}}, "SchemaChangePending"),
        (
            EVOLVE | {"tables": {"include": [r"shop\..*"], "overrides": [
                {"table": "shop.b", "schemaChange": {"behavior": "fail"}}]}},
            "SchemaChangeRefused",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_resnapshot_leaves_the_table_stopped(spec: dict[str, Any], reason: str) -> None:
    harness = flowing(**spec)
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    assert (entry(harness).phase, entry(harness).reason) == (TablePhase.FAILED, reason)
    assert harness.kinds() == {"stream"}
    harness.change(**EVOLVE)
    harness.steps()
    harness.end(STREAM)
    harness.steps()
    assert harness.kinds() == {"stream"}, "the new policy may follow it"
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),), "the policy may change while it runs"


@pytest.mark.parametrize("reason", ["LogIncomplete", "TypeUnsupported", "SinkConflict", "PositionLost"])
def test_only_what_a_resnapshot_cures_is_resnapshotted(reason: str) -> None:
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped(reason=reason)])
    wait_for_definition(harness)
    assert (entry(harness).reason, harness.kinds()) == (reason, {"stream"})


def test_a_table_that_can_no_longer_be_captured_says_so_and_keeps_its_content() -> None:
    harness = flowing(**EVOLVE)
    harness.table_errors["shop.b"] = fail(Reason.NO_PRIMARY_KEY, "no key", table="shop.b")
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    assert (entry(harness).reason, harness.kinds()) == ("NoPrimaryKey", {"stream"})
    assert entry(harness).position == StatusPosition.model_validate(reported(300))


def test_an_operator_that_dies_at_any_step_goes_on() -> None:
    """It has the status that it wrote last, and no preflight."""
    harness = flowing(**EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    harness.step()
    harness.status = Status.model_validate(harness.status.to_dict())
    harness.preflight = None
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    run = harness.live(SNAPSHOT)
    harness.status = Status.model_validate(harness.status.to_dict())
    harness.preflight = None
    harness.steps()
    assert harness.live(SNAPSHOT).id == run.id
    assert len(entry(harness).resnapshot.at) == 1  # type: ignore[union-attr]


def test_a_history_is_not_begun_again_without_the_user() -> None:
    harness = flowing(sink={"delta": {"path": "s3://lake/tables", "mode": "history"}}, **EVOLVE)
    harness.say(STREAM, tables=[stopped()])
    wait_for_definition(harness)
    assert (entry(harness).reason, harness.kinds()) == ("SchemaChangePending", {"stream"})
    assert "begins the history again" in entry(harness).message


# ---- a position that is lost


LOST = {"onPositionLost": "resnapshot"}


def test_all_tables_whose_position_is_lost_are_resnapshotted() -> None:
    harness = flowing(**LOST)
    lost = [stopped(reason="PositionLost") | {"name": name} for name in harness.tables]
    harness.say(STREAM, tables=lost)
    harness.end(STREAM, 3, "PositionLost", "purged")
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.a", 1), ("shop.b", 1))
    read(harness, 1, "shop.a", "shop.b")
    harness.end(SNAPSHOT)
    harness.steps()
    assert dict(harness.live(STREAM).tables) == {"shop.a": 1, "shop.b": 1}


def test_a_run_that_loses_its_place_is_begun_again_to_find_the_tables_concerned() -> None:
    harness = flowing(**LOST)
    harness.end(STREAM, 3, "PositionLost", "purged")
    harness.step()
    assert harness.status.phase is not Phase.FAILED
    harness.steps(20)
    assert STREAM.value in harness.kinds()


def test_a_position_that_is_lost_again_and_again_asks_under_its_own_reason() -> None:
    harness = flowing(names=("shop.b",), **LOST)
    harness.say(STREAM, tables=[stopped(reason="PositionLost")])
    harness.end(STREAM, 3, "PositionLost", "purged")
    wait_for_definition(harness)
    for generation in (1, 2, 3):
        harness.say(SNAPSHOT, tables=[stopped(generation, "PositionLost")])
        harness.end(SNAPSHOT, 3, "PositionLost", "purged")
        wait_for_definition(harness)
    assert harness.condition("Stalled") == ("True", "PositionLost")


# ---- another server that lacks what a table was changed by


DIVERGED = [stopped(reason="HistoryDiverged")]


def test_a_table_that_diverged_is_resnapshotted_while_the_others_flow() -> None:
    harness = flowing()
    harness.say(STREAM, tables=DIVERGED)
    wait_for_definition(harness)
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert STREAM.value in harness.kinds()


@pytest.mark.parametrize(
    "spec",
    [
        {"source": {"host": "db", "credentialsSecretRef": {"name": "login"}, "lostTail": "fail"}},
        {"sink": {"delta": {"path": "s3://lake/tables", "mode": "history"}}},
    ],
)
def test_one_that_diverged_waits_for_the_user(spec: dict[str, Any]) -> None:
    """A history would begin again."""
    harness = flowing(**spec)
    harness.say(STREAM, tables=DIVERGED)
    wait_for_definition(harness)
    assert (entry(harness).reason, harness.kinds()) == ("HistoryDiverged", {"stream"})


# ---- many tables in one line


def test_one_pattern_resnapshots_all_tables_that_match() -> None:
    harness = flowing(names=("shop.a", "shop.b", "shop.c"))
    harness.change(resnapshot=[{"tables": r"shop\.[ab]", "nonce": 1}, {"table": "shop.b", "nonce": 4}])
    harness.steps()
    assert harness.live(SNAPSHOT).tables == (("shop.a", 1), ("shop.b", 1))
