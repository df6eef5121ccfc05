"""MySQL's binary JSON as a tree, and back: what differences are applied to.

A leaf keeps its kind and the bytes of its value, so nothing about it can change: a number's kind, a
decimal's scale, a date. A tree is written in the form for large documents, whatever its size: that
is read as well as the other one (`jsonb`). Source: MySQL `sql-common/json_binary.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.json.json_bytes import JsonBytes

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _STRING, _OPAQUE = 4, 12, 15
#: bytes of a value, by its kind
_WIDTHS = {_LITERAL: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}
#: kinds whose values stand in the place of their offset
_INLINED = {2: (_LITERAL, 5, 6), 4: (_LITERAL, 5, 6, 7, 8)}
#: deeper than any server lets documents be
MAX_DEPTH = 100


class Leaf(NamedTuple):
    kind: int
    raw: bytes


Tree = Leaf | dict[bytes, "Tree"] | list["Tree"]


def parse(raw: bytes) -> Tree:
    """`raw` is a JSON column's value in a row image; raises DecodeError."""
    if not raw:
        return Leaf(_LITERAL, b"\0")
    try:
        return _Reader(raw).value(raw[0], 1, 0)
    except (IndexError, struct.error):
        raise DecodeError(f"a JSON value that ends before its {len(raw)} bytes do") from None


def write(tree: Tree) -> bytes:
    """The value of a JSON column."""
    return bytes([_kind(tree)]) + _data(tree)


def refuse_deep(tree: Tree) -> None:
    """Raises DecodeError for a tree that no server lets a document be: differences nest what they
    bring in what is there."""
    level, depth = [tree], 0
    while level:
        if depth > MAX_DEPTH:
            raise DecodeError(f"a JSON value that is more than {MAX_DEPTH} deep")
        level = [child for parent in level if not isinstance(parent, Leaf) for child in _children(parent)]
        depth += 1


def _children(parent: dict[bytes, Tree] | list[Tree]) -> Iterable[Tree]:
    return parent.values() if isinstance(parent, dict) else parent


class _Reader(JsonBytes):
    def value(self, kind: int, at: int, depth: int) -> Tree:
        if kind <= LARGE_ARRAY:
            return self._container(kind, at, depth)
        if kind in _WIDTHS:
            return Leaf(kind, self._bytes(at, _WIDTHS[kind]))
        if kind not in (_STRING, _OPAQUE):
            raise DecodeError(f"a JSON value of the kind {kind}")
        length, begin = _length(self._raw, at + (kind == _OPAQUE))
        return Leaf(kind, self._bytes(at, begin - at + length))

    def _container(self, kind: int, start: int, depth: int) -> Tree:
        width, letter = (4, "I") if kind & 1 else (2, "H")
        count, _ = struct.unpack_from(f"<{letter}{letter}", self._raw, start)
        at = start + 2 * width
        self._spend(2 * width + count * (width + 1))
        if depth > MAX_DEPTH:
            raise DecodeError(f"a JSON value that is more than {MAX_DEPTH} deep")
        keys: list[bytes] = []
        if kind <= LARGE_OBJECT:
            entries = struct.iter_unpack(f"<{letter}H", self._bytes(at, count * (width + 2)))
            keys = [self._bytes(start + offset, length) for offset, length in entries]
            at += count * (width + 2)
        values: list[Tree] = []
        for entry in range(at, at + count * (width + 1), width + 1):
            child, offset = struct.unpack_from(f"<B{letter}", self._raw, entry)
            if child in _INLINED[width]:  # its bytes are the entry's
                values.append(Leaf(child, self._raw[entry + 1 : entry + 1 + _WIDTHS[child]]))
            else:
                values.append(self.value(child, start + offset, depth + 1))
        return dict(zip(keys, values, strict=True)) if kind <= LARGE_OBJECT else values


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """A length and where it ends: seven bits a byte, the lowest first; the highest bit says that
    more follow."""
    length = 0
    for shift in range(0, 35, 7):
        length |= (raw[at] & 0x7F) << shift
        at += 1
        if raw[at - 1] < 0x80:
            return length, at
    raise DecodeError("a length in a JSON value that does not end")


def _kind(tree: Tree) -> int:
    if isinstance(tree, Leaf):
        return tree.kind
    return LARGE_OBJECT if isinstance(tree, dict) else LARGE_ARRAY


def _data(tree: Tree) -> bytes:
    if isinstance(tree, Leaf):
        return tree.raw
    if isinstance(tree, list):
        return _container([], tree)
    # the server's order of members: by length, then by bytes
    keys = sorted(tree, key=lambda k: (len(k), k))
    return _container(keys, [tree[k] for k in keys])


def _container(keys: list[bytes], values: list[Tree]) -> bytes:
    """Count and size, where the keys are and how long, kinds and places of the values, the keys,
    the values."""
    end = 8 + len(keys) * 6 + len(values) * 5
    heads, entries, tail = [], [], []
    for key in keys:
        heads.append(struct.pack("<IH", end, len(key)))
        tail.append(key)
        end += len(key)
    for value in values:
        kind, data = _kind(value), _data(value)
        if kind in _INLINED[4]:
            entries.append(bytes([kind]) + data.ljust(4, b"\0"))
            continue
        entries.append(struct.pack("<BI", kind, end))
        tail.append(data)
        end += len(data)
    return b"".join([struct.pack("<II", len(values), end), *heads, *entries, *tail])
