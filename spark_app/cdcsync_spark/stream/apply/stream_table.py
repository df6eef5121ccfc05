"""A table of a stream's run, and what is wrong with a target that the run does not find again."""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.errors import RUN_AGAIN, CdcError, PermanentError, Reason, fail
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import LastChange, TableState
from cdcsync_spark.binlog.schema.steps import NOT_FOLLOWED, FollowPolicy
from cdcsync_spark.sinks.contract.writer import Writer


@dataclass
class StreamTable:
    """A table of the run: the writer of its target, its last known state, whether this run has
    written it, why it stopped, what is followed of changes of its definition.

    `committed` is the time of its last commit on the applier's clock. It is not known at first: the
    first batch checkpoints what it leaves idle.
    """

    name: str
    target: Writer
    state: TableState
    committed: float = float("-inf")
    wrote: bool = False
    error: CdcError | None = None
    handed_over: bool = False
    policy: FollowPolicy = NOT_FOLLOWED
    #: the last change that the catalog has confirmed, for the next commit; why another could not be
    confirmed: LastChange | None = None
    unreadable: str = ""
    #: whether rows came without the names of their columns since the catalog was asked
    unchecked: bool = False

    @property
    def change(self) -> LastChange | None:
        """The last change, as far as it is known to be confirmed."""
        return self.state.with_confirmation(self.confirmed).change

    @property
    def flowing(self) -> bool:
        return self.error is None and not self.handed_over

    def has_passed(self, place: LogOffset) -> bool:
        return self.state.position is not None and self.state.position.has_reached(place)

    def was_resnapshot(self) -> bool:
        """Whether the target has newer content than this run knows of; a target that cannot be
        asked is no reason to end the run."""
        try:
            state = self.target.last_commit()
        except PermanentError:
            return False
        return state is not None and state.generation > self.state.generation


def went_back(table: str, applied: Position | None, position: Position | None) -> CdcError:
    """The error of a target that lacks what the run has applied."""
    return fail(
        Reason.SINK_WRITTEN,
        f"the target went back from {applied} to {position}",
        needed="a target that keeps what was committed",
        remedy="none: the next run goes on from the target's position",
        table=table,
    )


def target_gone(table: str) -> CdcError:
    """The error of a target that this run or one before had, and that is not there any more."""
    return fail(
        Reason.SINK_CONFLICT,
        "the target is gone",
        needed="a target that keeps what was committed",
        remedy=f"put it back, or mount its volume, {RUN_AGAIN}; or {resnapshot(table)}",
        table=table,
    )
