"""Definitions of indexes: none of them changes a row, unless it takes away the index that tells
rows apart."""

from __future__ import annotations

from cdcsync_core.tables.capture import Capture
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader, folded
from cdcsync_spark.wire.sql.syntax.tokens import TokenKind

_PRIMARY = "primary"


def may_be_key(index: str, table: Capture) -> bool:
    """Whether this index has the key that identifies a row; yes if that was not recorded. A
    declared key has none, and neither has a table without a key."""
    if table.declared or not table.key:
        return False
    return not table.key_index or folded(index) in (folded(table.key_index), _PRIMARY)


def has_unique_key(table: Capture) -> bool:
    """Whether the key may be that of a unique index, which is not the primary key."""
    return bool(table.key) and not table.declared and folded(table.key_index) != _PRIMARY


def create_index(reader: TokenReader) -> tuple[str, TableName]:
    """Reads what follows CREATE [OR REPLACE]: the index and its table."""
    reader.take_any("ONLINE", "OFFLINE")
    reader.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    reader.need("INDEX")
    reader.take("IF", "NOT", "EXISTS")
    name = reader.name()
    _type(reader)
    reader.need("ON")
    table = reader.table()
    reader.parentheses()
    _options(reader)
    index_modifiers(reader)
    return name, table


def index_modifiers(reader: TokenReader) -> None:
    """What ends CREATE INDEX and DROP INDEX."""
    reader.wait()
    while reader.take_any("ALGORITHM", "LOCK"):
        reader.take("=")
        reader.of(TokenKind.WORD)


def index_definition(reader: TokenReader) -> None:
    """Reads what follows ADD or a constraint's name: `[UNIQUE | ...] [INDEX | KEY] [name] [type]
    (parts) [options]`."""
    if not reader.take_any("VECTOR INDEX", "VECTOR KEY", "INDEX", "KEY"):
        reader.need_any("UNIQUE", "FULLTEXT", "SPATIAL")
        reader.take_any("INDEX", "KEY")
    reader.take("IF", "NOT", "EXISTS")
    if reader.word() not in ("(", "USING", "TYPE"):
        reader.name()
    _type(reader)
    reader.parentheses()
    _options(reader)


def _type(reader: TokenReader) -> None:
    if reader.take_any("USING", "TYPE"):
        reader.need_any("BTREE", "HASH", "RTREE")


def _options(reader: TokenReader) -> None:
    while option := reader.take_any(*_OPTIONS):
        if kinds := _OPTIONS[option]:
            reader.take("=")
            reader.of(*kinds)


_OPTIONS: dict[str, tuple[TokenKind, ...]] = {
    "USING BTREE": (),
    "USING HASH": (),
    "USING RTREE": (),
    "TYPE BTREE": (),
    "VISIBLE": (),
    "INVISIBLE": (),
    "IGNORED": (),
    "NOT IGNORED": (),
    "KEY_BLOCK_SIZE": (TokenKind.NUMBER,),
    "COMMENT": (TokenKind.STRING,),
    "WITH PARSER": (TokenKind.WORD, TokenKind.NAME),
    "M": (TokenKind.NUMBER,),
    "DISTANCE": (TokenKind.WORD,),
}
