"""What a statement does to a table that it names. Whether that changes a captured table, its
recorded definition decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.alter import is_harmless
from cdcsync_spark.wire.sql.changes.alterations import column_clause
from cdcsync_spark.wire.sql.syntax.indexes import has_unique_key, may_be_key
from cdcsync_spark.wire.sql.syntax.options import names_charset
from cdcsync_spark.wire.sql.syntax.reader import TableName, TokenReader
from cdcsync_spark.wire.sql.syntax.tokens import Session, Token, TokenKind


@dataclass(frozen=True)
class Effect:
    """Something that is not followed."""

    name: TableName

    def concerns(self, table: TableId) -> bool:
        """Whether `table` is, or may be, one that the effect names."""
        return self.name.means(table)

    def changes(self, _: Capture) -> bool:
        """Whether the table's rows, definition, key or name may change."""
        return True

    def may_define(self, now: Capture) -> bool:
        """Whether `now`, which is of some time after it, may be of its making."""
        return self.changes(now)

    @property
    def rebuilds(self) -> bool:
        """Whether the server may rewrite each row, and then computes its generated columns in
        the statement's session."""
        return False

    def recomputes(self, table: Capture) -> bool:
        """Whether captured generated columns may get other values by that."""
        return self.rebuilds and table.source.recomputed != frozenset()


@dataclass(frozen=True)
class Dropped(Effect):
    """DROP TABLE."""


@dataclass(frozen=True)
class Truncated(Effect):
    """TRUNCATE TABLE: all rows are gone, the definition stays."""


@dataclass(frozen=True)
class Created(Effect):
    """Another table has the name from now on."""


@dataclass(frozen=True)
class Moved(Effect):
    """RENAME TABLE; several of one statement take effect one after the other."""

    to: TableName

    def concerns(self, table: TableId) -> bool:
        return self.name.means(table) or self.to.means(table)


@dataclass(frozen=True)
class Left(Effect):
    """It stays as it is: CREATE TABLE IF NOT EXISTS of a table that is there."""

    def changes(self, _: Capture) -> bool:
        return False

    def may_define(self, now: Capture) -> bool:
        return has_unique_key(now)


@dataclass(frozen=True)
class Indexed(Left):
    """CREATE INDEX."""

    rebuilds = True


@dataclass(frozen=True)
class Rebuilt(Left):
    """OPTIMIZE TABLE, and REPAIR TABLE."""

    rebuilds = True

    def may_define(self, _: Capture) -> bool:
        return False


@dataclass(frozen=True)
class IndexDropped(Effect):
    """The rows stay; the index that tells them apart must stay, too."""

    index: str
    rebuilds = True

    def changes(self, table: Capture) -> bool:
        return may_be_key(self.index, table)


@dataclass(frozen=True)
class Altered(Effect):
    """ALTER TABLE: nothing, only if each clause is known to do nothing to this very table."""

    clauses: tuple[tuple[Token, ...], ...]
    session: Session

    def may_define(self, now: Capture) -> bool:
        """IF EXISTS and IF NOT EXISTS leave the columns of now as they are, and may have made
        them."""
        unique = has_unique_key(now)
        defining = (column_clause(TokenReader(c)) or (unique and _adds_unique(c)) for c in self.clauses)
        return self.changes(now) or any(defining)

    @property
    def rebuilds(self) -> bool:
        """Unless the statement says how it is done."""
        return not any(_names_algorithm(TokenReader(clause)) for clause in self.clauses)

    @property
    def redefines(self) -> bool:
        return any(TokenReader(clause).word() in ("MODIFY", "CHANGE") for clause in self.clauses)

    def changes(self, table: Capture) -> bool:
        default = "" if any(map(names_charset, self.clauses)) else table.source.charset
        recorded = table.of(replace(table.source, charset=default))
        return not all(is_harmless(clause, recorded, self.session) for clause in self.clauses)


def _adds_unique(clause: tuple[Token, ...]) -> bool:
    named = [t.text.upper() for t in clause if t.kind is TokenKind.WORD]
    return named[:1] == ["ADD"] and "UNIQUE" in named


def _names_algorithm(clause: TokenReader) -> bool:
    """One that copies no rows."""
    if not clause.take("ALGORITHM"):
        return False
    clause.take("=")
    return clause.word() in ("INSTANT", "INPLACE", "NOCOPY")
