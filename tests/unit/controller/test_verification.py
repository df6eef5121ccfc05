"""Requests to verify: a run beside the others answers each, and no run that copies depends on
it."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.verification_status import VerificationState as State
from cdcsync_core.runs.verification_status import VerificationStatus
from unit.controller.harness import ControllerHarness, resource

SNAPSHOT, STREAM, VERIFY = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.VERIFY
BOTH = ("shop.a", "shop.b")


def flowing(**spec: Any) -> ControllerHarness:
    harness = ControllerHarness(BOTH, resource(**spec))
    harness.to_streaming()
    return harness


def asked(nonce: int = 1, *tables: str, **spec: Any) -> ControllerHarness:
    """A stream, and a verification beside it."""
    harness = flowing(**spec)
    harness.change(verify={"nonce": nonce, "tables": list(tables)}, **spec)
    harness.steps()
    return harness


def result(name: str, nonce: int = 1, **parts: Any) -> dict[str, Any]:
    counts = {"sourceRows": 10, "targetRows": 10, "missing": 0, "extra": 0, "different": 0, "duplicate": 0}
    equal = {"nonce": nonce, "at": "2026-01-01T00:00:00Z", "result": "Equal", "generation": 0, "unconfirmed": 0}
    return {"name": name, "verified": equal | counts | {"position": "binlog.000001:300", "message": ""} | parts}


DIFFERENT = {"result": "Different", "missing": 3, "targetRows": 7}
NOT_COMPARED = {"result": "NotCompared", "message": "shop.b: the source is away"}


def answer(harness: ControllerHarness, *results: dict[str, Any], code: int = 0, **words: str) -> VerificationStatus:
    if results:
        harness.say(VERIFY, tables=list(results))
    harness.end(VERIFY, code, **words)
    harness.steps(2)
    return verification(harness)


def verification(harness: ControllerHarness) -> VerificationStatus:
    recorded = harness.status.verification
    assert recorded is not None
    return recorded


def test_a_request_is_answered_once_by_a_run_beside_the_stream() -> None:
    harness = asked()
    stream = harness.live(STREAM).id
    assert harness.live(VERIFY).tables == (("shop.a", 0), ("shop.b", 0))
    assert verification(harness).state is State.RUNNING
    harness.flow(*BOTH, offset=400)
    harness.step()
    assert harness.condition("Ready") == ("True", "Streaming")
    ended = answer(harness, result("shop.a"), result("shop.b"))
    assert (ended.state, ended.total, ended.equal, ended.rows, ended.message) == (State.EQUAL, 2, 2, 20, "")
    assert ended.finished_at
    harness.flow(*BOTH, offset=500)
    harness.steps(20)
    assert harness.kinds() == {"stream"}
    assert (harness.live(STREAM).id, harness.live(STREAM).stop_asked) == (stream, False)
    assert [s.kind for s in harness.started()].count(VERIFY) == 1
    assert harness.condition("Consistent") == ("True", "Consistent")


def test_the_patterns_choose_the_tables() -> None:
    harness = asked(1, r"shop\.b")
    assert harness.live(VERIFY).names == {"shop.b"}
    assert answer(harness, result("shop.b")).state is State.EQUAL


def test_patterns_that_match_no_table_are_not_equal() -> None:
    harness = asked(1, r"shop\.z")
    assert harness.kinds() == {"stream"}
    assert (verification(harness).state, verification(harness).total) == (State.INCOMPLETE, 0)
    assert "no table" in verification(harness).message


def test_a_table_that_differs_is_not_consistent_until_it_is_equal_or_read_again() -> None:
    harness = asked()
    ended = answer(harness, result("shop.a"), result("shop.b", **DIFFERENT))
    assert (ended.state, ended.equal, ended.different, ended.differences) == (State.DIFFERENT, 1, 1, 3)
    assert "shop.b differs: 3 missing in the target of 10 rows" in ended.message
    assert harness.condition("Consistent") == ("False", "Differs")
    assert "resnapshot" in harness.status.condition("Consistent").message
    harness.change(verify={"nonce": 2})
    harness.steps()
    assert harness.condition("Consistent") == ("False", "Differs"), "nothing new is known yet"
    harness.flow(*BOTH, offset=500)
    ended = answer(harness, result("shop.a", 2), result("shop.b", 2, **NOT_COMPARED))
    assert (ended.state, ended.not_compared) == (State.INCOMPLETE, 1)
    assert harness.condition("Consistent") == ("False", "Differs"), "nothing was proven"
    harness.change(verify={"nonce": 3})
    harness.steps()
    harness.flow(*BOTH, offset=600)
    assert answer(harness, result("shop.a", 3), result("shop.b", 3)).state is State.EQUAL
    assert harness.condition("Consistent") == ("True", "Consistent")


def test_another_content_is_not_the_one_that_differed() -> None:
    harness = asked()
    answer(harness, result("shop.a"), result("shop.b", **DIFFERENT))
    harness.change(verify={"nonce": 1}, resnapshot=[{"table": "shop.b", "nonce": 1}])
    harness.steps()
    harness.read("shop.b", nonce=1)
    harness.step()
    assert harness.condition("Consistent")[1] != "Differs"
    assert VERIFY.value not in harness.kinds(), "the request was answered"


def test_a_table_that_the_run_left_out_is_not_equal() -> None:
    ended = answer(asked(), result("shop.a"))
    assert (ended.state, ended.equal, ended.not_compared) == (State.INCOMPLETE, 1, 1)
    assert "shop.b was not compared" in ended.message


def test_a_result_for_an_earlier_request_is_none_for_this_one() -> None:
    harness = asked()
    answer(harness, result("shop.a"), result("shop.b"))
    harness.change(verify={"nonce": 2})
    harness.steps()
    ended = answer(harness, result("shop.a", 1), result("shop.b", 1))
    assert (ended.nonce, ended.state, ended.equal) == (2, State.RUNNING, 0), "another run is to answer it"


def test_a_nonce_that_comes_back_needs_a_comparison_of_its_own() -> None:
    """The tables have results for it, which an earlier run reported."""
    harness = asked(3)
    answer(harness, result("shop.a", 3), result("shop.b", 3))
    harness.change(verify={"nonce": 4})
    harness.steps()
    harness.change(verify={"nonce": 3})
    harness.steps()
    harness.end(VERIFY)
    harness.steps(2)
    assert (verification(harness).nonce, verification(harness).state) == (3, State.RUNNING)
    ended = answer(harness, code=1, reason="DriverLost", message="evicted")
    assert (ended.state, ended.equal) == (State.PENDING, 0)
    harness.step(1000.0)
    harness.flow(*BOTH, offset=600)
    harness.steps(2)
    ended = answer(harness, result("shop.a", 3))
    assert (ended.state, ended.equal, ended.not_compared) == (State.INCOMPLETE, 1, 1)


def test_a_run_that_was_asked_to_stop_answers_nothing() -> None:
    harness = asked()
    harness.say(VERIFY, tables=[result("shop.a"), result("shop.b")])
    harness.change(state="paused", verify={"nonce": 1})
    harness.steps()
    for kind in (STREAM, VERIFY):
        harness.end(kind)
    harness.steps()
    assert verification(harness).state is State.PENDING


def test_a_run_that_dies_is_tried_again_and_holds_back_no_other_run() -> None:
    """Nor does it use up what `spec.autoRestart` allows to the copy."""
    harness = asked()
    stream = harness.live(STREAM).id
    for failure in range(1, 5):
        ended = answer(harness, code=1, reason="OutOfMemory", message="its pod ran out of memory")
        assert (ended.state, ended.restarts.consecutive) == (State.PENDING, failure)
        assert "OutOfMemory" in ended.message
        assert harness.status.restarts.consecutive == 0
        assert harness.condition("Reconciling")[0] == "False"
        harness.step(1000.0)
        harness.flow(*BOTH, offset=400 + failure)
        harness.steps(2)
    ended = answer(harness, code=1, reason="OutOfMemory", message="its pod ran out of memory")
    assert (ended.state, ended.total) == (State.FAILED, 0)
    harness.step(1000.0)
    assert harness.kinds() == {"stream"}
    assert harness.live(STREAM).id == stream
    assert harness.condition("Stalled")[0] == "False"


def test_the_limit_of_the_spec_counts_for_it_too() -> None:
    ended = answer(asked(autoRestart={"enabled": False}), code=1, reason="DriverLost", message="gone")
    assert ended.state is State.FAILED


def test_what_the_user_must_fix_is_not_tried_again() -> None:
    ended = answer(asked(), code=3, reason="PrivilegeMissing", message="no SELECT")
    assert (ended.state, ended.message) == (State.FAILED, "PrivilegeMissing: no SELECT")


def test_a_run_that_reported_all_counts_however_it_ended() -> None:
    ended = answer(asked(), result("shop.a"), result("shop.b"), code=1, reason="DriverLost", message="evicted")
    assert ended.state is State.EQUAL


def test_a_new_request_takes_the_place_of_one_that_runs() -> None:
    harness = asked()
    first = harness.live(VERIFY).id
    harness.change(verify={"nonce": 2, "tables": [r"shop\.a"]})
    harness.steps()
    assert harness.live(VERIFY).stop_asked
    assert harness.condition("Ready")[0] == "True", "nothing of the copy is rolled out"
    harness.end(VERIFY)
    harness.steps()
    assert harness.live(VERIFY).id != first
    assert harness.live(VERIFY).names == {"shop.a"}
    assert answer(harness, result("shop.a", 2)).state is State.EQUAL


def test_a_request_that_is_taken_back_is_forgotten_and_its_run_ends() -> None:
    harness = asked()
    harness.change()
    harness.steps()
    assert harness.live(VERIFY).stop_asked
    harness.end(VERIFY)
    harness.steps()
    assert harness.kinds() == {"stream"}
    assert harness.status.verification is None


def test_a_request_waits_until_its_tables_are_read() -> None:
    harness = ControllerHarness(BOTH, resource(verify={"nonce": 1}))
    harness.steps()
    assert harness.kinds() == {"snapshot"}
    assert verification(harness).state is State.PENDING
    assert "2 tables are not read" in verification(harness).message
    harness.read(*BOTH)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream", "verify"}


def test_a_paused_sync_keeps_the_request_until_it_goes_on() -> None:
    harness = asked()
    harness.change(state="paused", verify={"nonce": 1})
    harness.steps()
    for kind in (STREAM, VERIFY):
        harness.end(kind)
    harness.steps()
    assert (harness.kinds(), verification(harness).state) == (set(), State.PENDING)
    harness.change(verify={"nonce": 1})
    harness.steps()
    assert harness.kinds() == {"stream", "verify"}


def test_a_request_says_what_holds_it_back() -> None:
    """Whatever holds back runs of the sync holds it back, too, and is named in its message."""
    harness, verify = flowing(), {"nonce": 1}

    def message(**observed: Any) -> str:
        for _ in range(3):
            harness.step(**observed)
        return verification(harness).message

    harness.change(verify=verify)
    assert message(refusal="policy.allowedImages refuses it") == "policy.allowedImages refuses it"
    assert message(missing_secrets=("no Secret login",)) == "no Secret login"
    harness.errors = (fail(Reason.SOURCE_UNREACHABLE, "no answer of db.example"),)
    harness.change(verify=verify, restartNonce=1)
    assert "no answer of db.example" in message()
    harness.errors = ()
    harness.step(1000.0)
    message()
    assert verification(harness).state is State.RUNNING
    assert message() == ""
    harness.change(verify=verify | {"nonce": 2})
    assert message() == "the run of another request, or of an earlier spec, has to end first"
    harness.change(verify=verify | {"nonce": 2}, state="paused")
    for kind in (STREAM, VERIFY):
        harness.end(kind)
    assert message() == "spec.state is paused"
    harness.change(verify=verify | {"nonce": 2})
    message()
    harness.end(VERIFY, 3, "PrivilegeMissing", "no SELECT")
    harness.end(STREAM, 1, "SourceUnreachable", "no answer")
    harness.change(verify=verify | {"nonce": 3})
    assert "after SourceUnreachable: no answer" in message()
    harness.step(1000.0)
    message()
    harness.end(VERIFY, 1, "DriverLost", "evicted")
    assert message().startswith("DriverLost: evicted; next attempt at ")
    harness.end(STREAM, 3, "SpecInvalid", "no such host")
    assert message() == "the sync has failed"


@pytest.mark.parametrize("phase", ["Completed"])
def test_a_snapshot_that_is_complete_can_be_verified(phase: str) -> None:
    only: dict[str, Any] = {"snapshot": {"only": True}}
    harness = flowing(**only)
    harness.end(STREAM)
    harness.steps()
    assert harness.status.phase.value == phase
    harness.change(verify={"nonce": 1}, **only)
    harness.steps()
    assert harness.kinds() == {"verify"}
    assert harness.status.phase.value == phase
    assert answer(harness, result("shop.a"), result("shop.b", **DIFFERENT)).state is State.DIFFERENT
    assert (harness.kinds(), harness.status.phase.value) == (set(), phase)
    assert harness.condition("Consistent") == ("False", "Differs")
