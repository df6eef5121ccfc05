"""The benchmark's table of all types, as far as mysql-replication reads them, filled inside the
server and in its binlog.

Half of the rows' values differ from row to row; every column is NULL in one row of eleven.
"""

from __future__ import annotations

from support.servers import Server

_DOCUMENT = "JSON_OBJECT('id', k, 'price', k / 4, 'tags', JSON_ARRAY('a', CONCAT('t', MOD(k, 10)), NULL), 'ok', TRUE)"

#: column, type, expression over k
_COLUMNS = [
    ("a", "TINYINT", "MOD(k, 256) - 128"),
    ("b", "TINYINT UNSIGNED", "MOD(k, 256)"),
    ("c", "SMALLINT", "MOD(k, 65536) - 32768"),
    ("d", "MEDIUMINT", "MOD(k * 7, 16777216) - 8388608"),
    ("e", "MEDIUMINT UNSIGNED", "MOD(k * 7, 16777216)"),
    ("f", "INT", "k * 1299 - 2000000"),
    ("g", "INT UNSIGNED", "k * 2001"),
    ("h", "BIGINT", "k * 1000000007"),
    ("i", "BIGINT UNSIGNED", "18446744073709551615 - k"),
    ("j", "DECIMAL(10,2)", "k / 8 - 1000"),
    ("l", "DECIMAL(38,10)", "CAST(k AS DECIMAL(38,10)) * 1234567890123.0123456789"),
    ("m", "DECIMAL(65,30)", "CAST(k AS DECIMAL(65,30)) / 7"),
    ("n", "FLOAT", "k / 16"),
    ("o", "DOUBLE", "k / 7"),
    ("p", "BIT(1)", "MOD(k, 2)"),
    ("q", "BIT(10)", "MOD(k, 1024)"),
    ("r", "DATE", "DATE_ADD('1970-01-01', INTERVAL MOD(k, 20000) DAY)"),
    ("s", "DATETIME", "DATE_ADD('1970-01-01', INTERVAL k * 100 SECOND)"),
    ("t", "DATETIME(6)", "DATE_ADD('1970-01-01', INTERVAL k * 100000123 MICROSECOND)"),
    ("u", "TIMESTAMP NULL", "DATE_ADD('2001-01-01', INTERVAL k * 100 SECOND)"),
    ("v", "TIMESTAMP(3) NULL", "DATE_ADD('2001-01-01', INTERVAL k * 100001000 MICROSECOND)"),
    ("w", "TIME", "SEC_TO_TIME(MOD(k, 3000000))"),
    ("x", "TIME(6)", "SEC_TO_TIME(MOD(k, 86400) + 0.123456)"),
    ("y", "YEAR", "1901 + MOD(k, 250)"),
    ("aa", "CHAR(20)", "CONCAT('ä', k)"),
    ("ab", "VARCHAR(100)", "CONCAT('customer', k, '@example.org')"),
    ("ac", "VARCHAR(100) CHARACTER SET latin1", "CONCAT('Zoë ', k)"),
    ("ad", "CHAR(10) CHARACTER SET gbk", "ELT(1 + MOD(k, 3), '你好', '世界', 'x')"),
    ("ae", "VARCHAR(20) CHARACTER SET utf16", "CONCAT('u', MOD(k, 100))"),
    ("af", "TEXT", "REPEAT('lorem ipsum ', MOD(k, 8))"),
    ("ag", "BINARY(16)", "UNHEX(LEFT(SHA2(k, 256), 32))"),
    ("ah", "VARBINARY(50)", "UNHEX(SHA2(k, 256))"),
    ("ai", "BLOB", "REPEAT(x'00ff', MOD(k, 40))"),
    ("aj", "ENUM('new','paid','sent','lost')", "1 + MOD(k, 4)"),
    ("ak", "SET('a','b','c','d')", "MOD(k, 16)"),
    ("al", "JSON", _DOCUMENT),
    ("am", "POINT", "ST_GeomFromText(CONCAT('POINT(', k, ' ', k / 2, ')'))"),
]
_MARIADB = [
    ("an", "UUID", "CONCAT(LPAD(HEX(k), 8, '0'), '-0000-4000-8000-000000000000')"),
    ("ao", "INET6", "CONCAT('2001:db8::', HEX(MOD(k, 1000)))"),
    ("ap", "INET4", "INET_NTOA(167772160 + k)"),
]
_DIGITS = "(" + " UNION ALL ".join(f"SELECT {i} v" for i in range(10)) + ")"
_STEP = 1000


def columns(server: Server) -> int:
    return len(_columns(server)) + 1


def known_to_jdbc(server: Server) -> str:
    """The select list of what Spark's JDBC reader reads: it has no type for a UUID."""
    return ", ".join(["id", *(name for name, kind, _ in _columns(server) if kind != "UUID")])


def create(server: Server, database: str) -> None:
    defined = ", ".join(f"{name} {kind}" for name, kind, _ in _columns(server))
    server.run(f"CREATE TABLE alltypes (id INT NOT NULL PRIMARY KEY, {defined}) CHARACTER SET utf8mb4", db=database)


def insert(server: Server, database: str, first: int, rows: int) -> None:
    """Rows `first` and on (`rows`: a multiple of 1,000), in transactions of a thousand, in the
    binlog."""
    values = ", ".join(f"IF(MOD(k + {i}, 11) = 0, NULL, {made})" for i, (_, _, made) in enumerate(_columns(server)))
    digits = f"{_DIGITS} a CROSS JOIN {_DIGITS} b CROSS JOIN {_DIGITS} c"
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for start in range(first, first + rows, _STEP):
            numbers = f"SELECT {start} + a.v + 10 * b.v + 100 * c.v AS k FROM {digits}"
            cursor.execute(f"INSERT INTO alltypes SELECT k, {values} FROM ({numbers}) numbers")


def _columns(server: Server) -> list[tuple[str, str, str]]:
    return _COLUMNS + (_MARIADB if server.flavor == "mariadb" else [])
