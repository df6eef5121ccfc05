"""Character sets as key columns need them: what differs in them differs in UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.logical_type import INCOMPLETE
from cdcsync_mysql.reading.splitquery import AMBIGUOUS
from cdcsync_spark.wire.columns.charset import decoder
from cdcsync_spark.wire.columns.charset_tables import MULTI_BYTE, SINGLE_BYTE

_THREE_BYTES = {"ujis", "eucjpms"}


def _characters(charset: str) -> Iterator[str]:
    """The text of each sequence of one character; of gb18030 those of up to two bytes."""
    decode = decoder(charset)
    for sequence in _sequences(charset):
        try:
            text = decode(sequence)
        except (DecodeError, UnicodeDecodeError):
            continue
        if len(text) == 1:
            yield text


def _sequences(charset: str) -> Iterable[bytes]:
    yield from (bytes([a]) for a in range(256))
    if charset in MULTI_BYTE:
        yield from (bytes([a, b]) for a in range(0x80, 256) for b in range(0x30, 256))
    if charset in _THREE_BYTES:
        yield from (bytes([0x8F, a, b]) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF))


@pytest.mark.parametrize("charset", sorted({*SINGLE_BYTE, *MULTI_BYTE}))
def test_keys_are_refused_in_the_sets_that_have_two_of_one_character(charset: str) -> None:
    found = list(_characters(charset))
    assert (len(set(found)) < len(found)) == (charset in AMBIGUOUS)


@pytest.mark.parametrize("charset", sorted(SINGLE_BYTE))
def test_sets_with_bytes_that_are_no_character_are_known(charset: str) -> None:
    decode = decoder(charset)

    def is_a_character(byte: int) -> bool:
        try:
            return bool(decode(bytes([byte])))
        except (DecodeError, UnicodeDecodeError):
            return False

    assert (charset in INCOMPLETE) == (not all(map(is_a_character, range(256))))


def test_sets_of_several_bytes_have_sequences_that_are_no_character() -> None:
    assert not MULTI_BYTE.keys() - INCOMPLETE
