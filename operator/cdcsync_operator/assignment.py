"""Which table needs what: to be read, to be brought forward, to flow, or to be left alone.

Why it is right: a table is judged by its own entry and by what the resource asks for it, never by what another one does. The set
of tables is resolved when the resource changes and recorded in the status; a table that appears later is shown and not taken.
A table that failed for good is in no set, so it holds nobody back (rule R5). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcsync_core.chunk import WHOLE
from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.run import RunKind, TablePhase
from cdcsync_core.spec import Spec
from cdcsync_core.status import CONSISTENT, Status, TableStatus, only_tables
from cdcsync_operator.seen import RunSeen, TableSeen

TableNonces = tuple[tuple[str, int], ...]


def assigned(status: Status) -> tuple[TableStatus, ...]:
    """The tables that this sync has taken on."""
    return tuple(t for t in status.table_status if t.phase is not TablePhase.UNASSIGNED)


def to_snapshot(spec: Spec, status: Status) -> TableNonces:
    """Tables whose snapshot is not complete, or older than the nonce that is asked for. Failed ones are left out."""
    return tuple((t.name, spec.nonce(t.name)) for t in assigned(status) if not t.failed and not is_read(spec, t))


def to_stream(spec: Spec, status: Status) -> TableNonces:
    """Tables whose content has a position from which the log can be applied, with the nonce of that content.

    It may be a higher one than is asked for: an entry of `spec.resnapshot` that was removed changes nothing.
    """
    return tuple((t.name, t.nonce) for t in assigned(status) if not t.failed and is_read(spec, t))


def late(stream: RunSeen, tables: TableNonces) -> TableNonces:
    """Those that the stream does not have, or only as they were before they were read again."""
    flowing = dict(stream.tables)
    return tuple((name, nonce) for name, nonce in tables if flowing.get(name, -1) < nonce)


def is_read(spec: Spec, table: TableStatus) -> bool:
    """Whether the snapshot is complete, with the nonce that is asked for. Of a failed table its content decides, not its phase."""
    whole = table.finished == (WHOLE.to_dict(),) and table.position is not None
    return (whole if table.failed else table.positioned) and table.nonce >= spec.nonce(table.name)


def established(status: Status, tables: TableNonces) -> bool:
    """Whether the log was applied to one of these before: then it does not wait for other tables' snapshots.

    A table whose position still is its low watermark comes from a snapshot, even where that is consistent already.
    """
    names = {name for name, _ in tables}
    return any(
        t.phase in CONSISTENT or (t.passed_high and t.position != t.low) for t in status.table_status if t.name in names
    )


def all_consistent(status: Status) -> bool:
    tables = [t for t in assigned(status) if not t.failed]
    return bool(tables) and all(t.phase in CONSISTENT for t in tables)


def resolve(spec: Spec, status: Status, found: Iterable[TableSeen], *, take_new: bool) -> Status:
    """With the tables of a preflight: new ones taken (`take_new`) or shown as unassigned, vanished ones judged."""
    known = {t.name: t for t in status.table_status}
    found = list(found)
    entries = [_judge(known.get(t.name), t, take_new=take_new) for t in found]
    gone = (known[name] for name in sorted(known.keys() - {t.name for t in found}))
    return only_tables(status, [*entries, *(_judge_vanished(t) for t in gone if _is_kept(spec, t))])


def _judge(known: TableStatus | None, seen: TableSeen, *, take_new: bool) -> TableStatus:
    if known is None or known.phase is TablePhase.UNASSIGNED:
        phase = TablePhase.PENDING if take_new else TablePhase.UNASSIGNED
        known = TableStatus(name=seen.name, phase=phase)
    if seen.error is not None and known.phase is TablePhase.PENDING:
        return refused(known, seen.error)
    return known


def _is_kept(spec: Spec, table: TableStatus) -> bool:
    return table.phase is not TablePhase.UNASSIGNED and spec.tables.captures(table.name)


def _judge_vanished(table: TableStatus) -> TableStatus:
    """A table that has data is left to the log, which says what became of it and when."""
    if table.phase is not TablePhase.PENDING or table.low is not None:
        return table
    remedy = "create it, or change spec.tables"
    return refused(table, fail(Reason.NO_SUCH_TABLE, "no such table", remedy=remedy, table=table.name))


def refused(table: TableStatus, error: CdcError) -> TableStatus:
    return table.model_copy(update={"phase": TablePhase.FAILED, "reason": error.reason.value, "message": error.message})


def retried(spec: Spec, table: TableStatus) -> TableStatus:
    """A failed table after the resource changed, or in a run that a person started again. Where it can go on, it does; else the
    snapshot run asks its target.

    What is known of a table with a nonce may be of content that was staged beside it and never published.
    """
    if not table.failed:
        return table
    goes_on = table.position is not None and table.nonce == spec.nonce(table.name) == 0
    phase = TablePhase.CATCHING_UP if goes_on else TablePhase.PENDING
    return table.model_copy(update={"phase": phase, "reason": "", "message": ""})


def owned_tables(runs: Iterable[RunSeen]) -> dict[str, frozenset[str]]:
    """Run id -> the tables whose reports count, each table once.

    A run is given a table when those before it are done with it, though they may take a while to end: so the newest one speaks. But
    one that makes a newer content speaks of it until it ends, whatever began meanwhile with the old one. `runs` are those that the
    status names.
    """
    runs = sorted(runs, key=lambda r: r.number)
    owner: dict[str, tuple[RunSeen, int]] = {}
    for run in runs:
        for name, nonce in run.tables:
            before, its = owner.get(name, (run, nonce))
            if before.kind is RunKind.STREAM or its <= nonce:
                owner[name] = (run, nonce)
    return {run.id: frozenset(name for name in run.names if owner[name][0] is run) for run in runs}
