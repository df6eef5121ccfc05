"""A family of ALTERs, generated from types, defaults, places and sessions, on a table whose rows
hold NULLs and the extremes of every type."""

from __future__ import annotations

import random
from collections.abc import Iterator

from support.definitions import A, DefinitionCase

_COLUMNS = {
    "t1": "TINYINT", "t1u": "TINYINT UNSIGNED", "s2": "SMALLINT", "m3u": "MEDIUMINT UNSIGNED", "i4": "INT",
    "i4u": "INT UNSIGNED", "b8": "BIGINT", "b8u": "BIGINT UNSIGNED", "d1": "DECIMAL(10,3)", "d2": "DECIMAL(5,0) UNSIGNED",
    "f": "FLOAT", "db": "DOUBLE", "bi": "BIT(4)", "y": "YEAR", "dd": "DATE", "dt": "DATETIME", "dt3": "DATETIME(3)",
    "ts": "TIMESTAMP NULL", "ts6": "TIMESTAMP(6) NULL", "tm": "TIME", "tm2": "TIME(2)", "c": "CHAR(5)", "v": "VARCHAR(10)",
    "vl": "VARCHAR(20) CHARACTER SET latin1", "v3": "VARCHAR(20) CHARACTER SET utf8mb3",
    "va": "VARCHAR(20) CHARACTER SET ascii", "tt": "TINYTEXT", "tx": "TEXT", "tl": "TEXT CHARACTER SET latin1",
    "mt": "MEDIUMTEXT", "bn": "BINARY(3)", "vb": "VARBINARY(10)", "tb": "TINYBLOB", "bl": "BLOB",
    "e": "ENUM('a','b','c')", "el": "ENUM('a','b') CHARACTER SET latin1", "st": "SET('x','y','z')",
}  # fmt: skip
_LOWEST = (
    "-128, 0, -32768, 0, -2147483648, 0, -9223372036854775808, 0, -9999999.999, 0, -3.4e38, -1.7e308, b'0', 1901, '1000-01-01',"
    " '1000-01-01', '1000-01-01 00:00:00.001', '1970-01-02 00:00:01', '1970-01-02 00:00:01.000001', '-838:59:59', '-838:59:59', '',"
    " '', '', '', '', '', '', '', '', '', '', '', '', 'a', 'a', ''"
)
_HIGHEST = (
    "127, 255, 32767, 16777215, 2147483647, 4294967295, 9223372036854775807, 18446744073709551615, 9999999.999, 99999, 3.4e38,"
    " 1.7e308, b'1111', 2155, '9999-12-31', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999', '2038-01-19 03:14:07',"
    " '2038-01-19 03:14:07.999999', '838:59:59', '838:59:58.99', 'ééééé', '0123456789', REPEAT('ÿ', 20), REPEAT('€', 20),"
    " REPEAT('~', 20), REPEAT('a', 255), REPEAT('é', 3000), REPEAT('ÿ', 60000), 'm', x'ff0000', REPEAT(x'ff', 10),"
    " REPEAT(x'00', 255), REPEAT(x'61', 3000), 'c', 'b', 'x,y,z'"
)
TABLE = (
    (
        f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, {', '.join(f'{n} {t}' for n, t in _COLUMNS.items())}, n INT NOT NULL,"
        " KEY kv (v)) DEFAULT CHARSET utf8mb4"
    ),
    f"INSERT INTO t VALUES (1, {_LOWEST}, 1), (2, {_HIGHEST}, -1), (3{', NULL' * len(_COLUMNS)}, 0)",
)
GENERATED = (
    (
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v VARCHAR(10) CHARACTER SET latin1, i INT, n INT NOT NULL DEFAULT 0,"
        " g INT AS (LENGTH(v)) STORED, h VARCHAR(40) AS (HEX(v)) VIRTUAL) DEFAULT CHARSET utf8mb4"
    ),
    "INSERT INTO t (id, v, i) VALUES (1, 'é', 5), (2, NULL, NULL)",
)
NUMBERED = (
    "CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10), n INT NOT NULL DEFAULT 0) DEFAULT CHARSET utf8mb4",
    "INSERT INTO t (v) VALUES ('a'), (NULL)",
    "UPDATE t SET id = 0 WHERE id = 1",
)
#: as MySQL generates its invisible key, and as a dump restores one; the last row's key is visible
INVISIBLE_KEYS = (
    (
        "SET sql_generate_invisible_primary_key = ON",
        "CREATE TABLE t (a BIGINT UNSIGNED NOT NULL)",
        "SET sql_generate_invisible_primary_key = OFF",
        "INSERT INTO t VALUES (70), (71)",
    ),
    (
        "CREATE TABLE t (`MY_ROW_ID` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY, a BIGINT UNSIGNED NOT NULL)",
        "INSERT INTO t VALUES (70), (71)",
    ),
    (
        "CREATE TABLE t (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, a BIGINT UNSIGNED NOT NULL)",
        "INSERT INTO t (a) VALUES (70), (71)",
    ),
)

_LAX, _STRICT = "SET sql_mode = ''", "SET sql_mode = 'STRICT_ALL_TABLES'"

#: types of an added column, each with defaults
_ADDED: dict[str, tuple[str, ...]] = {
    "TINYINT": ("-128", "127", "TRUE", "'1'"), "TINYINT(1)": ("1",), "BOOL": ("FALSE",), "SMALLINT": ("32767", "-0"),
    "SMALLINT UNSIGNED": ("65535",), "MEDIUMINT": ("-8388608",), "INT": ("42", "-2147483648", "1.5", "1e2"), "INT(5)": ("7",),
    "INTEGER UNSIGNED": ("4294967295",), "BIGINT": ("9223372036854775807", "-9223372036854775808"),
    "BIGINT UNSIGNED": ("18446744073709551615",), "DECIMAL(8,2)": ("1.25", "-999999.99", "3", "1.255"), "DECIMAL": ("5",),
    "NUMERIC(5,1) UNSIGNED": ("1.5", "9999.9"), "DECIMAL(65,30)": ("1",), "FLOAT": ("3", "16777216", "1.1"),
    "DOUBLE": ("-7", "9007199254740992", "0.1"), "DOUBLE PRECISION UNSIGNED": ("2",), "BIT": ("b'1'", "1"), "BIT(12)": (),
    "YEAR": ("2024", "'2024'", "24"), "DATE": ("'2024-02-29'", "'0000-00-00'", "'2024-1-1'"),
    "DATETIME": ("'2024-01-02 03:04:05'", "'2024-01-02'", "CURRENT_TIMESTAMP", "NOW()", "LOCALTIME"),
    "DATETIME(6)": ("CURRENT_TIMESTAMP(6)", "'2024-01-02 03:04:05'", "'2024-01-02 03:04:05.5'"), "DATETIME(3)": ("NOW(3)",),
    "TIMESTAMP": ("CURRENT_TIMESTAMP", "'2024-01-02 03:04:05'"), "TIMESTAMP(6)": ("CURRENT_TIMESTAMP(6)",),
    "TIME": ("'12:34:56'", "'-01:00:00'"), "TIME(3)": ("'12:34:56'",), "CHAR(5)": ("'a  '", "'abcde'", "''"), "CHAR": ("'x'",),
    "VARCHAR(10)": ("'a''b\\\\c'", "'a  '", "\"q\"", "5", "'é'", "'0123456789'"), "VARCHAR(10) CHARACTER SET latin1": ("'x'",),
    "VARCHAR(10) COLLATE utf8mb4_bin": ("'x'",), "VARCHAR(300)": ("'x'",), "TINYTEXT": ("'x'",), "TEXT": ("'x'",),
    "MEDIUMTEXT": (), "LONGTEXT": (), "BINARY(3)": ("'a'", "x'01'"), "VARBINARY(3)": ("'a'",), "TINYBLOB": (), "BLOB": ("'x'",),
    "LONGBLOB": (), "ENUM('p','q')": ("'q'", "2"), "SET('p','q')": ("'p,q'", "'q,p'", "''"), "JSON": (), "POINT": (),
    "ENUM('p') CHARACTER SET latin1": ("'p'",), "UUID": (), "INET4": (), "INET6": (),
}  # fmt: skip

_TYPES = (
    "TINYINT", "SMALLINT", "SMALLINT UNSIGNED", "INT", "INT(7)", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "DECIMAL(20,5)",
    "DECIMAL(12,3)", "DECIMAL(10,1)", "DECIMAL(6,1) UNSIGNED", "FLOAT", "DOUBLE", "BIT(4)", "BIT(8)", "YEAR", "DATE", "DATETIME",
    "DATETIME(6)", "TIMESTAMP NULL", "TIMESTAMP(6) NULL", "TIME", "TIME(4)", "CHAR(5)", "CHAR(8)", "VARCHAR(5)", "VARCHAR(30)",
    "VARCHAR(300)", "VARCHAR(30) CHARACTER SET latin1", "VARCHAR(30) CHARACTER SET utf8mb3", "VARCHAR(30) COLLATE utf8mb4_bin",
    "TINYTEXT", "TEXT", "TEXT CHARACTER SET latin1", "MEDIUMTEXT", "LONGTEXT CHARACTER SET utf8mb4", "BINARY(3)",
    "VARBINARY(40)", "BLOB", "MEDIUMBLOB", "LONGBLOB", "ENUM('c','b','a','d')", "ENUM('a','b','c') CHARACTER SET latin1",
    "ENUM('a','b','c','dd')", "SET('x','y','z','w')", "SET('z','y','x')", "SET('x','y','z','u1','u2','u3','u4','u5','u6')",
)  # fmt: skip
_PLACES = ("", " FIRST", " AFTER v", "", " AFTER id")


def additions() -> Iterator[DefinitionCase]:
    """Each type as NULL, NOT NULL, and with each default in one of the places."""
    for kind, defaults in _ADDED.items():
        flavor = "mariadb" if kind in ("UUID", "INET4", "INET6") else ""
        forms = [" NULL", " NOT NULL", " NULL DEFAULT NULL", *(f" NOT NULL DEFAULT {d}" for d in defaults)]
        forms += [f" NULL DEFAULT {d}" for d in defaults[:1]]
        for i, form in enumerate(forms):
            before = (_LAX, "SET time_zone = '+05:00'") if i % 2 else (_STRICT, "SET time_zone = '-03:30'")
            yield DefinitionCase((f"{A}ADD COLUMN x {kind}{form}{_PLACES[i % 5]}",), False, flavor, before, TABLE)


def redefinitions() -> Iterator[DefinitionCase]:
    """Each column as each type, where no error keeps the server from changing values."""
    for name in _COLUMNS:
        for i, kind in enumerate(_TYPES):
            yield DefinitionCase(
                (f"{A}MODIFY {name} {kind}{_PLACES[i % 5] if name != 'v' else ''}",), False, "", (_LAX,), TABLE
            )


def combinations(seed: int, count: int) -> Iterator[DefinitionCase]:
    """Several clauses in one statement: what they do depends on their order and on each other."""
    rng = random.Random(seed)
    for _ in range(count):
        clauses = [_clause(rng) for _ in range(rng.randint(2, 5))]
        yield DefinitionCase((A + ", ".join(clauses),), False, "", (_LAX,), TABLE)


def _clause(rng: random.Random) -> str:
    name, other = rng.sample(("i4", "v", "d1", "tm", "e", "dt", "n", "b8"), 2)
    new = rng.choice(("x", "z", name, other))
    kind = {"n": "INT NOT NULL"}.get(name) or _COLUMNS.get(name, "INT")
    place = rng.choice(("", "", " FIRST", f" AFTER {other}", f" AFTER {new}"))
    return rng.choice((
        f"DROP COLUMN {name}", f"DROP {name}", f"ADD COLUMN {new} INT DEFAULT {rng.randint(0, 9)}{place}",
        f"ADD {new} VARCHAR(5) NOT NULL DEFAULT 'q'{place}", f"RENAME COLUMN {name} TO {new}", f"CHANGE {name} {new} {kind}{place}",
        f"MODIFY {name} {kind}{place}", f"MODIFY COLUMN {name} {kind} COMMENT 'c'", "ADD INDEX kx (n)", f"ALTER {name} DROP DEFAULT",
        f"CHANGE COLUMN {name} {other} {kind}", f"ADD ({new} INT, z2 DATE NULL)",
    ))  # fmt: skip


def sessions() -> Iterator[DefinitionCase]:
    """What the session's settings and the statement's spelling decide."""
    for mode in ("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PAD_CHAR_TO_FULL_LENGTH", "ANSI", "TRADITIONAL"):
        for sql in (
            A + "ADD x VARCHAR(20) NOT NULL DEFAULT 'a\\\\b'",
            A + "MODIFY c VARCHAR(9)",
            A + "ADD `a``b` INT DEFAULT 5 COMMENT '\"' /* , DROP v */ -- x",
            'ALTER TABLE "t" DROP "v"',
            A + "ADD x VARCHAR(9) DEFAULT ''",
        ):
            yield DefinitionCase((sql,), False, "", (f"SET sql_mode = '{mode}'",), TABLE)
    for mode in ("EMPTY_STRING_IS_NULL", "MAXDB", "POSTGRESQL"):
        yield DefinitionCase(
            (A + "ADD x VARCHAR(9) DEFAULT ''",), False, "mariadb", (f"SET sql_mode = '{mode}'",), TABLE
        )
        yield DefinitionCase(
            (A + "ADD x TIMESTAMP NULL DEFAULT NULL",), False, "mariadb", (f"SET sql_mode = '{mode}'",), TABLE
        )
    two = "SET SESSION binlog_alter_two_phase = 1"
    yield DefinitionCase((A + "ADD x INT DEFAULT 4",), False, "mariadb", (two,), TABLE)
    yield DefinitionCase((A + "ADD UNIQUE KEY failing (bi, e)", A + "DROP v"), False, "mariadb", (two,), TABLE)
    for now in ("SET timestamp = 1000000000", "SET timestamp = 1000000000.654321"):
        for kind in ("DATETIME(6) DEFAULT NOW(6)", "TIMESTAMP NOT NULL DEFAULT NOW()", "DATETIME(2) DEFAULT NOW(2)"):
            yield DefinitionCase((A + f"ADD x {kind}",), False, "", (now, "SET time_zone = '+05:45'"), TABLE)
    for zone in ("SYSTEM", "+00:00", "-12:00"):
        yield DefinitionCase((A + "ADD x DATETIME DEFAULT NOW()",), False, "", (f"SET time_zone = '{zone}'",), TABLE)
    for charset in ("latin1", "utf8mb3", "utf8mb4", "ascii"):
        yield DefinitionCase((A + f"CONVERT TO CHARACTER SET {charset}",), False, "", (_LAX,), TABLE)
        yield DefinitionCase(
            (A + f"DEFAULT CHARACTER SET {charset}", A + "ADD x VARCHAR(5)"), False, "", (_LAX,), TABLE
        )
        yield DefinitionCase((f"SET NAMES {charset}", A + "ADD x VARCHAR(5) DEFAULT 'q'"), False, "", (_LAX,), TABLE)
    for clauses in ("CHARACTER SET latin1, ADD x VARCHAR(5)", "ADD x INT DEFAULT 5, ALTER x SET DEFAULT 9",
                    "DROP v, ADD v INT DEFAULT 5, ALTER v SET DEFAULT 9", "ALTER v SET DEFAULT 'q', DROP v, ADD v INT DEFAULT 5",
                    "ADD x VARCHAR(5), CHARACTER SET latin1", "ADD x VARCHAR(5) DEFAULT 'a', CONVERT TO CHARACTER SET utf8mb4",
                    "CONVERT TO CHARACTER SET utf8mb4, ADD x INT DEFAULT 2", "ADD x INT DEFAULT 1, ORDER BY id"):  # fmt: skip
        yield DefinitionCase((A + clauses,), False, "", (_LAX,), TABLE)


def special_tables() -> Iterator[DefinitionCase]:
    """Generated columns, a key that the server numbers, and one that MySQL generates."""
    for clause in ("ADD x INT DEFAULT 3", "DROP i", "MODIFY v VARCHAR(20) CHARACTER SET latin1", "MODIFY i BIGINT", "MODIFY g INT",
                   "MODIFY v VARCHAR(10) CHARACTER SET utf8mb4", "CONVERT TO CHARACTER SET utf8mb4", "RENAME COLUMN i TO k",
                   "RENAME COLUMN v TO w", "DROP g, ADD g INT DEFAULT 1", "ADD z INT AS (i + 1)", "MODIFY i INT COMMENT 'c'"):  # fmt: skip
        yield DefinitionCase((A + clause,), False, "", (_LAX,), GENERATED)
    for clause in ("MODIFY id BIGINT NOT NULL AUTO_INCREMENT", "MODIFY id BIGINT NOT NULL", "CHANGE id key_id INT AUTO_INCREMENT",
                   "MODIFY id INT UNSIGNED NOT NULL AUTO_INCREMENT", "RENAME COLUMN id TO key_id", "MODIFY id BIGINT AUTO_INCREMENT",
                   "MODIFY id BIGINT", "DROP id", "MODIFY n INT NOT NULL AFTER id", "AUTO_INCREMENT = 40, ADD x INT"):  # fmt: skip
        yield DefinitionCase((A + clause,), False, "", (_LAX,), NUMBERED)
    for table in INVISIBLE_KEYS:
        for clause in ("ADD c BIGINT UNSIGNED NOT NULL DEFAULT 9 FIRST", "MODIFY a BIGINT UNSIGNED NOT NULL FIRST",
                       "ADD c INT AFTER my_row_id", "ALTER my_row_id SET VISIBLE, ADD c INT FIRST"):  # fmt: skip
            for generated in ("ON", "OFF"):
                session = f"SET sql_generate_invisible_primary_key = {generated}"
                yield DefinitionCase((A + clause,), False, "mysql", (_LAX, session), table)
