"""Tables that cannot be copied, each for a cause of its own, and what their status must name: the
reason, and words that the server or the check has of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from support.servers import Server

_MYSQL, _MARIADB = ("mysql",), ("mariadb",)
_BOTH = (*_MYSQL, *_MARIADB)


@dataclass(frozen=True)
class Broken:
    """`statements` make the table `{t}` and break it; `file` of it is removed while the server is
    stopped."""

    name: str
    statements: tuple[str, ...]
    reason: str
    words: str
    flavors: tuple[str, ...] = _BOTH
    file: str = ""


def _table(name: str, columns: str, reason: str, words: str, *more: str, on: tuple[str, ...] = _BOTH) -> Broken:
    return Broken(name, (f"CREATE TABLE {{t}} ({columns})", *more), reason, words, on)


def _computed(name: str, column: str, row: str, expression: str, words: str, *on: str) -> Broken:
    """A virtual column that cannot be computed for the second row."""
    return _table(
        name,
        f"id INT PRIMARY KEY, {column}",
        "TableUnreadable",
        words,
        f"INSERT INTO {{t}} VALUES (1, NULL), (2, {row})",
        f"ALTER TABLE {{t}} ADD v {expression} VIRTUAL",
        on=on or _BOTH,
    )


def _unproved(name: str, column: str, row: str, expression: str, words: str, *on: str) -> Broken:
    """One that is refused before it is computed."""
    return replace(_computed(name, column, row, expression, words, *on), reason="TypeUnsupported")


_DISCARDED = ("INSERT INTO {t} VALUES (1)", "ALTER TABLE {t} DISCARD TABLESPACE")
_PLAIN = "id INT PRIMARY KEY"

BROKEN = (
    _table("discarded", _PLAIN, "TableUnreadable", "1814", *_DISCARDED),
    _computed("overflow", "a BIGINT", "9223372036854775807", "BIGINT AS (a * a)", "1690", "mysql"),
    _computed("negative", "a BIGINT UNSIGNED", "1", "BIGINT UNSIGNED AS (a - 2)", "1690", "mysql"),
    _computed("no_json", "t TEXT", "'no json'", "VARCHAR(20) AS (json_unquote(json_extract(t, '$.a')))", "3141", "mysql"),
    _computed("no_path", "t TEXT", "'no path'", "VARCHAR(20) AS (json_extract('{}', t))", "3143", "mysql"),
    _unproved("no_geometry", "t BLOB", "'x'", "INT AS (ST_SRID(ST_GeomFromWKB(t)))", "it uses st_srid", "mysql"),
    _unproved("no_regexp", "t VARCHAR(9)", "'('", "INT AS ('a' REGEXP t)", "it uses regexp_like", "mysql"),
    _table("no_key", "id INT", "NoPrimaryKey", "no primary key"),
    _table("null_key", "id INT, UNIQUE (id)", "NoPrimaryKey", "may hold NULL in id"),
    _table("prefix_key", "t VARCHAR(99) NOT NULL, PRIMARY KEY (t(9))", "NoPrimaryKey", "the first 9"),
    _table("float_key", "f FLOAT PRIMARY KEY", "TypeUnsupported", "key column f"),
    _table("double_key", "f DOUBLE PRIMARY KEY", "TypeUnsupported", "key column f"),
    _table("sjis_key", "t VARCHAR(9) CHARACTER SET sjis PRIMARY KEY", "TypeUnsupported", "key column t"),
    _table("computed_key", "id INT NOT NULL, UNIQUE k ((id + 1))", "NoPrimaryKey", "expression", on=_MYSQL),
    Broken("in_myisam", (f"CREATE TABLE {{t}} ({_PLAIN}) ENGINE=MyISAM",), "EngineUnsupported", "MyISAM"),
    Broken("in_memory", (f"CREATE TABLE {{t}} ({_PLAIN}) ENGINE=MEMORY",), "EngineUnsupported", "MEMORY"),
    Broken("in_archive", ("CREATE TABLE {t} (id INT) ENGINE=ARCHIVE",), "EngineUnsupported", "ARCHIVE", _MYSQL),
    Broken("in_csv", ("CREATE TABLE {t} (id INT NOT NULL) ENGINE=CSV",), "EngineUnsupported", "CSV"),
    Broken("in_blackhole", (f"CREATE TABLE {{t}} ({_PLAIN}) ENGINE=BLACKHOLE",), "EngineUnsupported", "BLACKHOLE", _MYSQL),
    Broken("no_child", (f"CREATE TABLE {{t}} ({_PLAIN}) ENGINE=MERGE UNION=(not_there)",), "EngineUnsupported", "MRG_M"),
    Broken("no_partition", (
        f"CREATE TABLE {{t}} ({_PLAIN}) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9))",
        "INSERT INTO {t} VALUES (1), (7)",
        "ALTER TABLE {t} DISCARD PARTITION b TABLESPACE",
    ), "TableUnreadable", "1814", _MYSQL),
    Broken("in_aria", (f"CREATE TABLE {{t}} ({_PLAIN}) ENGINE=Aria",), "EngineUnsupported", "Aria", _MARIADB),
    Broken("versioned", (f"CREATE TABLE {{t}} ({_PLAIN}) WITH SYSTEM VERSIONING",), "EngineUnsupported", "system versioned", _MARIADB),
    _table("zero_date", "k DATE PRIMARY KEY", "TypeUnsupported", "2020-00-00",
           "SET SESSION sql_mode = ''",
           "INSERT INTO {t} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)"
           " SELECT DATE '2019-01-01' + INTERVAL i DAY FROM n",
           "INSERT INTO {t} VALUES ('2020-00-00'), ('2021-01-01')"),
    _table("cascading", f"{_PLAIN}, p INT, FOREIGN KEY (p) REFERENCES ok_001 (id) ON DELETE CASCADE",
           "CascadesNotLogged", "ON DELETE CASCADE", on=_MARIADB),
    Broken("no_file", (f"CREATE TABLE {{t}} ({_PLAIN})",), "TableUnreadable", "", file="{t}.ibd"),
    Broken("no_frm_text", (f"CREATE TABLE {{t}} ({_PLAIN})",), "TableUnreadable", "1033", _MARIADB, file="{t}.frm"),
)  # fmt: skip


def of(server: Server, *, files: bool, count: int = 0) -> list[Broken]:
    """The broken tables that the server has, one of each, and more of them up to `count`; `files`:
    also those whose files are damaged."""
    kinds = [b for b in BROKEN if server.flavor in b.flavors and (files or not b.file)]
    more = itertools.islice(itertools.cycle(kinds), max(0, count - len(kinds)))
    return [*kinds, *(replace(b, name=f"{b.name}_{number}") for number, b in enumerate(more))]


def make(server: Server, database: str, broken: list[Broken]) -> None:
    for table in broken:
        server.run(*(s.replace("{t}", table.name) for s in table.statements), db=database)


def damage_files(server: Server, database: str, broken: list[Broken]) -> None:
    """While the server is stopped: a tablespace goes, a definition becomes unreadable."""
    for table in broken:
        if not table.file:
            continue
        file = server.datadir / database / table.file.replace("{t}", table.name)
        if file.suffix == ".frm":
            file.write_bytes(b"no definition")
        else:
            file.unlink()
