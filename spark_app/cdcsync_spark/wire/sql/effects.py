"""What a statement does to a table that it names. Whether that changes a captured table, its
recorded definition decides."""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.table import Table
from cdcsync_spark.wire.sql.alter import is_harmless
from cdcsync_spark.wire.sql.indexes import may_be_key
from cdcsync_spark.wire.sql.reader import TableName
from cdcsync_spark.wire.sql.tokens import Session, Token


@dataclass(frozen=True)
class Effect:
    """Something that is not followed."""

    name: TableName

    def changes(self, _: Table) -> bool:
        """Whether the table's rows, definition, key or name may change."""
        return True


@dataclass(frozen=True)
class Left(Effect):
    """It stays as it is: CREATE INDEX, or CREATE TABLE IF NOT EXISTS of a table that is there."""

    def changes(self, _: Table) -> bool:
        return False


@dataclass(frozen=True)
class IndexDropped(Effect):
    """The rows stay; the index that tells them apart must stay, too."""

    index: str

    def changes(self, table: Table) -> bool:
        return may_be_key(self.index, table)


@dataclass(frozen=True)
class Altered(Effect):
    """ALTER TABLE: nothing, only if each clause is known to do nothing to this very table."""

    clauses: tuple[tuple[Token, ...], ...]
    session: Session

    def changes(self, table: Table) -> bool:
        return not all(is_harmless(clause, table, self.session) for clause in self.clauses)
