"""A source table as both phases see it: its name, its columns with their server types, its chunk
key.

The definition is recorded in the target's state when the table is planned, because the binlog does
not show everything (MariaDB's UUID, INET and JSON travel as BINARY and LONGTEXT; rule R9). Two
definitions are the same table version if and only if they are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

_DECLARED = re.compile(
    r"(?P<base>[a-z][a-z0-9 ]*?)\s*(?:\((?P<args>.*)\))?(?P<rest>(?:\s+(?:unsigned|zerofill|/\*.*\*/))*)", re.S
)
_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.S)

#: the widths of the integer types in bytes
INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
#: what has a character set
LABELLED = TEXTS | {"enum", "set"}
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
GEOMETRIES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    }
)


@dataclass(frozen=True, order=True)
class TableId:
    """`database.table`, by the source's own spelling."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def quoted(self) -> str:
        """The name for SQL: identifiers between backticks, backticks doubled."""
        return f"{quote(self.database)}.{quote(self.name)}"


def quote(identifier: str) -> str:
    return "`" + identifier.replace("`", "``") + "`"


@dataclass(frozen=True)
class SourceType:
    """A column's type on the server.

    `declared` is `information_schema.columns.column_type`; the rest is read from it: `base` the
    bare name (`int`, `enum`, ...), `unsigned`, `size` the first number in the brackets (length,
    precision, bits, fractional digits of temporal types; -1 where none), `scale` the second,
    `members` of ENUM and SET as the server prints them (a backslash may stand for itself or escape,
    as the session that made the table had it), `charset` the server's name of the character set of
    a text type (`binary` for ENUM and SET without one; empty for others). `replaced` says how texts
    are read, and is no part of the definition: bytes that are no character of the character set
    become U+FFFD; else they are an error.
    """

    declared: str
    base: str
    unsigned: bool = False
    size: int = -1
    scale: int = 0
    members: tuple[str, ...] = ()
    charset: str = ""
    replaced: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, declared: str, charset: str | None = None) -> SourceType:
        match = _DECLARED.fullmatch(declared.strip())
        if not match:
            raise ValueError(f"not a column type: {declared!r}")
        base = match["base"].strip().lower()
        args = match["args"] or ""
        if base in ("enum", "set"):
            members = tuple(_unquote(m) for m in _MEMBER.findall(args))
            # MySQL names no character set of members that are bytes, MariaDB calls it so
            return cls(declared, base, members=members, charset=charset or "binary")
        numbers = [int(n) for n in re.findall(r"\d+", args)]
        return cls(
            declared,
            {"integer": "int", "double precision": "double", "numeric": "decimal"}.get(base, base),
            unsigned="unsigned" in match["rest"],
            size=numbers[0] if numbers else -1,
            scale=numbers[1] if len(numbers) > 1 else 0,
            charset=charset or "",
        )


def _unquote(member: str) -> str:
    return member.replace("''", "'")


@dataclass(frozen=True)
class Column:
    """`collation` is the server's name (empty for non-text types): it orders chunk keys, nothing
    else."""

    name: str
    type: SourceType
    nullable: bool = True
    collation: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type.declared,
            "charset": self.type.charset,
            "nullable": self.nullable,
            "collation": self.collation,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Column:
        return cls(data["name"], SourceType.parse(data["type"], data["charset"]), data["nullable"], data["collation"])


@dataclass(frozen=True)
class Table:
    """One captured table.

    `columns` are all columns of the server's row in its order, invisible and generated ones
    included: the binlog carries them all. `key` names the chunk key's columns in index order and
    `key_index` that index, empty where it was not recorded; `excluded` are columns that the
    manifest leaves out of the target (never key columns).
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    excluded: frozenset[str] = frozenset()
    key_index: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        unknown = [k for k in self.key if k not in names or k in self.excluded]
        if not self.key or unknown or len(set(names)) != len(names):
            raise ValueError(f"{self.id}: key {self.key} must name captured columns of {names}")

    @property
    def captured(self) -> tuple[Column, ...]:
        """The columns that the target has, in the source's order."""
        return tuple(c for c in self.columns if c.name not in self.excluded)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[k] for k in self.key)

    def reads_as(self, now: Table) -> bool:
        """Whether rows of the definition `now` are read and told apart as this one says.

        Whether a column may be NULL, and the collation of one outside of the key, change no value.
        """
        same_key = (self.id, self.key, self.excluded) == (now.id, now.key, now.excluded)
        return same_key and self._compared() == now._compared()

    def _compared(self) -> list[Column]:
        return [c if c.name in self.key else replace(c, nullable=True, collation="") for c in self.columns]

    def replacing(self) -> Table:
        """The same definition, read with U+FFFD for bytes that are no character. Not in the key:
        two rows could become one."""
        columns = (
            c if c.name in self.key else replace(c, type=replace(c.type, replaced=c.type.base in LABELLED))
            for c in self.columns
        )
        return replace(self, columns=tuple(columns))

    def to_dict(self) -> dict[str, Any]:
        return {
            "database": self.id.database,
            "name": self.id.name,
            "columns": [c.to_dict() for c in self.columns],
            "key": list(self.key),
            "keyIndex": self.key_index,
            "excluded": sorted(self.excluded),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Table:
        return cls(
            TableId(data["database"], data["name"]),
            tuple(Column.from_dict(c) for c in data["columns"]),
            tuple(data["key"]),
            frozenset(data["excluded"]),
            data.get("keyIndex", ""),
        )


def memory_of(columns: int) -> int:
    """Bytes that the definition of a table with so many columns takes in memory, about."""
    return 1000 + 600 * columns
