"""What the end of a driver means that the operator had not asked for."""

from __future__ import annotations

import json

import pytest

from cdcsync_core.runs.run import LOG_END, ExitCode, RunKind
from cdcsync_operator.cluster.objects.run_objects import LIST_BYTES, reports
from cdcsync_operator.cluster.runs.run_ports import FoundRun
from cdcsync_operator.decision.observed import Exit, StartRun
from unit.controller.harness import resource


def vanished(kind: RunKind, code: ExitCode, stop_at: str = "") -> Exit | None:
    """The driver drained and reported it; then its pod was gone."""
    data = {
        "run": json.dumps({"kind": kind, "stopAt": stop_at}),
        "head": json.dumps({"exit": {"code": code, "reason": "", "message": "drained"}}),
    }
    return FoundRun("r", None, ({"metadata": {"name": "r-0"}, "data": data},)).seen(now=1.0).exit


@pytest.mark.parametrize(
    ("kind", "code"),
    [(RunKind.STREAM, ExitCode.DONE), (RunKind.SNAPSHOT, ExitCode.DONE), (RunKind.CATCH_UP, ExitCode.RETRY)],
)
def test_a_catch_up_that_was_taken_away_is_not_one_that_has_caught_up(kind: RunKind, code: ExitCode) -> None:
    """R5: else the stream would be stopped to take its tables in, wherever they stand."""
    found = vanished(kind, ExitCode.DONE)
    assert found
    assert found.code == code
    assert "deleted or evicted" in found.message


def test_a_stream_that_was_taken_away_has_not_caught_up() -> None:
    """Else a time of its schedule would count as caught up."""
    found = vanished(RunKind.STREAM, ExitCode.DONE, stop_at=LOG_END)
    assert found
    assert found.code == ExitCode.RETRY


def test_an_end_with_a_reason_keeps_it() -> None:
    found = vanished(RunKind.CATCH_UP, ExitCode.USER_MUST_ACT)
    assert found
    assert (found.code, found.message) == (ExitCode.USER_MUST_ACT, "drained")


def test_what_a_stream_has_met_of_other_tables_is_in_its_report() -> None:
    """An older driver counts nothing."""
    for head, appeared in (({"appeared": 3}, 3), ({}, 0)):
        data = {"run": json.dumps({"kind": RunKind.STREAM}), "head": json.dumps(head)}
        assert FoundRun("r", None, ({"metadata": {"name": "r-0"}, "data": data},)).seen(now=1.0).appeared == appeared


def test_a_run_of_many_tables_has_its_list_in_several_shards() -> None:
    """An object of the API server has at most 1 MiB; the shards are there for the reports."""
    tables = tuple((f"shop.orders_of_customer_{n:06d}", n % 3) for n in range(50_000))
    made = reports(resource(), StartRun(RunKind.SNAPSHOT, "r", 1, tables, "f"), [])
    listed = [shard["data"]["run"] for shard in made if shard["data"]]
    assert len(listed) == 10
    assert all(len(text.encode()) <= LIST_BYTES + 1000 for text in listed)
    assert FoundRun("r", None, tuple(made)).seen(now=1.0).tables == tables
    few = reports(resource(), StartRun(RunKind.SNAPSHOT, "r", 1, tables[:1000], "f"), [])
    assert [bool(shard["data"]) for shard in few] == [True, *(False for _ in few[1:])]


def test_there_is_a_shard_for_each_part_of_the_longest_names() -> None:
    tables = tuple((f"{n:064d}.{'ü' * 64}", 0) for n in range(20_000))
    made = reports(resource(), StartRun(RunKind.STREAM, "r", 1, tables, "f"), [])
    assert FoundRun("r", None, tuple(made)).names == {name for name, _ in tables}
