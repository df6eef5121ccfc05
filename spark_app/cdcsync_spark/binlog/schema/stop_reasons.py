"""Why a table stops at a transaction of the binlog, as errors for the user."""

from __future__ import annotations

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.remedies import RESNAPSHOT_ALL, resnapshot
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.exclusion import is_dml
from cdcsync_spark.wire.sql.syntax.text import Statement


def shown(statement: Statement) -> str:
    """Its beginning, on one line."""
    return shown_text(statement.sql)


def shown_text(sql: str) -> str:
    return " ".join(sql.split())[:120]


#: where changes of definitions are followed, and where the table's policy is to follow none
FOLLOWABLE = "a change of the definition that can be followed"
NO_DDL = "no DDL on a captured table (schemaChange.behavior: fail)"


def statement_error(
    statement: Statement, table: TableId, why: str | None = None, *, needed: str = FOLLOWABLE
) -> CdcError:
    """`needed` is for a change of the definition."""
    if is_dml(statement.sql):
        return PermanentError(
            Reason.LOG_INCOMPLETE,
            f"a change in statement format: {shown(statement)}" + (f" ({why})" if why else ""),
            needed="row format in every session (binlog_format=ROW)",
            remedy=resnapshot(table),
            table=str(table),
        )
    return PermanentError(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"a statement that may change the table: {shown(statement)}",
        needed=needed,
        remedy=resnapshot(table),
        table=str(table),
    )


def incident_error(text: str) -> CdcError:
    """The error that stops all tables."""
    return PermanentError(
        Reason.LOG_INCOMPLETE,
        f"the server reports an incident in its binlog: {text}",
        needed="a binlog that holds every change",
        remedy=RESNAPSHOT_ALL,
    )


def xa_error(xid: str, why: str, table: TableId) -> CdcError:
    return PermanentError(
        Reason.XA_UNSUPPORTED,
        f"an XA COMMIT ({xid}) whose XA PREPARE {why}",
        needed="binlog files that go back to the XA PREPARE of every transaction that is still to be committed",
        remedy=resnapshot(table),
        table=str(table),
    )
