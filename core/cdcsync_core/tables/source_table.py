"""A table as the server has it as of a position: its name, its columns with their server types, and
what decides the meaning of later DDL.

What is taken of it is a `Capture`, what the target has is a `TargetSchema`. Two definitions are the
same version of a table if and only if they are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail

_DECLARED = re.compile(
    r"(?P<base>[a-z][a-z0-9 ]*?)\s*(?:\((?P<args>.*)\))?(?P<rest>(?:\s+(?:unsigned|zerofill|/\*.*\*/))*)", re.S
)
#: MariaDB says so of times in the format of before 10.1; the next rebuild of the table changes it
_OLD_FORM = re.compile(r"\s*/\* mariadb-5\.3 \*/$")
#: what the catalog shows in place of itself or of something else: escapes, characters that its own
#: character set does not have, bytes that are no character
_UNCERTAIN = ("\\", "?", "\ufffd")
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
        declared = _OLD_FORM.sub("", declared)
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

    @property
    def has_certain_members(self) -> bool:
        """Whether the catalog shows each member as the very text that a value has."""
        return not any(character in member for member in self.members for character in _UNCERTAIN)


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
class SourceTable:
    """A table as the server has it.

    `columns` are all columns of the server's row in its order, invisible and generated ones
    included: the binlog carries them all. The rest decides the meaning of later DDL and is in no
    row event: `charset` is the default for new text columns (empty: not known), `generated` the
    columns that the server computes (None: not known), `auto_increment` the column that has the
    attribute (empty: none, or not known), `unique` the names of the unique indexes besides the one
    that identifies rows (None: not known), `recomputed` the captured ones of `generated` that a
    rebuild of the table may give other values (None: not known). Unknown facts only ever lead to a
    resnapshot, so they are no part of equality.
    """

    id: TableId
    columns: tuple[Column, ...]
    charset: str = field(default="", compare=False)
    generated: frozenset[str] | None = field(default=None, compare=False)
    auto_increment: str = field(default="", compare=False)
    unique: frozenset[str] | None = field(default=None, compare=False)
    recomputed: frozenset[str] | None = field(default=frozenset(), compare=False)

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)

    @property
    def facts(self) -> tuple[Any, ...]:
        """What equality leaves out and a followed statement may change."""
        return (self.charset, self.generated, self.auto_increment, self.unique)

    def to_dict(self) -> dict[str, Any]:
        """What is not known has no key."""
        facts = {
            "charset": self.charset or None,
            "generated": None if self.generated is None else sorted(self.generated),
            "autoIncrement": self.auto_increment or None,
            "unique": None if self.unique is None else sorted(self.unique),
            "recomputed": None if self.recomputed is None else sorted(self.recomputed),
        }
        return {
            "database": self.id.database,
            "name": self.id.name,
            "columns": [c.to_dict() for c in self.columns],
        } | {name: fact for name, fact in facts.items() if fact is not None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SourceTable:
        return cls(
            TableId(data["database"], data["name"]),
            tuple(Column.from_dict(c) for c in data["columns"]),
            data.get("charset", ""),
            _names(data.get("generated")),
            data.get("autoIncrement", ""),
            _names(data.get("unique")),
            # older releases recorded none: there is none where no column is generated
            frozenset() if data.get("generated") == [] else _names(data.get("recomputed")),
        )


def _names(listed: list[str] | None) -> frozenset[str] | None:
    return None if listed is None else frozenset(listed)


def memory_of(columns: int) -> int:
    """Bytes that the definition of a table with so many columns takes in memory, about."""
    return 1000 + 600 * columns


def too_many_tables(bound: str) -> CdcError:
    """The error of a sync whose definitions do not fit into the operator beside those of others;
    `bound` is how much may."""
    return fail(
        Reason.SPEC_INVALID,
        "more tables than the operator has memory for: a definition takes 1 kB, and 600 bytes a column",
        needed=bound or "tables within the operator's bounds",
        remedy="name fewer tables in spec.tables.include, or run some syncs of the namespace by a release of their own"
        " (the chart's values watchNamespaces and selector)",
    )
