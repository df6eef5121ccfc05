"""Refusals that are the same for every sink: another run, another copy, a commit that does not
follow."""

from __future__ import annotations

from dataclasses import replace

from cdcsync_core.errors import RUN_AGAIN, CdcError, PermanentError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import Identity, TableState
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit, Replace

_COPY_REMEDY = f"keep other programs away from the table's folder, {RUN_AGAIN}: the table is read again"


class Superseded(PermanentError):
    """A newer run has the table, and so the sync."""


def refuse_superseded(state: TableState, epoch: int) -> None:
    """A higher epoch in the table ends the run (rule R8)."""
    if state.epoch > epoch:
        raise Superseded(
            Reason.SINK_CONFLICT,
            f"superseded by epoch {state.epoch}; this run has epoch {epoch}",
            needed="one run of a sync at a time",
            remedy=f"nothing to do where the other run goes on; else end it, {RUN_AGAIN}",
            table=state.identity.table,
        )


def refuse_other_identity(state: TableState, expected: TableState) -> None:
    """A table is continued only by the same sync from the same log and the same source table.
    Which logs were before that is not asked."""
    if state.identity.lineage.newest == expected.identity.lineage.newest:
        expected = replace(expected, identity=replace(expected.identity, lineage=state.identity.lineage))
    differing = [
        f"{name} {value!r}, needed {needed!r}"
        for (name, value), needed in zip(
            state.identity.to_dict().items(), expected.identity.to_dict().values(), strict=True
        )
        if value != needed
    ]
    if differing:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the target table was written for another copy: {'; '.join(differing)}",
            needed="a target that this sync made from this source, or none",
            remedy=_continuation(state.identity, expected.identity),
            table=expected.identity.table,
        )


def _continuation(identity: Identity, expected: Identity) -> str:
    """What belongs to another sync is never to be removed for this one."""
    if identity.sync != expected.sync:
        return f"create this sync again with another sink path: the table is the sync {identity.sync}'s"
    if identity.table != expected.table:
        return f"leave one out (tables.exclude): {identity.table} and {expected.table} have one target"
    return resnapshot(expected.table)


def refuse_other_copy(copy: TableState | None, state: TableState) -> None:
    """A staged copy is published with the state that it was left with, or not at all: where its
    rows are gone, or are others, the target would count as whole without them."""
    table = state.identity.table
    if copy is None:
        raise no_copy_error(table)
    if _content(copy) != _content(state):
        raise fail(
            Reason.SINK_CONFLICT,
            f"the staged copy is not as the snapshot left it: it has {copy.rows} rows of {copy.splits} splits, and had "
            f"{state.rows} of {state.splits}",
            needed="the copy until it is published",
            remedy=_COPY_REMEDY,
            table=table,
        )


def _content(state: TableState) -> tuple[object, ...]:
    """What a state says of the rows, whoever wrote it."""
    progress = (state.finished, state.splits, state.rows, state.low, state.high, state.position)
    return (state.identity, state.generation, *progress)


def no_copy_error(table: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        "the staged copy of the snapshot is gone",
        needed="the copy until it is published",
        remedy=_COPY_REMEDY,
        table=table,
    )


def replaced_meanwhile(table: str) -> CdcError:
    """The error of a target that a resnapshot replaced while it was read."""
    return fail(
        Reason.INTERNAL_ERROR, "the table was resnapshotted while it was read", remedy="verify again", table=table
    )


def check_successor(state: TableState, commit: Commit, epoch: int) -> None:
    """What every commit must hold, whatever the caller computed; raises `InternalError`.

    The binlog is the same one unless the whole content is replaced, as a table is resnapshotted
    after its server was replaced, or nothing of it, as it is moved to another server (rule R6).
    """
    new, due = commit.state, state.identity
    moves = isinstance(commit.change, AdvancePosition) and due.lineage.leads_to(new.identity.lineage)
    if isinstance(commit.change, Replace) or moves:
        due = replace(due, lineage=new.identity.lineage)
    wrong = [
        problem
        for problem, bad in (
            (f"identity {new.identity} after {state.identity}", new.identity != due),
            (f"state {new.commit_number} after {state.commit_number}", new.commit_number != state.commit_number + 1),
            (f"epoch {new.epoch} by a writer of epoch {epoch}", new.epoch != epoch),
        )
        if bad
    ]
    if wrong:
        raise fail(
            Reason.INTERNAL_ERROR,
            f"a commit that does not follow the target's state: {'; '.join(wrong)}",
            remedy="report this with the driver log",
            table=state.identity.table,
        )
