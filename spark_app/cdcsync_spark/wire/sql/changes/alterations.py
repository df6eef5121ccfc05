"""ALTER TABLE, clause by clause, as a prediction: the next definition and the origin of each of its
columns.

Why it is right: each clause is read to its last token, and one that is not known raises. A clause
either changes columns in a way that `conversions` and `fills` prove for every value, or is one that
`alter` knows to change nothing. Where the table has generated columns, or it is not known whether
it has, no column changes its type, because what is computed from it may change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cdcsync_core.errors import Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Converted, Filled, Followed, Kept, Resnapshot, Stop
from cdcsync_core.tables.source_table import INTEGERS, LABELLED, Column, SourceTable, SourceType
from cdcsync_spark.wire.sql.changes.alter import is_harmless
from cdcsync_spark.wire.sql.column.column_types import Unpredictable, declared_type, max_bytes, same_characters
from cdcsync_spark.wire.sql.column.columns import Declared, keeps_collation, read_attributes, read_type
from cdcsync_spark.wire.sql.column.conversions import keeps_values, promoted
from cdcsync_spark.wire.sql.column.fills import fill
from cdcsync_spark.wire.sql.column.layout import Layout, Placed
from cdcsync_spark.wire.sql.syntax.indexes import may_be_key
from cdcsync_spark.wire.sql.syntax.options import names_charset
from cdcsync_spark.wire.sql.syntax.reader import TokenReader, clauses, folded, words
from cdcsync_spark.wire.sql.syntax.tokens import Session, Token, TokenKind, Unreadable

_NO_COLUMN = words("INDEX KEY UNIQUE FULLTEXT SPATIAL PRIMARY CONSTRAINT FOREIGN CHECK PARTITION")
_CHARSETS = ("DEFAULT CHARACTER SET", "DEFAULT CHARSET", "CHARACTER SET", "CHARSET")
_LONGEST = 65_532
_ADD = Token(TokenKind.WORD, "ADD")


class Impossible(Exception):
    """There is nothing left that could be copied."""


def alter(definition: Capture, parts: Sequence[Sequence[Token]], session: Session) -> Followed | Resnapshot | Stop:
    """What the clauses of one ALTER TABLE do to the table.

    An index whose columns are dropped one by one stays while it has one (MySQL; MariaDB refuses to
    drop a part of it), so a key that loses a part is another key, and none only without any.
    """
    try:
        alteration = _Alteration(definition, session, parts)
        for part in parts:
            alteration.read(part)
        return alteration.outcome()
    except Unreadable as e:
        return Resnapshot(f"a clause that is not followed: {e}")
    except Unpredictable as e:
        return Resnapshot(str(e))
    except Impossible as e:
        return Stop(str(e), Reason.ENGINE_UNSUPPORTED)


class _Alteration:
    """One statement; `read` each clause, then ask for the `outcome`."""

    def __init__(self, definition: Capture, session: Session, parts: Sequence[Sequence[Token]]) -> None:
        self._old, self._session = definition, session
        self._layout = Layout(definition)
        self._charset, self._unique = definition.source.charset, definition.source.unique
        self._auto = definition.source.auto_increment
        self._key_gone = self._key_added = self._converted = False
        #: columns whose default another clause sets
        self._defaulted: set[str] = set()
        #: the default of texts in this statement; not known where the statement changes it
        self._default = "" if any(map(names_charset, parts)) else definition.source.charset

    def read(self, clause: Sequence[Token]) -> None:
        reader = TokenReader(clause)
        head = column_clause(reader)
        if head:
            _COLUMN_CLAUSES[head](self, reader)
            reader.finish()
        elif reason := _beyond(TokenReader(clause)):
            raise Impossible(reason)
        elif not self._takes_key(TokenReader(clause)):
            self._pass(clause)

    def outcome(self) -> Followed | Resnapshot | Stop:
        lost = [name for name in self._old.key if name in self._layout.dropped]
        if lost and len(lost) < len(self._old.key) and not self._key_gone:
            return Resnapshot(f"the key loses {', '.join(lost)}")
        if self._key_gone or lost:
            last = not self._key_added and self._unique == frozenset()
            without_key = Stop("the key is dropped, and no other is left", Reason.NO_PRIMARY_KEY)
            return without_key if last else Resnapshot("the key changes")
        if self._key_added:
            return Resnapshot("the key changes")
        columns = self._layout.columns()
        if any(isinstance(p.origin, Filled) and folded(p.column.name) in self._defaulted for p in columns):
            raise Unpredictable("another clause sets the default of an added column")
        return Followed(self._old, self._after(columns), tuple(p.origin for p in columns))

    def _after(self, columns: list[Placed]) -> Capture:
        old = self._old
        names = {p.origin.source: p.column.name for p in columns if not isinstance(p.origin, Filled)}
        generated = old.source.generated
        source = SourceTable(
            old.id,
            tuple(p.column for p in columns),
            self._charset,
            None if generated is None else frozenset(names[n] for n in generated if n in names),
            names.get(self._auto, ""),
            self._unique,
            old.source.recomputed and frozenset(names[n] for n in old.source.recomputed if n in names),
        )
        return replace(
            old,
            source=source,
            key=tuple(names[k] for k in old.key),
            excluded=frozenset(names[n] for n in old.excluded if n in names),
        )

    # -- clauses about columns

    def _add(self, reader: TokenReader) -> None:
        missing_only = reader.take("IF", "NOT", "EXISTS")
        if reader.word() != "(":
            self._add_one(reader, missing_only)
            return
        for part in clauses(reader.parentheses()):
            inside = TokenReader(part)
            if inside.word() in _NO_COLUMN:
                self._add_index((_ADD, *part))
            else:
                self._add_one(inside, missing_only)
                inside.finish()

    def _add_index(self, clause: Sequence[Token]) -> None:
        if not self._takes_key(TokenReader(clause)):
            self._pass(clause)

    def _add_one(self, reader: TokenReader, missing_only: bool) -> None:
        name = reader.column()
        declared, auto_increment = _read_column(reader)
        after = _read_place(reader)
        if missing_only:
            existing = self._layout.find(name)
            self._layout.claim(name)
            if existing is not None:
                return
        if auto_increment or name in self._old.excluded:
            raise Unpredictable(f"the column {name} numbers rows, or is left out of the copy")
        source = declared_type(declared, self._default, self._session)
        nullable = _nullable(declared, None, self._session)
        if declared.base == "json" and not (declared.default or nullable):
            raise Unpredictable("JSON that is not NULL")
        value = fill(source, nullable, declared.default, self._session)
        column = Column(name, source, nullable, _collation(declared, source))
        self._layout.later.append(Placed(column, Filled(value), after))
        self._unique = None if declared.unique else self._unique

    def _drop(self, reader: TokenReader) -> None:
        present_only = reader.take("IF", "EXISTS")
        name = reader.name()
        reader.take_any("RESTRICT", "CASCADE")
        if present_only and self._layout.find(name) is None:
            self._layout.claim(name)
            return
        column = self._layout.take(name)
        self._layout.drop(column)
        self._unique = self._unique if not self._unique else None

    def _rename(self, reader: TokenReader) -> None:
        present_only = reader.take("IF", "EXISTS")
        name = reader.name()
        reader.need("TO")
        to = reader.name()
        if present_only and self._layout.find(name) is None:
            self._layout.claim(name)
            return
        column = self._layout.take(name)
        self._check_name(column, to)
        self._layout.change(column, Placed(replace(column, name=to), Kept(column.name)))

    def _modify(self, reader: TokenReader) -> None:
        present_only = reader.take("IF", "EXISTS")
        name = reader.column()
        self._redefine(reader, name, name, present_only)

    def _change(self, reader: TokenReader) -> None:
        present_only = reader.take("IF", "EXISTS")
        self._redefine(reader, reader.column(), reader.column(), present_only)

    def _redefine(self, reader: TokenReader, old_name: str, name: str, present_only: bool) -> None:
        declared, auto_increment = _read_column(reader)
        after = _read_place(reader)
        if present_only and self._layout.find(old_name) is None:
            self._layout.claim(old_name)
            return
        old = self._layout.take(old_name)
        self._check_name(old, name)
        if old.name in (self._old.source.generated or ()):
            raise Unpredictable(f"the generated column {old.name} changes")
        if auto_increment and old.name != self._old.source.auto_increment:
            raise Unpredictable(f"the column {name} begins to number rows")
        if not auto_increment and old.name == self._auto:
            self._auto = ""
        self._unique = None if declared.unique else self._unique
        source = replace(declared_type(declared, self._default, self._session), replaced=old.type.replaced)
        column = Column(name, source, self._nulls(declared, old), _collation(declared, source))
        self._check_key(old, column)
        if self._old.source.generated != frozenset() and not keeps_collation(old, column.collation):
            raise Unpredictable(f"the collation of {old.name} changes, by which a generated column may compare")
        origin = Kept(old.name) if source == old.type else self._converting(old, source)
        self._layout.change(old, Placed(column, origin, after))

    def _check_name(self, old: Column, name: str) -> None:
        """What the manifest names keeps its name."""
        if name != old.name and {name, old.name} & self._old.excluded:
            raise Unpredictable(f"the column {old.name}, which is left out of the copy, gets another name")

    def _nulls(self, declared: Declared, old: Column) -> bool:
        """Strict mode makes an error of a NULL that may not stay, except in a TIMESTAMP."""
        in_primary = old.name in self._old.key and self._old.key_index == "PRIMARY"
        nullable = _nullable(declared, False if in_primary else None, self._session)
        if old.nullable and not nullable and (not self._session.strict or declared.base == "timestamp"):
            raise Unpredictable(f"NULLs of {old.name} become something else")
        return nullable

    def _check_key(self, old: Column, new: Column) -> None:
        """What orders and tells apart the keys stays."""
        if old.name not in self._old.key:
            return
        same = old.type == new.type and old.collation.lower() == new.collation
        if new.nullable or not (same or (old.type.base in INTEGERS and new.type.base in INTEGERS)):
            raise Unpredictable(f"the key column {old.name} changes")

    def _converting(self, old: Column, new: SourceType) -> Converted:
        if self._old.source.generated != frozenset():
            raise Unpredictable(f"the type of {old.name} changes, and a generated column may depend on it")
        if not keeps_values(old.type, new):
            raise Unpredictable(f"{old.name}: {old.type.declared} becomes {new.declared}")
        return Converted(old.name)

    def _convert(self, reader: TokenReader) -> None:
        """CONVERT TO CHARACTER SET, which concerns every text."""
        charset = reader.name().lower()
        if reader.take("COLLATE"):
            reader.name()
        if charset in ("default", "utf8", "binary") or self._converted:
            raise Unpredictable(f"the character set {charset}")
        self._charset, self._converted = charset, True
        for column in self._old.columns:
            if column.type.base in LABELLED:
                self._relabel(self._layout.take(column.name), charset)

    def _relabel(self, column: Column, charset: str) -> None:
        old = column.type
        if column.name in self._old.key or column.name in (self._old.source.generated or ()):
            raise Unpredictable(f"the text {column.name} is in the key, or generated")
        if self._old.source.generated != frozenset():
            raise Unpredictable(f"the collation of {column.name} changes, by which a generated column may compare")
        if old.charset == charset:
            self._layout.change(column, Placed(replace(column, collation=""), Kept(column.name)))
            return
        new = replace(promoted(old, charset), replaced=old.replaced)
        too_long = old.base == "varchar" and old.size * max_bytes(charset) > _LONGEST
        if "/*" in old.declared or too_long or not same_characters(old.charset, charset):
            raise Unpredictable(f"{column.name} is converted from {old.charset} to {charset}")
        origin = self._converting(column, new)
        self._layout.change(column, Placed(replace(column, type=new, collation=""), origin))

    # -- the others

    def _takes_key(self, reader: TokenReader) -> bool:
        """Whether the clause drops or defines the key, or a unique index."""
        if reader.take_any("ADD UNIQUE"):
            self._unique = None
        elif reader.take("ADD"):
            if reader.take("CONSTRAINT") and reader.word() not in ("PRIMARY", "UNIQUE"):
                reader.name()
            self._unique = None if reader.word() == "UNIQUE" else self._unique
            self._key_added |= reader.take("PRIMARY", "KEY")
            return self._key_added
        elif reader.take("DROP", "PRIMARY", "KEY"):
            reader.finish()
            self._key_gone |= may_be_key("PRIMARY", self._old) and self._old.key_index.upper() in ("PRIMARY", "")
            return True
        elif reader.take_any("RENAME INDEX", "RENAME KEY"):
            self._unique = self._unique if not self._unique else None
        elif reader.take_any("DROP INDEX", "DROP KEY", "DROP CONSTRAINT"):
            reader.take("IF", "EXISTS")
            index = reader.name()
            gone = may_be_key(index, self._old)
            self._key_gone |= gone
            self._unique = without(self._unique, index)
            return gone
        return False

    def _pass(self, clause: Sequence[Token]) -> None:
        """What changes no row; a new default for texts is remembered."""
        if not is_harmless(clause, self._old, self._session):
            raise TokenReader(clause).unexpected()
        if names_charset(clause):
            self._charset = _charset_option(clause)
        reader = TokenReader(clause)
        if reader.take("ALTER"):
            reader.take_any("COLUMN IF EXISTS", "IF EXISTS", "COLUMN")
            self._defaulted.add(folded(reader.next().text))


_COLUMN_CLAUSES: dict[str, Callable[[_Alteration, TokenReader], None]] = {
    "ADD": _Alteration._add,
    "DROP": _Alteration._drop,
    "RENAME COLUMN": _Alteration._rename,
    "MODIFY": _Alteration._modify,
    "CHANGE": _Alteration._change,
    "CONVERT": _Alteration._convert,
}


def without(unique: frozenset[str] | None, index: str) -> frozenset[str] | None:
    """The unique indexes that are left when `index` is dropped."""
    if not unique or not any(folded(name) == folded(index) for name in unique):
        return unique
    return unique - {index} if index in unique else None


def column_clause(reader: TokenReader) -> str:
    """The beginning of a clause about columns, which the reader then stands behind; else empty."""
    if reader.take("RENAME", "COLUMN"):
        return "RENAME COLUMN"
    if reader.take_any("CONVERT TO CHARACTER SET", "CONVERT TO CHARSET"):
        return "CONVERT"
    head = reader.word()
    if head not in ("ADD", "DROP", "MODIFY", "CHANGE") or (
        head in ("ADD", "DROP") and (reader.word(1) in _NO_COLUMN or _is_special(reader))
    ):
        return ""
    reader.next()
    reader.take("COLUMN")
    return head


def _is_special(reader: TokenReader) -> bool:
    """ADD VECTOR INDEX, ADD PERIOD FOR, ADD SYSTEM VERSIONING."""
    following = (reader.word(1), reader.word(2))
    return following in (("VECTOR", "INDEX"), ("VECTOR", "KEY"), ("PERIOD", "FOR"), ("SYSTEM", "VERSIONING"))


def _beyond(reader: TokenReader) -> str:
    """Why there is no copy of the table from now on; empty if there may be one."""
    if reader.take_any("ADD SYSTEM VERSIONING", "ADD PERIOD FOR"):
        return "the table becomes system-versioned"
    if reader.take("ENGINE"):
        reader.take("=")
        if (
            reader.peek().kind in (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING)
            and reader.peek().text.lower() != "innodb"
        ):
            return f"the engine {reader.peek().text}"
    return ""


def _charset_option(clause: Sequence[Token]) -> str:
    """The default that options of the table give; empty where it is not certain."""
    reader = TokenReader(clause)
    if not reader.take_any(*_CHARSETS):
        return ""
    reader.take("=")
    charset = reader.next().text.lower()
    return "" if charset in ("default", "utf8", "binary") or not reader.ended else charset


def _read_column(reader: TokenReader) -> tuple[Declared, bool]:
    """Type and attributes; whether AUTO_INCREMENT is among them."""
    declared = read_type(reader)
    read_attributes(reader, declared)
    auto_increment = reader.take("AUTO_INCREMENT")
    read_attributes(reader, declared)
    return declared, auto_increment


def _read_place(reader: TokenReader) -> str | None:
    if reader.take("FIRST"):
        return ""
    return reader.name() if reader.take("AFTER") else None


def _nullable(declared: Declared, default: bool | None, session: Session) -> bool:
    """A TIMESTAMP that declares neither is like every other column only with
    `explicit_defaults_for_timestamp`."""
    if declared.nullable is not None:
        return declared.nullable
    if declared.base == "timestamp" and not session.timestamps:
        raise Unpredictable("a TIMESTAMP that declares neither NULL nor NOT NULL")
    return True if default is None else default


def _collation(declared: Declared, source: SourceType) -> str:
    """Empty where it is the server's default."""
    labelled = source.base in LABELLED and declared.collation.startswith(f"{source.charset}_")
    return declared.collation if labelled else ""
