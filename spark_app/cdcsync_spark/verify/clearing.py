"""Notes in a target that its rows were found equal, where another program had changed them
(`TableState.written`).

Why it is right: one commit of the state alone says so, and it is made only on a state that has the
same last change by another program as the one whose rows were compared, and a position that
includes its (`TableState.after_verification`). So what was found counts for the rows that are
there: since then only our own commits came. The stream loses a race at most, and starts again on
this commit; a run that takes over meanwhile is waited for.

A target that keeps events is never cleared: its comparison says nothing of the events before the
last one of a key.
"""

from __future__ import annotations

from pathlib import Path

from cdcsync_core.state import TableState
from cdcsync_spark.delivery.events import takes_events
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit
from cdcsync_spark.sinks.contract.checks import Superseded
from cdcsync_spark.sinks.contract.sink import Sink

#: runs that may take the table over while this is written
_ATTEMPTS = 5


def note_equal(sink: Sink, verified: TableState, scratch: Path) -> None:
    """`verified` is the state of the rows that were equal; `scratch` is a folder on a local disk.
    Raises CdcError."""
    if verified.written is None or takes_events(sink.capabilities):
        return
    writer = sink.target(verified.capture.id).writer(scratch)

    def build(state: TableState) -> Commit | None:
        cleared = state.after_verification(verified)
        return None if cleared is None else Commit(cleared, AdvancePosition())

    for attempt in range(1, _ATTEMPTS + 1):
        state = writer.last_commit()
        try:
            if state is not None:
                writer.commit(state.epoch, build)
            return
        except Superseded:
            if attempt == _ATTEMPTS:
                raise
