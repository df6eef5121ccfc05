"""R9: for each captured table a statement has one outcome, and nothing that may change rows or a
definition is called nothing."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import (
    Converted,
    Filled,
    Followed,
    Kept,
    Kind,
    Outcome,
    Renamed,
    Resnapshot,
    Stop,
)
from cdcsync_core.tables.source_table import Column, SourceType, TableId
from cdcsync_spark.wire.sql.changes.schema_change import apply, apply_to
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, Session, Started
from support.statements import CORPUS, ORDERS, SESSIONS, TYPES, WIDE

STRICT = 1 << 21
STARTED = Started(1_700_000_000, 123_456, "+05:00")
MYSQL = Session(STRICT, "utf8mb4", False, 90_704, STARTED)
MARIADB = Session(STRICT, "utf8mb4", True, 101_119, STARTED)


def definition(session: Session, **changes: Any) -> Capture:
    """Everything is known of it; as the session's server declares it."""
    known: dict[str, Any] = {"charset": "utf8mb4", "generated": frozenset(), "unique": frozenset()}
    capture = WIDE if session.mariadb else ORDERS
    return capture.of(replace(capture.source, **{**known, **changes}))


def outcome(sql: str, session: Session = MYSQL, database: str = "shop", **changes: Any) -> Outcome | None:
    return apply_to(definition(session, **changes), Statement(database, sql, session))


def kind(sql: str, session: Session = MYSQL, database: str = "shop", **changes: Any) -> str:
    found = outcome(sql, session, database, **changes)
    return "absent" if found is None else found.kind.value


def alter(clauses: str, session: Session = MYSQL, **changes: Any) -> Followed:
    found = outcome(f"ALTER TABLE orders {clauses}", session, **changes)
    assert isinstance(found, Followed), found
    return found


#: changes to the rule that knows less; here the definition proves that nothing happens
_PROVED_NOTHING = {
    "ALTER TABLE orders ADD COLUMN IF NOT EXISTS (v INT)",
    "ALTER TABLE orders MODIFY id INT",
    "ALTER TABLE orders MODIFY f FLOAT(24)",
    "ALTER TABLE orders MODIFY v VARCHAR(10)",
    "ALTER TABLE orders MODIFY v VARCHAR(10) COMMENT 'x'",
    "ALTER TABLE orders MODIFY tx TEXT COLLATE uca1400_ai_ci",
    "ALTER TABLE orders MODIFY e ENUM('a','b','c')",
    "ALTER TABLE orders MODIFY tx TEXT(100)",
    "ALTER TABLE orders MODIFY n INT NOT NULL",
    "ALTER TABLE orders CHANGE n n INT NOT NULL COMMENT 'x'",
}
#: nothing, and resnapshotted all the same: two clauses about a column, a name in another spelling
_RESNAPSHOTTED = {
    "ALTER TABLE orders MODIFY d NUMERIC(10, 3), MODIFY d FIXED(10,3), MODIFY d DEC(10,3)",
}


@pytest.mark.parametrize(("changing", "session", "database", "sql"), CORPUS)
def test_no_statement_of_the_corpus_that_changes_something_is_nothing(
    changing: bool, session: str, database: str, sql: str
) -> None:
    for each in SESSIONS[session]:
        harmless = kind(sql, each, database) in ("absent", "nothing")
        assert harmless is ((not changing or sql in _PROVED_NOTHING) and sql not in _RESNAPSHOTTED)


_OUTCOMES = {
    "nothing": [
        "ADD INDEX k (v)", "MODIFY i INT COMMENT 'x'", "MODIFY n INT", "COMMENT 'x', FORCE", "ALTER i SET DEFAULT 5",
        "MODIFY v VARCHAR(10) COLLATE utf8mb4_bin", "DROP COLUMN IF EXISTS nope", "ADD COLUMN IF NOT EXISTS v INT",
        "DEFAULT CHARACTER SET latin1", "MODIFY v VARCHAR(10) NOT NULL", "RENAME INDEX a TO b", "DROP INDEX other",
    ],
    "reshape": [
        "ADD x INT", "ADD x INT NULL DEFAULT NULL FIRST", "DROP v", "RENAME COLUMN v TO w", "CHANGE i j BIGINT",
        "MODIFY i INT AFTER dd", "MODIFY v VARCHAR(300)", "MODIFY v LONGTEXT", "MODIFY s VARCHAR(5)", "MODIFY d DECIMAL(20,5)",
        "MODIFY dt DATETIME(6)", "MODIFY e ENUM('c','b','a')", "MODIFY st SET('x','y','z','w')", "CONVERT TO CHARACTER SET utf8mb4",
        "MODIFY l VARCHAR(20) CHARACTER SET utf8mb4", "ADD x DATETIME NOT NULL", "DROP v, ADD v VARCHAR(10)", "MODIFY id BIGINT",
        "RENAME COLUMN v TO vi, RENAME COLUMN vi TO v", "ADD (x INT, z DATE)", "RENAME COLUMN id TO key_id", "ADD x POINT",
        "DROP V", "MODIFY I INT", "MODIFY t.i BIGINT AFTER DD", "MODIFY f DOUBLE", "MODIFY bi BIT(8)", "MODIFY dd DATETIME(3)",
        "ADD x INT UNIQUE", "ADD x INT REFERENCES p (id)", "ADD (x INT, INDEX (x), CHECK (x > 0))", "ADD x TEXT(10)", "ADD x LONG",
        "ADD x NCHAR(5)", "ADD x VARCHAR(9) CHARACTER SET 'latin1'", "ADD x INT NULL NOT SECONDARY", "ADD x REAL",
    ],
    "fill": [
        "ADD x INT DEFAULT 42", "ADD x INT NOT NULL", "ADD x VARCHAR(9) NOT NULL", "DROP v, ADD v VARCHAR(10) DEFAULT 'new'",
        "ADD x DATETIME DEFAULT CURRENT_TIMESTAMP", "ADD x BOOL DEFAULT TRUE", "ADD x INT /*!50000 NOT NULL DEFAULT 8 */",
        "ADD x INT DEFAULT '007'", "ADD x INT DEFAULT (5)",
    ],
    "empty": ["TRUNCATE PARTITION ALL"],
    "rename": ["RENAME TO y", "RENAME AS y, ADD x INT", "RENAME y"],
    "resnapshot": [
        "ADD x CHAR(36) DEFAULT (UUID())", "ADD x INT DEFAULT (1+1)", "ADD x INT DEFAULT ' 7'", "ADD x DECIMAL(5,1) DEFAULT 1.25",
        "ADD x INT AS (n * 2)", "ADD x INT NOT NULL AUTO_INCREMENT UNIQUE", "ADD x JSON NOT NULL", "ADD x TIMESTAMP",
        "ADD x TIMESTAMP NOT NULL", "ADD x INT REFERENCES p (id) ON DELETE CASCADE", "ADD x INT PRIMARY KEY", "ADD x INT KEY",
        "ADD (x INT, PRIMARY KEY (x))", "ADD (x INT, INDEX k (x), FROB)", "ADD x INT 5",
        "MODIFY i SMALLINT", "MODIFY i INT UNSIGNED", "MODIFY i VARCHAR(20)", "MODIFY f DOUBLE(9,2)", "MODIFY db FLOAT",
        "MODIFY v VARCHAR(4)", "MODIFY v CHAR(20)", "MODIFY tx VARCHAR(100)", "MODIFY d DECIMAL(10,1)", "MODIFY dt6 DATETIME",
        "MODIFY dt DATE", "MODIFY ts DATETIME", "MODIFY tx TEXT CHARACTER SET latin1", "CONVERT TO CHARACTER SET latin1",
        "MODIFY b VARCHAR(10)", "MODIFY e ENUM('a','b')", "MODIFY st SET('z','y','x')", "MODIFY bi BIT(9)", "MODIFY i INT ZEROFILL",
        "MODIFY bi BIT(1)",
        "MODIFY e ENUM('a','b','c','A')", "DROP PRIMARY KEY, ADD PRIMARY KEY (n)", "ADD PRIMARY KEY (n)", "DROP PARTITION p0",
        "EXCHANGE PARTITION p WITH TABLE u", "TRUNCATE PARTITION p0", "DISCARD TABLESPACE", "IMPORT TABLESPACE", "DROP nope", "DROP `ｖ`",
        "MODIFY nope INT", "ADD v INT", "ADD V INT", "ADD x INT AFTER nope", "DROP v, MODIFY v INT", "FROB",
        "MODIFY id BIGINT NULL", "MODIFY ts TIMESTAMP", "ADD x VARCHAR(20000)", "ADD x VARCHAR(9) CHARACTER SET utf8",
        "CHARACTER SET latin1, ADD x VARCHAR(9)", "ADD x VARCHAR(9) DEFAULT 'é'", "MODIFY id INT NOT NULL AUTO_INCREMENT",
        "ADD FOREIGN KEY (i) REFERENCES p (id) ON DELETE CASCADE", "ADD x VARCHAR(9) CHARACTER SET binary", "ADD x SERIAL",
        "DROP v, ADD COLUMN IF NOT EXISTS v INT",
        "DROP v, ADD v INT DEFAULT 5, ALTER COLUMN v SET DEFAULT 9",
        "ADD x INT DEFAULT 4294967296", "ADD x INT DEFAULT 5 + 1", "ADD x YEAR DEFAULT 24",
    ],
    "stop": ["ENGINE=MyISAM", "ADD SYSTEM VERSIONING", "DROP PRIMARY KEY", "DROP COLUMN id", "COMMENT 'x', ENGINE = 'ARCHIVE'"],
}  # fmt: skip


@pytest.mark.parametrize(("expected", "clause"), [(k, c) for k, clauses in _OUTCOMES.items() for c in clauses])
@pytest.mark.parametrize("session", [MYSQL, MARIADB], ids=["mysql", "mariadb"])
def test_the_outcome_of_a_clause(expected: str, clause: str, session: Session) -> None:
    assert kind(f"ALTER TABLE orders {clause}", session) == expected


@pytest.mark.parametrize(
    ("expected", "sql"),
    [
        ("empty", "TRUNCATE TABLE shop.orders"),
        ("stop", "DROP TABLE u, orders"),
        ("stop", "DROP DATABASE shop"),
        ("stop", "INSERT INTO orders SELECT * FROM u"),
        ("resnapshot", "CREATE OR REPLACE TABLE orders (id INT)"),
        ("resnapshot", "CREATE TABLE orders LIKE u"),
        ("resnapshot", "ALTER TABLE u EXCHANGE PARTITION p WITH TABLE orders"),
        ("resnapshot", "ALTER TABLE u RENAME TO orders"),
        ("resnapshot", "ALTER IGNORE TABLE orders ADD UNIQUE (v)"),
        ("resnapshot", "TRUNCATE TABLE ORDERS"),
        ("resnapshot", "ALTER TABLE orders ADD x INT, /* and */ WITHER"),
        ("resnapshot", "ALTER TABLE orders ADD x INT DEFAULT 'a"),
        ("rename", "RENAME TABLE orders TO u"),
        ("rename", "RENAME TABLE orders TO old, u TO orders"),
        ("resnapshot", "RENAME TABLE orders TO old, old TO orders"),
        ("resnapshot", "RENAME TABLE u TO orders, orders TO Orders"),
        ("nothing", "CREATE UNIQUE INDEX k ON orders (v)"),
        ("nothing", "CREATE TABLE IF NOT EXISTS orders LIKE u"),
        ("absent", "CREATE TABLE u LIKE orders"),
        ("absent", "ALTER TABLE other ADD orders INT"),
    ],
)
def test_the_outcome_of_a_statement(expected: str, sql: str) -> None:
    assert kind(sql, MARIADB) == expected


def test_what_is_not_known_leads_to_a_resnapshot_and_never_to_a_guess() -> None:
    assert kind("ALTER TABLE orders MODIFY i BIGINT") == "reshape"
    assert kind("ALTER TABLE orders MODIFY i BIGINT", generated=None) == "resnapshot"
    assert kind("ALTER TABLE orders MODIFY i BIGINT", generated=frozenset({"n"})) == "resnapshot"
    assert kind("ALTER TABLE orders ADD x VARCHAR(9)") == "reshape"
    assert kind("ALTER TABLE orders ADD x VARCHAR(9)", charset="") == "resnapshot"
    assert kind("ALTER TABLE orders DROP PRIMARY KEY", unique=None) == "resnapshot"
    assert kind("ALTER TABLE orders DROP PRIMARY KEY", unique=frozenset({"u"})) == "resnapshot"
    for unknown in (replace(MYSQL, sql_mode=None), replace(MYSQL, version=0), replace(MARIADB, sql_mode=1 << 32)):
        assert kind("ALTER TABLE orders ADD x VARCHAR(9) DEFAULT ''", unknown) == "resnapshot"
    assert kind("ALTER TABLE orders MODIFY v VARCHAR(10) NOT NULL", replace(MYSQL, sql_mode=0)) == "resnapshot"


def test_a_key_that_loses_a_part_is_another_key() -> None:
    """And no key is left only where each of its columns is dropped and there is no other."""
    both = replace(definition(MYSQL), key=("id", "n"))
    for clauses, expected in (("DROP n", "resnapshot"), ("DROP id", "resnapshot"), ("DROP id, DROP n", "stop"),
                              ("DROP n, DROP PRIMARY KEY", "stop"), ("DROP v", "reshape"),
                              ("DROP PRIMARY KEY, ADD UNIQUE (n)", "resnapshot")):  # fmt: skip
        found = apply_to(both, Statement("shop", f"ALTER TABLE orders {clauses}", MYSQL))
        assert found is not None
        assert found.kind.value == expected, clauses


def test_the_origin_of_every_column_is_named() -> None:
    found = alter("DROP v, ADD v INT DEFAULT 7 AFTER n, RENAME COLUMN i TO k, MODIFY d DECIMAL(12,4) FIRST")
    names = [c.name for c in found.after.columns]
    assert names[:6] == ["d", "id", "k", "n", "v", "s"]
    assert found.origins[:6] == (Converted("d"), Kept("id"), Kept("i"), Kept("n"), Filled(7), Kept("s"))
    assert found.dropped == ("v",)
    assert found.after.source.column("d") == Column("d", SourceType.parse("decimal(12,4)"))


def test_names_move_and_values_stay_with_their_columns() -> None:
    found = alter("RENAME COLUMN v TO vi, RENAME COLUMN vi TO v")
    sources = {c.name: o for c, o in zip(found.after.columns, found.origins, strict=True)}
    assert (sources["v"], sources["vi"]) == (Kept("vi"), Kept("v"))
    renamed = alter("CHANGE id key_id BIGINT NOT NULL").after
    assert renamed.key == ("key_id",)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("INT DEFAULT -5", -5), ("DECIMAL(8,2) DEFAULT 1.5", Decimal("1.5")), ("DOUBLE DEFAULT 3", 3.0), ("CHAR(5) DEFAULT 'a  '", "a"),
        ("VARCHAR(9) DEFAULT 'it''s'", "it's"), ("VARBINARY(4) DEFAULT 'ab'", b"ab"), ("BINARY(3) DEFAULT 'a'", b"a\0\0"),
        ("BINARY(2) NOT NULL", b"\0\0"), ("ENUM('p','q') NOT NULL", "p"), ("SET('p','q') DEFAULT 'p,q'", "p,q"), ("BIT(4) NOT NULL", 0),
        ("DATE DEFAULT '2024-02-29'", dt.date(2024, 2, 29)), ("DATETIME DEFAULT '2024-02-29 01:02:03'", dt.datetime(2024, 2, 29, 1, 2, 3)),
        ("TIME DEFAULT '12:34:56'", dt.timedelta(hours=12, minutes=34, seconds=56)), ("YEAR DEFAULT 2024", 2024), ("TEXT NOT NULL", ""),
        ("TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
        ("DATETIME(3) DEFAULT NOW(3)", dt.datetime(2023, 11, 15, 3, 13, 20, 123_000)), ("DATETIME NOT NULL", None),
    ],
)  # fmt: skip
def test_the_value_of_old_rows(column: str, value: object) -> None:
    assert alter(f"ADD x {column}").origins[-1] == Filled(value)


@pytest.mark.parametrize("started", [Started(), Started(1_700_000_000), Started(1_700_000_000, 5, "SYSTEM")])
def test_a_time_that_the_event_does_not_say_is_not_guessed(started: Started) -> None:
    session = replace(MYSQL, started=started)
    assert kind("ALTER TABLE orders ADD x DATETIME(6) DEFAULT NOW(6)", session) == "resnapshot"
    assert kind("ALTER TABLE orders ADD x DATETIME DEFAULT NOW()", session) == "resnapshot"


def test_a_default_that_mysql_drops_or_shows_otherwise() -> None:
    """A TEXT has none but an expression, and quotes and characters beyond ASCII are changed in the
    catalog."""
    followed = {
        "TEXT DEFAULT ''": ["resnapshot", "fill"],
        "TEXT DEFAULT ('x')": ["fill", "fill"],
        "VARCHAR(9) DEFAULT ('é')": ["resnapshot", "fill"],
        "VARCHAR(9) DEFAULT ('it''s')": ["resnapshot", "fill"],
        "VARCHAR(9) DEFAULT 'é'": ["fill", "fill"],
    }
    sessions = [replace(session, connection="utf8mb4") for session in (MYSQL, MARIADB)]
    for column, kinds in followed.items():
        assert [kind(f"ALTER TABLE orders ADD x {column}", session) for session in sessions] == kinds, column
    assert kind("ALTER TABLE orders ADD x VARCHAR(9) DEFAULT 'é'", replace(MYSQL, connection="ascii")) == "resnapshot"


def test_a_text_behind_the_name_of_a_set_is_in_the_clients() -> None:
    """The connection's set, to which other texts are converted, does not matter."""
    session = replace(MYSQL, connection="latin1")
    kinds = {
        "_utf8mb4'é'": "fill",
        "_latin1'é'": "resnapshot",
        "_latin1'e'": "fill",
        "_latin1'e' 'é'": "resnapshot",
        "'e' 'é'": "fill",
    }
    for text, expected in kinds.items():
        assert kind(f"ALTER TABLE orders ADD x VARCHAR(9) DEFAULT {text}", session) == expected, text


@pytest.mark.parametrize("digits", ["x'4142'", "0x4142", "b'0100000101000010'"])
def test_digits_are_bytes_of_the_columns_set(digits: str) -> None:
    """The server converts them from no other one."""
    sets = dict.fromkeys(("ucs2", "utf16", "utf16le", "utf32", "swe7"), "resnapshot")
    for charset, expected in {**sets, "latin1": "fill", "utf8mb4": "fill", "ascii": "fill"}.items():
        column = f"VARCHAR(9) CHARACTER SET {charset} DEFAULT {digits}"
        assert kind(f"ALTER TABLE orders ADD x {column}") == expected, charset


def test_a_timestamp_is_like_other_columns_only_with_explicit_defaults() -> None:
    clause = "ALTER TABLE orders ADD x TIMESTAMP DEFAULT CURRENT_TIMESTAMP"
    outcomes = [kind(clause, replace(MYSQL, timestamps=known)) for known in (None, False, True)]
    assert outcomes == ["resnapshot", "resnapshot", "fill"]


def test_captured_tables_that_take_each_others_name() -> None:
    first = definition(MYSQL)
    second = first.named(TableId("shop", "u"))
    tables = {d.id: d for d in (first, second)}
    found = apply(tables, Statement("shop", "RENAME TABLE orders TO x, u TO orders, x TO u", MYSQL))
    assert found == {
        first.id: Renamed("shop.u", "shop.u", first),
        second.id: Renamed("shop.orders", "shop.orders", second),
    }
    assert apply(tables, Statement("shop", "ALTER TABLE orders COMMENT 'u'", MYSQL)).keys() == {first.id}


def test_excluded_columns_keep_their_names() -> None:
    known = replace(definition(MYSQL), excluded=frozenset({"v"}))

    def of(clause: str) -> Outcome | None:
        return apply_to(known, Statement("shop", f"ALTER TABLE orders {clause}", MYSQL))

    assert isinstance(of("RENAME COLUMN v TO w"), Resnapshot)
    assert isinstance(of("RENAME COLUMN i TO v"), Resnapshot)
    dropped = of("DROP v")
    assert isinstance(dropped, Followed)
    assert dropped.after.excluded == frozenset()


# -- however it is spelled


_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    lambda name: name.strip() == name and name.lower() not in TYPES and "\ufffd" not in name
)
_VALUES = st.text(st.sampled_from("ab ';\\\"`/*-#,()%_\n\t"), max_size=20)
_SPACES = st.sampled_from([" ", "\n", "/* ' */", "/**/ ", " -- x'\n", " # `\n", "\t/*!99999 , DROP v */"])


def _name(name: str, ansi: bool, double: bool) -> str:
    quote = '"' if ansi and double else "`"
    return quote + name.replace(quote, quote * 2) + quote


def _string(value: str, escapes: bool, ansi: bool, double: bool) -> str:
    quote = '"' if double and not ansi else "'"
    text = value.replace("\\", "\\\\").replace("\n", "\\n") if escapes else value
    return quote + text.replace(quote, quote * 2) + quote


@settings(max_examples=300, deadline=None)
@given(_NAMES, _VALUES, st.booleans(), st.booleans(), st.booleans(), st.lists(_SPACES, min_size=12, max_size=12))
def test_quotes_and_comments_come_back_as_they_were_meant(
    name: str, value: str, ansi: bool, escapes: bool, double: bool, spaces: list[str]
) -> None:
    session = replace(MYSQL, sql_mode=STRICT | (ANSI_QUOTES if ansi else 0) | (0 if escapes else NO_BACKSLASH_ESCAPES))
    words = ["ALTER", "TABLE", _name("orders", ansi, double), "ADD", _name(name, ansi, double), "VARCHAR", "(", "99", ")",
             "DEFAULT", _string(value, escapes, ansi, double), "COMMENT", _string(value, escapes, ansi, not double)]  # fmt: skip
    sql = "".join(word + space for word, space in zip(words, [*spaces, ""], strict=True))
    found = outcome(sql, session)
    if isinstance(found, Resnapshot):  # a name that some server may take for another one
        assert name.casefold() != name.lower() or not name.isascii()
        return
    assert isinstance(found, Followed)
    assert (found.after.columns[-1].name, found.origins[-1]) == (name, Filled(value))


_FOLLOWED = [c for k in ("nothing", "reshape", "fill") for c in _OUTCOMES[k]]
_REFUSED = [c for k in ("resnapshot", "stop") for c in _OUTCOMES[k] if "IF NOT EXISTS" not in c and "nope" not in c]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_FOLLOWED), max_size=4), st.sampled_from(_REFUSED), st.integers(0, 4))
def test_one_clause_that_is_not_followed_is_enough(clauses: list[str], refused: str, place: int) -> None:
    both = [*clauses[:place], refused, *clauses[place:]]
    found = outcome(f"ALTER TABLE orders {', '.join(both)}")
    assert isinstance(found, Resnapshot | Stop)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_FOLLOWED), min_size=1, max_size=4))
def test_a_definition_is_whole_after_whatever_is_followed(clauses: list[str]) -> None:
    found = outcome(f"ALTER TABLE orders {', '.join(clauses)}", MARIADB)
    if not isinstance(found, Followed):
        return
    before, after = found.before, found.after
    assert len(found.origins) == len(after.columns)
    kept = [o.source for o in found.origins if not isinstance(o, Filled)]
    assert len(set(kept)) == len(kept)
    assert {*kept, *found.dropped} == {c.name for c in before.columns}
    if found.kind is Kind.NOTHING:
        assert [(c.name, c.type) for c in after.columns] == [(c.name, c.type) for c in before.columns]


_DECLARED = replace(definition(MYSQL), key=("id", "n"), key_index="", declared=True)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE orders DROP n", Kind.RESNAPSHOT),
        ("ALTER TABLE orders DROP n, DROP id", Kind.STOP),
        ("ALTER TABLE orders MODIFY n INT", Kind.RESNAPSHOT),
        ("ALTER TABLE orders MODIFY n VARCHAR(20) NOT NULL", Kind.RESNAPSHOT),
        ("ALTER TABLE orders MODIFY n BIGINT NOT NULL", Kind.RESHAPE),
        ("ALTER TABLE orders RENAME COLUMN n TO number", Kind.RESHAPE),
        ("ALTER TABLE orders ADD PRIMARY KEY (id)", Kind.RESNAPSHOT),
        ("ALTER TABLE orders ADD UNIQUE (id)", Kind.NOTHING),
        ("ALTER TABLE orders DROP INDEX n", Kind.NOTHING),
        ("DROP INDEX n ON orders", Kind.NOTHING),
        ("CREATE UNIQUE INDEX n ON orders (n)", Kind.NOTHING),
    ],
)
def test_statements_on_a_declared_key(sql: str, expected: Kind) -> None:
    """Its columns are NOT NULL and of their types as long as it is followed; no index is it."""
    found = apply_to(_DECLARED, Statement("shop", sql, MYSQL))
    assert found is not None
    assert found.kind is expected
    if isinstance(found, Followed):
        assert found.after.declared
        assert found.after.key == (("id", "number") if "RENAME" in sql else ("id", "n"))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE orders DROP INDEX kv, ADD x INT DEFAULT 5", Kind.FILL),
        ("ALTER TABLE orders DROP n", Kind.RESHAPE),
        ("DROP INDEX kv ON orders", Kind.NOTHING),
        ("CREATE OR REPLACE INDEX kv ON orders (v)", Kind.NOTHING),
        ("ALTER TABLE orders ADD PRIMARY KEY (id)", Kind.RESNAPSHOT),
    ],
)
def test_statements_on_a_table_without_a_key(sql: str, expected: Kind) -> None:
    effect = apply_to(replace(definition(MYSQL), key=(), key_index=""), Statement("shop", sql, MYSQL))
    assert effect is not None
    assert effect.kind is expected
