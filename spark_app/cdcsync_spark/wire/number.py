"""Decimals and doubles as the server writes and prints them.

Sources: MySQL `strings/decimal.cc` (decimal2bin, decimal2string), `strings/dtoa.cc` (my_gcvt).
"""

from __future__ import annotations

import struct

from cdcsync_core.errors import DecodeError

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
#: beyond this many digits of a whole number, or zeros after the point, the server prints an exponent
_PLAIN_DIGITS = 15


def decimal_text(raw: bytes, precision: int, scale: int) -> str:
    """A DECIMAL's stored bytes to the server's text, with exactly `scale` digits after the point.

    Nine digits take four bytes, big endian, counted from the point in both directions, the rest as few bytes as they need. The first
    bit is inverted, and all bytes of a negative number are.
    """
    if not raw or not 0 <= scale <= precision:
        raise DecodeError(f"a DECIMAL({precision},{scale}) of {len(raw)} bytes")
    negative = not raw[0] & 0x80
    data = bytes([raw[0] ^ 0x80]) + raw[1:]
    if negative:
        data = bytes(b ^ 0xFF for b in data)
    whole_digits = precision - scale
    groups = [whole_digits % 9, *[9] * (whole_digits // 9), *[9] * (scale // 9), scale % 9]
    digits = _digits(data, [g for g in groups if g])
    whole, part = digits[:whole_digits].lstrip("0") or "0", digits[whole_digits:]
    sign = "-" if negative and digits.strip("0") else ""
    return f"{sign}{whole}.{part}" if scale else f"{sign}{whole}"


def _digits(data: bytes, groups: list[int]) -> str:
    at, out = 0, []
    for count in groups:
        width = _DIGIT_BYTES[count]
        text = str(int.from_bytes(data[at : at + width], "big")).zfill(count)
        at += width
        if len(text) != count:
            raise DecodeError(f"a decimal with {text} in place of {count} digits")
        out.append(text)
    if at != len(data):
        raise DecodeError(f"a decimal of {len(data)} bytes", needed=f"{at}")
    return "".join(out)


def shortest_double(raw: bytes) -> str:
    """The shortest text that reads back as the same double, in the server's form: `1.5`, `1.0`, `1e20`, `1.5e-16`."""
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
