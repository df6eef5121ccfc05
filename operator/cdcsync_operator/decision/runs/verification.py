"""What becomes of a request to verify (`spec.verify`): when its run is wanted, and what it found.

Theory of operation. A nonce that is larger than that of the last request makes a new one, which
waits until its tables are read, and then has a run of its own beside the others. The run reports
one result for each table (`tableStatus[].verified`); the request ends when all have one. Why it is
right: a request is equal only if each of its tables was found equal for this very nonce by the run
that ended (when it began, earlier results lost their nonce), so neither an earlier result, nor a
table that the run left out, nor a run that died counts as one. A run that was asked to stop, or was
made for another request, answers nothing.
Failures of such a run are counted here and nowhere else, so they hold back no run that copies. What
was found to differ stays with its table until it is found equal or has another content. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_core.quoting import visible
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.runs.status import Phase, RunRef, shown_message
from cdcsync_core.runs.status_part import Restarts
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.runs.verification_status import VerificationState, VerificationStatus, VerifiedResult, VerifiedStatus
from cdcsync_core.timestamps import utc
from cdcsync_operator.decision import restart
from cdcsync_operator.decision.needs import Generations, is_read
from cdcsync_operator.decision.observed import Exit, ObservedRun
from cdcsync_operator.decision.situation import Situation

#: runs of one request that may fail in a row, whatever `spec.autoRestart` allows: each reads tables
_MOST_FAILURES = 5
_SHOWN = 5
_LOST = Exit(ExitCode.RETRY, "DriverLost", "no trace of a driver that was there")


# ---- the request


def take_request(s: Situation) -> Situation:
    """Begins a request whose nonce is new; forgets one that was taken back before it ended."""
    nonce, recorded = s.spec.verify.nonce, s.status.verification
    if nonce > (recorded.nonce if recorded else 0):
        return s.with_status(verification=VerificationStatus(nonce=nonce))
    if recorded is not None and not recorded.state.final and nonce != recorded.nonce:
        return s.with_status(verification=None)
    return s


def tables_to_verify(s: Situation) -> tuple[Generations, str]:
    """The tables of a request that waits, once all of them are read."""
    recorded = s.status.verification
    if recorded is None or recorded.state.final or restart.wait_left(recorded.restarts, s.now):
        return (), ""
    tables = _requested(s)
    ready = all(t.failed or is_read(s.spec, t) for t in tables)
    return tuple((t.name, t.generation) for t in tables) if ready else (), ""


def _requested(s: Situation) -> list[TableStatus]:
    return [t for t in s.assigned if s.spec.verify.includes(t.name)]


def without_results(tables: Iterable[TableStatus]) -> list[TableStatus]:
    """The tables of a verification that begins: earlier results answer no request any more."""
    return [t.model_copy(update={"verified": t.verified.model_copy(update={"nonce": 0})}) for t in tables if t.verified]


# ---- what its run makes of it


def record_verification(s: Situation) -> Situation:
    """Takes the end of a verification's run."""
    ref, run = s.status.runs.get(RunKind.VERIFY), s.named(RunKind.VERIFY)
    if ref is None or (run is not None and run.live):
        return s
    cleared = s.with_status(runs=s.status.runs.put(RunKind.VERIFY, None))
    recorded = s.status.verification
    if recorded is None or recorded.state.final:
        return cleared
    return cleared.with_status(verification=_ended(s, recorded, ref, run))


def _ended(s: Situation, recorded: VerificationStatus, ref: RunRef, run: ObservedRun | None) -> VerificationStatus:
    if (run is None and not ref.report) or (run is not None and run.stop_asked):
        return recorded  # it waits for another run: this one was never made, or had another spec
    outcome = (run.exit if run else None) or _LOST
    if run is None:
        return _after_failure(s, recorded, outcome)
    tables = [t for t in s.assigned if t.name in run.names]
    results = {t.name: t.verified for t in tables if t.verified and t.verified.nonce}
    if any(result.nonce != recorded.nonce for result in results.values()):
        return recorded  # it was made for another request
    if outcome.code == ExitCode.DONE or (tables and len(results) == len(tables)):
        return _concluded(s, recorded, run, results)  # however the run ended
    return _after_failure(s, recorded, outcome)


Results = dict[str, VerifiedStatus]


def _concluded(s: Situation, recorded: VerificationStatus, run: ObservedRun, of_run: Results) -> VerificationStatus:
    """A table of the run without a result of it counts as not compared, also one that has left the
    sync."""
    results = list(of_run.values())
    total, equal = len(run.names), sum(r.result is VerifiedResult.EQUAL for r in results)
    different = sum(r.result is VerifiedResult.DIFFERENT for r in results)
    state = VerificationState.EQUAL if total and equal == total else VerificationState.INCOMPLETE
    return recorded.model_copy(
        update={
            "state": VerificationState.DIFFERENT if different else state,
            "finished_at": utc(s.now),
            "total": total,
            "equal": equal,
            "different": different,
            "not_compared": total - equal - different,
            "rows": sum(r.source_rows for r in results),
            "differences": sum(r.differences for r in results),
            "message": shown_message(_exceptions([t for t in s.assigned if t.name in run.names], of_run)),
            "restarts": Restarts(),
        }
    )


def _exceptions(tables: Iterable[TableStatus], results: Results) -> str:
    """The tables that were not found equal, those that differ first."""
    verdicts = {t.name: results[t.name].result if t.name in results else None for t in tables}
    unequal = [name for name, verdict in verdicts.items() if verdict is not VerifiedResult.EQUAL]
    unequal.sort(key=lambda name: (verdicts[name] is not VerifiedResult.DIFFERENT, name))
    more = [f"and {len(unequal) - _SHOWN} more tables"] if len(unequal) > _SHOWN else []
    return "\n".join([*(_words(name, results.get(name)) for name in unequal[:_SHOWN]), *more])


def _words(table: str, verified: VerifiedStatus | None) -> str:
    if verified is None:
        return f"{visible(table)} was not compared: its run had no definition of it"
    if verified.result is VerifiedResult.DIFFERENT:
        return f"{visible(table)} differs: {differing_keys(verified)}"
    return f"{visible(table)} was not compared: {verified.message}"


def differing_keys(verified: VerifiedStatus) -> str:
    """Counts of a table's keys, in words."""
    counts = (
        (verified.missing, "missing in the target"),
        (verified.extra, "extra in the target"),
        (verified.different, "different"),
        (verified.duplicate, "more than once in the target"),
    )
    keys = ", ".join(f"{count:,} {how}" for count, how in counts if count)
    return f"{keys} of {verified.source_rows:,} rows"


def _after_failure(s: Situation, recorded: VerificationStatus, outcome: Exit) -> VerificationStatus:
    """How long the run lasted does not matter: one that reads for hours and then fails may do so
    each time."""
    policy, failure = s.spec.auto_restart, (outcome.reason or _LOST.reason, outcome.message)
    restarts = restart.after_failure(policy, recorded.restarts, failure, 0.0, s.now)
    permanent = outcome.code in (ExitCode.USER_MUST_ACT, ExitCode.USAGE)
    if not permanent and restarts.consecutive < _MOST_FAILURES and not restart.exhausted(policy, restarts):
        return recorded.model_copy(update={"restarts": restarts})
    ended = {"state": VerificationState.FAILED, "finished_at": utc(s.now), "message": ": ".join(failure)}
    return recorded.model_copy(update=ended | {"restarts": restarts.model_copy(update={"next_attempt_at": None})})


# ---- what is shown of one that has not ended


def show_progress(s: Situation) -> Situation:
    """Sets the state of a request that has not ended, and why it waits."""
    recorded, ref = s.status.verification, s.status.runs.get(RunKind.VERIFY)
    if recorded is None or recorded.state.final:
        return s
    requested = _requested(s) if ref is None else []
    if ref is None and s.preflight_passed and not requested:
        none = {"state": VerificationState.INCOMPLETE, "finished_at": utc(s.now), "message": _NO_TABLE}
        return s.with_status(verification=recorded.model_copy(update=none))
    state = VerificationState.PENDING if ref is None else VerificationState.RUNNING
    begun = {"started_at": ref.started_at if ref else recorded.started_at, "state": state}
    return s.with_status(
        verification=recorded.model_copy(
            update=begun | {"message": shown_message(_waiting_for(s, recorded, requested))}
        )
    )


_NO_TABLE = "found no table of this sync that spec.verify.tables matches; needed: at least one"


def _waiting_for(s: Situation, recorded: VerificationStatus, requested: list[TableStatus]) -> str:
    """Empty where its run is at work."""
    run = s.named(RunKind.VERIFY)
    if run is not None and run.stop_asked:
        return "the run of another request, or of an earlier spec, has to end first"
    if run is not None:
        return run.waiting[1]
    if s.status.runs.get(RunKind.VERIFY) is not None:
        return ""
    return _held_back_by_sync(s) or _own_failure(recorded) or _unread(s, requested) or "its run has not begun"


def _held_back_by_sync(s: Situation) -> str:
    """Why no run of such a kind begins, as `schedule.permit` decides; empty where one may."""
    preflight, restarts = s.preflight, s.status.restarts
    if s.spec.state == "paused":
        return "spec.state is paused"
    if s.observed.closing:
        return "the controller was asked to stop"
    if s.observed.refusal or s.observed.missing_secrets:
        return s.observed.refusal or "; ".join(s.observed.missing_secrets)
    if s.has_failed or s.status.phase is Phase.FAILED:
        return "the sync has failed"
    if preflight is not None and preflight.failures:
        return "\n".join(error.message for error in preflight.failures)
    if s.is_waiting:
        return f"the sync is tried again at {restarts.next_attempt_at} after {restarts.reason}: {restarts.message}"
    finished = s.status.phase is Phase.COMPLETED and not s.changed
    return "" if finished or s.preflight_passed else "source and sink are not checked yet"


def _own_failure(recorded: VerificationStatus) -> str:
    restarts = recorded.restarts
    if not restarts.reason:
        return ""
    again = f"; next attempt at {restarts.next_attempt_at}" if restarts.next_attempt_at else ""
    return f"{restarts.reason}: {restarts.message}{again}"


def _unread(s: Situation, requested: list[TableStatus]) -> str:
    unread = [t.name for t in requested if not (t.failed or is_read(s.spec, t))]
    return f"{len(unread)} tables are not read to the end" if unread else ""
