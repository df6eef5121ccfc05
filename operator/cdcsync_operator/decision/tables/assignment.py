"""The tables of a sync: which ones it has taken on, and of which run they are.

Why it is right: the set of tables is recorded in the status. It is resolved when the resource
changes; a table that appears later joins it if it can be captured (`spec.tables.newTables`), and
one that the user dropped leaves it, so neither stalls the sync. What becomes of a table follows
from its own entry, from what the source has and from what the resource asks for, never from another
table (rule R5). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.spec import Spec
from cdcsync_core.runs.run import RunKind, TableAssignment, TablePhase
from cdcsync_core.runs.status import Status, only_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.tables.capture import Capture
from cdcsync_operator.decision.needs import asked as generation_asked
from cdcsync_operator.decision.observed import ObservedRun, ObservedTable
from cdcsync_operator.decision.tables.shared_targets import shared_targets
from cdcsync_operator.decision.tables.side_tables import side_table_error


def resolve(
    spec: Spec,
    status: Status,
    observed: Iterable[ObservedTable],
    *,
    asked: bool,
    appeared: bool,
    busy: Collection[tuple[str, str]] = (),
) -> Status:
    """Takes the tables of a preflight.

    `asked`: the user has just asked for what matches, so all of it is taken. `appeared`: a table
    that has appeared since then is taken, too, if it can be captured; else it is shown as
    unassigned. `busy`: tables that were locked when a run met them, and were asked for again since
    that run ended. What becomes of tables that are gone depends on what the sync has of them.
    """
    recorded = {t.name: t for t in status.table_status}
    there = {t.name: t for t in observed}
    for name, error in shared_targets(spec.sink, recorded, there).items():
        if name in there and there[name].error is None:
            there[name] = replace(there[name], error=error)
    entries = [
        _beside(spec, recorded.get(name), name, there)
        or _merge_observed(recorded.get(name), table, asked, appeared, busy)
        for name, table in there.items()
        if not (_is_gone(table) and name in recorded)
    ]
    gone = [recorded[name] for name in sorted(recorded) if name not in there or _is_gone(there[name])]
    left = [_without_source(spec, t, asked=asked) for t in gone if spec.tables.selection.captures(t.name)]
    return only_tables(status, [*entries, *(t for t in left if t is not None)])


def _is_gone(observed: ObservedTable) -> bool:
    return observed.error is not None and observed.error.reason is Reason.NO_SUCH_TABLE


def _beside(
    spec: Spec, recorded: TableStatus | None, name: str, matching: Mapping[str, ObservedTable]
) -> TableStatus | None:
    """A table of an online schema changer, which is not captured; one that is captured stays so."""
    if recorded is not None and recorded.phase is not TablePhase.UNASSIGNED:
        return None
    error = side_table_error(spec.tables.selection, name, matching)
    return unassigned(TableStatus(name=name), error) if error else None


def _merge_observed(
    recorded: TableStatus | None,
    observed: ObservedTable,
    asked: bool,
    appeared: bool,
    busy: Collection[tuple[str, str]],
) -> TableStatus:
    if recorded is None or recorded.phase is TablePhase.UNASSIGNED:
        late = appeared and (not asked or (recorded is not None and recorded.reason != ""))
        if late and observed.error is not None:
            return unassigned(TableStatus(name=observed.name), observed.error)
        phase = TablePhase.PENDING if asked or appeared else TablePhase.UNASSIGNED
        recorded = TableStatus(name=observed.name, phase=phase, appeared=appeared and not asked)
    if observed.error is not None and recorded.phase is TablePhase.PENDING:
        return refused(recorded, observed.error)
    if _was_refused(recorded, busy):  # this preflight decides again
        pending = recorded.model_copy(update={"phase": TablePhase.PENDING, "reason": "", "message": ""})
        return pending if observed.error is None else refused(pending, observed.error)
    return recorded


def assigning(spec: Spec, status: Status) -> Callable[[Capture, int], TableAssignment]:
    """Makes what a run gets of a table and its generation. A table that appeared is read: what it
    had before it was met is nowhere else."""
    appeared = frozenset(t.name for t in status.table_status if t.appeared)
    copied = frozenset(t.name for t in status.table_status if t.run and t.position is not None)

    def assignment(table: Capture, generation: int) -> TableAssignment:
        name = str(table.id)
        at_start = name not in appeared and spec.begins_at_start(name)
        return TableAssignment(table, spec.nonce(name), generation, at_start, name in copied)

    return assignment


def _was_refused(table: TableStatus, busy: Collection[tuple[str, str]]) -> bool:
    """Whether it was refused by an earlier preflight; or by a run that has ended, because it was
    locked then."""
    return table.failed and (not table.run or (table.is_busy and (table.name, table.run) in busy))


def _without_source(spec: Spec, table: TableStatus, *, asked: bool) -> TableStatus | None:
    """A table that has data is left to the binlog, which shows what became of it and when.

    One that has stopped, or waits to be read, is named to the user who counts on it; else it leaves
    the sync, and a copy that is left of it is shown until the spec changes. None where nothing is
    left to be shown.
    """
    if table.phase is not TablePhase.UNASSIGNED and not table.failed and table.phase is not TablePhase.PENDING:
        return table
    if spec.tables.selection.names(table.name):
        return table if table.failed and table.low is not None else refused(table, _no_such_table(table.name))
    forgotten = asked and table.phase is TablePhase.UNASSIGNED and not spec.nonce(table.name)
    if table.low is None or forgotten:
        return None
    return unassigned(table, _gone_from_source(table.name))


def _no_such_table(name: str) -> CdcError:
    remedy = "create it, GRANT SELECT on it, or change spec.tables"
    return fail(Reason.NO_SUCH_TABLE, "no such table, or none that the account may read", remedy=remedy, table=name)


def _gone_from_source(name: str) -> CdcError:
    return fail(
        Reason.NO_SUCH_TABLE,
        "dropped or renamed on the source, or no longer readable by the account; its target stays as it is",
        table=name,
    )


def unassigned(table: TableStatus, error: CdcError) -> TableStatus:
    """It matches and takes no part in the sync, which is no failure of the sync."""
    update = {"phase": TablePhase.UNASSIGNED, "reason": error.reason.value, "message": error.message}
    return table.model_copy(update=update)


def refused(table: TableStatus, error: CdcError) -> TableStatus:
    """The table as a preflight refused it; a later one may find the cause gone."""
    update = {"phase": TablePhase.FAILED, "reason": error.reason.value, "message": error.message, "run": ""}
    return table.model_copy(update=update)


def reset_failure(spec: Spec, table: TableStatus) -> TableStatus:
    """A failed table after the resource changed, or in a run that a person started again. Where it
    can go on, it does; else the snapshot run asks its target.

    What is known of a table with a generation may be of content that was staged beside it and never
    published. Without a `run` its target may have been removed, as many a remedy says.
    """
    if not table.failed:
        return table
    goes_on = table.position is not None and table.generation == generation_asked(spec, table) == 0
    phase = TablePhase.CATCHING_UP if goes_on else TablePhase.PENDING
    return table.model_copy(update={"phase": phase, "reason": "", "message": "", "run": ""})


def owned_tables(runs: Iterable[ObservedRun]) -> dict[str, frozenset[str]]:
    """Run id -> the tables whose reports count, each table once.

    A run is given a table when those before it are done with it, though they may take a while to
    end: so the reports of the newest one count. But those of a run that makes a newer content count
    until it ends, whatever began meanwhile with the old one. `runs` are those that the status
    names.
    """
    runs = sorted(runs, key=lambda r: r.number)
    owner: dict[str, tuple[ObservedRun, int]] = {}
    for run in runs:
        for name, generation in run.tables if run.kind.copies else ():
            before, its = owner.get(name, (run, generation))
            if before.kind is RunKind.STREAM or its <= generation:
                owner[name] = (run, generation)
    return {run.id: frozenset(name for name in run.names if name in owner and owner[name][0] is run) for run in runs}
