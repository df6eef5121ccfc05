"""Whether data flows through the live stream, and if not, why. Pure.

Why it is right: what counts is what the driver observed itself: when something came from the
source, and for how long what came has waited for its commit. That is judged as of the driver's
report, because between two reports nothing more is known; a driver that does not report is a reason
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.resource.spec import Spec
from cdcsync_core.runs.run import Flow, RunKind
from cdcsync_operator.decision.observed import ObservedRun, RunState

STARTING, SILENT, SOURCE_SILENT, SINK_SLOW = "Starting", "Silent", "SourceSilent", "SinkSlow"
#: seconds beside three of its intervals after which a stream that does not report does not count as
#: flowing
_SILENCE = 30.0
#: seconds without a report after which the driver of a stream counts as lost; it reports every ten
#: seconds, whatever its interval
_LOST = 600.0
#: seconds beside the stream's interval for which a received change may wait for its commit
_COMMIT = 60.0
#: seconds beside a heartbeat, and beside the stream's interval, after which source and sink are in
#: doubt: within a minute of an outage their conditions are to report it
_DOUBTED = 5.0
_SLOW = 20.0


def source_bound(heartbeat: float) -> float:
    """Seconds without an event or heartbeat after which the source counts as silent: two heartbeats
    are missing then."""
    return max(2 * heartbeat, heartbeat + 10)


def sink_bound(interval: float) -> float:
    """Seconds for which a received change may wait for its commit."""
    return _COMMIT + interval


@dataclass(frozen=True)
class Doubt:
    """Why source or sink, ready by the last preflight, may be so no more; `since` is a unix
    time."""

    reason: str
    message: str
    since: float


def source_doubt(spec: Spec, stream: ObservedRun | None) -> Doubt | None:
    """One heartbeat is missing."""
    if stream is None or stream.reported_at is None or stream.flow is None or stream.flow.seconds_since_event is None:
        return None
    over = stream.flow.seconds_since_event - spec.source.heartbeat_interval - _DOUBTED
    if over <= 0:
        return None
    message = f"the source has sent nothing for {show_seconds(stream.flow.seconds_since_event)}; it is checked again"
    return Doubt(SOURCE_SILENT, message, stream.reported_at - over)


def sink_doubt(spec: Spec, stream: ObservedRun | None) -> Doubt | None:
    """A commit takes longer than most."""
    if stream is None or stream.reported_at is None or stream.flow is None:
        return None
    over = stream.flow.waiting - spec.stream.interval - _SLOW
    if over <= 0:
        return None
    message = f"changes have waited {show_seconds(stream.flow.waiting)} for their commit; the sink is checked again"
    return Doubt(SINK_SLOW, message, stream.reported_at - over)


def flow_problem(spec: Spec, stream: ObservedRun, now: float) -> tuple[str, str] | None:
    """Reason and message of why data does not flow; None where it does."""
    if stream.reported_at is None:
        return STARTING, "the stream's driver has not reported yet"
    age = now - stream.reported_at
    if age > _SILENCE + 3 * spec.stream.interval:
        return SILENT, f"the stream's driver has not reported for {show_seconds(age)}"
    return None if stream.flow is None else _obstacle_of(spec, stream.flow)


def is_lost(run: ObservedRun, silent: float) -> bool:
    """Whether a driver that lives, and has not reported for so many seconds, hangs. Data has flowed
    in it: before, and where a stream has an end, it may work for long without a report."""
    flows = run.kind is RunKind.STREAM and run.state is RunState.RUNNING and run.flow is not None
    return flows and not run.stop_at and silent >= _LOST


def _obstacle_of(spec: Spec, flow: Flow) -> tuple[str, str] | None:
    if flow.waiting > sink_bound(spec.stream.interval):
        return (
            SINK_SLOW,
            f"changes that were received have waited {show_seconds(flow.waiting)} for their commit to the sink",
        )
    heartbeat = spec.source.heartbeat_interval
    if flow.seconds_since_event is not None and flow.seconds_since_event > source_bound(heartbeat):
        due = f"a heartbeat is due every {show_seconds(heartbeat)}"
        return SOURCE_SILENT, f"the source has sent nothing for {show_seconds(flow.seconds_since_event)}; {due}"
    if not flow.connected:
        return STARTING, "the stream's driver has received nothing from the source yet"
    return None
