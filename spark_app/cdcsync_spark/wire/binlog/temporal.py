"""Dates and times: from stored bytes to days, microseconds and the server's text.

A date that is not in the proleptic calendar of the years 1 to 9999 (zero, partial or impossible,
which sql_mode may admit) is None, as in the snapshot. Source: MySQL
`mysys_time`/`sql-common/my_time.cc` (my_datetime_packed_from_binary, my_time_packed_from_binary,
my_timestamp_from_binary); MariaDB uses the same forms.
"""

from __future__ import annotations

from datetime import date

from cdcsync_core.errors import DecodeError

_EPOCH = date(1970, 1, 1).toordinal()
_MICROS = 1_000_000
_DAY = 86_400 * _MICROS


def days(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01."""
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def micros(year: int, month: int, day: int, hour: int, minute: int, second: int, micro: int) -> int | None:
    """Microseconds since 1970-01-01."""
    if hour > 23 or minute > 59 or second > 59:
        raise DecodeError(f"the time of day {hour}:{minute}:{second}")
    number = days(year, month, day)
    return None if number is None else number * _DAY + ((hour * 60 + minute) * 60 + second) * _MICROS + micro


def _fraction(raw: bytes) -> int:
    """One byte holds two digits, two bytes four, three bytes six."""
    micro = int.from_bytes(raw, "big") * 100 ** (3 - len(raw))
    if micro >= _MICROS:
        raise DecodeError(f"{micro} microseconds in a second")
    return micro


def date_days(raw: bytes) -> int | None:
    """DATE: 3 bytes, little endian, 5 bits of day, 4 of month."""
    number = int.from_bytes(raw, "little")
    return days(number >> 9, number >> 5 & 15, number & 31)


def datetime2_micros(raw: bytes) -> int | None:
    """DATETIME: 5 bytes, big endian: a one, 17 bits of year * 13 + month, then 5, 5, 6, 6; then the
    fraction."""
    number = int.from_bytes(raw[:5], "big")
    if not number >> 39:
        raise DecodeError(f"a DATETIME before the year 0: {raw.hex()}")
    months = number >> 22 & 0x1FFFF
    clock = (number >> 12 & 31, number >> 6 & 63, number & 63)
    return micros(months // 13, months % 13, number >> 17 & 31, *clock, _fraction(raw[5:]))


def timestamp2_micros(raw: bytes) -> int | None:
    """TIMESTAMP: 4 bytes of unix seconds, big endian, then the fraction; 0 stands for the zero
    date. In the second 0 MariaDB has moments with a fraction, MySQL none."""
    return int.from_bytes(raw[:4], "big") * _MICROS + _fraction(raw[4:]) or None


def time2_text(raw: bytes, digits: int) -> str:
    """TIME: 3 bytes and a fraction, big endian, together one number with the offset of the sign; of
    its magnitude 10, 6, 6 bits."""
    places = len(raw) - 3
    number = int.from_bytes(raw, "big") - (0x800000 << 8 * places)
    whole, part = abs(number) >> 8 * places, abs(number) & (1 << 8 * places) - 1
    micro = _fraction(part.to_bytes(places, "big")) if places else 0
    return _clock(number < 0, whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63, micro, digits)


def _clock(negative: bool, hour: int, minute: int, second: int, micro: int, digits: int) -> str:
    if minute > 59 or second > 59:
        raise DecodeError(f"the time {hour}:{minute}:{second}")
    fraction = f".{micro:06d}"[: digits + 1] if digits else ""
    return f"{'-' if negative else ''}{hour:02d}:{minute:02d}:{second:02d}{fraction}"


# --- the forms of tables that were made before MySQL 5.6 and MariaDB 10.1, without fractions
# ---------------------------


def time_text(raw: bytes) -> str:
    """TIME: 3 bytes, little endian, signed: hhmmss as a decimal number."""
    number = int.from_bytes(raw, "little", signed=True)
    magnitude = abs(number)
    return _clock(number < 0, magnitude // 10000, magnitude // 100 % 100, magnitude % 100, 0, 0)


def datetime_micros(raw: bytes) -> int | None:
    """DATETIME: 8 bytes, little endian: YYYYMMDDhhmmss as a decimal number."""
    day, clock = divmod(int.from_bytes(raw, "little"), 1_000_000)
    return micros(day // 10000, day // 100 % 100, day % 100, clock // 10000, clock // 100 % 100, clock % 100, 0)


def timestamp_micros(raw: bytes) -> int | None:
    """TIMESTAMP: 4 bytes of unix seconds, little endian."""
    seconds = int.from_bytes(raw, "little")
    return seconds * _MICROS if seconds else None


# --- those of MariaDB before 10.1, or with mysql56_temporal_format=OFF, with fractions: one number
# with the declared digits, big endian (sql/field.cc, Field_time_hires and its siblings)
# ---------------------------

#: a TIME is the difference from this
_LEAST_TIME_SECONDS = 3_020_400


def time_digits_text(raw: bytes, digits: int) -> str:
    number = int.from_bytes(raw, "big") - _LEAST_TIME_SECONDS * 10**digits
    seconds, micro = divmod(abs(number) * 10 ** (6 - digits), _MICROS)
    return _clock(number < 0, seconds // 3600, seconds // 60 % 60, seconds % 60, micro, digits)


def datetime_digits_micros(raw: bytes, digits: int) -> int | None:
    """Months of a year count from 0 to 12, days of a month from 0 to 31."""
    number, micro = divmod(int.from_bytes(raw, "big") * 10 ** (6 - digits), _MICROS)
    number, second = divmod(number, 60)
    number, minute = divmod(number, 60)
    number, hour = divmod(number, 24)
    number, day = divmod(number, 32)
    year, month = divmod(number, 13)
    return micros(year, month, day, hour, minute, second, micro)


def timestamp_digits_micros(raw: bytes, digits: int) -> int | None:
    """4 bytes of unix seconds, then the fraction."""
    seconds, micro = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big") * 10 ** (6 - digits)
    if micro >= _MICROS:
        raise DecodeError(f"{micro} microseconds in a second")
    return seconds * _MICROS + micro or None


# --- the packed form inside JSON
# -----------------------------------------------------------------------------------


def _unpacked(number: int) -> tuple[int, int, int, str]:
    months, day = number >> 46, number >> 41 & 31
    hour, minute, second = number >> 36 & 31, number >> 30 & 63, number >> 24 & 63
    return months // 13, months % 13, day, f"{hour:02d}:{minute:02d}:{second:02d}.{number & 0xFFFFFF:06d}"


def packed_date_text(number: int) -> str:
    year, month, day, _ = _unpacked(number)
    return f"{year:04d}-{month:02d}-{day:02d}"


def packed_datetime_text(number: int) -> str:
    year, month, day, clock = _unpacked(number)
    return f"{year:04d}-{month:02d}-{day:02d} {clock}"


def packed_time_text(number: int) -> str:
    magnitude = abs(number)
    whole = magnitude >> 24
    return _clock(number < 0, whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63, magnitude & 0xFFFFFF, 6)
