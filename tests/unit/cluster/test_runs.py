"""What the end of a driver means that the operator had not asked for."""

from __future__ import annotations

import json

import pytest

from cdcsync_core.run import LOG_END, ExitCode, RunKind
from cdcsync_operator.cluster.runs import FoundRun
from cdcsync_operator.decision.observed import Exit


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
