"""Events report changes, not states: nothing is posted twice, and nothing that a person would want
to know is left out."""

from __future__ import annotations

from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, RunRef, SnapshotProgress, Status, with_condition
from cdcsync_core.runs.status_part import Restarts, StatusPosition
from cdcsync_core.runs.table_status import ResnapshotStatus, SchemaStatus, TableStatus
from cdcsync_core.runs.verification_status import VerificationState, VerificationStatus
from cdcsync_operator.cluster.events import events_between

BEFORE = Status(phase=Phase.STREAMING)


def test_no_change_is_no_event() -> None:
    assert list(events_between(BEFORE, BEFORE.with_(lag_seconds=3.0))) == []


def test_a_run_a_phase_a_failure_and_a_stop_are_posted() -> None:
    started = BEFORE.with_(runs=BEFORE.runs.put(RunKind.STREAM, RunRef(id="r", epoch=1, pod="r-driver")))
    assert list(events_between(BEFORE, started)) == [("Normal", "RunStarted", "stream driver r-driver")]
    assert list(events_between(BEFORE, BEFORE.with_(phase=Phase.PAUSED))) == [("Normal", "Paused", "was Streaming")]
    failed = BEFORE.with_(restarts=Restarts(consecutive=1, reason="OutOfMemory", next_attempt_at="later"))
    assert list(events_between(BEFORE, failed)) == [("Warning", "OutOfMemory", "; next attempt at later")]
    stalled = with_condition(BEFORE, "Stalled", True, "PositionLost", "purged", 0.0)
    assert list(events_between(BEFORE, stalled)) == [("Warning", "PositionLost", "purged")]
    assert list(events_between(stalled, stalled)) == []


def test_a_snapshot_that_waits_for_its_source_is_posted_once() -> None:
    waits = BEFORE.with_(snapshot=SnapshotProgress(throttled="Threads_running is 9, at most 5 allowed"))
    still = BEFORE.with_(snapshot=SnapshotProgress(throttled="Threads_running is 7, at most 5 allowed"))
    shown = ("Normal", "SnapshotThrottled", "Threads_running is 9, at most 5 allowed")
    assert list(events_between(BEFORE, waits)) == [shown]
    assert list(events_between(waits, still)) == []
    assert list(events_between(still, BEFORE)) == []


def test_tables_that_come_and_go_by_themselves_are_posted_once() -> None:
    flowing = TableStatus(name="s.a", phase=TablePhase.STREAMING)
    before = BEFORE.with_(observed_generation=1, table_status=(flowing,))
    gone = TableStatus(name="s.a", phase=TablePhase.UNASSIGNED, reason="NoSuchTable", message="s.a: dropped")
    keyless = TableStatus(name="s.b", phase=TablePhase.UNASSIGNED, reason="NoPrimaryKey", message="s.b: no key")
    after = before.with_(table_status=(gone, keyless, TableStatus(name="s.c"), TableStatus(name="s.d")))
    assert list(events_between(before, after)) == [
        ("Normal", "TablesAdded", "new tables match and are read while the stream goes on: s.c, s.d"),
        ("Warning", "TablesNotCaptured", "s.a: dropped\ns.b: no key"),
    ]
    assert list(events_between(after, after)) == []
    assert list(events_between(Status(observed_generation=1), after)) == [("Normal", "Streaming", "was Pending")]
    assert list(events_between(before, after.with_(observed_generation=2))) == []


def test_a_followed_change_and_a_resnapshot_without_a_request_are_posted_once() -> None:
    flowing = TableStatus(name="s.a", phase=TablePhase.STREAMING)
    before = BEFORE.with_(table_status=(flowing,))
    schema = SchemaStatus(version=1, statement="ALTER TABLE a ADD b INT", step="reshape")
    decided = ResnapshotStatus(generation=4, reason="SchemaChangeRefused", message="s.a: ALTER", at=("now",))
    followed = before.with_(table_status=(flowing.model_copy(update={"schema_": schema}),))
    assert list(events_between(before, followed)) == [
        ("Normal", "SchemaChanged", "s.a: reshape: ALTER TABLE a ADD b INT")
    ]
    again = before.with_(table_status=(flowing.model_copy(update={"resnapshot": decided}),))
    assert list(events_between(before, again)) == [("Normal", "Resnapshotting", "as generation 4: s.a: ALTER")]
    assert list(events_between(again, again)) == []
    given_up = decided.model_copy(update={"generation": 0})
    after = before.with_(table_status=(flowing.model_copy(update={"resnapshot": given_up}),))
    assert list(events_between(again, after)) == []


def test_tables_that_go_on_on_another_server_are_posted_with_both() -> None:
    """A resnapshot on the other server is no move."""

    def on(server: str, generation: int = 0, name: str = "s.a") -> TableStatus:
        position = StatusPosition(binlog=server, file="b.000001", offset=4)
        return TableStatus(name=name, phase=TablePhase.STREAMING, position=position, generation=generation)

    before = BEFORE.with_(table_status=(on("mysql:a"), on("mysql:a", name="s.b")))
    after = before.with_(table_status=(on("mysql:b"), on("mysql:b", 1, "s.b")))
    assert list(events_between(before, after)) == [
        ("Normal", "SourceChanged", "the server of mysql:b is proved to lead on from that of mysql:a: s.a")
    ]
    assert list(events_between(after, after)) == []


def turned(kind: str, reason: str, message: str = "", *, value: bool = False) -> list[tuple[str, str, str]]:
    """What is posted when this condition turns, from what it was before: True, or False."""
    before = with_condition(BEFORE, kind, not value, "Streaming", "", 0.0)
    return list(events_between(before, with_condition(before, kind, value, reason, message, 1.0)))


def test_ready_and_consistent_are_posted_where_they_turn() -> None:
    assert turned("Ready", "Streaming", "all", value=True) == [("Normal", "Ready", "all")]
    assert turned("Consistent", "Consistent", "all", value=True) == [("Normal", "Consistent", "all")]
    assert turned("Consistent", "CatchingUp", "1 of 2") == [("Normal", "NotConsistent", "1 of 2")]
    assert turned("Ready", "SourceSilent", "for 61 s") == [("Warning", "SourceSilent", "for 61 s")]
    assert turned("Ready", "SinkSlow", "for 61 s") == [("Warning", "SinkSlow", "for 61 s")]
    assert turned("Ready", "RollingOut", "image") == [("Normal", "RollingOut", "image")]
    silent = with_condition(BEFORE, "Ready", False, "SourceSilent", "for 61 s", 0.0)
    assert list(events_between(silent, with_condition(silent, "Ready", False, "SourceSilent", "for 71 s", 1.0))) == []


def test_a_missing_secret_is_posted_once_although_runs_go_on() -> None:
    assert turned("SourceReady", "SpecInvalid", "no Secret login") == [("Warning", "SpecInvalid", "no Secret login")]
    missing = with_condition(BEFORE, "SourceReady", False, "SpecInvalid", "no Secret login", 0.0)
    assert (
        list(
            events_between(
                missing, with_condition(missing, "SourceReady", False, "SpecInvalid", "no Secret login", 1.0)
            )
        )
        == []
    )


def test_the_event_of_a_phase_has_no_text_of_a_fault() -> None:
    """That has an event of its own, a warning."""
    failing = with_condition(BEFORE.with_(phase=Phase.PENDING), "Ready", False, "SourceUnreachable", "no answer", 0.0)
    assert list(events_between(BEFORE, failing)) == [("Normal", "Pending", "was Streaming")]


def test_names_are_escaped() -> None:
    before = BEFORE.with_(table_status=(TableStatus(name="s.a", phase=TablePhase.STREAMING),))
    after = before.with_(table_status=(*before.table_status, TableStatus(name="s.\x1b[31m\nremedy: x")))
    ((_, _, message),) = events_between(before, after)
    assert message.endswith("goes on: s.\\x1b[31m\\nremedy: x")


def test_the_end_of_a_verification_is_posted_once() -> None:
    running = BEFORE.with_(verification=VerificationStatus(nonce=2, state=VerificationState.RUNNING))
    different = VerificationStatus(
        nonce=2, state=VerificationState.DIFFERENT, total=2, equal=1, message="s.a differs: 3 different of 9 rows"
    )
    ended = BEFORE.with_(verification=different)
    words = "request 2: 1 of 2 tables equal the source\ns.a differs: 3 different of 9 rows"
    assert list(events_between(running, ended)) == [("Warning", "VerificationDifferent", words)]
    assert list(events_between(ended, ended)) == list(events_between(BEFORE, ended)) == []
