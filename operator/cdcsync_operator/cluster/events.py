"""Events of a resource, as `kubectl describe` shows them: one for each turn that a person would
want to know of.

Pure but for the poster. Events follow from the difference of two statuses, so a reconciliation
that changes nothing posts none; an event that cannot be posted is lost, because nothing depends on
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.quoting import visible
from cdcsync_core.resource.spec import API_VERSION, KIND, CdcSync
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Status, shown_message
from cdcsync_core.runs.verification_status import VerificationState
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.store import KubeStore
from cdcsync_operator.decision.data_flow import SILENT, SINK_SLOW, SOURCE_SILENT, STARTING
from cdcsync_operator.decision.observed import Decision, StopRun
from cdcsync_operator.decision.summary.conditions import ROLLING_OUT

_MAX = 1000
#: why a live stream is not ready
_FLOW = frozenset({SILENT, SINK_SLOW, SOURCE_SILENT})
_EXPECTED = frozenset({ROLLING_OUT, STARTING})
EventText = tuple[str, str, str]


def events_between(before: Status, after: Status) -> Iterator[EventText]:
    """(type, reason, message) of what changed."""
    for kind in RunKind:
        old, new = before.runs.get(kind), after.runs.get(kind)
        if new is not None and (old is None or old.id != new.id):
            yield ("Normal", "RunStarted", f"{kind.value} driver {new.pod}")
    yield from _tables(before, after)
    yield from _changed_tables(before, after)
    yield from _moved_tables(before, after)
    yield from _verifications(before, after)
    if after.snapshot.throttled and not before.snapshot.throttled:
        yield ("Normal", "SnapshotThrottled", visible(after.snapshot.throttled))
    if before.phase is not after.phase:
        yield ("Normal", after.phase.value, _words_of_phase(after) or f"was {before.phase.value}")
    stalled = after.condition("Stalled")
    was = before.condition("Stalled")
    if stalled.status == "True" and (was.status, was.message) != (stalled.status, stalled.message):
        yield ("Warning", stalled.reason, stalled.message)
    waits, waited = after.condition("Reconciling"), before.condition("Reconciling")
    if waits.message and waits.reason not in (waited.reason, after.restarts.reason):
        yield ("Warning", waits.reason, waits.message)
    if after.restarts.consecutive > before.restarts.consecutive:
        again = f"; next attempt at {after.restarts.next_attempt_at}" if after.restarts.next_attempt_at else ""
        yield ("Warning", after.restarts.reason, f"{after.restarts.message}{again}")
    yield from _turns(before, after)


def _words_of_phase(status: Status) -> str:
    """Ready's message, where that is about the phase and not about a fault."""
    ready = status.condition("Ready")
    return ready.message if ready.status == "True" or ready.reason in (status.phase.value, STARTING) else ""


def replaced(decision: Decision) -> Iterator[EventText]:
    """The runs that are drained because something else is asked for."""
    for action in decision.actions:
        if isinstance(action, StopRun) and action.why:
            yield ("Normal", "RunReplaced", f"{action.kind.value} run {action.id}: {action.why}")


def _turns(before: Status, after: Status) -> Iterator[EventText]:
    """Ready and Consistent where they turn, and why a stream that lives is not ready; Secrets that
    are missing."""
    for kind in ("Ready", "Consistent"):
        was, now = before.condition(kind), after.condition(kind)
        if now.status == "True" and was.status != "True":
            yield ("Normal", kind, now.message)
        if kind == "Consistent" and now.status == "False" and was.status == "True":
            yield ("Normal", "NotConsistent", now.message)
    was, now = before.condition("Ready"), after.condition("Ready")
    if now.status == "False" and now.reason != was.reason and now.reason in _FLOW | _EXPECTED:
        yield ("Warning" if now.reason in _FLOW else "Normal", now.reason, now.message)
    was, now = before.condition("SourceReady"), after.condition("SourceReady")
    shown = (was.message, after.condition("Stalled").message)
    if now.status == "False" and now.reason == Reason.SPEC_INVALID.value and now.message not in shown:
        yield ("Warning", now.reason, now.message)


def _tables(before: Status, after: Status) -> Iterator[EventText]:
    """Tables that appeared or disappeared by themselves; those of another spec, or of a status that
    was lost, are not reported."""
    if not before.table_status or before.observed_generation != after.observed_generation:
        return
    captured = {t.name for t in before.table_status if t.phase is not TablePhase.UNASSIGNED}
    added = [t.name for t in after.table_status if t.name not in captured and t.phase is TablePhase.PENDING]
    if added:
        yield (
            "Normal",
            "TablesAdded",
            f"new tables match and are read while the stream goes on: {', '.join(map(visible, added))}",
        )
    reasons = {t.name: t.reason for t in before.table_status if t.phase is TablePhase.UNASSIGNED}
    left = [t for t in after.table_status if t.phase is TablePhase.UNASSIGNED and t.reason]
    messages = [t.message for t in left if reasons.get(t.name) != t.reason]
    if messages:
        yield ("Warning", "TablesNotCaptured", "\n".join(messages))


def _changed_tables(before: Status, after: Status) -> Iterator[EventText]:
    """Definitions that changed and were followed, and resnapshots that were decided without the
    user; those of a status that was lost are not reported."""
    tables_before = {t.name: t for t in before.table_status}
    for table in after.table_status:
        was = tables_before.get(table.name)
        if was is None or (table.schema_, table.resnapshot) == (was.schema_, was.resnapshot):
            continue
        schema, decided = table.schema_, table.resnapshot
        if schema is not None and (was.schema_ is None or schema.change != was.schema_.change):
            yield ("Normal", "SchemaChanged", f"{visible(table.name)}: {schema.step}: {visible(schema.statement)}")
        begun = was.resnapshot.generation if was.resnapshot else 0
        if decided is not None and decided.generation > begun:
            yield ("Normal", "Resnapshotting", f"as generation {decided.generation}: {decided.message}")


def _moved_tables(before: Status, after: Status) -> Iterator[EventText]:
    """Tables that go on on another server with the content that they had, by servers: only a proof
    moves a table."""
    binlogs_before = {t.name: (t.generation, t.position.binlog if t.position else "") for t in before.table_status}
    moves: dict[tuple[str, str], list[str]] = {}
    for table in after.table_status:
        generation, was = binlogs_before.get(table.name, (-1, ""))
        now = table.position.binlog if table.position else ""
        if was and now and was != now and generation == table.generation:
            moves.setdefault((was, now), []).append(visible(table.name))
    for (was, now), names in moves.items():
        proved = f"the server of {now} is proved to lead on from that of {was}"
        yield ("Normal", "SourceChanged", f"{proved}: {', '.join(names)}")


_VERIFICATIONS = {
    VerificationState.EQUAL: "VerificationEqual",
    VerificationState.DIFFERENT: "VerificationDifferent",
    VerificationState.INCOMPLETE: "VerificationIncomplete",
    VerificationState.FAILED: "VerificationFailed",
}


def _verifications(before: Status, after: Status) -> Iterator[EventText]:
    """The end of a verification; one that a status which was lost does not know of is not
    reported."""
    was, now = before.verification, after.verification
    if was is None or now is None or not now.state.final or (was.nonce, was.state) == (now.nonce, now.state):
        return
    equal = now.state is VerificationState.EQUAL
    words = f"request {now.nonce}: {now.equal} of {now.total} tables equal the source"
    yield (
        "Normal" if equal else "Warning",
        _VERIFICATIONS[now.state],
        "\n".join(filter(None, (words, now.message))),
    )


@dataclass
class EventPoster:
    api: Api
    identity: str

    def post_changes(self, resource: CdcSync, before: Status, decision: Decision) -> None:
        about = resource.metadata
        for kind, reason, message in (*replaced(decision), *events_between(before, decision.status)):
            self._post(about.namespace, about.name, about.uid, (kind, reason, message))

    def refused(self, store: KubeStore, error: CdcError) -> None:
        self._post(store.namespace, store.name, "", ("Warning", error.reason.value, error.message))

    def unreadable(self, store: KubeStore, error: ApiError) -> None:
        """The sync, or an object of it, is left alone until it can be read."""
        self._post(store.namespace, store.name, "", ("Warning", "Unreadable", error.message))

    def _post(self, namespace: str, name: str, uid: str, text: EventText) -> None:
        now = datetime.now(UTC)
        stamp = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
        kind, reason, message = text
        about = {"apiVersion": API_VERSION, "kind": KIND, "namespace": namespace, "name": name}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}-", "namespace": namespace},
            "involvedObject": about | ({"uid": uid} if uid else {}),
            "type": kind,
            "reason": reason,
            "message": shown_message(message)[:_MAX],
            "firstTimestamp": f"{stamp[:19]}Z",
            "lastTimestamp": f"{stamp[:19]}Z",
            "count": 1,
            "source": {"component": "cdcsync"},
            "reportingComponent": "cdcsync.io/operator",
            "reportingInstance": self.identity,
        }
        with suppress(ApiError):
            self.api.create(f"/api/v1/namespaces/{namespace}/events", body)
