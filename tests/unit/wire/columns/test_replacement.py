"""Bytes that are no character: the same text by every decoder, or the same failure (R2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.wire.binlog import columns, value
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import MappedColumn
from cdcsync_spark.wire.binlog.value import ConvertedValues
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.charset import _BASE
from cdcsync_spark.wire.columns.gather import Lanes
from cdcsync_spark.wire.columns.replacement import REPLACEMENT, checked, reader

CHARSETS = sorted(c for c in _BASE if c != "binary")
#: of every set: leads and trails of sequences, what stands for itself, what never is a character
_BYTES = st.sampled_from(
    b"\x00\x0a?a~\x30\x39\x40\x7f\x80\x81\x85\x8e\x8f\x98\xa0\xa1\xad\xc3\xd8\xdc\xe0\xed\xf0\xf5\xfe\xff"
)
_VALUES = st.lists(st.none() | st.lists(_BYTES, max_size=7).map(bytes), max_size=9)


def _column(charset: str, replaced: bool) -> tuple[Column, MappedColumn]:
    kind = SourceType("varchar(9)", "varchar", size=9, charset=charset, replaced=replaced)
    collation = next(e if isinstance(e, int) else e[0] for e in _BASE[charset])
    return Column("c", kind), MappedColumn(types.VARCHAR, 36, True, "c", None, collation)


def _in_step(column: Column, mapped: MappedColumn, raw: list[bytes | None]) -> ConvertedValues:
    sizes = np.array([len(r or b"") for r in raw], np.int64)
    valid = np.array([r is not None for r in raw], np.bool_)
    return columns.convert(
        column, mapped, Cells(Lanes([r or b"" for r in raw]), np.cumsum(sizes) - sizes, 0, 0, sizes, valid)
    )


@pytest.mark.parametrize("charset", CHARSETS)
@settings(max_examples=60)
@given(raw=_VALUES)
def test_what_is_replaced_is_the_same_whatever_stands_beside_it(charset: str, raw: list[bytes | None]) -> None:
    column, mapped = _column(charset, replaced=True)
    read = reader(charset, replaced=True)
    alone = [None if r is None else read(r) for r in raw]
    assert value.convert(column, mapped, raw).values.to_pylist() == alone
    assert _in_step(column, mapped, raw).values.to_pylist() == alone


@pytest.mark.parametrize("charset", CHARSETS)
@settings(max_examples=60)
@given(raw=_VALUES)
def test_both_decoders_refuse_the_same_value(charset: str, raw: list[bytes | None]) -> None:
    """Text that is whole is the same with and without replacements."""
    column, mapped = _column(charset, replaced=False)
    found, expected = (_outcome(lambda c=c: c(column, mapped, raw)) for c in (_in_step, value.convert))
    assert found == expected
    if isinstance(expected, list):
        assert value.convert(_column(charset, replaced=True)[0], mapped, raw).values.to_pylist() == expected


def _outcome(convert: Callable[[], ConvertedValues]) -> list[str | None] | tuple[int, str]:
    try:
        return convert().values.to_pylist()
    except DecodeError as e:
        return e.row, e.message


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        # 0x98 is no character of cp1251
        ("cp1251", "98e0", "\ufffdа"),
        # 81 ad has the form of a character, 85 alone has not: what follows it stays
        ("sjis", "81ad85", "\ufffd\ufffd"),
        ("gbk", "8122", '\ufffd"'),
        ("gb18030", "fe39fe3961", "\ufffda"),
        ("ujis", "8fa161", "\ufffd\ufffda"),
        ("utf8mb4", "61e28262", "a\ufffdb"),
        ("utf8mb4", "eda080", "\ufffd\ufffd\ufffd"),
        # four bytes of UTF-8 are no character of utf8mb3
        ("utf8mb3", "f09f9880c3a9", "\ufffdé"),
        # a pair of surrogates is a character of utf16 and two failures in ucs2
        ("utf16", "d83dde00", "😀"),
        ("ucs2", "d83dde00", "\ufffd\ufffd"),
        ("utf16", "d8000061", "\ufffda"),
        ("utf32", "0000d80000000061", "\ufffda"),
    ],
)
def test_what_is_put_in_the_place(charset: str, raw: str, text: str) -> None:
    assert reader(charset, replaced=True)(bytes.fromhex(raw)) == text


def test_the_failure_shows_the_bytes_and_the_way_out() -> None:
    with pytest.raises(DecodeError) as caught:
        checked("cp1251", replaced=False)(b"\x98" * 40)
    assert f"{'98' * 32} and 8 bytes more" in caught.value.message
    assert "tables.invalidCharacters: replace" in caught.value.remedy


def test_a_keys_texts_are_never_replaced() -> None:
    """R3. What is replaced is no part of the definition."""
    text = SourceType.parse("varchar(9)", "cp1251")
    table = Capture(
        SourceTable(TableId("a", "b"), (Column("k", text), Column("c", text), Column("n", SourceType.parse("int")))),
        ("k",),
    )
    found = table.replacing()
    assert [c.type.replaced for c in found.columns] == [False, True, False]
    assert found == table
    assert Capture.from_dict(found.to_dict()) == table
    assert REPLACEMENT not in str(found.to_dict())
