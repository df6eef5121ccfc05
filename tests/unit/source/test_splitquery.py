"""Rule R3 as SQL: literals of the column's own type, lexicographic predicates, nothing that is not
a key value gets into a statement."""

from __future__ import annotations

import pytest

from cdcsync_core.positions.chunk import KeyValue, Split
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.reading.splitquery import key_form, key_literal, order_by, select_key, unsupported_key_reason, where


def _column(name: str, declared: str, charset: str = "") -> Column:
    return Column(name, SourceType.parse(declared, charset), nullable=False)


def _table(*columns: Column) -> Capture:
    return Capture(SourceTable(TableId("d", "t"), columns), tuple(c.name for c in columns))


@pytest.mark.parametrize(
    ("declared", "charset", "value", "sql"),
    [
        ("bigint(20) unsigned", "", 18446744073709551615, "18446744073709551615"),
        ("tinyint", "", -128, "-128"),
        ("year(4)", "", 0, "0"),
        ("bit(64)", "", 2**63, "9223372036854775808"),
        ("enum('a','b')", "", 2, "2"),
        ("set('a','b')", "", 3, "3"),
        ("decimal(65,30)", "", "-0.000000000000000000000000000001", "-0.000000000000000000000000000001"),
        ("date", "", "2024-02-29", "DATE'2024-02-29'"),
        ("datetime(6)", "", "2024-02-29 23:59:59.999999", "TIMESTAMP'2024-02-29 23:59:59.999999'"),
        ("timestamp", "", "2024-02-29 23:59:59", "TIMESTAMP'2024-02-29 23:59:59'"),
        ("time(3)", "", "-838:59:59.000", "TIME'-838:59:59.000'"),
        ("varchar(9)", "latin1", "E9", "_latin1 x'E9'"),
        ("char(9)", "utf8mb4", "", "_utf8mb4 x''"),
        ("varbinary(9)", "", "00FF", "x'00FF'"),
        ("binary(2)", "", "0000", "x'0000'"),
        ("uuid", "", "00000000-0000-0000-0000-000000000001", "'00000000-0000-0000-0000-000000000001'"),
        ("inet6", "", "::ffff:1.2.3.4", "'::ffff:1.2.3.4'"),
    ],
)
def test_literals(declared: str, charset: str, value: KeyValue, sql: str) -> None:
    assert key_literal(_column("k", declared, charset), value) == sql


HOSTILE: list[KeyValue] = [
    "1 OR 1=1",
    "'; DROP TABLE t; --",
    "0x1",
    "E9'",
    "1e5",
    "2024-01-01' OR '",
    "\n",
    True,
    "GG",
    "F",
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "declared", ["int", "enum('a')", "decimal(5,2)", "date", "datetime", "time", "char(5)", "binary(5)", "uuid"]
)
def test_nothing_else_becomes_sql(declared: str, value: KeyValue) -> None:
    """A plan comes back from files and ConfigMaps: it is not trusted."""
    if declared == "uuid" and value in ("F", "1e5"):
        return  # digits of a UUID, within quotes
    with pytest.raises(ValueError, match="not a key value"):
        key_literal(_column("k", declared, "latin1"), value)


@pytest.mark.parametrize("declared", ["float", "double", "json", "text", "blob", "point", "vector(3)"])
def test_types_that_cannot_be_in_a_key(declared: str) -> None:
    column = _column("k", declared)
    assert key_form(column) is None
    with pytest.raises(ValueError, match="cannot be in a key"):
        key_literal(column, 1)


@pytest.mark.parametrize(
    ("declared", "charset", "words"),
    [
        ("float", "", "not exact"),
        ("varchar(20)", "sjis", "sjis"),
        ("enum('a','b')", "cp932", "cp932"),
        ("enum('','a')", "utf8mb4", "prints like another one or like none"),
        ("set('a','a')", "utf8mb4", "prints like another one or like none"),
    ],
)
def test_keys_that_the_target_could_not_tell_apart(declared: str, charset: str, words: str) -> None:
    assert words in unsupported_key_reason(_column("k", declared, charset))


@pytest.mark.parametrize(("declared", "charset"), [("enum('a','b')", "latin1"), ("varchar(9)", "gbk"), ("int", "")])
def test_keys_that_stay_different(declared: str, charset: str) -> None:
    assert unsupported_key_reason(_column("k", declared, charset)) == ""


def test_one_column() -> None:
    table = _table(_column("id", "int"))
    assert where(table, Split()) == "TRUE"
    assert where(table, Split(None, (7,))) == "`id` < 7"
    assert where(table, Split((7,), None)) == "`id` >= 7"
    assert where(table, Split((7,), (9,))) == "`id` >= 7 AND `id` < 9"


def test_composite_keys_are_lexicographic() -> None:
    table = _table(_column("a", "int"), _column("b", "varchar(5)", "latin1"), _column("c", "int"))
    assert where(table, Split((1, "61", 2), None)) == (
        "(`a` > 1 OR (`a` = 1 AND (`b` > _latin1 x'61' OR (`b` = _latin1 x'61' AND `c` >= 2))))"
    )
    assert where(table, Split(None, (1, "61", 2))) == (
        "(`a` < 1 OR (`a` = 1 AND (`b` < _latin1 x'61' OR (`b` = _latin1 x'61' AND `c` < 2))))"
    )


def test_ranges_of_an_enum_are_lists_of_numbers() -> None:
    """Compared with text it would sort by text; by number only equality uses the index. 0 is the
    invalid value."""
    table = _table(_column("e", "enum('z','a','m')"), _column("i", "int"))
    assert where(table, Split((2, 5), None)) == "(`e` IN (3) OR (`e` = 2 AND `i` >= 5))"
    assert where(table, Split((3, 5), None)) == "(FALSE OR (`e` = 3 AND `i` >= 5))"
    assert where(table, Split(None, (2, 5))) == "(`e` IN (0, 1) OR (`e` = 2 AND `i` < 5))"
    assert where(table, Split(None, (0, 5))) == "(FALSE OR (`e` = 0 AND `i` < 5))"
    assert (
        where(_table(_column("e", "enum('z','a')")), Split((1,), (2,))) == "(`e` IN (2) OR `e` = 1) AND `e` IN (0, 1)"
    )


def test_names_are_quoted() -> None:
    table = _table(_column("a`b", "int"), _column("c", "set('x')"))
    assert select_key(table) == "`a``b`, CAST(`c` AS UNSIGNED)"
    assert order_by(table) == "`a``b`, `c`"
    assert where(table, Split((1, 1), None)) == "(`a``b` > 1 OR (`a``b` = 1 AND CAST(`c` AS UNSIGNED) >= 1))"
