"""Bytes that are no character of their character set: the error that names them, and U+FFFD in
their place.

Why it is right: the snapshot and the stream read the stored bytes with the same functions, so the
same bytes become the same text whichever way they come. The servers themselves put `?`, one or
several for the same bytes, depending on server and set.

What is replaced: of single-byte sets each byte without a character; of the sets of several bytes a
whole sequence where it has the form of one, else its first byte; of Unicode's forms what the
Unicode Standard calls a maximal subpart. The servers store sequences of the right form without a
character in nearly every set, and others hardly ever.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from cdcsync_core.errors import DecodeError
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_spark.wire.columns.charset import (
    BEYOND_UTF8MB3,
    Decode,
    codec_of,
    decoder,
    is_single_byte,
    is_utf8,
    sequence_width,
)

REPLACEMENT = "\ufffd"
#: of what is shown in an error
_SHOWN = 32
#: no second byte of a sequence is below; EUC has only bytes above ASCII
_LEAST_TRAIL, _LEAST_EUC = 0x40, 0x80
_EUC = frozenset({"eucjpms", "gb2312", "ujis"})


def reader(charset: str, *, replaced: bool) -> Decode:
    """What reads the bytes of a character set; unless they are replaced, it raises
    UnicodeDecodeError or DecodeError for others."""
    return _replacing(charset) if replaced else decoder(charset)


def checked(charset: str, *, replaced: bool) -> Decode:
    """As `reader`, with the error in words."""
    read = reader(charset, replaced=replaced)

    def decode(raw: bytes) -> str:
        try:
            return read(raw)
        except (UnicodeDecodeError, DecodeError):
            raise refused(raw, charset) from None

    return decode


def refused(raw: bytes, charset: str) -> DecodeError:
    """The error for bytes that are not all characters of a character set."""
    more = f" and {len(raw) - _SHOWN} bytes more" if len(raw) > _SHOWN else ""
    return DecodeError(
        f"a value with bytes that are no character of {charset}: {raw[:_SHOWN].hex()}{more}",
        needed=f"text of {charset}",
        remedy="UPDATE the value, or set tables.invalidCharacters: replace (a key's value is never replaced),"
        f" or leave the column out by tables.overrides[].columns.exclude; then {RESNAPSHOT}",
    )


def first_refused(values: Iterable[Any], read: Callable[[Any], object]) -> None:
    """Raises the DecodeError of `read` for the first of `values` (NULL: None) with its row."""
    for row, value in enumerate(values):
        try:
            if value is not None:
                read(value)
        except DecodeError as e:
            raise e.placed(row=row) from None


@cache
def _replacing(charset: str) -> Decode:
    read = decoder(charset)
    if is_single_byte(charset):
        return _single_byte(read)
    if charset == "ucs2":
        return _ucs2
    if is_utf8(charset):
        return lambda raw: _utf8(raw, charset)
    codec = codec_of(charset)
    if codec:
        return lambda raw: raw.decode(codec, "replace")
    return lambda raw: _sequences(raw, charset, read)


def _single_byte(read: Decode) -> Decode:
    mapping = "".join(_or_replaced(bytes([b]), read) for b in range(256))
    return lambda raw: codecs.charmap_decode(raw, "strict", mapping)[0]


def _or_replaced(raw: bytes, read: Decode) -> str:
    try:
        return read(raw)
    except (UnicodeDecodeError, DecodeError):
        return REPLACEMENT


def _ucs2(raw: bytes) -> str:
    """Two bytes a character, so a pair of surrogates are two that are none."""
    return "".join(raw[i : i + 2].decode("utf-16-be", "replace") for i in range(0, len(raw), 2))


def _utf8(raw: bytes, charset: str) -> str:
    text = raw.decode("utf-8", "replace")
    if charset != "utf8mb3" or max(raw, default=0) < BEYOND_UTF8MB3:
        return text
    return "".join(c if c <= "\uffff" else REPLACEMENT for c in text)


def _sequences(raw: bytes, charset: str, read: Decode) -> str:
    try:
        return read(raw)
    except (UnicodeDecodeError, DecodeError):
        pass
    sequences, at = [], 0
    while at < len(raw):
        width = sequence_width(raw, at, charset)
        sequence = raw[at : at + width]
        text = _or_replaced(sequence, read)
        sequences.append(text)
        whole = len(sequence) == width and _has_form(sequence, charset)
        at += len(sequence) if text != REPLACEMENT or whole else 1
    return "".join(sequences)


def _has_form(sequence: bytes, charset: str) -> bool:
    """Whether the bytes behind the first one can stand there."""
    if len(sequence) == 4:
        return sequence[2] > _LEAST_EUC and sequence[3:].isdigit()
    least = _LEAST_EUC if charset in _EUC else _LEAST_TRAIL
    return sequence[0] not in (0x80, 0xFF) and all(b >= least for b in sequence[1:])
