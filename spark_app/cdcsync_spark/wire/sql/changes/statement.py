"""Which tables a statement of the binlog changes: for each captured table nothing, or perhaps
something (rule R9).

Why it is right: the strict reader (`definitions`) follows DDL of known forms to the last token, and
only what it has read so lets a table flow that the statement names. Everything else goes to the
rule by exclusion (`wire.statement`), which stops every table that the statement may name. The
definition in the next TABLE_MAP is compared as always.
"""

from __future__ import annotations

from functools import lru_cache

from cdcsync_core.tables.capture import Capture
from cdcsync_spark.wire.sql.changes.definitions import read
from cdcsync_spark.wire.sql.changes.effects import Altered, Effect
from cdcsync_spark.wire.sql.changes.exclusion import touches
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Unreadable


def may_change(statement: Statement, table: Capture) -> bool:
    """False only if the statement leaves the table's rows, definition, key and name as they are."""
    effects = effects_of(statement)
    if effects is None:
        return touches(statement.sql, statement.database, table.id, statement.session.charset)
    return any(e.concerns(table.id) and (e.changes(table) or e.recomputes(table)) for e in effects)


def may_define(statement: Statement, table: Capture) -> bool:
    """False only if rows before the statement, too, are of the definition `table`, which is of some
    time after it: ADD COLUMN IF NOT EXISTS leaves the columns of now, and may have added one."""
    effects = effects_of(statement) or ()
    return may_change(statement, table) or any(e.concerns(table.id) and e.may_define(table) for e in effects)


def redefines(statement: Statement, table: Capture) -> bool:
    """Whether a column of the table is defined once more: NULLs may come or no longer come."""
    effects = effects_of(statement) or ()
    return any(isinstance(e, Altered) and e.redefines and e.concerns(table.id) for e in effects)


@lru_cache(maxsize=64)
def effects_of(statement: Statement) -> tuple[Effect, ...] | None:
    """What the statement does, table by table; None if it could not be read with certainty."""
    try:
        return read(statement.sql, statement.database, statement.session)
    except Unreadable:
        return None
