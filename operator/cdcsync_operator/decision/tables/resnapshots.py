"""Resnapshots that follow without the user's request: of tables that stopped at a change of their
definition which cannot be followed, and of tables whose position is lost.

Theory of operation. A stop that a resnapshot fixes becomes a decision in the table's status: the
next generation, and why. The table waits (`Pending`) until a preflight that was asked for after the
decision has read its definition; then a snapshot run stages the new generation beside the old
content, and from there on it is a resnapshot like one that the user asked for.

Why it is right: the decision is written before anything is done for it, so an operator that dies
finds it again; a status that is lost loses it, and the run that meets the same stop brings it back.
The number of the generation is above all that the status knows, so what was staged under another
definition is never continued. It is bounded: at most three decisions an hour for each table, and
none for a table that is larger than its policy allows; then the user is asked. A migration is often
several statements in a row: a stop within five minutes of the last decision, before that resnapshot
has read any split, counts as the same decision. Rows that are not as the catalog describes them,
and are found so again behind the resnapshot that was to cure it, are a property of the table: it
stops with that reason, and is not read again by itself. Pure.
"""

from __future__ import annotations

import json

from cdcsync_core.errors import Reason, message_parts
from cdcsync_core.remedies import resnapshot
from cdcsync_core.resource.spec import Spec
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.table_status import ResnapshotStatus, TableStatus
from cdcsync_core.stops import is_of_definition
from cdcsync_core.timestamps import unix_time, utc
from cdcsync_operator.decision.needs import asked
from cdcsync_operator.decision.observed import PreflightResult
from cdcsync_operator.decision.situation import Situation

#: decisions for one table within `PERIOD` seconds
MAX_DECISIONS = 3
PERIOD = 3600.0
#: how long a decision counts for the stops that follow it, in seconds
SETTLING = 300.0

_CHANGED, _LOST = Reason.SCHEMA_CHANGE_REFUSED.value, Reason.POSITION_LOST.value
_DIVERGED = Reason.HISTORY_DIVERGED.value


def resnapshot_fixes(spec: Spec, table: str, reason: str) -> bool:
    """Whether a stop for this reason is fixed by a resnapshot without the user."""
    if reason == _LOST:
        return spec.on_position_lost == "resnapshot"
    if reason == _DIVERGED:
        return spec.source.lost_tail == "resnapshot" and not _keeps_events(spec)
    return reason == _CHANGED and spec.schema_change_of(table).resnapshots and not _keeps_events(spec)


def _keeps_events(spec: Spec) -> bool:
    """A target whose rows are events would lose the previous ones."""
    return spec.sink.kind.keeps_events


def awaits(spec: Spec, table: TableStatus) -> bool:
    """Whether a resnapshot was decided that no run has begun yet."""
    decided = table.resnapshot
    if table.phase is not TablePhase.PENDING or decided is None or spec.nonce(table.name) > table.nonce:
        return False
    return decided.generation == asked(spec, table) > table.generation


# ---- what a stop becomes


def decide_resnapshots(s: Situation) -> Situation:
    """Lets the tables that runs have stopped, and that a resnapshot fixes, wait for one.

    A change of the definition that stopped a table before the resource changed may be followed
    under the new policy: the next run meets it again, and decides.
    """
    met = [t for t in s.assigned if t.failed and t.run and not (s.changed and t.reason == _CHANGED)]
    stopped = [t for t in met if resnapshot_fixes(s.spec, t.name, t.reason)]
    asking = [t for t in met if _is_to_ask(s.spec, t)]
    why = _HISTORY if _keeps_events(s.spec) else _BY_POLICY
    return s.with_tables([*(_decided(s, t) for t in stopped), *(_asking(t, why) for t in asking)])


_BY_POLICY = "spec.schemaChange.resnapshot is ask"
_HISTORY = "it begins the history again"


def _is_to_ask(spec: Spec, table: TableStatus) -> bool:
    policy = spec.schema_change_of(table.name)
    asks = policy.resnapshot == "ask" or _keeps_events(spec)
    return table.reason == _CHANGED and policy.behavior == "evolve" and asks


def _decided(s: Situation, table: TableStatus) -> TableStatus:
    if _comes_again(table):
        return _incurable(table)
    recent = tuple(t for t in (table.resnapshot.at if table.resnapshot else ()) if _is_recent(t, s.now))
    settling = bool(recent) and _is_recent(recent[-1], s.now, SETTLING) and _is_unread(table)
    if len(recent) >= MAX_DECISIONS and not settling:
        return _asking(table, f"it was resnapshotted {len(recent)} times within an hour")
    decided = ResnapshotStatus(
        generation=max(asked(s.spec, table), table.generation) + 1,
        reason=table.reason,
        message=table.message,
        at=recent if settling else (*recent, utc(s.now)),
    )
    waiting = {"phase": TablePhase.PENDING, "reason": "", "message": ""}
    return table.model_copy(update=waiting | {"resnapshot": decided})


def _comes_again(table: TableStatus) -> bool:
    """Whether the stop is the one that its last resnapshot was to cure."""
    decided = table.resnapshot
    if decided is None or table.generation < decided.generation:
        return False
    before, now = message_parts(decided.message), message_parts(table.message)
    same = (now["found"], now["needed"]) == (before["found"], before["needed"])
    return table.reason == decided.reason and same and is_of_definition(now["found"])


def _incurable(table: TableStatus) -> TableStatus:
    """Stopped for its own reason; what was decided stays, by which the stop is known again."""
    parts = message_parts(table.message)
    message = f"{parts['found']}; needed: {parts['needed']}; remedy: {_UNLIKE_CATALOG}, then {resnapshot(table.name)}"
    return table.model_copy(update={"message": message})


_UNLIKE_CATALOG = (
    "a resnapshot met the same: leave out the column (spec.tables.overrides[].columns.exclude) or the table"
    " (spec.tables.exclude), or define it in another way on the source"
)


def _is_recent(stamp: str, now: float, period: float = PERIOD) -> bool:
    at = unix_time(stamp)
    return at is not None and now - at < period


def _is_unread(table: TableStatus) -> bool:
    """Whether no split of the generation that was decided last is finished."""
    decided = table.resnapshot.generation if table.resnapshot else 0
    return table.generation < decided or (table.generation == decided and not table.finished)


def _asking(table: TableStatus, why: str) -> TableStatus:
    """Stopped until the user acts: the remedy is the one of a sync that resnapshots nothing by
    itself. A table whose position is lost, or that has diverged, keeps that reason.

    No decision is left, so that a change of the resource begins with what the target has: the run
    that meets the stop again brings the question up under the policy that there is by then.
    """
    decided = table.resnapshot or ResnapshotStatus()
    reason, message = (table.reason, table.message) if table.failed else (decided.reason, decided.message)
    asking = Reason(reason) if reason in (_LOST, _DIVERGED) else Reason.SCHEMA_CHANGE_PENDING
    problem = message_parts(message)["found"]
    update = {
        "phase": TablePhase.FAILED,
        "reason": asking.value,
        "message": f"{problem}; needed: a resnapshot, which waits for you because {why}; remedy: {resnapshot(table.name)}",
        "resnapshot": ResnapshotStatus(at=decided.at),
    }
    return table.model_copy(update=update)


# ---- what a preflight finds of them


def prompt_of(spec: Spec, tables: tuple[TableStatus, ...]) -> str:
    """The resnapshots that wait for a definition, as the last line of what a preflight is asked
    with; empty where none does."""
    waiting = sorted((t.name, t.resnapshot.generation) for t in tables if t.resnapshot and awaits(spec, t))
    return json.dumps(waiting) if waiting else ""


def _read_since(preflight: PreflightResult | None) -> frozenset[tuple[str, int]]:
    """The decisions that a preflight knew when it was asked for, by table and generation; none
    where it did not pass."""
    if preflight is None or preflight.failures:
        return frozenset()
    _, _, waiting = preflight.prompt.rpartition("\n")
    return frozenset((name, generation) for name, generation in (json.loads(waiting) if waiting else []))


def _decision(table: TableStatus) -> tuple[str, int]:
    return table.name, table.resnapshot.generation if table.resnapshot else 0


def waiting_for_definition(s: Situation) -> frozenset[str]:
    """The tables that no snapshot run may begin yet."""
    awaiting = [t for t in s.assigned if awaits(s.spec, t)]
    read = _read_since(s.preflight) if awaiting else frozenset()
    return frozenset(t.name for t in awaiting if _decision(t) not in read)


def refuse_large(s: Situation) -> Situation:
    """Makes the tables ask that are larger than their policy allows. A position that is lost has
    no such bound: the sync's user has decided for all tables."""
    awaiting = [t for t in s.assigned if awaits(s.spec, t)]
    if not awaiting:
        return s
    rows = {t.name: t.rows for t in s.preflight.tables} if s.preflight else {}
    read = _read_since(s.preflight)
    large = [t for t in awaiting if _decision(t) in read and _is_large(s, t, rows)]
    return s.with_tables([_too_large(s, t, rows[t.name]) for t in large])


def _is_large(s: Situation, table: TableStatus, rows: dict[str, int]) -> bool:
    assert table.resnapshot is not None
    bounded = table.resnapshot.reason == _CHANGED
    return bounded and rows.get(table.name, 0) > s.spec.schema_change_of(table.name).resnapshot_max_rows


def _too_large(s: Situation, table: TableStatus, rows: int) -> TableStatus:
    most = s.spec.schema_change_of(table.name).resnapshot_max_rows
    return _asking(table, f"it has about {rows} rows and spec.schemaChange.resnapshotMaxRows is {most}")
