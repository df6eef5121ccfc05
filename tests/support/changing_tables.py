"""Tables whose schema changes while they are written: what they begin as, what they are now, and
the next change, drawn by chance from all classes of DDL.

Why the catalog is asked for each draw: a change that failed is none, and the next one has to fit
what is there. Values are drawn by the types of that moment, so writers go on after any change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from support.workload_tables import KEY_TABLES, KeyTable

_WORDS = ("snow", "Straße", "naïve", "tail", "MiXeD", "x", "", "0", "a'b", "back\\slash")
_WIDE_WORDS = (*_WORDS, "日本", "🙂 smile", "ёлка")


@dataclass(frozen=True)
class ChangingTable:
    """`keys` is how its rows are found; `more` follows the columns of its CREATE TABLE. `harsh`
    tables also get what cannot be followed, each of which is a resnapshot."""

    name: str
    keys: KeyTable
    more: str = ""
    harsh: bool = False

    @property
    def ddl(self) -> str:
        return self.keys.ddl().replace(f"CREATE TABLE {self.keys.name} ", f"CREATE TABLE {self.name} ") + self.more


_BY_NAME = {t.name: t for t in KEY_TABLES}
_RANGES = (
    " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (-25000), PARTITION p1 VALUES LESS THAN (-20000),"
    " PARTITION p2 VALUES LESS THAN MAXVALUE)"
)
CHANGING = (
    ChangingTable("c_int", _BY_NAME["by_int"], " DEFAULT CHARSET latin1"),
    ChangingTable("c_name", _BY_NAME["by_name"]),
    ChangingTable("c_code", _BY_NAME["by_code"], " DEFAULT CHARSET latin1"),
    ChangingTable("c_pair", _BY_NAME["by_pair"], harsh=True),
    ChangingTable("c_parts", _BY_NAME["by_int"], _RANGES, harsh=True),
    ChangingTable("c_moment", _BY_NAME["by_moment"], " DEFAULT CHARSET utf8mb4", harsh=True),
)


class ColumnNow(NamedTuple):
    """A column as the catalog has it."""

    name: str
    base: str
    declared: str
    nullable: bool
    charset: str
    generated: bool


@dataclass(frozen=True)
class TableNow:
    """A table as the catalog has it; `key` in the key's order."""

    table: ChangingTable
    columns: tuple[ColumnNow, ...]
    key: tuple[str, ...]

    @property
    def others(self) -> list[ColumnNow]:
        """The columns that are no part of the key."""
        return [c for c in self.columns if c.name not in self.key]

    @property
    def written(self) -> list[ColumnNow]:
        return [c for c in self.others if not c.generated]

    def where(self, number: int) -> str:
        """A key column that was renamed is found by its place."""
        literals = self.table.keys.literals(number)
        if len(self.key) != len(literals) or len(literals) > 1:
            return self.table.keys.where(number)
        return f"`{self.key[0]}` = {literals[0]}"

    def key_names(self) -> tuple[str, ...]:
        return self.key if len(self.key) == len(self.table.keys.key) == 1 else self.table.keys.key


def read_now(cursor: Any, table: ChangingTable) -> TableNow | None:
    """None where it is not there at the moment."""
    cursor.execute(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, GENERATION_EXPRESSION"
        " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (table.name,),
    )
    columns = tuple(
        ColumnNow(str(n), str(b).lower(), _text(d), null == "YES", str(c or ""), bool(g))
        for n, b, d, null, c, g in cursor.fetchall()
    )
    cursor.execute(
        "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
        " AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX",
        (table.name,),
    )
    key = tuple(str(n) for (n,) in cursor.fetchall())
    return TableNow(table, columns, key) if columns and key else None


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# -- values


def literal(random: Random, column: ColumnNow) -> str:
    """A literal of the column's type; about one in six is NULL where that is allowed."""
    if column.nullable and random.random() < 0.16:
        return "NULL"
    return _LITERALS[column.base](random, column.declared, column.charset)


def _integer(bits: int) -> Callable[[Random, str, str], str]:
    def draw(random: Random, declared: str, _: str) -> str:
        low, high = (0, 2**bits - 1) if "unsigned" in declared else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if random.random() < 0.2:
            return str(random.choice((low, high)))
        return str(random.randrange(max(low, -(10**6)), min(high, 10**6)))

    return draw


def _arguments(declared: str) -> list[int]:
    inside = declared.partition("(")[2].partition(")")[0]
    return [int(a) for a in inside.split(",") if a.strip().isdigit()]


def _decimal(random: Random, declared: str, _: str) -> str:
    precision, scale = [*_arguments(declared), 0, 0][:2]
    number = random.randrange(10 ** min(precision, 12))
    sign = "" if "unsigned" in declared or random.random() < 0.5 else "-"
    return f"{sign}{number // 10**scale}.{number % 10**scale:0{scale}d}" if scale else f"{sign}{number}"


def _string(random: Random, declared: str, charset: str) -> str:
    words = (
        _WIDE_WORDS if charset.startswith("utf8mb4") else ("snow", "tail", "x", "") if charset == "ascii" else _WORDS
    )
    longest = [*_arguments(declared), 200][0]
    text = f"{random.choice(words)} {random.randrange(10**6)}"[:longest].rstrip()
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _bytes(random: Random, declared: str, _: str) -> str:
    longest = [*_arguments(declared), 20][0]
    return f"x'{random.randbytes(random.randrange(0, min(longest, 20) + 1)).hex()}'"


def _moment(random: Random, declared: str, _: str) -> str:
    digits = [*_arguments(declared), 0][0]
    fraction = f".{random.randrange(10**digits):0{digits}d}" if digits else ""
    day = f"{random.randrange(1995, 2035)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
    return f"'{day} 0{random.randrange(10)}:00:01{fraction}'"


def _date(random: Random, _: str, __: str) -> str:
    return f"'{random.randrange(1000, 9999)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}'"


def _time(random: Random, declared: str, _: str) -> str:
    digits = [*_arguments(declared), 0][0]
    fraction = f".{random.randrange(10**digits):0{digits}d}" if digits else ""
    return f"'{random.choice(('', '-'))}{random.randrange(0, 838):02}:59:{random.randrange(60):02}{fraction}'"


def _members(declared: str) -> list[str]:
    return declared.partition("(")[2].rpartition(")")[0].split(",")


def _enum(random: Random, declared: str, _: str) -> str:
    return random.choice(_members(declared))


def _set(random: Random, declared: str, _: str) -> str:
    chosen = [m.strip("'") for m in _members(declared) if random.random() < 0.5]
    return "'" + ",".join(chosen) + "'"


def _bit(random: Random, declared: str, _: str) -> str:
    return str(random.randrange(2 ** [*_arguments(declared), 1][0]))


_LITERALS: dict[str, Callable[[Random, str, str], str]] = {
    "tinyint": _integer(8), "smallint": _integer(16), "mediumint": _integer(24), "int": _integer(32), "bigint": _integer(64),
    "decimal": _decimal, "float": lambda r, _, __: str(r.randrange(-(2**20), 2**20) / 8),
    "double": lambda r, _, __: repr(r.random() * 10.0 ** r.randrange(-6, 9)), "bit": _bit,
    "year": lambda r, _, __: str(r.randrange(1901, 2155)), "date": _date, "datetime": _moment, "timestamp": _moment, "time": _time,
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _string),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    "enum": _enum, "set": _set,
}  # fmt: skip
