"""Differences of JSON documents as MySQL logs them (`binlog_row_value_options=PARTIAL_JSON`),
applied to the document before them.

Why the result is the source's value: the server applies the same differences to the same document,
in this order, on its replicas. What it would reject there (a path that leads nowhere, a member that
is there already) is an error here. Paths name what is there exactly: the server has taken out what
wraps a single value into an array. Source: MySQL `sql/json_diff.cc` (Json_diff_vector::read_binary,
apply_json_diffs).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.json.json_tree import Tree, parse, refuse_deep, write
from cdcsync_spark.wire.columns.cursor import Cursor


class _Operation(IntEnum):
    REPLACE = 0
    INSERT = 1
    REMOVE = 2


class _Cell(NamedTuple):
    """A place in an array, counted from its beginning or, 0 being the last one, from its end."""

    number: int
    from_end: bool


_Leg = bytes | _Cell


class _Diff(NamedTuple):
    operation: _Operation
    path: tuple[_Leg, ...]
    value: Tree | None


_CELL = re.compile(r"\[(?:(last)(?:-(\d{1,10}))?|(\d{1,10}))\]")
_MEMBER = re.compile(r"\.([^.\[\"]+)")
_QUOTED = json.JSONDecoder(strict=False)


def apply_diffs(before: bytes, diffs: bytes) -> bytes:
    """The value of a JSON column after `diffs`; raises DecodeError."""
    tree = parse(before)
    for diff in _diffs(diffs):
        _apply(tree, diff)
    refuse_deep(tree)
    return write(tree)


def _diffs(raw: bytes) -> Iterator[_Diff]:
    cursor = Cursor(raw)
    while cursor:
        number = cursor.byte()
        if number > _Operation.REMOVE:
            raise DecodeError(f"the operation {number} on a JSON document")
        path = _path(cursor.text(cursor.lenenc()))
        has_value = number != _Operation.REMOVE
        yield _Diff(_Operation(number), path, parse(bytes(cursor.take(cursor.lenenc()))) if has_value else None)


def _path(text: str) -> tuple[_Leg, ...]:
    """`$.a."b c"[3][last-1]`"""
    at, legs = 1, list[_Leg]()
    while at < len(text):
        if cell := _CELL.match(text, at):
            legs.append(_Cell(int(cell[3] or cell[2] or 0), cell[3] is None))
            at = cell.end()
        elif member := _MEMBER.match(text, at):
            legs.append(member[1].encode())
            at = member.end()
        else:
            name, at = _quoted(text, at)
            legs.append(name)
    if not legs or text[:1] != "$":
        raise _bad_path(text)
    return tuple(legs)


def _quoted(text: str, at: int) -> tuple[bytes, int]:
    try:
        if text[at : at + 2] != '."':
            raise _bad_path(text)
        name, end = _QUOTED.raw_decode(text, at + 1)
        return str(name).encode(), end
    except ValueError:
        raise _bad_path(text) from None


def _bad_path(text: str) -> DecodeError:
    return DecodeError(f"the path {text[:200]!r} of a JSON difference", needed="members and array cells behind a $")


def _apply(tree: Tree, diff: _Diff) -> None:
    """In place."""
    parent = tree
    for leg in diff.path[:-1]:
        parent = _child(parent, leg)
    last = diff.path[-1]
    if isinstance(parent, dict) and isinstance(last, bytes):
        _to_member(parent, last, diff)
    elif isinstance(parent, list) and isinstance(last, _Cell):
        _to_cell(parent, last, diff)
    else:
        raise _rejected()


def _child(parent: Tree, leg: _Leg) -> Tree:
    if isinstance(parent, dict) and isinstance(leg, bytes) and leg in parent:
        return parent[leg]
    if isinstance(parent, list) and isinstance(leg, _Cell):
        place, exists = _place(leg, len(parent))
        if exists:
            return parent[place]
    raise _rejected()


def _place(cell: _Cell, count: int) -> tuple[int, bool]:
    """The index, as near as there is one, and whether it exists."""
    if cell.from_end:
        return max(count - 1 - cell.number, 0), cell.number < count
    return min(cell.number, count), cell.number < count


def _to_member(parent: dict[bytes, Tree], name: bytes, diff: _Diff) -> None:
    if (name in parent) == (diff.operation is _Operation.INSERT):
        raise _rejected()
    if diff.value is None:
        del parent[name]
    else:
        parent[name] = diff.value


def _to_cell(parent: list[Tree], cell: _Cell, diff: _Diff) -> None:
    place, exists = _place(cell, len(parent))
    if diff.operation is _Operation.INSERT and diff.value is not None:
        parent.insert(place, diff.value)
    elif not exists:
        raise _rejected()
    elif diff.value is None:
        del parent[place]
    else:
        parent[place] = diff.value


def _rejected() -> DecodeError:
    return DecodeError(
        "a JSON difference that does not fit the document before it", needed="the document that it was made of"
    )
