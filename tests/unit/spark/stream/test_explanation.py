"""What `cdcsync explain` says of statements: the sequence of definitions, the effects of each sink,
and what is not followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.runs.migration import Script, ServerSession, StatementEffect, TargetEffect
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.stream.explanation import Rules, explain
from contract.sinkcase import make_table


def as_of_the_catalog(table: Capture) -> Capture:
    source = replace(table.source, charset="utf8mb4", generated=frozenset(), unique=frozenset())
    return table.of(source)


ORDERS = as_of_the_catalog(make_table({"id": "bigint(20)", "a": "int(11)", "s": "varchar(20)"}, ["id"]))
ITEMS = as_of_the_catalog(make_table({"id": "bigint(20)", "b": "int(11)"}, ["id"], name="items"))
SERVER = ServerSession(mariadb=True, version=101_119, sql_mode="STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION")
SELECTION = TableSelection((r"shop\..*",), (r"shop\.tmp_.*",))
FOLLOWING = FollowPolicy(follow=True)


def explained(
    *sql: str, policy: FollowPolicy = FOLLOWING, keyed: bool = True, tables: tuple[Capture, ...] = (ORDERS, ITEMS)
) -> list[StatementEffect]:
    rules = Rules(SELECTION, lambda _: policy, keyed)
    scripts = [Script(f"{number}.sql", text) for number, text in enumerate(sql)]
    return list(explain(tables, scripts, "shop", SERVER, 1_700_000_000, rules))


def effects(*sql: str, policy: FollowPolicy = FOLLOWING, keyed: bool = True) -> list[tuple[str, str]]:
    return [(e.table, e.effect.value) for e in explained(*sql, policy=policy, keyed=keyed)]


@pytest.mark.parametrize(
    ("sql", "effect"),
    [
        ("ALTER TABLE orders ADD x INT", "metadata"),
        ("ALTER TABLE orders ADD x INT NOT NULL DEFAULT 7", "rewrite"),
        ("ALTER TABLE orders RENAME COLUMN a TO b", "rewrite"),
        ("ALTER TABLE orders MODIFY a BIGINT", "rewrite"),
        ("ALTER TABLE shop.orders DROP COLUMN a", "metadata"),
        ("TRUNCATE orders", "empty"),
        ("ALTER TABLE orders MODIFY a SMALLINT", "stop"),
        ("DROP TABLE orders", "stop"),
        ("RENAME TABLE orders TO old", "stop"),
    ],
)
def test_a_statement_has_the_effect_that_the_stream_gives_it(sql: str, effect: str) -> None:
    assert [e for e in effects(sql) if e[0] == "shop.orders"] == [("shop.orders", effect)]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders VALUES (1, 2, 'x')",
        "UPDATE orders SET a = 1",
        "CREATE INDEX i ON orders (a)",
        "ALTER TABLE elsewhere.orders ADD x INT",
        "CREATE TABLE shop.tmp_orders (id INT PRIMARY KEY)",
        "SET @a = 1; START TRANSACTION; COMMIT; SELECT * FROM orders; LOCK TABLES orders WRITE; UNLOCK TABLES",
    ],
)
def test_what_changes_no_copy_is_not_named(sql: str) -> None:
    assert explained(sql) == []


def test_each_statement_meets_the_definition_that_the_ones_before_it_left() -> None:
    first = "ALTER TABLE orders ADD x INT NULL; ALTER TABLE orders DROP COLUMN a"
    again = "ALTER TABLE orders MODIFY x BIGINT; ALTER TABLE orders ADD a INT"
    assert effects(first, again) == [("shop.orders", e) for e in ("metadata", "metadata", "rewrite", "rewrite")]
    assert [(e.script, e.line) for e in explained(first, "\n\n" + again)][2:] == [("1.sql", 3), ("1.sql", 3)]


def test_nothing_is_said_of_a_table_after_it_stopped() -> None:
    found = explained("ALTER TABLE orders MODIFY a SMALLINT; ALTER TABLE orders ADD x INT; ALTER TABLE items ADD y INT")
    assert [(e.table, e.effect) for e in found] == [
        ("shop.orders", TargetEffect.STOP),
        ("shop.items", TargetEffect.METADATA),
    ]
    assert found[0].error is not None
    assert found[0].error.reason is Reason.SCHEMA_CHANGE_REFUSED


def test_what_the_script_does_not_show_is_named() -> None:
    found = explained("CALL migrate(); SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES'); PREPARE s FROM @sql")
    assert [(e.table, e.effect) for e in found] == [("", TargetEffect.UNKNOWN)] * 3


@pytest.mark.parametrize(
    ("sql", "effect"),
    [
        ("SET STATEMENT lock_wait_timeout = 5 FOR ALTER TABLE orders DROP COLUMN a", ("shop.orders", "metadata")),
        ("SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE orders", ("shop.orders", "empty")),
        ("DELIMITER $$\nBEGIN NOT ATOMIC ALTER TABLE orders DROP COLUMN a; END $$", ("", "unknown")),
        ("SELECT 1\\G TRUNCATE orders\\g", ("shop.orders", "empty")),
        ("/* why */ CALL migrate()", ("", "unknown")),
        (
            r"SET sql_mode = 'NO_BACKSLASH_ESCAPES'; INSERT INTO t VALUES ('C:\'); TRUNCATE orders",
            ("shop.orders", "empty"),
        ),
    ],
)
def test_a_statement_is_seen_in_whatever_it_is_wrapped(sql: str, effect: tuple[str, str]) -> None:
    assert effects(sql) == [effect]


def test_a_script_may_set_how_its_session_reads() -> None:
    add = 'ALTER TABLE "orders" ADD "x" INT'
    assert effects(f"SET sql_mode = 'ANSI_QUOTES'; {add}") == [("shop.orders", "metadata")]
    assert ("shop.orders", "stop") in effects("SET sql_mode = 'ANSI_QUOTES'", add), "another session reads a text"


def test_a_new_table_that_is_selected_is_named() -> None:
    assert effects("CREATE TABLE extra (id INT PRIMARY KEY)") == [("shop.extra", "new")]


def test_the_policy_decides() -> None:
    add, fill = "ALTER TABLE orders ADD x INT", "ALTER TABLE orders ADD x INT NOT NULL DEFAULT 7"
    assert effects(add, policy=FollowPolicy()) == [("shop.orders", "stop")]
    assert effects("TRUNCATE orders", policy=FollowPolicy(follow=True, emptied=False)) == [("shop.orders", "stop")]
    events = FollowPolicy(follow=True, append_only=True)
    assert effects(add, policy=events, keyed=False) == [("shop.orders", "metadata")]
    assert effects(fill, policy=events, keyed=False) == [("shop.orders", "stop")]


def test_a_server_whose_mode_is_unknown_is_read_with_no_certainty() -> None:
    server = ServerSession(mariadb=True, version=101_119, sql_mode="STRICT_TRANS_TABLES,SOMETHING_NEW")
    rules = Rules(SELECTION, lambda _: FOLLOWING, keyed=True)
    found = list(explain([ORDERS], [Script("", "ALTER TABLE orders ADD x INT")], "shop", server, 0, rules))
    assert [e.effect for e in found] == [TargetEffect.STOP]


def test_an_effect_survives_its_json() -> None:
    for effect in explained("ALTER TABLE orders ADD x INT; ALTER TABLE orders MODIFY a SMALLINT"):
        again = StatementEffect.from_dict(effect.to_dict())
        assert (again.table, again.effect, again.line) == (effect.table, effect.effect, effect.line)
        assert (again.error is None) == (effect.error is None)
