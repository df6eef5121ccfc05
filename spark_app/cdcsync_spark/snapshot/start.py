"""Tables whose content begins where `spec.start` says, without a snapshot.

Why it is right. A begun table is an empty snapshot as of the start: what is behind the start is
applied, each change once, and nothing else. The position is in the target's first commit (R4), so
it is fixed before there is any row, and no later run takes another one. The definition is the
catalog's of the plan, by which rows of before could be misread: so the binlog from the start on is
read for statements that may change the table, and then the catalog must still show that definition.
What was changed since stops the table.

The tables of a run get one position; it is taken once, for those that have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cdcsync_core.errors import CdcError, PermanentError, Reason, TableBusyError, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.chunk import Intervals
from cdcsync_core.positions.position import Position
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import resnapshot
from cdcsync_core.resource.start_spec import Start
from cdcsync_core.state import TableState
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.catalog import as_planned
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.dump.dump import facts_behind
from cdcsync_spark.binlog.search.start_place import StartPlace
from cdcsync_spark.sinks.contract.changes import Append, Commit
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.snapshot.table import SnapshotTable
from cdcsync_spark.wire.binlog.facts import Incident
from cdcsync_spark.wire.sql.changes.statement import may_define
from cdcsync_spark.wire.sql.syntax.text import Statement

_STATEMENT_CHARACTERS = 120


def to_begin(tables: Sequence[SnapshotTable]) -> list[SnapshotTable]:
    """The tables of which nothing is there yet, and whose first content is no snapshot."""
    return [
        t
        for t in tables
        if t.assignment.at_start and t.published and t.state.generation == 0 and t.state.finished == Intervals()
    ]


def begin(
    source: Source, server: ServerFacts, start: Start, tables: Sequence[SnapshotTable], epoch: int
) -> Iterator[tuple[SnapshotTable, CdcError]]:
    """Begins them; yields those that are refused. Raises TransientError."""
    try:
        position = _position(source, server, start)
        changes = _changes_since(source, server, position, tables)
    except PermanentError as e:
        yield from ((table, e) for table in tables)
        return
    for table in tables:
        try:
            if table.name in changes:
                raise changes[table.name]
            _refuse_other_definition(source, server, position, table)
            _commit(table, position, epoch)
        except (PermanentError, TableBusyError) as e:
            yield table, e


def _position(source: Source, server: ServerFacts, start: Start) -> Position:
    if start.from_ == "latest":
        return LowMark(source, server).take()
    return StartPlace(source, server).find(start)


def _commit(table: SnapshotTable, position: Position, epoch: int) -> None:
    def build(state: TableState) -> Commit | None:
        if state.finished.complete:
            return None
        after = replace(state.begun_at(position), epoch=epoch)
        return Commit(after, Append(()))

    table.state = table.target.commit(epoch, build)
    gate("table-begun")


def _changes_since(
    source: Source, server: ServerFacts, position: Position, tables: Sequence[SnapshotTable]
) -> dict[str, CdcError]:
    """Returns, by name, the tables that a statement behind the position may have changed."""
    changes: dict[str, CdcError] = {}
    for fact in facts_behind(source, server.lineage, position, lambda _: False):
        if isinstance(fact, Statement | Incident):
            _note(fact, tables, changes)
    return changes


def _note(fact: Statement | Incident, tables: Sequence[SnapshotTable], changes: dict[str, CdcError]) -> None:
    for table in tables:
        if table.name in changes:
            continue
        capture = table.state.capture
        if isinstance(fact, Incident):
            changes[table.name] = _changed(table.name, f"the server reports a gap in its binlog: {quoted(fact.text)}")
        elif may_define(fact, capture):
            text = quoted(fact.sql[:_STATEMENT_CHARACTERS])
            changes[table.name] = _changed(table.name, f"{text} is behind spec.start in the binlog")


def _changed(table: str, change: str) -> CdcError:
    return fail(
        Reason.START_UNAVAILABLE,
        change,
        needed="a start behind it: rows of before would be read by the definition of now",
        remedy=f"move spec.start behind it (start.from latest), or {resnapshot(table)}",
        table=table,
    )


def _refuse_other_definition(source: Source, server: ServerFacts, position: Position, table: SnapshotTable) -> None:
    with open_session(source) as session:
        if not as_planned(session.proved(server.lineage, position), table.state.capture):
            raise _changed(table.name, "the table's definition changed while its start was searched for")
