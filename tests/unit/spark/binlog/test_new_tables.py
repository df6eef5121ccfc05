"""What a stream reports of tables that it does not have: enough to look at the catalog, each time
there is something to be found."""

from __future__ import annotations

import pytest

from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_spark.binlog.schema.new_tables import NewTables, made_by
from cdcsync_spark.wire.sql.syntax.text import Statement

_PATTERNS = TableSelection(include=(r"shop\..*", r"other\.one"), exclude=(r"shop\.tmp_.*",))


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("CREATE TABLE a (id INT PRIMARY KEY)", ["db.a"]),
        ("create table `b c` (id int)", ["db.b c"]),
        ("CREATE TABLE IF NOT EXISTS shop.a LIKE shop.b", ["shop.a"]),
        ("CREATE OR REPLACE TABLE `shop` . `a``b` (id INT)", ["shop.a`b"]),
        ("create /* gh-ost */ table `shop`.`_a_gho` like `shop`.`a`", ["shop._a_gho"]),
        ('CREATE TABLE "shop"."A" (id INT)', ["shop.A"]),
        ("CREATE TABLE shop.a SELECT 1 AS id", ["shop.a"]),
        ("RENAME TABLE shop.a TO shop._a_old, shop._a_new TO shop.a", ["shop._a_old", "shop.a"]),
        ("ALTER TABLE a RENAME b", ["db.b"]),
        ("ALTER TABLE a RENAME TO b", ["db.b"]),
        ("ALTER TABLE a RENAME AS shop.b", ["shop.b"]),
        ("ALTER TABLE a ADD COLUMN x INT, RENAME = b", ["db.b"]),
        ("ALTER TABLE a ADD COLUMN x INT", []),
        ("CREATE INDEX i ON a (b)", []),
        ("CREATE VIEW v AS SELECT 1", []),
        ("DROP TABLE a", []),
        ("INSERT INTO a VALUES ('x')", []),
        ("", []),
    ],
)
def test_the_tables_that_a_statement_makes(sql: str, names: list[str]) -> None:
    assert [str(t) for t in made_by(sql, "db")] == names


def test_rows_of_a_matching_table_count_once() -> None:
    new = NewTables([TableId("shop", "a")], _PATTERNS)
    for name in ("a", "b", "b", "tmp_x"):
        assert new.met(TableId("shop", name)) is False
    new.met(TableId("elsewhere", "b"))
    assert (new.take_count(), new.take_count()) == (1, 0)
    new.met(TableId("shop", "b"))
    new.met(TableId("other", "one"))
    assert new.take_count() == 1


def test_each_statement_that_makes_a_matching_table_counts() -> None:
    """Also where the name was there before: the table was dropped meanwhile."""
    new = NewTables([TableId("shop", "a")], _PATTERNS)
    for sql in (
        "CREATE TABLE b (id INT)",
        "CREATE TABLE b (id INT)",
        "CREATE TABLE a (id INT)",
        "CREATE TABLE tmp_b (i INT)",
    ):
        new.read(Statement("shop", sql))
    new.read(Statement("elsewhere", "RENAME TABLE a TO shop.c"))
    assert new.take_count() == 3


def test_without_patterns_nothing_appears() -> None:
    new = NewTables([], None)
    new.met(TableId("shop", "b"))
    new.read(Statement("shop", "CREATE TABLE b (id INT)"))
    assert new.take_count() == 0
