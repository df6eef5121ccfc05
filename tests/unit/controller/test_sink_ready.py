"""A sink is judged before a run is started, like the source; what is wrong with it is checked again
until it is fixed."""

from __future__ import annotations

from pathlib import Path

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Phase
from cdcsync_operator.decision.observed import RunPreflight
from cdcsync_operator.decision.runs.preflights import PREFLIGHT_RETRY
from cdcsync_operator.reconcile.sink_calls import check_sink, check_sink_from_cluster
from unit.controller.harness import ControllerHarness, resource

NO_BUCKET = fail(Reason.NO_SUCH_BUCKET, "no bucket lake", remedy="create the bucket")
NO_ANSWER = fail(Reason.SINK_UNREACHABLE, "no answer", remedy="see to it")


def test_a_missing_bucket_starts_nothing_and_is_found_again_when_it_is_made() -> None:
    harness = ControllerHarness(sink_errors=(NO_BUCKET,))
    harness.steps()
    assert harness.status.phase is Phase.PENDING, "it is checked again"
    assert harness.condition("Stalled") == ("True", "NoSuchBucket")
    assert harness.condition("SinkReady") == ("False", "NoSuchBucket")
    assert harness.condition("SourceReady") == ("True", "PreflightPassed")
    assert "create the bucket" in harness.status.condition("Stalled").message
    assert harness.started() == []
    harness.sink_errors = ()
    harness.step(PREFLIGHT_RETRY + 1)
    harness.steps()
    assert harness.condition("SinkReady") == ("True", "PreflightPassed")
    assert [run.kind for run in harness.started()] == [RunKind.SNAPSHOT]


def test_another_controller_checks_a_failed_sink_again() -> None:
    """What the last one found is in the status only."""
    harness = ControllerHarness(sink_errors=(NO_BUCKET,))
    harness.steps()
    harness.preflight, harness.sink_errors = None, ()
    harness.steps()
    assert [run.kind for run in harness.started()] == [RunKind.SNAPSHOT]


def test_a_sink_that_does_not_answer_is_retried() -> None:
    harness = ControllerHarness(sink_errors=(NO_ANSWER,))
    harness.steps()
    assert harness.condition("Stalled")[0] == "False"
    assert harness.condition("SinkReady") == ("False", "SinkUnreachable")
    assert harness.status.restarts.consecutive >= 1
    assert harness.started() == []


def test_faults_of_source_and_sink_are_reported_at_once() -> None:
    harness = ControllerHarness(errors=(fail(Reason.BINLOG_DISABLED, "log_bin is OFF"),), sink_errors=(NO_BUCKET,))
    harness.steps()
    message = harness.status.condition("Stalled").message
    assert "log_bin is OFF" in message
    assert "no bucket lake" in message


def test_a_live_stream_goes_on_and_the_condition_reports_the_sink() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    harness.sink_errors = (NO_ANSWER,)
    harness.step(400)
    harness.flow(*harness.tables)
    harness.steps()
    assert harness.condition("SinkReady") == ("False", "SinkUnreachable")
    assert harness.kinds() == {"stream"}


def test_a_bucket_that_is_removed_while_a_driver_writes_becomes_permanent() -> None:
    """The driver's retry is preceded by a preflight that is not as old as 300 seconds."""
    harness = ControllerHarness()
    harness.to_streaming()
    harness.sink_errors = (NO_BUCKET,)
    for _ in range(20):
        if RunKind.STREAM.value in harness.kinds():
            harness.end(RunKind.STREAM, 1, "SinkUnreachable", "NoSuchBucket")
        harness.step(5)
    assert harness.condition("Stalled") == ("True", "NoSuchBucket")


def test_what_only_the_driver_can_check_is_not_claimed(tmp_path: Path) -> None:
    unchecked = check_sink_from_cluster(resource(sink={"delta": {"path": "s3://lake/x"}}), tmp_path)
    assert (unchecked.errors, "credentialsSecretRef" in unchecked.unchecked) == ((), True)
    folder = check_sink_from_cluster(resource(sink={"delta": {"path": "/lake"}}), tmp_path)
    assert folder.unchecked
    harness = ControllerHarness(sink_unchecked=unchecked.unchecked)
    harness.steps()
    assert harness.condition("SinkReady") == ("Unknown", "CheckedByDriver")
    assert harness.started() != []


def test_the_operators_own_identity_is_never_used(tmp_path: Path) -> None:
    """A client without keys takes those of its machine: the operator's."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "AWS_REGION").write_text("eu-central-1")
    delta = {"path": "s3://lake/x", "credentialsSecretRef": {"name": "lake"}}
    found = check_sink_from_cluster(resource(sink={"delta": delta}), tmp_path)
    assert (found.errors, "no access key" in found.unchecked) == ((), True)


def test_a_path_that_is_no_lake_is_an_error_of_the_sink(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (("gs://bucket/x", Reason.SPEC_INVALID), (str(tmp_path / "file"), Reason.SINK_CONFLICT)):
        found = check_sink(resource(sink={"delta": {"path": path}}), tmp_path)
        assert [e.reason for e in found.errors] == [reason]
    (bad,) = check_sink_from_cluster(resource(sink={"delta": {"path": "gs://b/x"}}), tmp_path).errors
    assert bad.reason is Reason.SPEC_INVALID


def test_the_preflight_is_asked_for_once() -> None:
    harness = ControllerHarness(sink_errors=(NO_BUCKET,))
    harness.steps()
    before = len([a for a in harness.log if isinstance(a, RunPreflight)])
    harness.steps(5)
    assert len([a for a in harness.log if isinstance(a, RunPreflight)]) == before
