"""The benchmark's table: TPC-DS `customer`, 18 columns, filled inside the server, the same rows on
every server for a count.

Changes are one update of eight columns and one delete and insert in a hundred, in transactions of
500 rows.
"""

from __future__ import annotations

from support.servers import Server

DDL = """CREATE TABLE customer (
  c_customer_sk INT NOT NULL PRIMARY KEY, c_customer_id CHAR(16) NOT NULL, c_current_cdemo_sk INT, c_current_hdemo_sk INT,
  c_current_addr_sk INT, c_first_shipto_date_sk INT, c_first_sales_date_sk INT, c_salutation CHAR(10),
  c_first_name CHAR(20), c_last_name CHAR(30), c_preferred_cust_flag CHAR(1), c_birth_day INT, c_birth_month INT,
  c_birth_year INT, c_birth_country VARCHAR(20), c_login CHAR(13), c_email_address CHAR(50), c_last_review_date_sk INT
) CHARACTER SET utf8mb4"""

_DIGITS = " CROSS JOIN ".join(
    f"(SELECT 0 v UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 "
    f"UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) d{i}"
    for i in range(4)
)
_STEP = 10_000
_FIVE = f"({' UNION ALL '.join(f'SELECT {n} v' for n in range(5))}) five"


def _null_in(n: int, salt: int, value: str) -> str:
    """NULL in one row of `n`."""
    return f"IF(MOD(k * {salt}, {n}) = 0, NULL, {value})"


_ROW = ", ".join(
    (
        "k",
        "CONCAT('AAAAAAAA', LPAD(k, 8, '0'))",
        _null_in(29, 7, "MOD(k * 7919, 1920800)"),
        _null_in(29, 11, "MOD(k * 104729, 7200)"),
        _null_in(101, 13, "MOD(k * 1299709, 50000000)"),
        _null_in(29, 17, "2449000 + MOD(k, 3000)"),
        _null_in(29, 19, "2449000 + MOD(k * 3, 3000)"),
        _null_in(29, 23, "ELT(1 + MOD(k, 5), 'Mr.', 'Mrs.', 'Ms.', 'Dr.', 'Sir')"),
        _null_in(29, 31, "ELT(1 + MOD(k, 6), 'James', 'Mary', 'Zoë', 'Łukasz', 'Patricia', 'Linda')"),
        _null_in(29, 37, "ELT(1 + MOD(k, 5), 'Smith', 'García', 'Williams', 'Brown', 'Rodriguez')"),
        _null_in(29, 41, "IF(MOD(k, 2), 'Y', 'N')"),
        _null_in(29, 43, "1 + MOD(k, 28)"),
        _null_in(29, 47, "1 + MOD(k, 12)"),
        _null_in(29, 53, "1924 + MOD(k, 69)"),
        _null_in(29, 59, "ELT(1 + MOD(k, 4), 'UNITED STATES', 'GERMANY', 'JAPAN', 'BRAZIL')"),
        "NULL",
        _null_in(29, 61, "CONCAT('customer', k, '@example.org')"),
        _null_in(29, 67, "2452283 + MOD(k, 365)"),
    )
)


def fill(server: Server, database: str, rows: int) -> None:
    """Rows 1 to `rows` (a multiple of 10,000), not in the binlog."""
    numbers = f"SELECT 1 + d0.v + 10 * d1.v + 100 * d2.v + 1000 * d3.v + %s AS k FROM {_DIGITS}"
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(DDL)
        for start in range(0, rows, _STEP):
            cursor.execute(f"INSERT INTO customer SELECT {_ROW} FROM ({numbers % start}) numbers")


def change(server: Server, database: str, rows: int, turn: int) -> int:
    """Changes rows 1 to `rows` in the binlog, in other ways for each `turn`; the number of row
    images (two an update)."""
    images = 0
    with server.connect(db=database, autocommit=False) as connection, connection.cursor() as cursor:
        for start in range(1, rows + 1, 500):
            span = f"c_customer_sk BETWEEN {start} AND {start + 499}"
            images += 2 * cursor.execute(
                f"UPDATE customer SET c_birth_day = 1 + MOD(c_customer_sk, 27), c_login = 'changed', c_first_name = 'Ada', "
                f"c_current_addr_sk = {turn}, c_last_review_date_sk = {start}, c_salutation = 'Dr.', c_birth_year = 1990, "
                f"c_email_address = CONCAT('new', c_customer_sk, '@example.org') WHERE {span}"
            )
            images += cursor.execute(f"DELETE FROM customer WHERE {span} AND MOD(c_customer_sk, 100) = {turn}")
            connection.commit()
    return images


_ONE_BY_ONE = """CREATE PROCEDURE one_by_one(n INT) BEGIN
  DECLARE i INT DEFAULT 1;
  WHILE i <= n DO
    UPDATE customer SET c_birth_day = NULL, c_login = CONCAT(n DIV 1000, 'x', i) WHERE c_customer_sk = i;
    SET i = i + 1;
  END WHILE;
END"""


def change_one_by_one(server: Server, database: str, rows: int) -> int:
    """Updates rows 1 to `rows`, each in a transaction of its own; the number of row images. Another
    number of thousands of rows changes all of them again."""
    server.run("DROP PROCEDURE IF EXISTS one_by_one", db=database)
    server.run(_ONE_BY_ONE, db=database)
    server.run(f"CALL one_by_one({rows})", db=database)
    return 2 * rows


def change_in_twelves(server: Server, database: str, rows: int) -> int:
    """Twelve changes in a transaction by five statements, for each twelve of the rows 1 to `rows`:
    five rows updated, two deleted, five inserted behind them all; the number of row images."""
    images = 0
    with server.connect(db=database, autocommit=False) as connection, connection.cursor() as cursor:
        for start in range(1, rows - 10, 12):
            for low, high in ((0, 2), (3, 3), (4, 4)):
                images += 2 * cursor.execute(
                    f"UPDATE customer SET c_birth_month = 3, c_login = 'mix{start}'"
                    f" WHERE c_customer_sk BETWEEN {start + low} AND {start + high}"
                )
            images += cursor.execute(f"DELETE FROM customer WHERE c_customer_sk IN ({start + 5}, {start + 6})")
            columns = f"SELECT {_ROW} FROM (SELECT {rows} + {start} + v AS k FROM {_FIVE}) numbers"
            images += cursor.execute(f"INSERT INTO customer {columns}")
            connection.commit()
    return images
