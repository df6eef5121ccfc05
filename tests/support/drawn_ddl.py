"""DDL drawn by chance for a table as it is now: every class of changes that is followed, what
changes nothing, and, for tables that take it, what has to be resnapshotted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from support.changing_tables import ColumnNow, TableNow

_MOST_COLUMNS, _LEAST_COLUMNS = 13, 3


class Change(NamedTuple):
    """Statements of one session, run one after the other; `harsh` ones are not followed."""

    kind: str
    statements: tuple[str, ...]
    harsh: bool = False


Draw = Callable[[Random, TableNow], list[str] | None]


def draw_change(random: Random, now: TableNow, flavor: str, *, harsh: float) -> Change:
    """The next change of the table; `harsh` is how probable one is that cannot be followed."""
    while True:
        rough = random.random() < harsh
        kinds = _HARSH if rough else _GENTLE
        kind = random.choice(list(kinds))
        statements = kinds[kind](random, now)
        if statements:
            return Change(kind, (*_session(random, flavor), *statements), rough)


def _session(random: Random, flavor: str) -> list[str]:
    zone = random.choice(("+00:00", "+05:30", "-03:00", "SYSTEM"))
    mode = random.choice(("", "STRICT_TRANS_TABLES", "STRICT_ALL_TABLES,ANSI_QUOTES"))
    found = [f"SET time_zone = '{zone}'", f"SET sql_mode = '{mode}'"]
    if flavor == "mariadb":
        found.append(f"SET binlog_alter_two_phase = {random.choice((0, 0, 1))}")
    return found


def _alter(random: Random, now: TableNow, *clauses: str) -> list[str]:
    """What an algorithm cannot do is an error, and no change."""
    how = random.choice(("", "", "", ", ALGORITHM=COPY", ", ALGORITHM=INPLACE", ", ALGORITHM=INSTANT"))
    return [f"ALTER TABLE `{now.table.name}` {', '.join(clauses)}{how}"]


_NAMES = [f"x{i}" for i in range(9)]


def _new_name(random: Random, now: TableNow) -> str | None:
    """Few names, so that dropped ones come back."""
    free = [n for n in _NAMES if n not in {c.name for c in now.columns}]
    return random.choice(free) if free and len(now.columns) < _MOST_COLUMNS else None


def _place(random: Random, now: TableNow) -> str:
    return random.choice(("", "", " FIRST", f" AFTER `{random.choice(now.columns).name}`"))


# -- added columns

_CONSTANTS = (
    "INT NOT NULL DEFAULT 42", "INT NULL DEFAULT -3", "BIGINT UNSIGNED NOT NULL DEFAULT 18446744073709551615",
    "VARCHAR(20) NOT NULL DEFAULT 'a''b\\\\c'", "VARCHAR(9) DEFAULT 'new'", "CHAR(5) NOT NULL DEFAULT 'é '",
    "DECIMAL(8,2) NOT NULL DEFAULT 1.25", "DECIMAL(40,3) NULL DEFAULT 7.5", "TINYINT(1) NOT NULL DEFAULT TRUE",
    "ENUM('p','q') NOT NULL DEFAULT 'q'", "SET('p','q') NOT NULL DEFAULT 'p'", "DOUBLE NOT NULL DEFAULT -7",
    "VARCHAR(20) CHARACTER SET latin1 NOT NULL DEFAULT 'x'", "DATE NULL DEFAULT '2024-02-29'",
    "DATETIME NOT NULL DEFAULT '2024-01-02 03:04:05'", "SMALLINT UNSIGNED NOT NULL DEFAULT 65535", "TIME DEFAULT '12:34:56'",
    "YEAR NOT NULL DEFAULT 2024", "FLOAT NOT NULL DEFAULT 3", "BIT(12) NOT NULL DEFAULT 5", "VARBINARY(9) NOT NULL DEFAULT 'ab'",
)  # fmt: skip
_IMPLICIT = (
    "INT NOT NULL", "CHAR(3) NOT NULL", "DECIMAL(8,2) NOT NULL", "BINARY(3) NOT NULL", "ENUM('m','n') NOT NULL",
    "TIME NOT NULL", "TIME(3) NOT NULL", "DOUBLE NOT NULL", "BIT(9) NOT NULL", "VARCHAR(30) NOT NULL", "TEXT NOT NULL",
    "BLOB NOT NULL", "SET('p','q') NOT NULL", "YEAR NOT NULL", "FLOAT NOT NULL", "BIGINT UNSIGNED NOT NULL", "DATE NOT NULL",
    "DECIMAL(45,4) NOT NULL", "VARBINARY(5) NOT NULL", "DATETIME NOT NULL",
)  # fmt: skip
_TIMES = (
    "DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", "DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
    "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", "TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3)",
    "DATETIME(3) DEFAULT NOW(3) ON UPDATE NOW(3)",
)  # fmt: skip
_NULLS = ("INT", "VARCHAR(30)", "TEXT", "DATETIME(3) NULL", "DECIMAL(10,3)", "VARBINARY(20)", "SMALLINT", "TIME(2)")


def _added(types: tuple[str, ...]) -> Draw:
    def draw(random: Random, now: TableNow) -> list[str] | None:
        name = _new_name(random, now)
        return (
            name and _alter(random, now, f"ADD COLUMN `{name}` {random.choice(types)}{_place(random, now)}")
        ) or None

    return draw


def _add_several(random: Random, now: TableNow) -> list[str] | None:
    free = [n for n in _NAMES if n not in {c.name for c in now.columns}]
    if len(free) < 2 or len(now.columns) > _MOST_COLUMNS - 2:
        return None
    kinds = (*_CONSTANTS, *_IMPLICIT, *_NULLS, *_TIMES)
    return _alter(
        random, now, *(f"ADD `{n}` {random.choice(kinds)}{_place(random, now)}" for n in random.sample(free, 2))
    )


# -- columns that are there


def _other(random: Random, now: TableNow) -> ColumnNow | None:
    return random.choice(now.others) if now.others else None


def _drop(random: Random, now: TableNow) -> list[str] | None:
    found = _other(random, now)
    return _alter(random, now, f"DROP COLUMN `{found.name}`") if found and len(now.others) > _LEAST_COLUMNS else None


def _drop_and_add(random: Random, now: TableNow) -> list[str] | None:
    """The same name again, at once or in two statements."""
    found = _other(random, now)
    if found is None:
        return None
    kind = random.choice((*_CONSTANTS, *_NULLS, f"{_type(found)} NULL"))
    drop, add = f"DROP `{found.name}`", f"ADD `{found.name}` {kind}{random.choice(('', ' FIRST'))}"
    return (
        _alter(random, now, drop, add)
        if random.random() < 0.5
        else [*_alter(random, now, drop), *_alter(random, now, add)]
    )


def _rename(random: Random, now: TableNow) -> list[str] | None:
    found, new = _other(random, now), _new_name(random, now)
    if len(now.key) == 1 and random.random() < 0.1:
        found = next(c for c in now.columns if c.name == now.key[0])
    if found is None or new is None:
        return None
    if random.random() < 0.5:
        return _alter(random, now, f"RENAME COLUMN `{found.name}` TO `{new}`")
    return _alter(random, now, f"CHANGE COLUMN `{found.name}` `{new}` {_declared(found)}{_place(random, now)}")


def _exchange(random: Random, now: TableNow) -> list[str] | None:
    """Two columns exchange their names."""
    if len(now.others) < 2:
        return None
    a, b = random.sample(now.others, 2)
    return _alter(
        random, now, f"CHANGE `{a.name}` `{b.name}` {_declared(a)}", f"CHANGE `{b.name}` `{a.name}` {_declared(b)}"
    )


def _reorder(random: Random, now: TableNow) -> list[str] | None:
    found = random.choice(now.columns)
    rest = [c.name for c in now.columns if c != found]
    where = random.choice(("FIRST", f"AFTER `{random.choice(rest)}`"))
    return _alter(random, now, f"MODIFY `{found.name}` {_declared(found)} {where}")


def _type(column: ColumnNow) -> str:
    charset = f" CHARACTER SET {column.charset}" if column.charset else ""
    return f"{column.declared}{charset}"


def _declared(column: ColumnNow) -> str:
    """The column's declaration without its default."""
    return f"{_type(column)} {'NULL' if column.nullable else 'NOT NULL'}"


_WIDER = {
    "tinyint": ("SMALLINT", "INT"), "smallint": ("MEDIUMINT", "BIGINT"), "mediumint": ("INT",), "int": ("BIGINT",),
    "datetime": ("DATETIME(6)",), "timestamp": ("TIMESTAMP(6)",), "time": ("TIME(6)",), "tinytext": ("TEXT",),
    "text": ("MEDIUMTEXT", "LONGTEXT"), "blob": ("MEDIUMBLOB",), "tinyblob": ("BLOB",), "mediumblob": ("LONGBLOB",),
}  # fmt: skip


def _widen(random: Random, now: TableNow) -> list[str] | None:
    found = random.choice(now.columns)
    wider = _wider(random, found)
    null = "NULL" if found.nullable else "NOT NULL"
    return (wider and _alter(random, now, f"MODIFY `{found.name}` {wider} {null}{_place(random, now)}")) or None


def _wider(random: Random, column: ColumnNow) -> str | None:
    inside = column.declared.partition("(")[2].partition(")")[0]
    charset = f" CHARACTER SET {column.charset}" if column.charset else ""
    sign = " UNSIGNED" if "unsigned" in column.declared else ""
    if column.base in ("varchar", "char"):
        return (
            f"VARCHAR({min(int(inside) + random.choice((1, 30, 250)), 700)}){charset}"
            if column.base == "varchar"
            else None
        )
    if column.base == "varbinary":
        return f"VARBINARY({int(inside) + random.choice((1, 300))})"
    if column.base == "decimal":
        precision, scale = map(int, inside.split(","))
        more = random.choice((0, 1, 2))
        return f"DECIMAL({min(precision + more + random.choice((1, 5)), 60)},{min(scale + more, 20)}){sign}"
    if column.base == "bit":
        return None
    options = _WIDER.get(column.base)
    return f"{random.choice(options)}{sign}{charset}" if options else None


def _members(random: Random, now: TableNow) -> list[str] | None:
    found = [c for c in now.others if c.base in ("enum", "set")]
    if not found:
        return None
    column = random.choice(found)
    inside = column.declared.partition("(")[2].rpartition(")")[0].split(",")
    new = f"'m{random.randrange(100)}'"
    if new in inside or len(inside) > 12:
        return None
    if column.base == "enum":
        inside.insert(random.randrange(len(inside) + 1), new)
        if random.random() < 0.5:
            random.shuffle(inside)
    else:
        inside.append(new)
    charset = f" CHARACTER SET {column.charset}" if column.charset else ""
    null = "NULL" if column.nullable else "NOT NULL"
    return _alter(random, now, f"MODIFY `{column.name}` {column.base.upper()}({','.join(inside)}){charset} {null}")


def _charset(random: Random, now: TableNow) -> list[str] | None:
    texts = [c for c in now.columns if c.base in ("varchar", "char", "text") and c.charset == "latin1"]
    if texts and random.random() < 0.6:
        column = random.choice(texts)
        null = "NULL" if column.nullable else "NOT NULL"
        return _alter(random, now, f"MODIFY `{column.name}` {column.declared} CHARACTER SET utf8mb4 {null}")
    return _alter(random, now, random.choice(("CONVERT TO CHARACTER SET utf8mb4", "DEFAULT CHARACTER SET utf8mb4")))


def _truncate(random: Random, now: TableNow) -> list[str] | None:
    return [f"TRUNCATE TABLE {now.table.name}"] if random.random() < 0.4 else None


def _several(random: Random, now: TableNow) -> list[str] | None:
    """Clauses in one statement, whose effects depend on each other; an error where they clash."""
    draws = (_drop, _rename, _reorder, _widen, _members, _added(_CONSTANTS), _added(_NULLS), _exchange)
    drawn = [found[0] for draw in random.sample(draws, random.choice((2, 3))) if (found := draw(random, now))]
    clauses = [s.partition("` ")[2].partition(", ALGORITHM")[0] for s in drawn]
    return _alter(random, now, *clauses) if clauses else None


# -- what changes no row


def _nothing(random: Random, now: TableNow) -> list[str]:
    name, column = now.table.name, random.choice(now.columns)
    side = f"side_{name}"
    return random.choice((
        [f"ALTER TABLE {name} ENGINE=InnoDB"], [f"ALTER TABLE {name} FORCE"], [f"ALTER TABLE {name} COMMENT = 'c, DROP n'"],
        [f"OPTIMIZE TABLE {name}"], [f"ANALYZE TABLE {name}"], [f"ALTER TABLE {name} ALTER `{column.name}` DROP DEFAULT"],
        [f"DROP TABLE IF EXISTS {side}", f"CREATE TABLE {side} AS SELECT * FROM {name} LIMIT 50", f"DROP TABLE {side}"],
        [f"DROP TABLE IF EXISTS {side}", f"CREATE TABLE {side} LIKE {name}", f"ALTER TABLE {side} ADD zz INT", f"DROP TABLE {side}"],
        [f"CREATE TEMPORARY TABLE {name} (id INT)", f"INSERT INTO {name} VALUES (1)", f"DROP TEMPORARY TABLE {name}"],
        [f"ALTER TABLE {name} ROW_FORMAT=DYNAMIC"], [f"FLUSH TABLES {name}"],
    ))  # fmt: skip


def _index(random: Random, now: TableNow) -> list[str] | None:
    found = [c for c in now.others if c.base in ("int", "bigint", "datetime", "double", "decimal", "enum")]
    if not found:
        return None
    name, column = now.table.name, random.choice(found).name
    return random.choice((
        [f"CREATE INDEX ix ON {name} (`{column}`)"], [f"ALTER TABLE {name} ADD INDEX iy (`{column}`)"],
        [f"DROP INDEX ix ON {name}"], [f"ALTER TABLE {name} DROP INDEX iy, ADD INDEX iy (`{column}`)"],
    ))  # fmt: skip


def _nullability(random: Random, now: TableNow) -> list[str] | None:
    """A column that may be NULL from now on, or one without NULLs that must not be."""
    found = _other(random, now)
    if found is None:
        return None
    if not found.nullable:
        return _alter(random, now, f"MODIFY `{found.name}` {_type(found)} NULL")
    strict = "SET sql_mode = 'STRICT_ALL_TABLES'"
    return [strict, *_alter(random, now, f"MODIFY `{found.name}` {_type(found)} NOT NULL")]


def _partitions(random: Random, now: TableNow) -> list[str] | None:
    """Rows change their partition, none goes."""
    if not now.table.more.startswith(" PARTITION"):
        return None
    name, key = now.table.name, now.key[0]
    at = random.randrange(-24000, -10000)
    ranges = f"PARTITION p0 VALUES LESS THAN ({at}), PARTITION p2 VALUES LESS THAN MAXVALUE"
    return random.choice((
        [f"ALTER TABLE {name} REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN MAXVALUE)"],
        [f"ALTER TABLE {name} REBUILD PARTITION ALL"], [f"ALTER TABLE {name} REMOVE PARTITIONING"],
        [f"ALTER TABLE {name} PARTITION BY HASH(`{key}`) PARTITIONS 3"], [f"ALTER TABLE {name} COALESCE PARTITION 1"],
        [f"ALTER TABLE {name} PARTITION BY RANGE(`{key}`) ({ranges})"],
        [f"ALTER TABLE {name} TRUNCATE PARTITION ALL"],
    ))  # fmt: skip


_GENTLE: dict[str, Draw] = {
    "add-constant": _added(_CONSTANTS), "add-implicit": _added(_IMPLICIT), "add-time": _added(_TIMES), "add-null": _added(_NULLS),
    "add-several": _add_several, "drop": _drop, "drop-and-add": _drop_and_add, "rename": _rename, "exchange": _exchange,
    "reorder": _reorder, "widen": _widen, "members": _members, "charset": _charset, "truncate": _truncate, "several": _several,
    "nothing": _nothing, "index": _index, "nullability": _nullability, "partitions": _partitions,
}  # fmt: skip


# -- what has to be resnapshotted


def _swap(random: Random, now: TableNow) -> list[str]:
    name, new, old = now.table.name, f"_{now.table.name}_new", f"_{now.table.name}_old"
    columns = ", ".join(f"`{c.name}`" for c in now.columns if not c.generated)
    return [
        f"DROP TABLE IF EXISTS {new}, {old}",
        f"CREATE TABLE {new} LIKE {name}",
        f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {name} WHERE MOD(CRC32(`{now.key[0]}`), 3) > 0",
        f"RENAME TABLE {name} TO {old}, {new} TO {name}",
        f"DROP TABLE {old}",
    ]


def _narrow(random: Random, now: TableNow) -> list[str] | None:
    found = [c for c in now.others if c.base in ("bigint", "double", "varchar", "decimal", "datetime")]
    if not found:
        return None
    column = random.choice(found)
    narrow = {
        "bigint": "INT",
        "double": "FLOAT",
        "varchar": "VARCHAR(6)",
        "decimal": "DECIMAL(6,1)",
        "datetime": "DATE",
    }
    return ["SET sql_mode = ''", *_alter(random, now, f"MODIFY `{column.name}` {narrow[column.base]} NULL")]


def _key(random: Random, now: TableNow) -> list[str] | None:
    if len(now.key) < 2:
        return None
    return [
        f"ALTER TABLE {now.table.name} DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(f'`{c}`' for c in reversed(now.key))})"
    ]


def _partition_gone(random: Random, now: TableNow) -> list[str] | None:
    if not now.table.more.startswith(" PARTITION"):
        return None
    return [f"ALTER TABLE {now.table.name} {random.choice(('TRUNCATE', 'DROP'))} PARTITION p0"]


def _computed(random: Random, now: TableNow) -> list[str] | None:
    name = _new_name(random, now)
    kind = random.choice(
        ("INT AS (7 * 3) STORED", "INT NOT NULL DEFAULT (3 * 4)", "VARCHAR(9) AS (CONCAT('a', 'b')) VIRTUAL")
    )
    return (name and [f"ALTER TABLE {now.table.name} ADD COLUMN `{name}` {kind}"]) or None


def _binary(random: Random, now: TableNow) -> list[str] | None:
    found = [c for c in now.others if c.base == "varchar"]
    if not found:
        return None
    column = random.choice(found)
    return _alter(random, now, f"MODIFY `{column.name}` VARBINARY(900) NULL")


_HARSH: dict[str, Draw] = {
    "swap": _swap, "narrow": _narrow, "key": _key, "partition-gone": _partition_gone, "computed": _computed, "binary": _binary,
}  # fmt: skip
