"""A change in statement format is read to its last token, or not at all (rules R9, R10)."""

from __future__ import annotations

import pytest

from cdcsync_spark.wire.sql.row_changes.dml import Dml, read_dml
from cdcsync_spark.wire.sql.syntax.reader import TableName
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session

MYSQL = Session(sql_mode=0, charset="utf8mb4", version=90700)
MARIADB = Session(sql_mode=0, charset="utf8mb4", mariadb=True, version=101119)
HEARTBEAT = TableName("mysql", "rds_heartbeat2")
CHECKSUMS = TableName("percona", "checksums")
PT_CHECKSUM = (
    "REPLACE INTO `percona`.`checksums` (db, tbl, chunk, chunk_index, lower_boundary, upper_boundary, this_cnt, this_crc)"
    " SELECT 'shop', 'orders', '1', 'PRIMARY', '1', '1000', COUNT(*) AS cnt,"
    " COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(CONCAT_WS('#', `id`, `v`, CONCAT(ISNULL(`v`)))) AS UNSIGNED)), 10, 16)), 0) AS crc"
    " FROM `shop`.`orders` FORCE INDEX(`PRIMARY`) WHERE ((`id` >= '1')) AND ((`id` <= '1000')) /*checksum chunk*/"
)


@pytest.mark.parametrize(
    ("sql", "session", "found"),
    [
        (
            "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,1640995200000) ON DUPLICATE KEY UPDATE value = 1640995200000",
            MYSQL,
            Dml(HEARTBEAT),
        ),
        (
            "SET STATEMENT max_statement_time=60, sql_mode='' FOR INSERT INTO mysql.rds_heartbeat2(id, value) values (1,1)",
            MARIADB,
            Dml(HEARTBEAT),
        ),
        ("INSERT INTO rds_heartbeat2 SET id = 1, value = UNIX_TIMESTAMP()", MYSQL, Dml(TableName("shop", "rds_heartbeat2"))),
        (PT_CHECKSUM, MYSQL, Dml(CHECKSUMS, (TableName("shop", "orders"),))),
        (
            "UPDATE `percona`.`checksums` SET chunk_time = '0.01', master_crc = 'a', master_cnt = '1' WHERE db = 'd' AND tbl = 't'",
            MYSQL,
            Dml(CHECKSUMS),
        ),
        ("DELETE FROM percona.checksums WHERE db = 'a' AND (tbl = 'b' OR tbl IN ('c'))", MYSQL, Dml(CHECKSUMS)),
        ("DELETE FROM percona.checksums", MYSQL, Dml(CHECKSUMS)),
    ],
)  # fmt: skip
def test_what_is_read(sql: str, session: Session, found: Dml) -> None:
    assert read_dml(Statement("shop", sql, session)) == found


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO a.t VALUES (audit(1))",
        "INSERT INTO a.t VALUES (b.count(1))",
        "INSERT INTO a.t VALUES (`concat`(1))",
        "INSERT INTO a.t SELECT COUNT (*) FROM a.u",
        "INSERT INTO a.t VALUES ((SELECT 1))",
        "INSERT INTO a.t SELECT 1 FROM a.u, a.v",
        "INSERT INTO a.t SELECT 1 FROM a.u JOIN a.v",
        "INSERT INTO a.t SELECT 1 FROM a.u WHERE id IN (SELECT 1)",
        "INSERT INTO a.t SELECT 1 FROM a.u UNION SELECT 2",
        "INSERT INTO a.t TABLE a.u",
        "INSERT INTO a.t VALUES (NEXT VALUE FOR s)",
        "INSERT INTO a.t VALUES (@x := 1)",
        "INSERT INTO a.t VALUES (1) RETURNING id",
        "INSERT INTO a.t VALUES (1); DELETE FROM a.u",
        "UPDATE a.t, a.u SET t.v = 1",
        "UPDATE a.t JOIN a.u SET t.v = 1",
        "UPDATE a.t AS x SET v = 1",
        "DELETE a.t FROM a.t JOIN a.u",
        "DELETE FROM a.t USING a.t JOIN a.u",
        "CALL a.p()",
        "LOAD DATA INFILE 'x' INTO TABLE a.t",
        "SET STATEMENT a = (SELECT 1) FOR INSERT INTO a.t VALUES (1)",
        "WITH x AS (SELECT 1) DELETE FROM a.t",
        "INSERT INTO a.t VALUES ('without its end",
        "INSERT INTO a.t (id, f(v)) VALUES (1)",
    ],
)
def test_what_is_not_understood_is_not_read(sql: str) -> None:
    assert read_dml(Statement("shop", sql, MARIADB)) is None


def test_a_statement_of_an_unknown_session_is_not_read() -> None:
    assert read_dml(Statement("shop", "DELETE FROM a.t")) is None
    assert read_dml(Statement("", "DELETE FROM t", MYSQL)) is None
