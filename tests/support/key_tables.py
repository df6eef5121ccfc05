"""Tables of every kind of key, and writers of them."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pymysql

from support.servers import Server

KEYS = {
    "int_key": ("k INT NOT NULL", "{n} - 50"),
    "unsigned_key": ("k BIGINT UNSIGNED NOT NULL", "18446744073709551615 - {n}"),
    "decimal_key": ("k DECIMAL(30,5) NOT NULL", "{n} / 7 - 3"),
    "wide_decimal_key": ("k DECIMAL(60,20) NOT NULL", "{n} / 7 - 3"),
    "text_key": ("k VARCHAR(40) CHARACTER SET utf8mb4 NOT NULL", "CONCAT('Schlüssel ', {n})"),
    "latin_key": ("k VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_german1_ci NOT NULL", "CONCAT('Schlüssel ', {n})"),
    "utf16_key": ("k CHAR(20) CHARACTER SET utf16 NOT NULL", "CONCAT('ключ', {n})"),
    "binary_key": ("k BINARY(16) NOT NULL", "UNHEX(LEFT(SHA2({n}, 256), 32))"),
    "varbinary_key": ("k VARBINARY(40) NOT NULL", "UNHEX(SHA2({n}, 256))"),
    "date_key": ("k DATE NOT NULL", "DATE'1999-01-01' + INTERVAL {n} DAY"),
    "datetime_key": ("k DATETIME(6) NOT NULL", "TIMESTAMP'0900-02-28 23:59:59.000001' + INTERVAL {n} DAY"),
    "timestamp_key": ("k TIMESTAMP(3) NOT NULL", "TIMESTAMP'2020-03-29 01:30:00.125' + INTERVAL {n} HOUR"),
    "time_key": ("k TIME(3) NOT NULL", "SEC_TO_TIME({n} * 61.125 - 3000)"),
    "year_key": ("k YEAR NOT NULL", "1950 + {n}"),
    "enum_key": ("k ENUM('zwei','eins','drei','d''or') NOT NULL", "1 + {n} % 4"),
    "set_key": ("k SET('a','b','c','d','e','f','g') NOT NULL", "{n}"),
    "bit_key": ("k BIT(33) NOT NULL", "{n} + 4294967296"),
}


def create_key_tables(server: Server, database: str) -> list[str]:
    numbers = ", ".join(f"({n})" for n in range(120))
    server.run(
        "SET time_zone = '+00:00'",
        "CREATE TABLE seed (n INT PRIMARY KEY)",
        f"INSERT INTO seed VALUES {numbers}",
        db=database,
    )
    for name, (column, expression) in KEYS.items():
        server.run(
            f"CREATE TABLE {name} ({column}, second INT NOT NULL, v VARCHAR(20), PRIMARY KEY (k, second))",
            "SET time_zone = '+00:00'",
            f"INSERT INTO {name} SELECT {expression.format(n='n')}, n, CONCAT('v', n) FROM seed",
            db=database,
        )
    return [*KEYS, "seed"]


COLUMNS = """
CREATE TABLE t (
  id INT PRIMARY KEY, text_ VARCHAR(20) NULL, number DECIMAL(20,3) NULL, real_ DOUBLE NULL, small FLOAT NULL,
  moment DATETIME(6) NULL, stamp TIMESTAMP(6) NULL, day DATE NULL, bytes_ VARBINARY(20) NULL, flag BIT(1) NULL
)"""


ROW = "'a', 1.5, 0, 0.1, '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.999999', '9999-12-31', x'00ff', b'1'"


def table_of_rows(server: Server, database: str, rows: int) -> None:
    values = ", ".join(f"({i}, {ROW})" for i in range(rows))
    server.run("SET time_zone = '+00:00'", COLUMNS, f"INSERT INTO t VALUES {values}", db=database)


#: column -> a value that is nearly the source's
NEARLY = {
    "text_": ["A", "a ", "", None],
    "number": [Decimal("1.501"), None],
    "real_": [-0.0, 5e-324, None],
    "small": [0.10000001, None],
    "moment": [datetime(2024, 2, 29, 23, 59, 59, 999998), None],
    "stamp": [datetime(2024, 2, 29, 22, 59, 59, 999999, tzinfo=UTC), None],
    "day": [date(9999, 12, 30), None],
    "bytes_": [b"\0", b"\0\xff\0", b"", None],
    "flag": [False, None],
}


class Writers:
    """Eight connections that write to rows below 500 and above 10,000 until the block ends."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(8)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self._failures, self._failures

    def _run(self, number: int) -> None:
        random = Random(number)
        try:
            with self._server.connect(db=self._database, autocommit=True) as connection, connection.cursor() as cursor:
                while not self._stopping.wait(0.03):
                    self._write(cursor, random)
        except BaseException as e:  # noqa: BLE001 (raised by the test's thread)
            self._failures.append(e)

    def _write(self, cursor: Any, random: Random) -> None:
        statements = [
            f"UPDATE t SET text_ = IF(text_ = 'on', 'off', 'on') WHERE id = {random.randrange(20)}",
            f"DELETE FROM t WHERE id = {random.randrange(20, 500)}",
            f"REPLACE INTO t (id, real_) VALUES ({random.randrange(20, 500)}, {random.random()})",
            f"UPDATE IGNORE t SET id = {random.randrange(20, 500)} WHERE id = {random.randrange(20, 500)}",
            f"INSERT IGNORE INTO t (id) VALUES ({random.randrange(10_000, 10**9)})",
            "UPDATE t SET number = number + 1 WHERE id = -1",
        ]
        try:
            for statement in (
                "BEGIN",
                *random.sample(statements, 3),
                "COMMIT" if random.random() < 0.9 else "ROLLBACK",
            ):
                cursor.execute(statement)
        except pymysql.MySQLError as e:
            if e.args[0] not in (1205, 1213):
                raise
            cursor.execute("ROLLBACK")
