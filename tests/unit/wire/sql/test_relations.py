"""Which statements may take a trigger, a foreign key or the name of a table away."""

from __future__ import annotations

import pytest

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.relations import may_relate, may_take_view, may_unrelate
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import UNKNOWN_SESSION, Session

WRITTEN, CAPTURED = TableId("zz", "o"), TableId("u", "b")
SESSIONS = (Session(0, "utf8mb4", False, 90_704), Session(0, "utf8mb4", True, 101_119), UNKNOWN_SESSION)


def takes(sql: str, session: Session, database: str = "u") -> bool:
    return may_unrelate(Statement(database, sql, session), [WRITTEN, CAPTURED], [WRITTEN])


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX kb ON u.b (w)",
        "CREATE INDEX `o` ON b (w)",
        "TRUNCATE TABLE other",
        "DROP TABLE other, u.o",
        "RENAME TABLE x TO y",
        "CREATE TABLE t (id INT PRIMARY KEY, CONSTRAINT c FOREIGN KEY (id) REFERENCES p (id))",
        "CREATE TEMPORARY TABLE b (id INT)",
        "CREATE VIEW zz.v AS SELECT * FROM zz.o",
        "DROP VIEW zz.o",
        "CREATE TRIGGER zz.t BEFORE INSERT ON zz.o FOR EACH ROW SET NEW.a = 1",
        "DROP TRIGGER t",
        "DROP TRIGGER IF EXISTS u.t",
        "CREATE PROCEDURE p() DROP TABLE zz.o",
        "CREATE DATABASE zz",
        "DROP DATABASE x",
        "GRANT ALL ON zz.o TO x",
        "INSERT INTO zz.o VALUES (1)",
        "/* \ufffd */ DROP TABLE x",
    ],
)
def test_nothing_is_taken_away(sql: str) -> None:
    known = [s for s in SESSIONS if s.charset or "\ufffd" not in sql]
    assert [takes(sql, session) for session in known] == [False] * len(known)


@pytest.mark.parametrize(
    "clause",
    ["ADD c INT", "DROP COLUMN c", "DROP INDEX i", "RENAME COLUMN a TO b", "ADD FOREIGN KEY (a) REFERENCES p (id)"],
)
def test_clauses_that_take_nothing_away(clause: str) -> None:
    assert not takes(f"ALTER TABLE b {clause}", SESSIONS[0])
    assert takes(f"ALTER TABLE b {clause}", UNKNOWN_SESSION), "it cannot be read"


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE x, zz.o",
        "DROP TABLE b",
        "CREATE TABLE zz.O (id INT)",
        "CREATE TABLE zz.o AS SELECT 1",
        "RENAME TABLE x TO zz.o",
        "ALTER TABLE x RENAME TO b",
        "ALTER TABLE b RENAME x",
        "ALTER TABLE b ADD c INT, DROP FOREIGN KEY f",
        "ALTER TABLE b DROP CONSTRAINT f",
        "ALTER TABLE b ENGINE = MyISAM",
        "DROP TRIGGER zz.t",
        "DROP TRIGGER IF EXISTS `ZZ`.t",
        "CREATE OR REPLACE TRIGGER zz.t BEFORE INSERT ON zz.x FOR EACH ROW SET NEW.a = 1",
        "DROP DATABASE zz",
        "CREATE OR REPLACE DATABASE u",
        "DROP TABLE `\ufffd`",
        "FROBNICATE",
        "DROP TABLE 'x",
    ],
)
def test_something_may_be_taken_away(sql: str) -> None:
    assert [takes(sql, session) for session in SESSIONS] == [True] * 3


def test_a_trigger_is_in_the_default_database() -> None:
    assert takes("DROP TRIGGER t", SESSIONS[0], database="zz")
    assert not takes("DROP TRIGGER zz2.t", SESSIONS[0], database="zz")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET NEW.a = 1", True),
        ("ALTER TABLE x ADD FOREIGN KEY (a) REFERENCES y (id)", True),
        ("RENAME TABLE x TO zz.o", True),
        ("CREATE INDEX kb ON u.b (w)", False),
        ("CREATE TABLE x (`trigger` INT, o_id INT)", False),
        ("INSERT INTO zz.o VALUES (1)", False),
    ],
)
def test_what_an_answer_is_forgotten_for(sql: str, expected: bool) -> None:
    assert may_relate(Statement("u", sql, SESSIONS[0]), [WRITTEN]) is expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DROP VIEW o", True),
        ("DROP VIEW IF EXISTS x, zz.o", True),
        ("CREATE OR REPLACE VIEW o AS SELECT 1", True),
        ("ALTER VIEW o AS SELECT 1", True),
        ("DROP VIEW u.o", False),
        ("DROP VIEW x", False),
        ("DROP TEMPORARY TABLE o", False),
        ("INSERT INTO o VALUES ('view')", False),
    ],
)
def test_a_view_that_may_be_gone(sql: str, expected: bool) -> None:
    assert may_take_view(Statement("zz", sql, SESSIONS[0]), [WRITTEN]) is expected
