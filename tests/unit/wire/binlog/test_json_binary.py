"""MySQL's binary JSON: offsets count from the container's first byte after its kind; numbers print
as the server prints them."""

from __future__ import annotations

import struct

import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.json.json_binary import json_text
from cdcsync_spark.wire.binlog.number import shortest_double

CASES = [
    (b"", "null"),  # an empty value, left by INSERT IGNORE
    (b"\x04\x00", "null"),
    (b"\x04\x01", "true"),
    (b"\x04\x02", "false"),
    (b"\x05\xff\xff", "-1"),
    (b"\x06\xff\xff", "65535"),
    (b"\x07" + struct.pack("<i", -40000), "-40000"),
    (b"\x08" + struct.pack("<I", 4294967295), "4294967295"),
    (b"\x09" + struct.pack("<q", -(2**63)), str(-(2**63))),
    (b"\x0a" + b"\xff" * 8, str(2**64 - 1)),
    (b"\x0b" + struct.pack("<d", 1.1), "1.1"),
    (b'\x0c\x03a"\n', '"a\\"\\n"'),
    (b"\x0c\x05\x01\x7f/\xc3\xa9", '"\\u0001\x7f/é"'),
    # small array of two: count, size; 5 inlined 1; 12 at offset 10: "x"
    (b"\x02\x02\x00\x0c\x00\x05\x01\x00\x0c\x0a\x00\x01x", '[1, "x"]'),
    # small object of one: count, size; key at 11, length 1; value 2 (array) at 12: empty, size 4
    (b"\x00\x01\x00\x10\x00\x0b\x00\x01\x00\x02\x0c\x00a\x00\x00\x04\x00", '{"a": []}'),
    # large array of one: 32-bit numbers are inlined there
    (b"\x03\x01\x00\x00\x00\x0d\x00\x00\x00\x07\xc0\x63\xff\xff", "[-40000]"),
    # opaque: column type, length, data; a decimal is precision, scale, bytes
    (b"\x0f\xf6\x04\x03\x02\x81\x0a", "1.10"),
    # DECIMAL(10,8) of 0.0000001 and of 0, two digits and eight: 1 byte, then 4; never in exponent
    # form
    (b"\x0f\xf6\x07\x0a\x08\x80\x00\x00\x00\x0a", "0.00000010"),
    (b"\x0f\xf6\x07\x0a\x08\x80\x00\x00\x00\x00", "0.00000000"),
    (b"\x0f\x0f\x02\x01\x02", '"base64:type15:AQI="'),
    (b"\x0f\xfc\x39" + b"x" * 57, '"base64:type252:' + "eHh4" * 19 + '"'),
    (b"\x0f\xfc\x3a" + b"x" * 58, '"base64:type252:' + "eHh4" * 19 + '\\neA=="'),
    # a packed date: (year * 13 + month) << 5 | day, 17 bits of time, 24 of microseconds
    (b"\x0f\x0a\x08" + struct.pack("<q", ((2024 * 13 + 1) << 5 | 2) << 41), '"2024-01-02"'),
    (
        b"\x0f\x0c\x08" + struct.pack("<q", (((2024 * 13 + 1) << 5 | 2) << 17 | 3 << 12 | 4 << 6 | 5) << 24 | 6),
        '"2024-01-02 03:04:05.000006"',
    ),
    (b"\x0f\x0b\x08" + struct.pack("<q", -((838 << 12 | 59 << 6 | 59) << 24)), '"-838:59:59.000000"'),
]


@pytest.mark.parametrize(("raw", "text"), CASES)
def test_a_document_is_printed(raw: bytes, text: str) -> None:
    assert json_text(raw) == text


# source: my_gcvt with a width of 34 (strings/dtoa.cc); compared with a server in
# tests/servers/test_binlog_types.py
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (1e16, "1e16"),
        (1626983080611305.8, "1626983080611305.8"),
        (1e-14, "0.00000000000001"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.5e-16, "1.5e-16"),
        (1e100, "1e100"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (5e-324, "5e-324"),
        (123456.789, "123456.789"),
    ],
)
def test_doubles_are_printed_as_the_server_does(number: float, text: str) -> None:
    assert shortest_double(struct.pack("<d", number)) == text


@pytest.mark.parametrize(
    "raw",
    [
        b"\x04\x07",
        b"\x0d",
        b"\x0b" + struct.pack("<d", float("nan")),
        b"\x0c\x05ab",
        b"\x0c\x01\xff",
        b"\x0c\xff\xff\xff\xff\xff\x01",
        b"\x02\x02\x00\xff\xff\x05\x01\x00",
        # an array that holds itself, alone and twice
        b"\x02\x01\x00\x07\x00\x02\x00\x00",
        b"\x02\x02\x00\x0a\x00\x02\x00\x00\x02\x00\x00",
        b"\x0f\x0a\x02ab",
        b"\x0f\xf6\x01\x03",
    ],
)
def test_garbage_is_an_error(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        json_text(raw)
