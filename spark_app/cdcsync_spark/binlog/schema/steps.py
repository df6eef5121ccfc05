"""What a statement of the binlog means for a captured table under its policy: nothing, a step that
the target follows, or the error that stops the table.

Why it exists: the reader of the binlog must know it to end a batch before the step and to decode
the rows after it; the applier must know it to commit it. Both ask the same pure function, each with
the definition that it has, so nothing but the statement travels between them.

Why it is right: what is followed is what `wire.sql.changes.schema_change` predicts, and everything
else stops the table. A stop with SchemaChangeRefused is one that a resnapshot cures; where it cures
nothing, because there is no table or no key any more, the reason is another one. Where a statement
that the strict rule of R9 lets pass is none that is predicted and redefines no column, only what is
known of the definition besides its columns is lost; where both rules read it and the prediction has
a change, there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId, binlog_of
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.stops import UNANNOUNCED
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.evolve import DroppedColumns
from cdcsync_core.tables.schema_change import (
    Emptied,
    Filled,
    Followed,
    Kind,
    Outcome,
    Renamed,
    Resnapshot,
    Stop,
    unchanged,
)
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.schema.stop_reasons import FOLLOWABLE, NO_DDL, shown, statement_error
from cdcsync_spark.wire.sql.changes.exclusion import is_dml
from cdcsync_spark.wire.sql.changes.schema_change import apply_to
from cdcsync_spark.wire.sql.changes.statement import may_change, redefines
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session, Started


@dataclass(frozen=True)
class FollowPolicy:
    """What is followed of a table. Without `follow`, every statement that may change its rows or
    columns stops it; `emptied` is whether TRUNCATE is followed. `excluded` are the columns that the
    manifest leaves out, also those that are not there yet; `dropped` is whether a dropped column is
    kept in the target or dropped there, too; with `replacing`, texts are read as
    `Capture.replacing` says. With `append_only`, what the target has published stays as it is: a
    statement that gives its rows other values, or takes them away, is not followed."""

    follow: bool = False
    emptied: bool = True
    dropped: DroppedColumns = DroppedColumns.KEEP
    excluded: frozenset[str] = frozenset()
    replacing: bool = False
    append_only: bool = False


_PERHAPS_TEMPORARY = "its session may have a temporary table of this name"
#: today's default
NOT_FOLLOWED = FollowPolicy()


class SchemaStep(NamedTuple):
    """A statement that changes what is recorded of a table, and the transaction that it is."""

    statement: Statement
    transaction: TransactionId
    committed_at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        session, done = self.statement.session, self.transaction
        return {
            "database": self.statement.database,
            "sql": self.statement.sql,
            "inDoubt": self.statement.in_doubt,
            "session": [session.sql_mode, session.charset, session.mariadb, session.version, list(session.started)],
            "connection": session.connection,
            "timestamps": session.timestamps,
            "end": done.end.to_dict(),
            "binlog": binlog_of(done.end),
            "gtid": str(done.gtid) if done.gtid else None,
            "mariadbGtid": done.mariadb_gtid,
            "committedAt": self.committed_at,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SchemaStep:
        sql_mode, charset, mariadb, version, started = data["session"]
        more = data["connection"], data["timestamps"]
        session = Session(sql_mode, charset, mariadb, version, Started(*started), *more)
        gtid = Gtid.parse(data["gtid"]) if data["gtid"] else None
        end = LogOffset(**data["end"])
        return cls(
            Statement(data["database"], data["sql"], session, in_doubt=data["inDoubt"]),
            TransactionId(end.in_binlog(data["binlog"]) if data["binlog"] else end, gtid, data["mariadbGtid"]),
            data["committedAt"],
        )


def meaning(
    capture: Capture, statement: Statement, policy: FollowPolicy, fault: str | None = None
) -> Followed | Emptied | CdcError | None:
    """None: nothing that is recorded changes. `fault` is why a change in statement format may reach
    the table."""
    harmless = not may_change(statement, capture)
    followable = not is_dml(statement.sql) and (policy.follow or harmless)
    if statement.in_doubt and not harmless and not is_dml(statement.sql):
        return not_followed(_PERHAPS_TEMPORARY, statement, capture.id)
    outcome = apply_to(capture, statement) if followable else None
    if outcome is None:
        needed = FOLLOWABLE if policy.follow else NO_DDL
        return None if harmless else statement_error(statement, capture.id, fault, needed=needed)
    redefined = not statement.in_doubt and redefines(statement, capture)
    if harmless and not redefined and (statement.in_doubt or not isinstance(outcome, Followed)):
        outcome = unchanged(capture, _facts_lost(capture))
    if not isinstance(outcome, Followed):
        return outcome if isinstance(outcome, Emptied) and policy.emptied else _error(outcome, statement, capture.id)
    if not policy.follow and outcome.kind is not Kind.NOTHING:
        return statement_error(statement, capture.id, fault, needed=NO_DDL)
    followed = replace(outcome, after=_as_taken(outcome, policy))
    return None if followed.kind is Kind.NOTHING and _same(capture, followed.after) else followed


def names(statement: Statement, capture: Capture) -> bool:
    """Whether the statement is about the table's definition, also where it changes nothing that is
    recorded."""
    return not is_dml(statement.sql) and apply_to(capture, statement) is not None


def repeatable(step: Followed | Emptied) -> bool:
    """Whether a row that was read after the statement may be given the step once more, and all
    later changes after it: each column keeps its own values, or is filled.

    Rows of a snapshot up to its high watermark may be such rows: they were read under the same
    definition, before or after the statement.
    """
    if isinstance(step, Emptied):
        return True
    origins = zip(step.after.columns, step.origins, strict=True)
    return all(isinstance(origin, Filled) or origin.source == column.name for column, origin in origins)


def unproved_tables(states: Iterable[TableState]) -> frozenset[TableId]:
    """The tables whose last change no row has confirmed yet."""
    return frozenset(s.capture.id for s in states if s.change is not None and s.change.unproved)


def unconfirmed_tables(states: Iterable[TableState]) -> frozenset[TableId]:
    """The tables of which every statement counts: the catalog has not confirmed the last change
    yet, or rows did not name their columns."""
    return frozenset(s.capture.id for s in states if s.undescribed or (s.change is not None and s.change.unconfirmed))


def not_followed(why: str, statement: Statement, table: TableId) -> CdcError:
    """What a resnapshot cures."""
    return PermanentError(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"a statement that is not followed ({why}): {shown(statement)}",
        needed="a statement whose effect on every row of the copy is certain",
        remedy=resnapshot(table),
        table=str(table),
    )


def contradicted(table: TableId, by: str, differing: list[str]) -> CdcError:
    """The rows after a step, or the catalog, contradict what was predicted of it."""
    return PermanentError(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"{by} after a schema change that was followed: {'; '.join(differing)}",
        needed="the definition that was predicted from the statement",
        remedy=resnapshot(table),
        table=str(table),
    )


def unannounced(table: TableId, differing: list[str]) -> CdcError:
    """The catalog contradicts the definition by which rows without names were read."""
    return PermanentError(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"rows that do not name their columns, of a table of which the catalog has {'; '.join(differing)}, {UNANNOUNCED}",
        needed="the definition by which the rows were read",
        remedy=resnapshot(table),
        table=str(table),
    )


def _facts_lost(capture: Capture) -> Capture:
    source = capture.source
    return capture.of(replace(source, charset="", generated=None, auto_increment="", unique=None))


def _same(before: Capture, after: Capture) -> bool:
    return before == after and before.source.facts == after.source.facts


def _as_taken(outcome: Followed, policy: FollowPolicy) -> Capture:
    """Added columns are left out, and texts read, as the manifest says."""
    added = {c.name for c, o in zip(outcome.after.columns, outcome.origins, strict=True) if isinstance(o, Filled)}
    after = replace(outcome.after, excluded=outcome.after.excluded | (added & policy.excluded))
    return after.replacing() if policy.replacing else after


def _error(outcome: Outcome, statement: Statement, table: TableId) -> CdcError:
    text = shown(statement)
    match outcome:
        case Renamed(successor=""):
            return _gone(f"the table is renamed: {text}", table)
        case Stop():
            return _stopped(outcome, text, table)
        case Emptied():
            return PermanentError(
                Reason.TABLE_EMPTIED,
                f"the table is emptied: {text}",
                needed="a table whose rows leave it by row events (schemaChange.emptied: fail)",
                remedy=f"keep the copy as it is, or {resnapshot(table)}",
                table=str(table),
            )
    why = outcome.reason if isinstance(outcome, Resnapshot) else "another table takes the name"
    return not_followed(why, statement, table)


#: by the cause of a stop
_NEEDED = {
    Reason.ENGINE_UNSUPPORTED: "a table of the engine InnoDB, without system versioning and periods",
    Reason.NO_PRIMARY_KEY: "a primary key, or a unique key without NULLs",
    Reason.LOG_INCOMPLETE: "row events of every change of a row (binlog_format=ROW)",
}


def _stopped(outcome: Stop, text: str, table: TableId) -> CdcError:
    found = f"{outcome.reason}: {text}"
    if outcome.cause is Reason.TABLE_GONE:
        return _gone(found, table)
    back = "" if outcome.cause is Reason.LOG_INCOMPLETE else "change the table back, then "
    return PermanentError(
        outcome.cause,
        found,
        needed=_NEEDED[outcome.cause],
        remedy=f"{back}{resnapshot(table)}, or leave it out (tables.exclude)",
        table=str(table),
    )


def _gone(found: str, table: TableId) -> CdcError:
    return PermanentError(
        Reason.TABLE_GONE,
        found,
        needed="a table under the captured name",
        remedy=f"leave it out (tables.exclude), which keeps the copy; if the table is back, {resnapshot(table)}",
        table=str(table),
    )
