"""Tables and their types as the servers declare them: read alike on MySQL and MariaDB, and kept
whole in the state (rule R9)."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.logical_type import lossy
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.rows.arrow_types import arrow_type, captured_schema

INT = SourceType.parse("int")

#: information_schema.columns.column_type of both servers; base, unsigned, size, scale; Arrow type
DECLARED: list[tuple[str, tuple[str, bool, int, int], pa.DataType]] = [
    # MySQL 8 and 9 print no display width, MariaDB and older ones do
    ("tinyint", ("tinyint", False, -1, 0), pa.int8()),
    ("tinyint(1)", ("tinyint", False, 1, 0), pa.int8()),
    ("tinyint(4)", ("tinyint", False, 4, 0), pa.int8()),
    ("tinyint unsigned", ("tinyint", True, -1, 0), pa.int16()),
    ("tinyint(3) unsigned", ("tinyint", True, 3, 0), pa.int16()),
    ("smallint", ("smallint", False, -1, 0), pa.int16()),
    ("smallint(5) unsigned", ("smallint", True, 5, 0), pa.int32()),
    ("mediumint(9)", ("mediumint", False, 9, 0), pa.int32()),
    ("mediumint unsigned", ("mediumint", True, -1, 0), pa.int32()),
    ("int", ("int", False, -1, 0), pa.int32()),
    ("int(11)", ("int", False, 11, 0), pa.int32()),
    ("int(5) unsigned zerofill", ("int", True, 5, 0), pa.int64()),
    ("bigint(20)", ("bigint", False, 20, 0), pa.int64()),
    ("bigint unsigned", ("bigint", True, -1, 0), pa.decimal128(20, 0)),
    ("bigint(20) unsigned zerofill", ("bigint", True, 20, 0), pa.decimal128(20, 0)),
    ("decimal(10,0)", ("decimal", False, 10, 0), pa.decimal128(10, 0)),
    ("decimal(10,2) unsigned zerofill", ("decimal", True, 10, 2), pa.decimal128(10, 2)),
    ("decimal(38,30)", ("decimal", False, 38, 30), pa.decimal128(38, 30)),
    ("decimal(30,30)", ("decimal", False, 30, 30), pa.decimal128(30, 30)),
    # wider than the lake's decimals: the server's text
    ("decimal(39,0)", ("decimal", False, 39, 0), pa.string()),
    ("decimal(65,30)", ("decimal", False, 65, 30), pa.string()),
    ("float", ("float", False, -1, 0), pa.float32()),
    ("float(7,4)", ("float", False, 7, 4), pa.float32()),
    ("float unsigned", ("float", True, -1, 0), pa.float32()),
    ("double", ("double", False, -1, 0), pa.float64()),
    ("double(10,2) unsigned", ("double", True, 10, 2), pa.float64()),
    ("double precision", ("double", False, -1, 0), pa.float64()),
    ("bit(1)", ("bit", False, 1, 0), pa.bool_()),
    ("bit(2)", ("bit", False, 2, 0), pa.binary()),
    ("bit(64)", ("bit", False, 64, 0), pa.binary()),
    ("date", ("date", False, -1, 0), pa.date32()),
    ("datetime", ("datetime", False, -1, 0), pa.timestamp("us")),
    ("datetime(6)", ("datetime", False, 6, 0), pa.timestamp("us")),
    # made before fractions were kept
    ("timestamp /* 5.5 binary format */", ("timestamp", False, -1, 0), pa.timestamp("us", "UTC")),
    ("timestamp(3)", ("timestamp", False, 3, 0), pa.timestamp("us", "UTC")),
    ("time(6)", ("time", False, 6, 0), pa.string()),
    ("year", ("year", False, -1, 0), pa.int16()),
    ("year(4)", ("year", False, 4, 0), pa.int16()),
    ("char(3)", ("char", False, 3, 0), pa.string()),
    ("varchar(16383)", ("varchar", False, 16383, 0), pa.string()),
    ("varchar(10) /*M!100301 COMPRESSED*/", ("varchar", False, 10, 0), pa.string()),
    ("text /*M!100301 COMPRESSED*/", ("text", False, -1, 0), pa.string()),
    ("longtext", ("longtext", False, -1, 0), pa.string()),
    ("binary(16)", ("binary", False, 16, 0), pa.binary()),
    ("varbinary(255)", ("varbinary", False, 255, 0), pa.binary()),
    ("mediumblob", ("mediumblob", False, -1, 0), pa.binary()),
    ("json", ("json", False, -1, 0), pa.string()),
    ("vector(2048)", ("vector", False, 2048, 0), pa.list_(pa.float32())),
    ("uuid", ("uuid", False, -1, 0), pa.string()),
    ("inet4", ("inet4", False, -1, 0), pa.string()),
    ("inet6", ("inet6", False, -1, 0), pa.string()),
    ("geometry", ("geometry", False, -1, 0), pa.binary()),
    ("point", ("point", False, -1, 0), pa.binary()),
    # MySQL 8 and MariaDB have a name each
    ("geomcollection", ("geomcollection", False, -1, 0), pa.binary()),
    ("geometrycollection", ("geometrycollection", False, -1, 0), pa.binary()),
    ("multipolygon", ("multipolygon", False, -1, 0), pa.binary()),
]


def test_the_format_of_old_times_is_no_part_of_their_type() -> None:
    """A rebuild of the table changes it."""
    assert SourceType.parse("time(3) /* mariadb-5.3 */") == SourceType.parse("time(3)")
    assert SourceType.parse("datetime /* mariadb-5.3 */").declared == "datetime"


@pytest.mark.parametrize(("declared", "parts", "arrow"), DECLARED, ids=[d[0] for d in DECLARED])
def test_a_declared_type_is_read_and_mapped(
    declared: str, parts: tuple[str, bool, int, int], arrow: pa.DataType
) -> None:
    found = SourceType.parse(declared)
    assert (found.base, found.unsigned, found.size, found.scale) == parts
    assert found.declared == declared
    assert arrow_type(found) == arrow


@pytest.mark.parametrize(
    ("declared", "members"),
    [
        ("enum('a','b')", ("a", "b")),
        ("enum('')", ("",)),
        ("set('x')", ("x",)),
        # as MariaDB 10.11 and MySQL 9.7 print them: quotes doubled, a backslash escaped or not by
        # the sql_mode of who made the table
        (
            r"enum('a\\b','it''s','c,d','x(y)','',' lead','nl\ny')",
            (r"a\\b", "it's", "c,d", "x(y)", "", " lead", r"nl\ny"),
        ),
        (r"enum('a\b')", (r"a\b",)),
        ("enum('q\"q','tab\tz','back`tick','ä','raw\nend')", ('q"q', "tab\tz", "back`tick", "ä", "raw\nend")),
        ("enum('unsigned','/* no comment */')", ("unsigned", "/* no comment */")),
    ],
)
def test_members_of_enum_and_set_are_told_apart(declared: str, members: tuple[str, ...]) -> None:
    found = SourceType.parse(declared, "utf8mb4")
    assert found.members == members
    assert (found.unsigned, found.size) == (False, -1)
    assert arrow_type(found) == pa.string()


@pytest.mark.parametrize("declared", ["", "(11)", "int)", "11"])
def test_what_is_no_type_is_refused(declared: str) -> None:
    with pytest.raises(ValueError, match="not a column type"):
        SourceType.parse(declared)


@pytest.mark.parametrize("declared", ["xmltype", "year(2)"])
def test_a_type_that_is_not_mapped_needs_the_user(declared: str) -> None:
    """It is never guessed; MariaDB's YEAR(2) is 24 in a SELECT and 2024 in the binlog."""
    with pytest.raises(PermanentError) as caught:
        arrow_type(SourceType.parse(declared))
    assert caught.value.reason is Reason.TYPE_UNSUPPORTED
    assert "columns.exclude" in caught.value.remedy


@pytest.mark.parametrize(
    ("declared", "loses"), [("date", True), ("datetime(6)", True), ("timestamp", True), ("time", False), ("int", False)]
)
def test_what_is_lossy_is_said(declared: str, loses: bool) -> None:
    assert bool(lossy(Column("c", SourceType.parse(declared)))) is loses


@pytest.mark.parametrize(("charset", "loses"), [("cp1251", True), ("gbk", True), ("latin1", False), ("utf8mb4", False)])
def test_a_character_set_with_bytes_that_are_no_character_is_lossy(charset: str, loses: bool) -> None:
    kind = SourceType.parse("varchar(9)", charset)
    assert (charset in lossy(Column("c", kind))) is loses
    assert ("U+FFFD" in lossy(Column("c", replace(kind, replaced=True)))) is loses


def a_table(**changes: object) -> Capture:
    source: dict[str, object] = {
        "id": TableId("shop", "orders"),
        "columns": (
            Column("id", INT, False),
            Column("kind", SourceType.parse(r"enum('a\\b','it''s')", "utf8mb4"), True, "utf8mb4_bin"),
            Column("secret", SourceType.parse("blob")),
        ),
    }
    taken: dict[str, object] = {"key": ("id",), "excluded": frozenset({"secret"})}
    of_source = {k: changes.pop(k) for k in list(changes) if k in SourceTable.__dataclass_fields__}
    return Capture(SourceTable(**(source | of_source)), **(taken | changes))  # type: ignore[arg-type]


def test_a_definition_comes_back_whole_from_the_state() -> None:
    """Two definitions are one version if and only if they are equal."""
    table = a_table()
    assert Capture.from_dict(json.loads(json.dumps(table.to_dict()))) == table


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"charset": "latin1", "generated": frozenset(), "auto_increment": "id", "unique": frozenset()},
        {"generated": frozenset({"kind"}), "unique": frozenset({"u", "ü"})},
    ],
)
def test_facts_come_back_and_decide_no_version(facts: dict[str, object]) -> None:
    """What is not known has no key: definitions that were recorded without facts are read so."""
    known, unknown = a_table(**facts), a_table()
    found = Capture.from_dict(json.loads(json.dumps(known.to_dict())))
    assert found.source.facts == known.source.facts
    assert known == unknown
    assert unknown.reads_as(known)
    assert unknown.source.facts == ("", None, "", None)
    assert unknown.to_dict().keys() == {"database", "name", "columns", "key", "keyIndex", "excluded", "recomputed"}


@pytest.mark.parametrize(
    ("generated", "recomputed"), [(None, None), (frozenset(), frozenset()), (frozenset({"kind"}), None)]
)
def test_older_definitions_have_no_recomputed_columns_where_none_is_generated(
    generated: frozenset[str] | None, recomputed: frozenset[str] | None
) -> None:
    recorded = a_table(generated=generated).to_dict()
    del recorded["recomputed"]
    assert Capture.from_dict(recorded).source.recomputed == recomputed


def test_excluded_columns_are_in_the_log_and_not_in_the_target() -> None:
    table = a_table()
    assert [c.name for c in table.columns] == ["id", "kind", "secret"]
    assert [c.name for c in table.captured] == ["id", "kind"]
    assert captured_schema(table).names == ["id", "kind"]


def test_every_field_of_a_target_may_be_null() -> None:
    """A zero date of a NOT NULL column becomes NULL."""
    assert all(field.nullable for field in captured_schema(a_table()))


@pytest.mark.parametrize(
    "changes",
    [
        {"key": ("nothing",)},
        {"key": ("secret",)},
        {"columns": (Column("id", INT), Column("id", INT)), "excluded": frozenset()},
    ],
)
def test_a_key_of_other_columns_than_the_captured_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must name captured columns"):
        a_table(**changes)


def test_a_table_without_a_key_is_read_at_once() -> None:
    assert (a_table().chunk_key, a_table(key=()).chunk_key) == (a_table().key, None)


def test_key_columns_come_in_the_order_of_the_index() -> None:
    table = a_table(key=("kind", "id"))
    assert [c.name for c in table.key_columns] == ["kind", "id"]


def test_identifiers_are_quoted_for_sql() -> None:
    assert TableId("a`b", "c.d").quoted == "`a``b`.`c.d`"
    assert str(TableId("shop", "orders")) == "shop.orders"
