"""Defaults as catalogs show them: equal to what the statement was predicted to give, or to no
prediction."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import Column, SourceType
from cdcsync_spark.wire.sql.column.catalog_default import OTHER, STATEMENT_TIME, catalog_default, predicted_default
from cdcsync_spark.wire.sql.syntax.tokens import Session

SESSION = Session(0, "utf8mb4", True)


def column(declared: str, nullable: bool = True) -> Column:
    charset = "utf8mb4" if "char" in declared else ""
    return Column("x", SourceType.parse(declared, charset), nullable=nullable)


@pytest.mark.parametrize(
    ("declared", "predicted", "mariadb", "mysql"),
    [
        ("int(11)", 42, "42", "42"),
        ("int(11)", -42, "-42", "-42"),
        ("int(11)", None, "NULL", None),
        ("decimal(9,3)", Decimal("1.500"), "1.500", "1.500"),
        ("varchar(9)", "a'b", "'a''b'", "a'b"),
        ("varchar(9)", "", "''", ""),
        ("varchar(9)", "NULL", "'NULL'", "NULL"),
        ("varbinary(9)", b"cd", "'cd'", "0x6364"),
        ("date", dt.date(2024, 2, 29), "'2024-02-29'", "2024-02-29"),
        ("double", 9007199254740992.0, "9007199254740992", "9007199254740992"),
        ("double", 0.1, "'0.1'", "0.1"),
        ("varbinary(9)", b"Az", "'Az'", "0x417A"),
        ("binary(4)", b"ab\0\0", "'ab\\0\\0'", "0x61620000"),
        ("bit(4)", 5, "b'101'", "b'101'"),
    ],
)
def test_a_default_is_the_same_on_both(declared: str, predicted: Value, mariadb: str, mysql: str | None) -> None:
    expected = predicted_default(column(declared), predicted, SESSION)
    assert catalog_default(column(declared), mariadb, "", mariadb=True) == expected
    assert catalog_default(column(declared), mysql, "", mariadb=False) == expected


@pytest.mark.parametrize(
    ("declared", "default", "extra", "mariadb"),
    [
        ("int(11)", "uuid_short()", "", True),
        ("int(11)", "(1 + 1)", "DEFAULT_GENERATED", False),
        ("int(11)", "'a", "", True),
        ("varchar(9)", "concat('a','b')", "", True),
        ("datetime(6)", "current_timestamp()", "", True),
        ("varbinary(9)", "0xf", "", False),
        ("varchar(9)", "concat(_utf8mb4\\'a\\')", "DEFAULT_GENERATED", False),
    ],
)
def test_all_else_is_no_prediction(declared: str, default: str, extra: str, mariadb: bool) -> None:
    assert catalog_default(column(declared), default, extra, mariadb=mariadb) == OTHER


@pytest.mark.parametrize(
    ("declared", "predicted", "default"),
    [
        ("int", 5, "5"),
        ("text", "its", r"_utf8mb4\'its\'"),
        ("json", "{}", "json_object()"),
        ("json", "[]", r"_latin1\'[]\'"),
        ("int", None, "NULL"),
    ],
)
def test_what_stood_between_parentheses(declared: str, predicted: Value, default: str) -> None:
    expected = predicted_default(column(declared), predicted, SESSION)
    assert catalog_default(column(declared), default, "DEFAULT_GENERATED", mariadb=False) == expected


def test_the_statements_time() -> None:
    for declared, text in (("datetime", "current_timestamp()"), ("datetime(6)", "CURRENT_TIMESTAMP(6)")):
        assert catalog_default(column(declared), text, "DEFAULT_GENERATED", mariadb=False) == STATEMENT_TIME


def test_values_that_look_alike_differ() -> None:
    texts = ["1", "1.0", "NULL", "", " "]
    assert len({predicted_default(column("varchar(9)"), t, SESSION) for t in texts}) == len(texts)
    number = predicted_default(column("int(11)"), 1, SESSION)
    assert number != predicted_default(column("varchar(9)"), "1", SESSION)


def test_long_texts_are_compared_as_a_whole() -> None:
    long = ["a" * 200 + end for end in "xy"]
    first, second = (predicted_default(column("varchar(300)"), text, SESSION) for text in long)
    assert first != second
    assert catalog_default(column("varchar(300)"), f"'{long[0]}'", "", mariadb=True) == first
