"""Text of a whole column in any character set, as Arrow has it: UTF-8.

What is ASCII in a character set that contains ASCII needs no work. Character sets of single bytes are decoded as one long text, of which
each byte is one character; the others value by value, equal ones once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.charset import charset_of, contains_ascii, decoder, is_single_byte, is_utf8
from cdcsync_spark.wire.facts import MappedColumn
from cdcsync_spark.wire.gather import Numbers, is_ascii, strings, utf8

#: of longer data the lengths of all characters would take too much memory; its values are few
_LONG = 8 << 20


def charset(mapped: MappedColumn) -> str:
    """The column's character set; raises DecodeError."""
    if mapped.collation is None:
        raise DecodeError("text without a character set in its TABLE_MAP event", needed="binlog_row_metadata=FULL")
    return charset_of(mapped.collation)


def decoded(raw: pa.BinaryArray, name: str) -> pa.StringArray:
    """Values in the character set `name`; raises DecodeError or UnicodeDecodeError for what is not in it."""
    read = decoder(name)
    if is_utf8(name):
        return utf8(raw)
    if contains_ascii(name) and is_ascii(raw):
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    if is_single_byte(name) and raw.buffers()[2].size <= _LONG:
        return _single_bytes(raw, name)
    return each_once(raw, read)


def each_once(values: pa.Array, read: Callable[[Any], str]) -> pa.StringArray:
    """`read` of every value that is not NULL; equal values are read once."""
    encoded = values.dictionary_encode()
    return strings([read(v) for v in encoded.dictionary.to_pylist()]).take(encoded.indices)


def without_trailing_blanks(text: pa.StringArray) -> pa.StringArray:
    """CHAR as the server returns it."""
    _, offsets, data = text.buffers()
    if data is None or not data.size:
        return text
    ends = np.frombuffer(offsets, np.int32)[: len(text) + 1]
    blank = np.frombuffer(data, np.uint8).take(ends[1:] - 1, mode="clip") == ord(" ")
    return pc.utf8_rtrim(text, characters=" ") if (blank & (ends[1:] > ends[:-1])).any() else text


@cache
def _utf8_lengths(name: str) -> Numbers:
    """Of each byte the length of its character in UTF-8; 0 for one that has none."""

    def length(byte: int) -> int:
        try:
            return len(decoder(name)(bytes([byte])).encode())
        except UnicodeDecodeError:
            return 0

    return np.array([length(b) for b in range(256)], np.uint8)


def _single_bytes(raw: pa.BinaryArray, name: str) -> pa.StringArray:
    valid, offsets, data = raw.buffers()
    text = decoder(name)(data.to_pybytes()).encode()
    ends = np.zeros(data.size + 1, np.int32)
    np.cumsum(_utf8_lengths(name).take(np.frombuffer(data, np.uint8)), dtype=np.int32, out=ends[1:])
    moved = ends.take(np.frombuffer(offsets, np.int32)[: len(raw) + 1])
    return pa.Array.from_buffers(pa.string(), len(raw), [valid, pa.py_buffer(moved), pa.py_buffer(text)])
