"""Which columns can be a declared key, and what a capture of one says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.reading.declared import declare, refuse_beside_key
from cdcsync_spark.wire.sql.syntax.indexes import may_be_key


def _column(name: str, declared: str, *, nullable: bool = False, charset: str = "") -> Column:
    return Column(name, SourceType.parse(declared, charset), nullable)


BAG = Capture(
    SourceTable(
        TableId("shop", "log"),
        (
            _column("a", "int"),
            _column("word", "varchar(20)", charset="utf8mb4"),
            _column("maybe", "int", nullable=True),
            _column("ratio", "double"),
            _column("note", "text", charset="utf8mb4"),
            _column("japanese", "varchar(20)", charset="sjis"),
            _column("left_out", "int"),
        ),
        unique=frozenset(),
    ),
    (),
    frozenset({"left_out"}),
)


def test_a_declared_key_tells_rows_apart_and_orders_no_split() -> None:
    table = declare(BAG, ("word", "a"))
    assert (table.key, table.declared, table.chunk_key) == (("word", "a"), True, None)
    assert Capture.from_dict(table.to_dict()) == table
    assert Capture.from_dict(BAG.to_dict()).declared is False
    indexed = replace(table, declared=False)
    assert not table.reads_as(indexed)
    assert indexed.chunk_key == ("word", "a")


@pytest.mark.parametrize(
    ("key", "reason", "found"),
    [
        (("absent",), Reason.SPEC_INVALID, "absent"),
        (("a", "left_out"), Reason.SPEC_INVALID, "left_out"),
        (("a", "maybe"), Reason.SPEC_INVALID, "maybe, which may be NULL"),
        (("ratio",), Reason.TYPE_UNSUPPORTED, "double"),
        (("note",), Reason.TYPE_UNSUPPORTED, "text"),
        (("japanese",), Reason.TYPE_UNSUPPORTED, "sjis"),
    ],
)
def test_columns_that_cannot_be_a_key(key: tuple[str, ...], reason: Reason, found: str) -> None:
    with pytest.raises(CdcError) as refused:
        declare(BAG, key)
    assert (refused.value.reason, refused.value.table) == (reason, "shop.log")
    assert found in refused.value.found


def test_a_key_of_the_table_is_the_key() -> None:
    refuse_beside_key(BAG)
    with pytest.raises(CdcError) as refused:
        refuse_beside_key(replace(BAG, key=("a",), key_index="PRIMARY"))
    assert refused.value.reason is Reason.SPEC_INVALID


@pytest.mark.parametrize("index", ["PRIMARY", "by_word"])
def test_no_index_is_a_declared_key_or_that_of_a_table_without_one(index: str) -> None:
    assert not may_be_key(index, declare(BAG, ("a",)))
    assert not may_be_key(index, BAG)
    assert may_be_key(index, replace(BAG, key=("a",)))
