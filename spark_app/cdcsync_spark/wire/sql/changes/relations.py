"""What a statement does to the relations of tables: triggers, foreign keys, and which table has a
name.

Theory of operation. What a change in statement format reached is asked of the catalog later than it
was written. What was added since only makes the catalog's answer more cautious; what was taken away
since is missing in it. A relation is taken away by DROP TRIGGER (or CREATE OR REPLACE TRIGGER) in
the table's database, by a statement that drops or renames the table, makes another one of its name
or drops its database, and by ALTER TABLE of the child of a foreign key. Indexes, columns, options,
TRUNCATE, views, routines, accounts and temporary tables take nothing away.
"""

from __future__ import annotations

from collections.abc import Collection

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.effects import Altered, Effect, IndexDropped, Left, Truncated
from cdcsync_spark.wire.sql.changes.exclusion import has_word, is_dml, may_name, may_replace, may_take_trigger
from cdcsync_spark.wire.sql.changes.statement import effects_of
from cdcsync_spark.wire.sql.syntax.reader import TokenReader
from cdcsync_spark.wire.sql.syntax.text import Statement

_NOTHING_TAKEN = (Truncated, Left, IndexDropped)
_VIEW = frozenset({"view"})
#: a statement on triggers, foreign keys or whole databases has one of these words
_WORDS = frozenset({"trigger", "foreign", "constraint", "references", "database", "schema"})


def may_relate(statement: Statement, tables: Collection[TableId]) -> bool:
    """Whether the statement may add a relation to one of `tables`, or take one away. In doubt
    yes."""
    if is_dml(statement.sql):
        return False
    named = any(may_name(statement.sql, statement.database, table) for table in tables)
    return named or has_word(statement.sql, _WORDS)


def may_unrelate(statement: Statement, tables: Collection[TableId], with_triggers: Collection[TableId]) -> bool:
    """Whether the statement may take a relation of one of `tables` away, or a trigger of those
    `with_triggers`. In doubt yes."""
    if is_dml(statement.sql):
        return False
    effects = effects_of(statement)
    if effects is not None:
        taking = [effect for effect in effects if _takes(effect)]
        return any(effect.concerns(table) for effect in taking for table in tables)
    sql, default = statement.sql, statement.database
    return any(may_take_trigger(sql, default, table) for table in with_triggers) or any(
        may_replace(sql, default, table) for table in tables
    )


def may_take_view(statement: Statement, tables: Collection[TableId]) -> bool:
    """Whether the statement may drop or replace a view that has one of these names. In doubt
    yes."""
    if is_dml(statement.sql) or not has_word(statement.sql, _VIEW):
        return False
    return any(may_name(statement.sql, statement.database, table) for table in tables)


def _takes(effect: Effect) -> bool:
    if isinstance(effect, Altered):
        return any(_takes_by_clause(TokenReader(clause)) for clause in effect.clauses)
    return not isinstance(effect, _NOTHING_TAKEN)


def _takes_by_clause(clause: TokenReader) -> bool:
    if clause.take("RENAME"):
        return clause.word() not in ("COLUMN", "INDEX", "KEY")
    return bool(clause.take_any("DROP FOREIGN", "DROP CONSTRAINT", "ENGINE"))
