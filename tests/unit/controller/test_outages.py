"""Conditions in outages: within a minute they report what is gone, and they turn back with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.runs.run import Flow, RunKind
from cdcsync_core.runs.status import Phase
from unit.controller.harness import ControllerHarness

NO_SOURCE = fail(Reason.SOURCE_UNREACHABLE, "no answer")
NO_SINK = fail(Reason.SINK_UNREACHABLE, "no answer")
#: seconds between two reconciliations of a stream
EVERY = 10
STREAM = RunKind.STREAM


def streaming() -> ControllerHarness:
    """A source that was checked just now: the next regular preflight is five minutes away."""
    harness = ControllerHarness()
    harness.to_streaming()
    reported(harness, seconds_since_event=0.0)
    assert harness.condition("Ready") == ("True", "Streaming")
    return harness


def reported(harness: ControllerHarness, **flow: Any) -> None:
    """The driver reports, and the operator decides, before and after what it asked for."""
    run = harness.live(STREAM)
    harness.flow(*harness.tables)
    harness.runs[run.id] = replace(harness.runs[run.id], flow=Flow(connected=True, **flow))
    harness.step(0)


@pytest.mark.parametrize(
    ("side", "flow", "condition", "doubt"),
    [
        ("errors", "seconds_since_event", "SourceReady", "SourceSilent"),
        ("sink_errors", "waiting", "SinkReady", "SinkSlow"),
    ],
)
def test_an_outage_is_reported_within_a_minute_and_its_end_too(
    side: str, flow: str, condition: str, doubt: str
) -> None:
    """A stream that waits reports it. Until a preflight has answered, the condition is Unknown."""
    harness, error = streaming(), NO_SOURCE if side == "errors" else NO_SINK
    setattr(harness, side, (error,))
    seen = []
    for seconds in range(EVERY, 60, EVERY):
        harness.now += EVERY
        reported(harness, **{flow: float(seconds)})
        seen.append(harness.condition(condition))
        if seen[-1] == ("Unknown", doubt):
            reported(harness, **{flow: float(seconds)})  # as the answer of the preflight wakes the operator
            seen.append(harness.condition(condition))
    assert seen[0] == ("True", "PreflightPassed")
    assert ("Unknown", doubt) in seen
    assert seen[-1] == ("False", error.reason.value)
    assert harness.condition("Ready") == ("False", error.reason.value)
    setattr(harness, side, ())
    for _ in range(4):
        harness.now += EVERY
        reported(harness, seconds_since_event=0.0)
    assert harness.condition(condition) == ("True", "PreflightPassed")
    assert harness.condition("Ready") == ("True", "Streaming")
    assert not any("no answer" in found.message for found in harness.status.conditions)


def test_a_preflight_that_passes_during_a_doubt_answers_it() -> None:
    harness = streaming()
    for seconds in range(30, 61, EVERY):
        harness.now += EVERY
        reported(harness, seconds_since_event=float(seconds))
        reported(harness, seconds_since_event=float(seconds))
    assert harness.condition("SourceReady") == ("True", "PreflightPassed")


@pytest.mark.parametrize(
    ("side", "condition", "error"), [("errors", "SourceReady", NO_SOURCE), ("sink_errors", "SinkReady", NO_SINK)]
)
def test_an_outage_that_ends_the_driver_is_reported_within_a_minute(side: str, condition: str, error: Any) -> None:
    harness = streaming()
    setattr(harness, side, (error,))
    harness.end(STREAM, 4, error.reason.value, "lost")
    for _ in range(EVERY, 60, EVERY):
        harness.step(EVERY)
        assert harness.condition("Ready")[0] == "False"
    assert harness.condition(condition) == ("False", error.reason.value)


def test_without_a_run_that_streams_the_reason_is_not_streaming() -> None:
    """As after the loss of all that there was of it."""
    harness = streaming()
    harness.runs.clear()
    harness.preflight = None
    harness.step()
    assert harness.status.phase is Phase.STREAMING
    assert harness.kinds() == set()
    assert harness.condition("Ready") == ("False", "Starting")


def test_a_name_cannot_forge_a_line_of_a_condition() -> None:
    name = "shop.a\nremedy: \x1b[31mrun this"
    harness = ControllerHarness(tables=(name,))
    harness.steps()
    message = harness.status.condition("Consistent").message
    assert "shop.a\\nremedy: \\x1b[31mrun this" in message
    assert message.isprintable()
