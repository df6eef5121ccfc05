"""Decimals and doubles as the server writes and prints them.

Sources: MySQL `strings/decimal.cc` (decimal2bin, decimal2string), `strings/dtoa.cc` (my_gcvt).
"""

from __future__ import annotations

import struct
from functools import lru_cache

from cdcsync_core.errors import DecodeError

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
#: beyond this many digits of a whole number, or zeros after the point, the server prints an
#: exponent
_PLAIN_DIGITS = 15


def decimal_text(raw: bytes, precision: int, scale: int) -> str:
    """A DECIMAL's stored bytes to the server's text, with exactly `scale` digits after the point.

    Nine digits take four bytes, big endian, counted from the point in both directions, the rest as
    few bytes as they need. The first bit is inverted, and all bytes of a negative number are.
    """
    if not raw or not 0 <= scale <= precision:
        raise DecodeError(f"a DECIMAL({precision},{scale}) of {len(raw)} bytes")
    width, groups = _groups(precision, scale)
    if len(raw) != width:
        raise DecodeError(f"a decimal of {len(raw)} bytes", needed=f"{width}")
    negative = raw[0] < 0x80
    number = int.from_bytes(raw, "big") ^ (0x80 << 8 * (width - 1))
    if negative:
        number ^= (1 << 8 * width) - 1
    digits = "".join([_digits(number >> shift & mask, count) for shift, mask, count in groups])
    whole = digits[: precision - scale].lstrip("0") or "0"
    sign = "-" if negative and number else ""
    return f"{sign}{whole}.{digits[precision - scale :]}" if scale else f"{sign}{whole}"


@lru_cache(maxsize=1024)
def _groups(precision: int, scale: int) -> tuple[int, list[tuple[int, int, int]]]:
    """The width in bytes, and for each group of digits how far its bits lie from the end, their
    mask, and how many digits it has."""
    whole = precision - scale
    counts = [c for c in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9) if c]
    shift = width = sum(_DIGIT_BYTES[c] for c in counts)
    groups = []
    for count in counts:
        shift -= _DIGIT_BYTES[count]
        groups.append((8 * shift, (1 << 8 * _DIGIT_BYTES[count]) - 1, count))
    return width, groups


def _digits(number: int, count: int) -> str:
    text = str(number).zfill(count)
    if len(text) != count:
        raise DecodeError(f"a decimal with {text} in place of {count} digits")
    return text


def shortest_double(raw: bytes) -> str:
    """The shortest text that reads back as the same double, in the server's form: `1.5`, `1.0`,
    `1e20`, `1.5e-16`."""
    number = struct.unpack("<d", raw)[0]
    if number != number or number in (float("inf"), float("-inf")):
        raise DecodeError(f"the number {number}", needed="a finite one")
    mantissa, exponent = _scientific(number)
    sign = "-" if str(number).startswith("-") else ""
    point = exponent + 1
    if point <= -_PLAIN_DIGITS or (point > _PLAIN_DIGITS and point >= len(mantissa)):
        fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
        return f"{sign}{mantissa[0]}{fraction}e{exponent}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{mantissa}"
    whole, fraction = mantissa[:point].ljust(point, "0"), mantissa[point:]
    return f"{sign}{whole}.{fraction or '0'}"


def _scientific(number: float) -> tuple[str, int]:
    """The shortest digits, and the power of ten of the first one."""
    digits, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, part = digits.partition(".")
    shift = int(exponent or 0)
    significant = (whole + part).lstrip("0")
    if not significant:
        return "0", 0
    leading = len(whole) if whole.strip("0") else -(len(part) - len(part.lstrip("0")))
    return significant.rstrip("0"), leading - 1 + shift
