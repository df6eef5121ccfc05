"""What each table needs: to be read, to be brought to the stream's position, to be streamed, or no
run.

Why it is right: a table's need follows from its own entry, from what the resource asks for it and
from what the live stream has of it, never from another table, so none stalls another one (rule R5).
A table that failed for good needs no run until the user acts. `NEEDS` is the whole rule; the figure
of a table's life in the manual is printed from it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from cdcsync_core.resource.spec import Spec
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus

#: names of tables, each with the generation of its content
Generations = tuple[tuple[str, int], ...]


class Need(StrEnum):
    SNAPSHOT = "snapshot"
    CATCH_UP = "catchUp"
    STREAM = "stream"
    NOTHING = "nothing"


class Content(IntEnum):
    """The content of a target, as the resource and the live stream see it.

    OUTDATED: of an older generation than is asked for. BEHIND: as it is asked for, but the live
    stream does not have it. CURRENT: as it is asked for, and in the stream, or no stream lives.
    """

    OUTDATED = 0
    BEHIND = 1
    CURRENT = 2


_READ = (Need.SNAPSHOT, Need.SNAPSHOT, Need.SNAPSHOT)
_APPLY = (Need.SNAPSHOT, Need.CATCH_UP, Need.STREAM)
_REST = (Need.NOTHING, Need.NOTHING, Need.NOTHING)

#: by phase: the need with an OUTDATED, a BEHIND and a CURRENT content
NEEDS: Mapping[TablePhase, tuple[Need, Need, Need]] = {
    TablePhase.PENDING: _READ,
    TablePhase.SNAPSHOTTING: _READ,
    TablePhase.CATCHING_UP: _APPLY,
    TablePhase.STREAMING: _APPLY,
    TablePhase.COMPLETED: _APPLY,
    TablePhase.FAILED: _REST,
    TablePhase.UNASSIGNED: _REST,
}


def asked(spec: Spec, table: TableStatus) -> int:
    """The least generation that the content is to have: the one that it has, or that is being
    staged; or the one that a stop has made necessary; or, where the user has asked for a new
    content since this one was begun, the next.

    Where the user has taken the request back, any content will do that the target has.
    """
    decided = table.resnapshot.generation if table.resnapshot else 0
    nonce = spec.nonce(table.name)
    if nonce > table.nonce:
        return max(decided, table.generation + 1)
    return max(decided, table.generation if nonce == table.nonce else 0)


def content(table: TableStatus, asked: int, streamed: Mapping[str, int] | None) -> Content:
    """`asked` is the generation that is asked for, `streamed` the tables of the live stream
    (None: there is none)."""
    if table.generation < asked:
        return Content.OUTDATED
    behind = streamed is not None and streamed.get(table.name, -1) < table.generation
    return Content.BEHIND if behind else Content.CURRENT


def need(table: TableStatus, asked: int, streamed: Mapping[str, int] | None) -> Need:
    return NEEDS[table.phase][content(table, asked, streamed)]


@dataclass(frozen=True)
class Needs:
    """The tables of a sync by their need, in order of names, as (name, generation).

    `unread` have the generation that their snapshot is to make; `behind` and `streamable` that of
    their content. `behind` are those of `streamable` that the live stream does not have.
    """

    unread: Generations
    behind: Generations
    streamable: Generations


def needs(spec: Spec, status: Status, streamed: Mapping[str, int] | None) -> Needs:
    """One pass over the tables."""
    need_of_table = [(t, need(t, asked(spec, t), streamed)) for t in status.table_status]
    positioned = (Need.CATCH_UP, Need.STREAM)
    return Needs(
        unread=tuple((t.name, asked(spec, t)) for t, n in need_of_table if n is Need.SNAPSHOT),
        behind=tuple((t.name, t.generation) for t, n in need_of_table if n is Need.CATCH_UP),
        streamable=tuple((t.name, t.generation) for t, n in need_of_table if n in positioned),
    )


def assigned(status: Status) -> tuple[TableStatus, ...]:
    """The tables that this sync has taken on."""
    return tuple(t for t in status.table_status if t.phase is not TablePhase.UNASSIGNED)


def is_read(spec: Spec, table: TableStatus) -> bool:
    """Whether the snapshot is complete, of the generation that is asked for. Of a failed table its
    content decides, not its phase."""
    whole = table.is_read and table.position is not None if table.failed else table.positioned
    return whole and table.generation >= asked(spec, table)


def has_streamed(tables: Iterable[TableStatus]) -> bool:
    """Whether the binlog was applied to one of these before: then it does not wait for the
    snapshots of other tables.

    A table whose position still is its low watermark comes from a snapshot, even where that is
    consistent already.
    """
    return any(t.phase in CONSISTENT or (not t.at_low and t.passed_high) for t in tables)


def all_consistent(status: Status) -> bool:
    """Whether the tables that have not failed are consistent; there is at least one."""
    tables = [t for t in assigned(status) if not t.failed]
    return bool(tables) and all(t.phase in CONSISTENT for t in tables)
