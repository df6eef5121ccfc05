"""Reading one value of every row at once: the same as reading them one by one, and nothing beyond
the buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.gather import Lanes, numbers, utf8

PARTS = [b"\x01\x80\xff\x00\x7f\xfe\x10\x20", b"", b"\xff" * 8, b"\x80\x00\x00\x00\x00\x00\x00\x01"]
DATA = b"".join(PARTS)
AT = np.array([0, 1, 5, 8, 16, 20])


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("shift", [0, 2])
def test_numbers_of_every_width(width: int, shift: int) -> None:
    """Zeros lie behind the buffer, so the last number, which is cut, reads as if padded."""
    lanes = Lanes(PARTS)
    raw = [(DATA + bytes(16))[a + shift :][:width] for a in AT]
    assert lanes.little(AT, width, shift).tolist() == [int.from_bytes(r, "little") for r in raw]
    assert lanes.signed(AT, width, shift).tolist() == [int.from_bytes(r, "little", signed=True) for r in raw]
    assert lanes.big(AT, width, shift).tolist() == [int.from_bytes(r, "big") for r in raw]
    assert [bytes(v) for v in lanes.items(AT, width, shift)] == raw


def test_slices_with_gaps_and_nulls() -> None:
    lanes = Lanes([b"3abc-", b"0", b"2\xc3\xa4"])
    starts, lengths = np.array([1, 5, 6, 7]), np.array([3, 0, 0, 2])
    array = lanes.slices(starts, lengths, np.array([True, False, True, True]))
    assert utf8(array).to_pylist() == ["abc", None, "", "ä"]
    assert lanes.slices(starts[:0], lengths[:0]).to_pylist() == []


def test_a_character_that_two_values_share_is_no_text() -> None:
    lanes = Lanes([b"\xc3\xa4"])
    with pytest.raises(DecodeError):
        utf8(lanes.slices(np.array([0, 1]), np.array([1, 1])))


def test_a_cursor_beyond_the_buffer_is_an_error_or_reads_a_zero() -> None:
    lanes = Lanes([b"abc"])
    for width in (1, 8, 1000):
        with pytest.raises(DecodeError):
            lanes.items(np.array([1000]), width)
    assert lanes.byte(np.array([2, 3, 1000])).tolist() == [99, 0, 0]
    assert lanes.clip(np.array([1, 1000])).tolist() == [1, 3]


def test_numbers_become_arrow_without_a_copy() -> None:
    values = np.array([1, 2, 3], np.int32)
    array = numbers(values, pa.int32(), np.array([True, False, True]))
    assert array.to_pylist() == [1, None, 3]
    assert array.buffers()[1].address == values.ctypes.data
