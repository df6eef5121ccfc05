"""What a statement of the binlog does to captured tables: one outcome for each that it may touch.

Why it is right: the strict reader (`definitions`) names every table that a statement changes, and
`alterations` predicts what an ALTER does to one of them. A statement that it cannot read to the
last token has an outcome for every table that the rule by exclusion (`exclusion`) suspects,
and that outcome is never "nothing". Only a table that the statement names exactly is followed:
where a server might fold names, the table is resnapshotted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cdcsync_core.errors import Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import (
    Emptied,
    Followed,
    Kind,
    Outcome,
    Renamed,
    Resnapshot,
    Stop,
    unchanged,
)
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.alterations import alter, without
from cdcsync_spark.wire.sql.changes.effects import (
    Altered,
    Created,
    Dropped,
    Effect,
    IndexDropped,
    Left,
    Moved,
    Rebuilt,
    Truncated,
)
from cdcsync_spark.wire.sql.changes.exclusion import is_dml, touches
from cdcsync_spark.wire.sql.changes.statement import effects_of
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Token, Unreadable, is_read, tokenize

_NO_OTHERS: Mapping[TableId, Capture] = MappingProxyType({})

_OTHER_SPELLING = "the table is named in another spelling"


def apply(definitions: Mapping[TableId, Capture], statement: Statement) -> dict[TableId, Outcome]:
    """The outcome for each captured table that the statement may touch, all as of one point of the
    binlog; a table that is not in the answer stays as it is."""
    outcomes: dict[TableId, Outcome] = {}
    for table, definition in definitions.items():
        outcome = apply_to(definition, statement, definitions)
        if outcome is not None:
            outcomes[table] = outcome
    return outcomes


def apply_to(
    definition: Capture, statement: Statement, others: Mapping[TableId, Capture] = _NO_OTHERS
) -> Outcome | None:
    """The outcome for one table; None if the statement does not name it. `others` are captured
    tables that may take its name."""
    table = definition.id
    effects = effects_of(statement)
    if effects is None:
        return _unread(statement, table)
    of_table = tuple(e for e in effects if e.concerns(table) and not _is_nothing(e, definition))
    if not of_table:
        return None
    if any(isinstance(e, Moved) for e in of_table):
        return _moved(tuple(e for e in effects if isinstance(e, Moved)), table, others)
    return _outcome(of_table, definition)


def _is_nothing(effect: Effect, definition: Capture) -> bool:
    """A rebuild that changes not even what is recorded of the table."""
    return isinstance(effect, Rebuilt) and not effect.recomputes(definition)


def _outcome(effects: tuple[Effect, ...], definition: Capture) -> Outcome:
    if len(effects) > 1:
        return Resnapshot("the statement changes the table in more than one way")
    outcome = _one(effects[0], definition)
    if isinstance(outcome, Followed) and effects[0].recomputes(definition):
        names = ", ".join(sorted(definition.source.recomputed or ())) or "generated columns"
        return Resnapshot(f"the server may compute {names} again, in the statement's session")
    if _is(effects[0].name, definition) or outcome.kind in (Kind.RESNAPSHOT, Kind.STOP):
        return outcome
    return unchanged(definition) if outcome.kind is Kind.NOTHING else Resnapshot(_OTHER_SPELLING)


def _is(name: TableName, definition: Capture) -> bool:
    return TableId(name.database, name.name) == definition.id


def _one(effect: Effect, definition: Capture) -> Outcome:
    match effect:
        case Left():
            return _left(definition)
        case IndexDropped():
            if effect.changes(definition):
                return _key_dropped(definition)
            return unchanged(definition, _with_unique(definition, without(definition.source.unique, effect.index)))
        case Altered():
            return _altered(effect, definition)
        case Truncated():
            return Emptied(definition)
        case Dropped():
            return Stop("the table is dropped", Reason.TABLE_GONE)
        case Created():
            return Resnapshot("another table is created under the name")
    return Resnapshot("rows of the table come from, or go to, another one")


def _left(definition: Capture) -> Followed:
    """CREATE UNIQUE INDEX is one of them."""
    return unchanged(definition, _with_unique(definition, None))


def _with_unique(definition: Capture, unique: frozenset[str] | None) -> Capture:
    return definition.of(replace(definition.source, unique=unique))


def _key_dropped(definition: Capture) -> Outcome:
    if definition.source.unique == frozenset() and definition.key_index:
        return Stop("the key is dropped, and no other is left", Reason.NO_PRIMARY_KEY)
    return Resnapshot("the key changes")


def _altered(effect: Altered, definition: Capture) -> Outcome:
    for clause in effect.clauses:
        reader = TokenReader(clause)
        if reader.take("RENAME") and reader.word() not in ("COLUMN", "INDEX", "KEY"):
            return _left_its_name(effect, definition)
    if not all(map(is_read, effect.clauses)):
        return Resnapshot("a literal whose bytes are no characters of the session's set")
    if len(effect.clauses) == 1 and _empties(effect.clauses[0]):
        return Emptied(definition)
    return alter(definition, effect.clauses, effect.session)


def _left_its_name(effect: Altered, definition: Capture) -> Outcome:
    """ALTER TABLE ... RENAME; other clauses matter no more."""
    return Renamed() if _is(effect.name, definition) else Resnapshot(_OTHER_SPELLING)


def _empties(clause: tuple[Token, ...]) -> bool:
    reader = TokenReader(clause)
    return reader.take("TRUNCATE", "PARTITION", "ALL") and reader.ended


# -- RENAME TABLE


def _moved(steps: tuple[Moved, ...], table: TableId, others: Mapping[TableId, Capture]) -> Outcome:
    """The steps take effect one after the other; where two names may be one table nothing is
    concluded."""
    names = {TableId(*name) for step in steps for name in (step.name, step.to)}
    if any(name != table and TableName(*_parts(name)).means(table) for name in names):
        return Resnapshot(_OTHER_SPELLING)
    now: dict[TableId, TableId] = {name: name for name in names}
    for step in steps:
        now[TableId(*step.to)] = now.pop(TableId(*step.name), TableId(*step.name))
    to = next((name for name, was in now.items() if was == table), None)
    successor = now.get(table)
    if successor == table or (to is None and successor is None):
        return Resnapshot("the table is renamed and comes back")
    definition = others.get(successor) if successor else None
    after = definition.named(table) if definition else None
    return Renamed(str(to) if to else "", str(successor) if successor else "", after)


def _parts(name: TableId) -> tuple[str, str]:
    return name.database, name.name


# -- what is not read


def _unread(statement: Statement, table: TableId) -> Outcome | None:
    """Changes of rows that are known to reach no captured table (`dml`) do not come here."""
    if not touches(statement.sql, statement.database, table, statement.session.charset):
        return None
    if is_dml(statement.sql):
        return Stop("rows are changed by a statement, without row events", Reason.LOG_INCOMPLETE)
    if _drops_database(statement):
        return Stop("the database is dropped", Reason.TABLE_GONE)
    return Resnapshot("a statement that cannot be read with certainty")


def _drops_database(statement: Statement) -> bool:
    """It was found to name the table's database."""
    try:
        reader = TokenReader(tokenize(statement.sql, statement.session))
    except Unreadable:
        return False
    return bool(reader.take_any("DROP DATABASE", "DROP SCHEMA"))
