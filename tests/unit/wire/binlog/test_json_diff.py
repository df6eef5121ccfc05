"""Differences of JSON documents, as MySQL logs them: what they make of a document, and what fits
none."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import MappedColumn, TableMap
from cdcsync_spark.wire.binlog.json.json_binary import json_text
from cdcsync_spark.wire.binlog.json.json_diff import apply_diffs
from cdcsync_spark.wire.binlog.json.json_tree import parse, write
from cdcsync_spark.wire.binlog.json.partial_rows import whole_images
from support.binaryjson import document
from support.images import image

REPLACE, INSERT, REMOVE = range(3)


def _in_order(members: dict[str, Any]) -> dict[str, Any]:
    """As the server has them: by length, then by bytes."""
    return {name: members[name] for name in sorted(members, key=lambda n: (len(n.encode()), n.encode()))}


_LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
_DOCUMENTS = st.recursive(
    _LEAVES | st.text(max_size=5) | st.just("x" * 200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4).map(_in_order),
    max_leaves=20,
)


def diff(operation: int, path: str, value: Any = None) -> bytes:
    """Operation, length and text of the path, length and bytes of the value."""
    raw = b"" if operation == REMOVE else document(value)
    head = bytes([operation, len(path.encode())]) + path.encode()
    return head + (b"" if operation == REMOVE else bytes([len(raw)]) + raw)


def applied(before: Any, *diffs: bytes) -> str:
    return json_text(apply_diffs(document(before), b"".join(diffs)))


@pytest.mark.parametrize("large", [False, True])
@given(value=_DOCUMENTS)
@example(value=[-32769])  # four bytes within the entry of an array
def test_a_tree_prints_like_the_document_that_it_was_made_of(value: Any, large: bool) -> None:
    raw = document(value, large=large)
    assert json_text(write(parse(raw))) == json_text(raw)


@pytest.mark.parametrize(
    ("before", "operation", "path", "value", "after"),
    [
        ({"a": 1}, REPLACE, "$.a", [1.5, None], '{"a": [1.5, null]}'),
        # members are in the server's order: by length, then by bytes
        ({"bb": 1}, INSERT, "$.c", "x", '{"c": "x", "bb": 1}'),
        ({"a": {"b": [1, 2]}}, REMOVE, "$.a.b[0]", None, '{"a": {"b": [2]}}'),
        ([1, 2, 3], REPLACE, "$[last]", 9, "[1, 2, 9]"),
        ([1, 2, 3], REMOVE, "$[last-2]", None, "[2, 3]"),
        ([1, 2], INSERT, "$[1]", 9, "[1, 9, 2]"),
        # beyond the end is the end, before the beginning the beginning
        ([1, 2], INSERT, "$[7]", 9, "[1, 2, 9]"),
        ([1, 2], INSERT, "$[last-7]", 9, "[9, 1, 2]"),
        ({'q" .[é\n': 1}, REPLACE, '$."q\\" .[é\\n"', 2, '{"q\\" .[é\\n": 2}'),
        ({"": {"é": 1}}, REMOVE, '$."".é', None, '{"": {}}'),
    ],
)
def test_one_difference(before: Any, operation: int, path: str, value: Any, after: str) -> None:
    assert applied(before, diff(operation, path, value)) == after


def test_differences_build_on_one_another() -> None:
    found = applied({"a": []}, diff(INSERT, "$.a[0]", {"b": 1}), diff(INSERT, "$.a[0].c", 2), diff(REMOVE, "$.a[0].b"))
    assert found == '{"a": [{"c": 2}]}'


@pytest.mark.parametrize(
    ("before", "raw"),
    [
        ({"a": 1}, diff(REPLACE, "$.b", 1)),
        ({"a": 1}, diff(INSERT, "$.a", 1)),
        ({"a": 1}, diff(REMOVE, "$.b")),
        ({"a": 1}, diff(REPLACE, "$[0]", 1)),
        ({"a": 1}, diff(REPLACE, "$.a.b", 1)),
        ([1], diff(REPLACE, "$[1]", 1)),
        ([1], diff(REMOVE, "$[last-1]")),
        ([1], diff(INSERT, "$.a", 1)),
        (1, diff(REPLACE, "$", 2)),
        (1, diff(REPLACE, "", 2)),
        ({"a": 1}, diff(REPLACE, "$..a", 2)),
        ({"a": 1}, diff(REPLACE, "$.*[*]", 2)),
        ({"a": 1}, diff(REPLACE, '$."a', 2)),
        ({"a": 1}, bytes([3]) + diff(REMOVE, "$.a")[1:]),
        ({"a": 1}, diff(REPLACE, "$.a", 2)[:-1]),
        ({"a": 1}, bytes([REMOVE, 3]) + b"$.\xff"),
    ],
)
def test_what_does_not_fit_is_refused(before: Any, raw: bytes) -> None:
    with pytest.raises(DecodeError):
        apply_diffs(document(before), raw)


def test_a_document_that_repeats_itself_without_end_is_refused() -> None:
    """An array of two, both of which are the array itself: 2 to the power of its depth."""
    with pytest.raises(DecodeError, match="without end"):
        parse(b"\x02" + struct.pack("<HHBHBH", 2, 10, 2, 0, 2, 0))


@given(raw=st.binary(max_size=60), before=st.binary(max_size=60))
def test_garbage_is_a_decode_error(raw: bytes, before: bytes) -> None:
    for parts in ((before, raw), (document({"a": [1, {"b": 2}]}), raw), (before, diff(REMOVE, "$.a"))):
        try:
            apply_diffs(*parts)
        except DecodeError:
            continue


COLUMNS = (
    MappedColumn(types.LONG, 0, False, "id", False),
    MappedColumn(types.JSON, 4, True, "j"),
    MappedColumn(types.VARCHAR, 40, True, "v", None, 45),
    MappedColumn(types.JSON, 4, True, "k"),
)
MAP = TableMap(1, TableId("shop", "t"), COLUMNS)
KEY, TEXT = b"\7\0\0\0", b"text"


def _pair(options: bytes, before: tuple[bytes | None, ...], after: tuple[bytes | None, ...]) -> bytes:
    return image(MAP, before) + options + image(MAP, after)


def test_images_with_differences_become_whole_ones() -> None:
    """The options (1: differences), a bit for each JSON column, the image; a row without options is
    whole."""
    one, two, made = document({"a": 1}), document({"a": 2}), document({"a": 2}, large=True)
    change = diff(REPLACE, "$.a", 2)
    rows = [
        # the second of the two JSON columns, after a NULL
        (b"\1\2", (KEY, None, TEXT, one), (KEY, None, None, change), (KEY, None, None, made)),
        (b"\1\1", (KEY, one, None, None), (KEY, change, TEXT, two), (KEY, made, TEXT, two)),
        (b"\1\0", (KEY, one, TEXT, one), (KEY, two, TEXT, None), (KEY, two, TEXT, None)),
        (b"\0", (KEY, one, TEXT, one), (KEY, two, TEXT, two), (KEY, two, TEXT, two)),
    ]
    body = b"".join(_pair(options, before, after) for options, before, after, _ in rows)
    wanted = b"".join(image(MAP, before) + image(MAP, after) for _, before, _, after in rows)
    assert whole_images(MAP, body) == wanted


@pytest.mark.parametrize(
    "body",
    [
        # differences from NULL, to NULL; an unknown option; half a pair
        _pair(b"\1\1", (KEY, None, TEXT, None), (KEY, diff(REMOVE, "$.a"), TEXT, None)),
        _pair(b"\1\1", (KEY, document({"a": 1}), TEXT, None), (KEY, None, TEXT, None)),
        _pair(b"\2", (KEY, None, TEXT, None), (KEY, None, TEXT, None)),
        image(MAP, (KEY, None, TEXT, None)),
    ],
)
def test_images_that_cannot_be_made_whole_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        whole_images(MAP, body)


def test_differences_do_not_nest_without_end() -> None:
    """Each is within the depth of a document; all together are not."""
    nested = "[" * 40 + "]" * 40
    value: Any = json.loads(nested)
    diffs, path = [], "$"
    for _ in range(60):
        raw = document(value)
        place = f"{path}[0]".encode()
        diffs.append(bytes([INSERT, 0xFC]) + struct.pack("<H", len(place)) + place)
        diffs.append(b"\xfc" + struct.pack("<H", len(raw)) + raw)
        path += "[0]" * 40
    with pytest.raises(DecodeError, match="deep"):
        apply_diffs(document([]), b"".join(diffs))
