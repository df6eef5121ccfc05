"""Resnapshots that the controller decides by itself: of tables whose change cannot be followed, and
of tables whose position is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status, TableStatus
from cdcsync_core.runs.status_part import StatusPosition
from unit.controller.harness import WHOLE, ControllerHarness, place, reported, resource

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
EVOLVE = {"schemaChange": {"behavior": "evolve"}}
MESSAGE = "shop.b: a statement that may change the table: ALTER; needed: no DDL; remedy: resnapshot"


def stopped(generation: int = 0, reason: str = "SchemaChangeRefused") -> dict[str, Any]:
    return {"name": "shop.b", "phase": "Failed", "reason": reason, "message": MESSAGE, "generation": generation}


def flowing(*, names: tuple[str, ...] = ("shop.a", "shop.b"), rows: int = 10, **spec: Any) -> ControllerHarness:
    world = ControllerHarness(names, resource(**spec), rows=dict.fromkeys(names, rows))
    world.to_streaming()
    return world


def entry(world: ControllerHarness, name: str = "shop.b") -> TableStatus:
    found = world.status.table(name)
    assert found is not None
    return found


def read(world: ControllerHarness, generation: int, *names: str, nonce: int = 0) -> None:
    """The snapshot run has published that generation."""
    whole = {"finished": WHOLE, "low": place(300), "high": {"file": place(0)["file"], "offset": 310}}
    more = {"phase": "CatchingUp", "position": place(300), "generation": generation, "nonce": nonce}
    world.say(SNAPSHOT, tables=[{"name": name, **whole, **more} for name in names or ("shop.b",)])


def wait_for_definition(world: ControllerHarness) -> None:
    """At most as long as two preflights are apart."""
    world.steps(12)


def test_a_table_that_cannot_be_followed_is_resnapshotted_beside_the_stream() -> None:
    world = flowing(**EVOLVE)
    stream = world.live(STREAM).id
    world.say(STREAM, tables=[stopped()])
    world.step()
    assert entry(world).phase is TablePhase.PENDING
    assert world.condition("Consistent") == ("False", "Resnapshotting")
    assert world.status.condition("Stalled").status == "False"
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert (world.live(STREAM).id, world.live(STREAM).stop_asked) == (stream, False)
    read(world, 1)
    world.end(SNAPSHOT)
    world.steps()
    assert world.live(CATCH_UP).tables == (("shop.b", 1),)
    world.end(CATCH_UP)
    world.step()
    world.end(STREAM)
    world.steps()
    assert dict(world.live(STREAM).tables) == {"shop.a": 0, "shop.b": 1}
    world.flow("shop.a", "shop.b", offset=400)
    world.steps()
    assert world.condition("Consistent") == ("True", "Consistent")
    assert not entry(world).is_resnapshotted


def test_nothing_is_read_before_a_preflight_that_was_asked_for_after_the_stop() -> None:
    """What an earlier one found of the table is its definition before the statement."""
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped()])
    world.step()
    asked = world.preflight
    assert asked is not None
    world.preflight = replace(asked, prompt="")
    world.steps()
    assert SNAPSHOT.value not in world.kinds()
    wait_for_definition(world)
    assert SNAPSHOT.value in world.kinds()


def test_a_sync_of_one_table_goes_on_too() -> None:
    """Its stream has ended with all its tables."""
    world = flowing(names=("shop.b",), **EVOLVE)
    world.say(STREAM, tables=[stopped()])
    world.step()
    world.end(STREAM, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(world)
    assert world.status.phase is not Phase.FAILED
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    read(world, 1)
    world.end(SNAPSHOT)
    world.steps()
    assert world.live(STREAM).tables == (("shop.b", 1),)


def test_a_first_snapshot_begins_again_under_the_new_definition() -> None:
    world = ControllerHarness(("shop.b",), resource(**EVOLVE))
    world.steps()
    world.say(SNAPSHOT, tables=[stopped()])
    world.step()
    world.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert entry(world).resnapshot.at == (entry(world).resnapshot.at[0],), "one stop is one decision"  # type: ignore[union-attr]


def test_a_second_statement_meanwhile_makes_the_next_generation() -> None:
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    world.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting", "generation": 1, "nonce": 0}])
    world.step()
    world.say(SNAPSHOT, tables=[stopped(1)])
    world.step()
    world.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 2),)


def test_a_report_of_the_same_stop_decides_nothing_more() -> None:
    """A stream reports all its tables when it ends."""
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped()])
    world.steps()
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    world.say(STREAM, tables=[stopped()])
    world.steps()
    assert entry(world).resnapshot.generation == 1  # type: ignore[union-attr]
    assert len(entry(world).resnapshot.at) == 1  # type: ignore[union-attr]


def stop_again(world: ControllerHarness, generation: int) -> None:
    world.say(SNAPSHOT, tables=[stopped(generation)])
    world.step()
    world.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
    wait_for_definition(world)


def test_after_three_decisions_within_an_hour_the_user_is_asked() -> None:
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    stop_again(world, 1)
    stop_again(world, 2)
    stop_again(world, 3)
    assert SNAPSHOT.value not in world.kinds()
    assert world.condition("Stalled") == ("True", "SchemaChangePending")
    assert "spec.resnapshot: [{table: shop.b" in entry(world).message
    world.change(**EVOLVE, resnapshot=[{"table": "shop.b", "nonce": 1}])
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 4),)


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
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    world.now += seconds
    world.say(SNAPSHOT, tables=[stopped() | more])
    world.step()
    decided = entry(world).resnapshot
    assert decided is not None
    assert (decided.generation, len(decided.at)) == (2, decisions)


def test_an_hour_later_it_is_decided_again() -> None:
    world = flowing(**EVOLVE)
    for generation in range(4):
        if generation:
            world.say(SNAPSHOT, tables=[stopped(generation)])
            world.end(SNAPSHOT, 3, "SchemaChangeRefused", MESSAGE)
        else:
            world.say(STREAM, tables=[stopped()])
        wait_for_definition(world)
        world.step(1300)
    assert world.live(SNAPSHOT).tables == (("shop.b", 4),)


HIDDEN = (
    "shop.b: rows with the columns id, b, DB_ROW_HASH_1, without a statement in the binlog that changed them;"
    " needed: the planned definition: id, b; remedy: resnapshot the table (spec.resnapshot)"
)


def read_and_stopped_again(world: ControllerHarness, generation: int, message: str, nonce: int = 0) -> None:
    """The resnapshot is published, and the first rows behind it stop the table."""
    wait_for_definition(world)
    read(world, generation, nonce=nonce)
    world.end(SNAPSHOT)
    world.steps()
    world.say(CATCH_UP, tables=[stopped(generation) | {"message": message}])
    world.end(CATCH_UP)
    world.steps()


def test_what_a_resnapshot_did_not_cure_is_not_resnapshotted_again() -> None:
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped() | {"message": HIDDEN}])
    read_and_stopped_again(world, 1, HIDDEN)
    wait_for_definition(world)
    assert SNAPSHOT.value not in world.kinds()
    assert world.condition("Stalled") == ("True", "SchemaChangeRefused")
    message = entry(world).message
    assert message.startswith(HIDDEN.partition("; remedy")[0])
    assert "tables.exclude" in message
    assert len(world.started()) == 4, "a snapshot, a stream, a resnapshot, a catch-up"
    world.step(4000)
    wait_for_definition(world)
    assert (SNAPSHOT.value not in world.kinds(), entry(world).message) == (True, message), "nor an hour later"
    world.change(**EVOLVE, resnapshot=[{"table": "shop.b", "nonce": 1}])
    read_and_stopped_again(world, 2, HIDDEN, nonce=1)
    wait_for_definition(world)
    assert (SNAPSHOT.value not in world.kinds(), entry(world).message) == (True, message), "nor after the user's own"


@pytest.mark.parametrize(
    "again",
    [HIDDEN.replace("DB_ROW_HASH_1", "c"), HIDDEN.replace("definition: id, b", "definition: id, b, c"), MESSAGE],
    ids=["other-rows", "other-definition", "a-statement"],
)
def test_another_cause_behind_a_resnapshot_is_another_stop(again: str) -> None:
    """A statement, too, that has the words of the one before."""
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped() | {"message": MESSAGE if again == MESSAGE else HIDDEN}])
    read_and_stopped_again(world, 1, again)
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 2),)


def test_a_table_above_the_row_limit_asks() -> None:
    world = flowing(rows=101, schemaChange={"behavior": "evolve", "resnapshotMaxRows": 100})
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    assert SNAPSHOT.value not in world.kinds()
    assert world.condition("Stalled") == ("True", "SchemaChangePending")
    assert "about 101 rows" in entry(world).message
    world.change(schemaChange={"behavior": "evolve", "resnapshotMaxRows": 100}, resnapshot=[
        {"tables": r"shop\..*", "nonce": 3},
    ])  # fmt: skip
    wait_for_definition(world)
    assert dict(world.live(SNAPSHOT).tables)["shop.b"] == 1, "the user is not bound by the limit"


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
    world = flowing(**spec)
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    assert (entry(world).phase, entry(world).reason) == (TablePhase.FAILED, reason)
    assert world.kinds() == {"stream"}
    world.change(**EVOLVE)
    world.steps()
    world.end(STREAM)
    world.steps()
    assert world.kinds() == {"stream"}, "the new policy may follow it"
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),), "the policy may change while it runs"


@pytest.mark.parametrize("reason", ["LogIncomplete", "TypeUnsupported", "SinkConflict", "PositionLost"])
def test_only_what_a_resnapshot_cures_is_resnapshotted(reason: str) -> None:
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped(reason=reason)])
    wait_for_definition(world)
    assert (entry(world).reason, world.kinds()) == (reason, {"stream"})


def test_a_table_that_can_no_longer_be_captured_says_so_and_keeps_its_content() -> None:
    world = flowing(**EVOLVE)
    world.table_errors["shop.b"] = fail(Reason.NO_PRIMARY_KEY, "no key", table="shop.b")
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    assert (entry(world).reason, world.kinds()) == ("NoPrimaryKey", {"stream"})
    assert entry(world).position == StatusPosition.model_validate(reported(300))


def test_an_operator_that_dies_at_any_step_goes_on() -> None:
    """It has the status that it wrote last, and no preflight."""
    world = flowing(**EVOLVE)
    world.say(STREAM, tables=[stopped()])
    world.step()
    world.status = Status.model_validate(world.status.to_dict())
    world.preflight = None
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    run = world.live(SNAPSHOT)
    world.status = Status.model_validate(world.status.to_dict())
    world.preflight = None
    world.steps()
    assert world.live(SNAPSHOT).id == run.id
    assert len(entry(world).resnapshot.at) == 1  # type: ignore[union-attr]


def test_a_history_is_not_begun_again_without_the_user() -> None:
    world = flowing(sink={"delta": {"path": "s3://lake/tables", "mode": "history"}}, **EVOLVE)
    world.say(STREAM, tables=[stopped()])
    wait_for_definition(world)
    assert (entry(world).reason, world.kinds()) == ("SchemaChangePending", {"stream"})
    assert "begins the history again" in entry(world).message


# ---- a position that is lost


LOST = {"onPositionLost": "resnapshot"}


def test_all_tables_whose_position_is_lost_are_resnapshotted() -> None:
    world = flowing(**LOST)
    lost = [stopped(reason="PositionLost") | {"name": name} for name in world.tables]
    world.say(STREAM, tables=lost)
    world.end(STREAM, 3, "PositionLost", "purged")
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.a", 1), ("shop.b", 1))
    read(world, 1, "shop.a", "shop.b")
    world.end(SNAPSHOT)
    world.steps()
    assert dict(world.live(STREAM).tables) == {"shop.a": 1, "shop.b": 1}


def test_a_run_that_loses_its_place_is_begun_again_to_find_the_tables_concerned() -> None:
    world = flowing(**LOST)
    world.end(STREAM, 3, "PositionLost", "purged")
    world.step()
    assert world.status.phase is not Phase.FAILED
    world.steps(20)
    assert STREAM.value in world.kinds()


def test_a_position_that_is_lost_again_and_again_asks_under_its_own_reason() -> None:
    world = flowing(names=("shop.b",), **LOST)
    world.say(STREAM, tables=[stopped(reason="PositionLost")])
    world.end(STREAM, 3, "PositionLost", "purged")
    wait_for_definition(world)
    for generation in (1, 2, 3):
        world.say(SNAPSHOT, tables=[stopped(generation, "PositionLost")])
        world.end(SNAPSHOT, 3, "PositionLost", "purged")
        wait_for_definition(world)
    assert world.condition("Stalled") == ("True", "PositionLost")


# ---- another server that lacks what a table was changed by


DIVERGED = [stopped(reason="HistoryDiverged")]


def test_a_table_that_diverged_is_resnapshotted_while_the_others_flow() -> None:
    world = flowing()
    world.say(STREAM, tables=DIVERGED)
    wait_for_definition(world)
    assert world.live(SNAPSHOT).tables == (("shop.b", 1),)
    assert STREAM.value in world.kinds()


@pytest.mark.parametrize(
    "spec",
    [
        {"source": {"host": "db", "credentialsSecretRef": {"name": "login"}, "lostTail": "fail"}},
        {"sink": {"delta": {"path": "s3://lake/tables", "mode": "history"}}},
    ],
)
def test_one_that_diverged_waits_for_the_user(spec: dict[str, Any]) -> None:
    """A history would begin again."""
    world = flowing(**spec)
    world.say(STREAM, tables=DIVERGED)
    wait_for_definition(world)
    assert (entry(world).reason, world.kinds()) == ("HistoryDiverged", {"stream"})


# ---- many tables in one line


def test_one_pattern_resnapshots_all_tables_that_match() -> None:
    world = flowing(names=("shop.a", "shop.b", "shop.c"))
    world.change(resnapshot=[{"tables": r"shop\.[ab]", "nonce": 1}, {"table": "shop.b", "nonce": 4}])
    world.steps()
    assert world.live(SNAPSHOT).tables == (("shop.a", 1), ("shop.b", 1))
