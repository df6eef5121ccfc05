"""Text of a whole column in any character set, as Arrow has it: UTF-8.

What is ASCII in a character set that contains ASCII needs no work. Character sets of single bytes
are decoded as one long text, of which each byte is one character; the others value by value, equal
ones once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.source_table import SourceType
from cdcsync_spark.wire.columns.charset import BEYOND_UTF8MB3, Decode, contains_ascii, is_single_byte, is_utf8
from cdcsync_spark.wire.columns.gather import Numbers, is_ascii, largest_byte, strings, utf8
from cdcsync_spark.wire.columns.replacement import checked, first_refused, reader

#: of longer data the lengths of all characters would take too much memory; its values are few
_LONG = 8 << 20
#: values that are decoded as one: a call costs as much as a dozen characters, and one rare
#: character makes all of them slow
_TOGETHER = 64


def decoded(raw: pa.BinaryArray, name: str, source: SourceType) -> pa.StringArray:
    """Values in the character set `name`; raises DecodeError for the first that has bytes that are
    not in it, unless `source` has them replaced."""
    read = reader(name, replaced=source.replaced)
    try:
        return _decoded(raw, name, read, replaced=source.replaced)
    except (DecodeError, UnicodeDecodeError):
        first_refused(raw.to_pylist(), checked(name, replaced=source.replaced))
        raise


def _decoded(raw: pa.BinaryArray, name: str, read: Decode, *, replaced: bool) -> pa.StringArray:
    if is_utf8(name):
        return _utf8(raw, name, read, replaced=replaced)
    if contains_ascii(name) and is_ascii(raw):
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    if is_single_byte(name) and raw.buffers()[2].size <= _LONG:
        return _single_bytes(raw, name, read, replaced=replaced)
    return _together(raw, read) if contains_ascii(name) else each_once(raw, read)


def _utf8(raw: pa.BinaryArray, name: str, read: Decode, *, replaced: bool) -> pa.StringArray:
    """The same bytes, where all of them are text."""
    try:
        if name == "utf8mb3" and largest_byte(raw) >= BEYOND_UTF8MB3:
            raise DecodeError("four bytes of UTF-8 in utf8mb3 text")
        return utf8(raw)
    except DecodeError:
        if replaced:
            return each_once(raw, read)
        raise


def each_once(values: pa.Array, read: Callable[[Any], str]) -> pa.StringArray:
    """`read` of every value that is not NULL; equal values are read once."""
    encoded = values.dictionary_encode()
    return strings([read(v) for v in encoded.dictionary.to_pylist()]).take(encoded.indices)


def _together(raw: pa.BinaryArray, read: Decode) -> pa.StringArray:
    """Values of a character set of several bytes, many at a time: a zero byte is no part of another
    character, so it parts them."""
    encoded = raw.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    texts: list[str] = []
    for start in range(0, len(values), _TOGETHER):
        some = values[start : start + _TOGETHER]
        parts = read(b"\0".join(some)).split("\0")
        texts += parts if len(parts) == len(some) else map(read, some)
    return strings(texts).take(encoded.indices)


def without_trailing_blanks(text: pa.StringArray) -> pa.StringArray:
    """CHAR as the server returns it."""
    _, offsets, data = text.buffers()
    if data is None or not data.size:
        return text
    ends = np.frombuffer(offsets, np.int32)[: len(text) + 1]
    blank = np.frombuffer(data, np.uint8).take(ends[1:] - 1, mode="clip") == ord(" ")
    return pc.utf8_rtrim(text, characters=" ") if (blank & (ends[1:] > ends[:-1])).any() else text


@cache
def _utf8_lengths(name: str, *, replaced: bool) -> Numbers:
    """The length of each byte's character in UTF-8; 0 for one that has none."""
    read = reader(name, replaced=replaced)

    def length(byte: int) -> int:
        try:
            return len(read(bytes([byte])).encode())
        except UnicodeDecodeError:
            return 0

    return np.array([length(b) for b in range(256)], np.uint8)


def _single_bytes(raw: pa.BinaryArray, name: str, read: Decode, *, replaced: bool) -> pa.StringArray:
    valid, offsets, data = raw.buffers()
    text = read(data.to_pybytes()).encode()
    ends = np.zeros(data.size + 1, np.int32)
    lengths = _utf8_lengths(name, replaced=replaced)
    np.cumsum(lengths.take(np.frombuffer(data, np.uint8)), dtype=np.int32, out=ends[1:])
    moved = ends.take(np.frombuffer(offsets, np.int32)[: len(raw) + 1])
    return pa.Array.from_buffers(pa.string(), len(raw), [valid, pa.py_buffer(moved), pa.py_buffer(text)])
