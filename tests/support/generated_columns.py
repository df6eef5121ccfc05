"""Statements drawn from the grammar of column definitions and defaults of both servers, on a small
table whose rows hold NULLs and the extremes of each type. The server judges them: what it refuses
says nothing, what it accepts must be as predicted, or not predicted at all."""

from __future__ import annotations

import random
from collections.abc import Iterator

from support.column_grammar import (
    ATTRIBUTES,
    BLOBS,
    CHARS,
    CHARSETS,
    DECIMALS,
    INTEGERS,
    LITERALS_OF,
    NOWS,
    NUMBERS,
    OPTIONS,
    OTHERS,
    REALS,
    STRINGS,
    TEXTS,
    TIMES,
    VARCHARS,
)
from support.definitions import DefinitionCase

_COLUMNS = {
    "i1": ("TINYINT", "-128", "127"),
    "i4": ("INT", "-2147483648", "2147483647"),
    "u4": ("INT UNSIGNED", "0", "4294967295"),
    "b8": ("BIGINT", "-9223372036854775808", "9223372036854775807"),
    "d": ("DECIMAL(10,3)", "-9999999.999", "9999999.999"),
    "du": ("DECIMAL(5,0) UNSIGNED", "0", "99999"),
    "f": ("FLOAT", "-3.4e38", "16777217"),
    "fu": ("FLOAT UNSIGNED", "0.1", "1e-30"),
    "db": ("DOUBLE", "-1.7e308", "0.1"),
    "bi": ("BIT(10)", "b'0'", "b'1000000001'"),
    "y": ("YEAR", "1901", "2155"),
    "dd": ("DATE", "'1000-01-01'", "'9999-12-31'"),
    "dt": ("DATETIME", "'1000-01-01'", "'9999-12-31 23:59:59'"),
    "ts": ("TIMESTAMP NULL", "'1970-01-02 00:00:01'", "'2038-01-19 03:14:07'"),
    "tm": ("TIME", "'-838:59:59'", "'838:59:59'"),
    "c": ("CHAR(5)", "''", "'ééééé'"),
    "cl": ("CHAR(5) CHARACTER SET latin1", "'a'", "'ÿé'"),
    "v": ("VARCHAR(10)", "''", "'0123456789'"),
    "vl": ("VARCHAR(20) CHARACTER SET latin1", "''", "REPEAT('ÿ', 20)"),
    "v3": ("VARCHAR(20) CHARACTER SET utf8mb3", "'a '", "REPEAT('€', 20)"),
    "vb": ("VARCHAR(9) COLLATE utf8mb4_bin", "'A'", "'a'"),
    "tx": ("TEXT", "''", "REPEAT('é', 300)"),
    "tl": ("TINYTEXT CHARACTER SET latin1", "''", "REPEAT('ÿ', 255)"),
    "bn": ("BINARY(3)", "x'00'", "x'ff0000'"),
    "va": ("VARBINARY(10)", "x''", "REPEAT(x'ff', 10)"),
    "bl": ("BLOB", "x''", "REPEAT(x'00', 300)"),
    "e": ("ENUM('a','b','c')", "'a'", "'c'"),
    "el": ("ENUM('a','b') CHARACTER SET latin1", "'a'", "'b'"),
    "st": ("SET('x','y','z')", "''", "'x,y,z'"),
    "n": ("INT NOT NULL", "1", "-1"),
    "vn": ("VARCHAR(10) NOT NULL DEFAULT 'q'", "''", "'x'"),
    "js": ("JSON", "'{}'", "'[1, \"é\"]'"),
}
_KEY = "id INT NOT NULL PRIMARY KEY"
TABLE = (
    (
        f"CREATE TABLE t ({_KEY}, {', '.join(f'{name} {kind[0]}' for name, kind in _COLUMNS.items())}, KEY kv (v))"
        " DEFAULT CHARSET utf8mb4"
    ),
    f"INSERT INTO t VALUES (1, {', '.join(k[1] for k in _COLUMNS.values())}), (2, {', '.join(k[2] for k in _COLUMNS.values())})",
    (
        f"INSERT INTO t (id, {', '.join(n for n in _COLUMNS if n not in ('n', 'vn'))}, n)"
        f" VALUES (3{', NULL' * (len(_COLUMNS) - 2)}, 0)"
    ),
)
#: with the columns of a key, another character set, and an attribute that a redefinition drops
KEYED = (
    (
        "CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT, k VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,"
        " h CHAR(5) CHARACTER SET utf8mb4, i INT DEFAULT 4 COMMENT 'c', ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP"
        " ON UPDATE CURRENT_TIMESTAMP, v VARCHAR(9) COLLATE latin1_bin, n SMALLINT ZEROFILL,"
        " PRIMARY KEY (id, k), UNIQUE KEY u (i)) DEFAULT CHARSET latin1"
    ),
    "INSERT INTO t (id, k, h, i, v, n) VALUES (1, 'a', 'é', 1, 'x', 5), (2, 'b', NULL, NULL, NULL, NULL)",
)
COMPUTED = (
    (
        "CREATE TABLE t (id INT NOT NULL, i INT, n INT NOT NULL, v VARCHAR(9), g INT AS (i + 1) STORED, h VARCHAR(30) AS"
        " (CONCAT(v, 'é')) VIRTUAL, UNIQUE KEY u (id), UNIQUE KEY w (n, id)) DEFAULT CHARSET utf8mb4"
    ),
    "INSERT INTO t (id, i, n, v) VALUES (1, 1, 1, 'é'), (2, NULL, 2, NULL)",
)
_COLUMNS_OF: dict[tuple[str, ...], tuple[str, ...]] = {
    TABLE: tuple(_COLUMNS),
    KEYED: ("id", "k", "h", "i", "ts", "v", "n"),
    COMPUTED: ("id", "i", "n", "v", "g", "h"),
}
_OF_TABLE: dict[tuple[str, ...], dict[str, str]] = {
    KEYED: {"id": "INT", "k": "VARCHAR(8)", "h": "CHAR(5)", "i": "INT", "ts": "TIMESTAMP", "v": "VARCHAR(9)", "n": "SMALLINT"},
    COMPUTED: {"id": "INT", "i": "INT", "n": "INT", "v": "VARCHAR(9)", "g": "INT", "h": "VARCHAR(30)"},
}  # fmt: skip

_MODES = (
    "", "STRICT_ALL_TABLES", "STRICT_TRANS_TABLES", "ANSI_QUOTES,STRICT_TRANS_TABLES", "NO_BACKSLASH_ESCAPES",
    "NO_ZERO_DATE,NO_ZERO_IN_DATE",
    "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE", "ALLOW_INVALID_DATES", "ANSI", "TRADITIONAL", "PAD_CHAR_TO_FULL_LENGTH",
    "REAL_AS_FLOAT", "NO_UNSIGNED_SUBTRACTION",
)  # fmt: skip
_MODES_OF_MARIADB = ("EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT", "TIME_ROUND_FRACTIONAL", "MAXDB")
_MODES_OF_MYSQL = ("TIME_TRUNCATE_FRACTIONAL",)
_ZONES = ("+00:00", "+05:45", "-12:00", "SYSTEM")


class _Draw:
    """One statement's choices."""

    def __init__(self, rng: random.Random, flavor: str) -> None:
        self._rng, self._flavor = rng, flavor
        self.table = rng.choices((TABLE, KEYED, COMPUTED), (8, 1, 1))[0]

    def _often(self, share: float) -> bool:
        return self._rng.random() < share

    def _one(self, *texts: str) -> str:
        return self._rng.choice(texts)

    # -- types

    def _integer(self) -> str:
        width = self._one("", "", "", "(1)", "(4)", "(11)")
        return (
            self._one(*INTEGERS)
            + width
            + self._one("", "", " UNSIGNED", " SIGNED", " ZEROFILL" if self._often(0.2) else "")
        )

    def _number(self) -> str:
        kind = self._rng.randrange(4)
        if kind == 0:
            return (
                self._one(*DECIMALS)
                + self._one("", "(5)", "(8,2)", "(10,3)", "(12,4)", "(65,30)", "(3,3)")
                + self._sign()
            )
        if kind == 1:
            return (
                self._one(*REALS)
                + self._one("", "", "", "(7,3)", "(10)", "(53)" if self._often(0.3) else "")
                + self._sign()
            )
        if kind == 2:
            return self._one(
                "BIT", "BIT(1)", "BIT(8)", "BIT(10)", "BIT(12)", "BIT(64)", "YEAR", "YEAR(4)", "BOOL", "BOOLEAN"
            )
        return self._integer()

    def _sign(self) -> str:
        return self._one("", "", "", " UNSIGNED")

    def _time(self) -> str:
        kind = self._one("DATE", "DATETIME", "DATETIME", "TIMESTAMP", "TIME")
        return kind if kind == "DATE" else kind + self._one("", "", "(0)", "(3)", "(6)", "(2)")

    def _string(self) -> str:
        kind = self._rng.randrange(5)
        if kind == 0:
            return self._one(*CHARS) + self._one("", "(5)", "(8)", "(36)", "(255)") + self._charset()
        if kind in (1, 2):
            return self._one("VARCHAR", *VARCHARS) + self._one("(5)", "(10)", "(20)", "(40)", "(300)") + self._charset()
        if kind == 3:
            return self._one(*TEXTS) + ("(90)" if self._often(0.1) else "") + self._charset()
        return self._one(
            *BLOBS, "BINARY(3)", "BINARY", "VARBINARY(10)", "VARBINARY(300)", "BINARY(10)", "BLOB(70)", "CHAR(3) BYTE"
        )

    def _charset(self) -> str:
        return self._one(*CHARSETS) if self._often(0.3) else ""

    def _labels(self) -> str:
        members = self._one(
            "'a','b','c'",
            "'c','b','a'",
            "'a','b','c','dd'",
            "'r','q'",
            "'r'",
            "'é','q'",
            "'x','y','z'",
            "'x','y','z','w'",
        )
        return f"{self._one('ENUM', 'SET')}({members}){self._charset()}"

    def _type(self) -> tuple[str, tuple[str, ...]]:
        """A type, and literals that it may have for a default."""
        families = (self._integer, self._number, self._time, self._string, self._labels, lambda: self._one(*OTHERS))
        kind = self._rng.choices(families, (4, 5, 4, 6, 2, 1))[0]()
        return kind, self._literals(kind)

    def _literals(self, kind: str) -> tuple[str, ...]:
        """Mostly those that a server may take for the type."""
        word = kind.partition("(")[0].partition(" ")[0]
        return LITERALS_OF.get(word, STRINGS) if self._often(0.95) else (*NUMBERS, *STRINGS, *TIMES)

    # -- definitions

    def _definition(self, kind: str, literals: tuple[str, ...], *, default: float) -> str:
        parts = [self._one("", "", " NOT NULL", " NULL")]
        if self._often(default):
            now = kind.startswith(("DATETIME", "TIMESTAMP")) and self._often(0.4)
            digits = kind[kind.index("(") :] if "(" in kind else self._one("", "()")
            parts.append(f" DEFAULT {self._one(*NOWS) + digits if now else self._one(*literals)}")
        if self._often(0.15):
            parts.append(self._one(*ATTRIBUTES))
        self._rng.shuffle(parts)
        return kind + "".join(parts)

    def _added(self) -> str:
        return self._definition(*self._type(), default=0.75)

    def _redefined(self, name: str) -> str:
        """A definition of the same type as often as of another one, which is near it as often as
        not."""
        own = _OF_TABLE.get(self.table, {}).get(name) or _COLUMNS[name][0].removesuffix(" DEFAULT 'q'")
        bare = own.removesuffix(" NULL").removesuffix(" NOT").partition(" CHARACTER SET")[0].partition(" COLLATE")[0]
        kind, literals = self._rng.choices(((own, ()), (bare, ()), self._near(bare), self._type()), (2, 3, 4, 1))[0]
        return self._definition(kind, literals or STRINGS[:3], default=0.2 if literals else 0.0)

    def _near(self, kind: str) -> tuple[str, tuple[str, ...]]:
        word = kind.partition("(")[0].partition(" ")[0]
        families = (
            (INTEGERS, self._integer),
            (("DECIMAL", "FLOAT", "DOUBLE", "BIT", "YEAR"), self._number),
            (("DATE", "DATETIME", "TIMESTAMP", "TIME"), self._time),
            (("ENUM", "SET"), self._labels),
        )
        near = next((draw for words, draw in families if word in words), self._string)()
        return near, self._literals(near)

    def _place(self) -> str:
        return self._one("", "", "", " FIRST", f" AFTER {self._name()}")

    def _name(self) -> str:
        name = self._one(*_COLUMNS_OF[self.table])
        return self._one(name, name, name, f"`{name}`", name.upper() if self._often(0.3) else name)

    # -- statements

    def _clause(self) -> str:
        kind = self._rng.choices(
            ("add", "modify", "change", "drop", "rename", "several", "option"), (10, 6, 2, 1, 1, 1, 1)
        )[0]
        absent = " IF NOT EXISTS" if self._flavor == "mariadb" and self._often(0.1) else ""
        if kind == "add":
            return f"ADD{self._one('', ' COLUMN')}{absent} {self._new()} {self._added()}{self._place()}"
        if kind in ("modify", "change"):
            name = self._one(*_COLUMNS_OF[self.table])
            spelled = self._one(name, name, name, f"t.{name}", f"`{name}`", name.upper() if self._often(0.3) else name)
            head = (
                f"MODIFY{self._one('', ' COLUMN')} {spelled}"
                if kind == "modify"
                else f"CHANGE {name} {self._one(name, self._new())}"
            )
            return f"{head} {self._redefined(name)}{self._place() if self._often(0.3) else ''}"
        if kind == "drop":
            return f"DROP {self._one('', 'COLUMN ')}{self._name()}"
        if kind == "rename":
            return f"RENAME COLUMN {self._name()} TO {self._new()}"
        if kind == "several":
            more = self._one(
                "",
                f", {self._new()}2 {self._added()}",
                f", INDEX ({self._one(*_COLUMNS_OF[self.table])})",
                ", KEY kx (x)",
                ", UNIQUE (x)",
            )
            return f"ADD (x {self._added()}{more})"
        return self._one(*OPTIONS)

    def _new(self) -> str:
        return self._one("x", "x", "z", "`x y`", "`ü`" if self._often(0.2) else "w")

    def statement(self) -> str:
        clauses = [self._clause() for _ in range(self._rng.choices((1, 2, 3), (7, 2, 1))[0])]
        prefix = "SET STATEMENT sql_mode = '' FOR " if self._flavor == "mariadb" and self._often(0.02) else ""
        if self._flavor == "mariadb" and self._often(0.02):
            prefix = "SET STATEMENT max_statement_time = 90, sort_buffer_size = 99999 FOR "
        return f"{prefix}ALTER TABLE {self._one('t', '`t`')} {', '.join(clauses)}"

    def session(self) -> tuple[str, ...]:
        modes = (*_MODES, *(_MODES_OF_MARIADB if self._flavor == "mariadb" else _MODES_OF_MYSQL))
        mode = self._one("STRICT_TRANS_TABLES", "STRICT_TRANS_TABLES", "") if self._often(0.7) else self._one(*modes)
        settings = [f"SET sql_mode = '{mode}'", f"SET time_zone = '{self._one(*_ZONES)}'"]
        if self._often(0.15):
            settings.append(f"SET NAMES {self._one('latin1', 'utf8mb3', 'utf8mb4', 'ascii', 'cp1251')}")
        if self._often(0.1):
            settings.append(f"SET SESSION explicit_defaults_for_timestamp = {self._one('OFF', 'ON')}")
        if self._often(0.2):
            settings.append(f"SET timestamp = {self._one('1000000000', '1000000000.654321', '1711846800')}")
        return tuple(settings)


def statements(seed: int, flavor: str) -> Iterator[DefinitionCase]:
    """Statements without end; the same ones for the same seed."""
    rng = random.Random(seed)
    while True:
        draw = _Draw(rng, flavor)
        yield DefinitionCase((draw.statement(),), False, flavor, draw.session(), draw.table)
