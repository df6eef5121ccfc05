"""Which form of a changelog a target is given: the fold to the last image per key, or every event.

Why it is right. A sink that takes events is keyed until a table's snapshot is consistent: waves are
appended and the changes since LOW are folded in, as for every other sink (R2). The first state that
is consistent is the table as of its position P, and the sink publishes it: every row of it is the
row as of P. From then on the target is given events, each of a transaction after P. So a consumer
never meets an insert of a key that is there, nor a before image that is not. Which form is due
follows from the found state alone, so a run after a crash decides alike.

With early delivery the target has each wave's rows at once, and is given every change since LOW as
events. A row may then be newer than the first events of its key, but the last event of a key is
right, and a key without one is as it was read (R2): folded by key, the rows and the events are the
table once the state is consistent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.projection import folded
from cdcsync_spark.delivery.upsert import refuse_null_keys
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.contract.changes import Commit, Emit, Upsert
from cdcsync_spark.sinks.contract.sink import Capabilities


def takes_events(sink: Capabilities) -> bool:
    """Whether the sink's targets are given events once they are published."""
    return Emit in sink.changes


def delivered(changes: Changelog, state: TableState, after: TableState, *, events: bool) -> Commit:
    """The commit of `changes` on top of `state`, whose position covers none of them; `after` is the
    state with them. `events` is whether the sink takes events."""
    if not (events and state.published):
        refuse_without_key(state)
        last = folded(changes, state)
        return Commit(after, Upsert(last.upserts, last.deletes, last.new))
    emitted = as_events(changes, state.capture.key, first=state.events + 1)
    return Commit(replace(after, events=state.events + emitted.num_rows), Emit(emitted))


def as_events(changes: Changelog, key: Sequence[str], first: int) -> Events:
    """Raises TypeUnsupported for a NULL in the key: its events could not be told apart."""
    refuse_null_keys(changes.images, key)
    return Events(changes.images, changes.transactions.ids, changes.transactions.committed_at, first)


def refuse_without_key(state: TableState) -> None:
    """Raises InternalError: rows that no key identifies are read as of one position, from which on
    their target is given events. Folded, all of them would be one row."""
    if not state.capture.key:
        raise fail(
            Reason.INTERNAL_ERROR,
            "changes of a table without a key before its snapshot is published",
            remedy="report this with the driver log",
            table=str(state.capture.id),
        )


def unrepairable(table: str) -> CdcError:
    """After a crash of the source that may have lost transactions: their events were given away."""
    return fail(
        Reason.POSITION_LOST,
        "the source crashed and may have lost transactions whose events the target has",
        needed="events of transactions that the source has",
        remedy=resnapshot(table),
        table=table,
    )
