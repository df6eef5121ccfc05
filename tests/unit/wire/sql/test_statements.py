"""R9: a corpus of statements and what each does to a captured table; however it is written, it does
the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import SourceTable, TableId
from cdcsync_spark.wire.sql.changes.statement import may_change
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import UNKNOWN_SESSION, Session
from support.statements import CORPUS, ORDERS, SESSIONS, WIDE

_MYSQL, _MARIADB, *_ = SESSIONS["any"]


def changes(sql: str, session: Session, database: str = "shop", table: Capture = ORDERS) -> bool:
    return may_change(Statement(database, sql, session), table)


def test_the_corpus_is_large_and_has_no_statement_twice() -> None:
    assert len(CORPUS) >= 400
    assert len({line[1:] for line in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize(("expected", "session", "database", "sql"), CORPUS)
def test_what_a_statement_does(expected: bool, session: str, database: str, sql: str) -> None:
    for each in SESSIONS[session]:
        assert changes(sql, each, database) is expected
        assert changes(sql, each, database, WIDE) is expected


def _variants(sql: str) -> list[str]:
    plain = not any(c in sql for c in "'\"`#\\") and "--" not in sql
    wrapped = [f"/*!50001 {sql} */", f"/*! {sql}*/"] if "/*" not in sql and plain and not sql.endswith(";") else []
    spaced = (
        [sql.replace(" ", " \n\t"), sql.replace(" ", "/**/ /* ' */"), sql.replace(",", "-- ,\n,")]
        if plain and "/*" not in sql
        else []
    )
    return [f"/* app='1' */ {sql}", f"-- x\n{sql}", *wrapped, *spaced]


@pytest.mark.parametrize(("expected", "session", "database", "sql"), [line for line in CORPUS if line[1] != "unknown"])
def test_comments_and_blanks_do_nothing(expected: bool, session: str, database: str, sql: str) -> None:
    for each in SESSIONS[session]:
        assert [changes(v, each, database) for v in _variants(sql)] == [expected] * len(_variants(sql))


def test_what_cannot_be_read_with_certainty_stops_the_tables_that_it_names() -> None:
    """A statement cannot be read without the session's settings, or in a character set in which a
    byte of a character may look like a quote."""
    sql = "ALTER TABLE orders COMMENT 'ü'"
    assert not changes(sql, _MYSQL)
    assert changes(sql, replace(_MYSQL, charset="sjis"))
    assert changes(sql, replace(_MYSQL, sql_mode=None))
    assert not changes(sql, UNKNOWN_SESSION, table=ORDERS.named(TableId("shop", "other")))


_HARMLESS = [
    "ADD INDEX k (v)",
    "ADD UNIQUE (n, v)",
    "COMMENT 'DROP COLUMN v'",
    "ALTER i SET DEFAULT 5",
    "MODIFY i INT COMMENT ', DROP v'",
    "ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    "ADD CONSTRAINT c CHECK (n > 0)",
    "DROP INDEX kv",
    "FORCE",
    "ALGORITHM=COPY",
    "DEFAULT CHARACTER SET latin1",
    "RENAME INDEX a TO b",
    "ADD FOREIGN KEY (i) REFERENCES p (id)",
]
_CHANGING = [
    "ADD x INT",
    "DROP v",
    "DROP PRIMARY KEY",
    "MODIFY i BIGINT",
    "RENAME TO y",
    "RENAME COLUMN i TO j",
    "CONVERT TO CHARACTER SET utf8mb4",
    "ENGINE=MyISAM",
    "CHANGE i j INT",
    "ADD FOREIGN KEY (i) REFERENCES p (id) ON DELETE CASCADE",
    "FROB",
    "MODIFY n INT NOT NULL AFTER v",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(_HARMLESS), min_size=1, max_size=5), st.sampled_from(_CHANGING), st.integers(0, 5))
def test_one_clause_that_changes_something_is_enough(harmless: list[str], changing: str, place: int) -> None:
    for session in SESSIONS["any"]:
        assert not changes(f"ALTER TABLE orders {', '.join(harmless)}", session)
        both = [*harmless[:place], changing, *harmless[place:]]
        assert changes(f"ALTER TABLE orders {', '.join(both)}", session)


_SOUP = (
    "ALTER TABLE orders ADD DROP COLUMN INDEX k ( ) , ; . ' \" ` \\ -- # \n /* */ /*! /*M! 50001 IF NOT EXISTS u RENAME TO LIKE CREATE"
    " PRIMARY KEY MODIFY i INT NULL DEFAULT 1 COMMENT 'x' ENGINE = InnoDB PARTITION BY SELECT SET STATEMENT FOR v x'0f' é $$ @ \0 1e"
    " \ufffd shop"
)
_PIECES = _SOUP.split(" ")


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(_PIECES), max_size=30), st.sampled_from([s for each in SESSIONS.values() for s in each])
)
def test_any_text_is_an_outcome(pieces: list[str], session: Session) -> None:
    sql = " ".join(pieces)
    changes(sql, session)
    changes(f"ALTER TABLE orders {sql}", session)
    assert changes(f"ALTER TABLE orders DROP COLUMN v, {sql}", session)
    assert changes(f"DROP TABLE orders {sql}", session)


@pytest.mark.parametrize("piece", ["(", ")", "ADD INDEX k (v), ", "a.", "'x' ", "COMMENT 'x' ", "/**/", "((", ", "])
def test_time_grows_with_length_only(piece: str) -> None:
    """The assertion is the test's timeout: squared, it would be hours."""
    for session in SESSIONS["any"][:1]:
        changes(f"ALTER TABLE orders {piece * 20_000}", session)
        changes(f"CREATE TABLE u ({piece * 20_000}", session)


def test_without_a_record_of_the_keys_index_no_index_may_go() -> None:
    """Copies of earlier versions do not have it."""
    unknown = Capture(SourceTable(ORDERS.id, ORDERS.columns), ("id",))
    for sql in ("DROP INDEX k ON orders", "ALTER TABLE orders DROP INDEX k", "ALTER TABLE orders RENAME INDEX a TO b"):
        assert changes(sql, _MYSQL, table=unknown)
        assert not changes(sql, _MYSQL)
    assert not changes("ALTER TABLE orders ADD INDEX k (v)", _MYSQL, table=unknown)


def test_the_index_that_tells_rows_apart_must_stay() -> None:
    unique = Capture(SourceTable(ORDERS.id, ORDERS.columns), ("id",), key_index="Uk")
    for sql in ("DROP INDEX uk ON orders", "ALTER TABLE orders DROP KEY `UK`", "ALTER TABLE orders ALTER INDEX uk INVISIBLE",
                "CREATE OR REPLACE UNIQUE INDEX uk ON orders (i)", "ALTER TABLE orders RENAME INDEX uk TO x"):  # fmt: skip
        assert changes(sql, _MARIADB, table=unique)
    assert not changes("DROP INDEX other ON orders", _MARIADB, table=unique)


def test_a_text_in_the_key_keeps_its_collation() -> None:
    """Which keys are equal depends on it."""
    table = Capture(SourceTable(ORDERS.id, ORDERS.columns), ("v",), key_index="uv")
    same = "ALTER TABLE orders MODIFY v VARCHAR(10) COLLATE utf8mb4_general_ci NOT NULL COMMENT 'x'"
    assert not changes(same, _MYSQL, table=table)
    for other in (
        "COLLATE utf8mb4_bin NOT NULL",
        "NOT NULL",
        "CHARACTER SET utf8mb4 NOT NULL",
        "COLLATE utf8mb4_general_ci",
    ):
        assert changes(f"ALTER TABLE orders MODIFY v VARCHAR(10) {other}", _MYSQL, table=table)


def test_names_that_a_server_may_take_for_one() -> None:
    """A name is compared in lower case by lower_case_table_names, by the server's own rules."""
    table = Capture(SourceTable(TableId("shop", "größe"), ORDERS.columns), ("id",), key_index="PRIMARY")
    for name in ("GRÖSSE", "grosse", "größe"):
        assert changes(f"DROP TABLE `{name}`", _MYSQL, table=table)
    assert not changes("DROP TABLE `grobe`", _MYSQL, table=table)
