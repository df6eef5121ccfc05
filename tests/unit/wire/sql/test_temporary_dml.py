"""Changes in statement format that write temporary tables alone: what they read, and what may not
be read so."""

from __future__ import annotations

import pytest

from cdcsync_spark.wire.sql.row_changes.dml import Dml, read_dml
from cdcsync_spark.wire.sql.syntax.reader import TableName
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session

SESSION = Session(0, "utf8mb4", True, 101_119)
TEMPORARY = frozenset({TableName("shop", "t"), TableName("shop", "u"), TableName("x", "t")})


def read(sql: str) -> Dml | None:
    return read_dml(Statement("shop", sql, SESSION, temporary=TEMPORARY))


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("INSERT INTO t VALUES (1, NOW()), (2, 'x')", []),
        ("INSERT INTO t SELECT * FROM u", []),
        (
            "INSERT INTO t (a, b) SELECT a.id, SUM(b.v) FROM a JOIN x.b AS b ON a.id = b.id, `c` WHERE a.v IN (1, 2)",
            "a x.b c",
        ),
        ("INSERT INTO x.t SELECT a.* FROM a LEFT OUTER JOIN b USING (id, v) GROUP BY a.id", "a b"),
        ("REPLACE t (SELECT id FROM a UNION ALL SELECT id FROM b ORDER BY 1, 2)", "a b"),
        ("INSERT t SELECT 1 FROM (SELECT id FROM a, b WHERE id = 1) AS d, c FORCE INDEX (k) JOIN t", "a b c"),
        ("INSERT INTO t VALUES ((SELECT MAX(id) FROM a), 1)", "a"),
        ("INSERT INTO t SELECT id, v FROM a PARTITION (p0, p1) z ON DUPLICATE KEY UPDATE v = VALUES(v), w = z.w", "a"),
        ("UPDATE t JOIN a USING (id) SET t.v = a.v WHERE a.w > 3", "a"),
        ("UPDATE t AS z, u SET v = 1, w = 2 WHERE z.id = u.id", []),
        ("UPDATE a z JOIN t y ON z.id = y.id SET y.v = z.v, y.w = (SELECT COUNT(*) FROM b)", "a b"),
        ("UPDATE t SET v = (SELECT MAX(id) FROM a)", "a"),
        ("DELETE FROM t WHERE id IN (SELECT id FROM a)", "a"),
        ("DELETE t FROM t JOIN a USING (id)", "a"),
        ("DELETE QUICK z.* FROM t AS z, a WHERE z.id = a.id", "a"),
        ("DELETE FROM t, u USING t JOIN u JOIN a WHERE t.id = u.id", "a"),
        (
            "LOAD DATA LOCAL INFILE '/tmp/x' INTO TABLE `t` FIELDS TERMINATED BY ',' IGNORE 1 LINES (id, v) SET w = 1",
            [],
        ),
    ],
)
def test_what_is_read_besides(sql: str, tables: str | list[str]) -> None:
    names = [name.rpartition(".") for name in (tables.split() if isinstance(tables, str) else tables)]
    assert read(sql) == Dml(None, tuple(TableName(database or "shop", name) for database, _, name in names))


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO a SELECT * FROM t, u",
        "INSERT INTO t SELECT f(id) FROM a, b",
        "INSERT INTO t SELECT shop.max(id) FROM a, b",
        "INSERT INTO t SELECT `max`(id) FROM a, b",
        "INSERT INTO t SELECT COUNT (id) FROM a, b",
        "INSERT INTO t SELECT @x := id FROM a, b",
        "INSERT INTO t SELECT NEXT VALUE FOR s FROM a, b",
        "INSERT INTO t WITH c AS (SELECT 1) SELECT * FROM c, a",
        "INSERT INTO t SELECT * FROM (a, b)",
        "INSERT INTO t SELECT * FROM a, JSON_TABLE('[]', '$[*]' COLUMNS (x INT PATH '$'))",
        "INSERT INTO t VALUES (1) RETURNING f(id)",
        "UPDATE a JOIN t USING (id) SET a.v = t.v",
        "UPDATE a JOIN t USING (id) SET v = 1",
        "UPDATE a AS t, t AS z SET t.v = 1",
        "UPDATE t, a SET t.v = 1, a.v = 2",
        "UPDATE t, a SET t.v = 1, other.v = 2",
        "DELETE t, a FROM t JOIN a USING (id)",
        "DELETE a FROM t JOIN a USING (id)",
        "DELETE FROM a WHERE id IN (SELECT id FROM t)",
        "DELETE FROM a USING a JOIN t",
        "LOAD DATA INFILE 'x' INTO TABLE a",
        "LOAD XML INFILE 'x' INTO TABLE t",
        "CALL p()",
        "INSERT INTO t SELECT * FROM a, b; DELETE FROM a",
        "INSERT INTO t SELECT * FROM a, b WHERE (id = 1",
    ],
)
def test_what_may_change_something_else(sql: str) -> None:
    found = read(sql)
    assert found is None or found.written == TableName("shop", "a")


def read_in_doubt(sql: str) -> Dml | None:
    return read_dml(Statement("shop", sql, SESSION, temporary=TEMPORARY, in_doubt=True))


@pytest.mark.parametrize(
    ("sql", "written", "tables"),
    [
        ("INSERT INTO s VALUES (1, 2)", "s", ""),
        ("INSERT INTO s SELECT a.id, MAX(b.v) FROM a JOIN b USING (id) GROUP BY a.id", "s", "a b"),
        ("INSERT INTO s SELECT * FROM t, u", "s", ""),
        ("UPDATE s JOIN a ON s.id = a.id SET s.v = a.v", "s", "a"),
        ("UPDATE a z JOIN s y ON z.id = y.id SET y.v = z.v", "s", "a"),
        ("DELETE s FROM s JOIN a USING (id)", "s", "a"),
        ("LOAD DATA INFILE '/tmp/x' INTO TABLE s (id, v)", "s", ""),
        ("INSERT INTO t SELECT id FROM a, b", None, "a b"),
    ],
)
def test_in_doubt_one_more_table_may_be_written(sql: str, written: str | None, tables: str) -> None:
    """Which may be a base table: what hangs on it is asked for."""
    name = written if written is None else TableName("shop", written)
    assert read_in_doubt(sql) == Dml(name, tuple(TableName("shop", t) for t in tables.split()), in_doubt=True)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE a JOIN b USING (id) SET a.v = 1, b.v = 2",
        "UPDATE a JOIN b USING (id) SET v = 1",
        "DELETE a, b FROM a JOIN b USING (id)",
        "INSERT INTO s SELECT f(id) FROM a, b",
        "CALL p()",
    ],
)
def test_in_doubt_no_two_tables_are_written_and_nothing_is_called(sql: str) -> None:
    assert read_in_doubt(sql) is None
