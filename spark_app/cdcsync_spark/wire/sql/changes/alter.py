"""Clauses of ALTER TABLE that do nothing to the rows of a captured table: an allow list, read to
the last token.

What each clause does was measured on MariaDB 10.11 to 11.8 and MySQL 9.7
(`tests/servers/test_statements.py` repeats it): the rows that are there, as a SELECT shows them and
as row images carry them, are the same before and after. Not in the list is what changes rows,
columns, the key, or how changes reach the binlog (cascades of foreign keys, other engines).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdcsync_core.tables.capture import Capture
from cdcsync_spark.wire.sql.column.columns import is_same_column, names_column, references, value
from cdcsync_spark.wire.sql.syntax.indexes import index_definition, may_be_key
from cdcsync_spark.wire.sql.syntax.options import table_options
from cdcsync_spark.wire.sql.syntax.reader import TokenReader, clauses, words
from cdcsync_spark.wire.sql.syntax.tokens import Session, Token, TokenKind, Unreadable, is_read


def is_harmless(clause: Sequence[Token], table: Capture, session: Session) -> bool:
    """True only if the clause was read to its end and leaves the table's rows, columns and key as
    they are."""
    if not is_read(clause):
        return False
    reader = TokenReader(clause)
    try:
        _clause(reader, table, session)
        _partitioning(reader)
        reader.finish()
    except Unreadable:
        return False
    return True


def _clause(reader: TokenReader, table: Capture, session: Session) -> None:
    """Raises Unreadable for whatever may change something."""
    if reader.take_any(*_PARTITIONS):
        _listed(reader)
    elif reader.take_any("FORCE", "ENABLE KEYS", "DISABLE KEYS", "WITH VALIDATION", "WITHOUT VALIDATION"):
        return
    elif head := reader.take_any(*_CLAUSES):
        _CLAUSES[head](reader, table, session)
    elif not table_options(reader):
        _partitioning(reader, needed=True)


#: rows go from one partition to another; none is lost
_PARTITIONS = (
    "ADD PARTITION",
    "REORGANIZE PARTITION",
    "REBUILD PARTITION",
    "COALESCE PARTITION",
    "ANALYZE PARTITION",
    "CHECK PARTITION",
    "OPTIMIZE PARTITION",
    "ORDER BY",
)


def _listed(reader: TokenReader) -> None:
    """The rest, in which commas stand between names: no other clause follows."""
    for part in clauses(reader.rest())[1:]:
        if part[:1] and part[0].kind is TokenKind.WORD and part[0].text.upper() in _OTHER_CLAUSES:
            raise Unreadable("a clause behind a list")


_OTHER_CLAUSES = words("ADD ALTER CHANGE CONVERT DISCARD DROP ENGINE EXCHANGE IMPORT MODIFY RENAME REPAIR TRUNCATE")


def _partitioning(reader: TokenReader, *, needed: bool = False) -> None:
    """May follow the last clause without a comma."""
    if reader.take("PARTITION", "BY"):
        _listed(reader)
    elif not reader.take("REMOVE", "PARTITIONING") and needed:
        raise reader.unexpected()


# -- ADD


def _add(reader: TokenReader, table: Capture, _: Session) -> None:
    if reader.take("CONSTRAINT"):
        reader.take("IF", "NOT", "EXISTS")
        if reader.word() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            reader.name()
        if reader.word() not in ("UNIQUE", "FOREIGN", "CHECK"):
            raise reader.unexpected()
    if reader.take("FOREIGN", "KEY"):
        _foreign_key(reader)
    elif reader.take("CHECK"):
        reader.parentheses()
        reader.take_any("ENFORCED", "NOT ENFORCED")
    elif reader.take_any("COLUMN IF NOT EXISTS", "IF NOT EXISTS"):
        _present(reader, table)
    else:
        index_definition(reader)


def _foreign_key(reader: TokenReader) -> None:
    reader.take("IF", "NOT", "EXISTS")
    if reader.word() != "(":
        reader.name()
    reader.parentheses()
    reader.need("REFERENCES")
    references(reader)


def _present(reader: TokenReader, table: Capture) -> None:
    """MariaDB adds no column where there is one of that name."""
    name = reader.name()
    words = {t.text.upper() for t in reader.rest()}
    if not any(c.name.lower() == name.lower() for c in table.columns) or words & {"REFERENCES", "PRIMARY"}:
        raise reader.unexpected()


# -- DROP, RENAME, ALTER


def _drop(reader: TokenReader, table: Capture, _: Session) -> None:
    if reader.take_any("INDEX", "KEY", "CONSTRAINT"):
        reader.take("IF", "EXISTS")
        _other_index(reader, table)
    elif reader.take_any("CHECK", "FOREIGN KEY"):
        reader.take("IF", "EXISTS")
        reader.name()
    else:
        reader.take("COLUMN")
        reader.need("IF", "EXISTS")
        if names_column(reader.name(), table):
            raise reader.unexpected()
    reader.take_any("RESTRICT", "CASCADE")


def _other_index(reader: TokenReader, table: Capture) -> None:
    """Not the index whose key identifies a row."""
    if may_be_key(reader.name(), table):
        raise reader.unexpected()


def _rename(reader: TokenReader, table: Capture, _: Session) -> None:
    reader.need_any("INDEX", "KEY")
    reader.take("IF", "EXISTS")
    _other_index(reader, table)
    reader.need("TO")
    reader.name()


def _alter(reader: TokenReader, table: Capture, _: Session) -> None:
    if reader.take_any("INDEX", "KEY"):
        reader.take("IF", "EXISTS")
        _other_index(reader, table)
        reader.need_any("VISIBLE", "INVISIBLE", "IGNORED", "NOT IGNORED")
    elif reader.take_any("CHECK", "CONSTRAINT"):
        reader.name()
        reader.need_any("ENFORCED", "NOT ENFORCED")
    else:
        reader.take("COLUMN")
        reader.take("IF", "EXISTS")
        reader.name()
        if reader.take("SET", "DEFAULT"):
            value(reader)
        else:
            reader.need_any("DROP DEFAULT", "SET VISIBLE", "SET INVISIBLE")


def _modify(reader: TokenReader, table: Capture, session: Session) -> None:
    is_same_column(reader, table, session)


def _change(reader: TokenReader, table: Capture, session: Session) -> None:
    reader.take("COLUMN")
    if reader.column() != reader.peek().text:
        raise reader.unexpected()
    is_same_column(reader, table, session)


_CLAUSES: dict[str, Callable[[TokenReader, Capture, Session], None]] = {
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "ALTER": _alter,
    "MODIFY": _modify,
    "CHANGE": _change,
}
