"""Text of every character set is read as the server itself converts it to utf8mb4, over all of its
byte sequences."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.charset import charset_of, decoder, same_charset
from cdcsync_spark.wire.columns.charset_tables import MULTI_BYTE, SINGLE_BYTE
from support.servers import Server

pytestmark = pytest.mark.server

_ONE = [bytes([a]) for a in range(256)]
_TWO = [bytes([a, b]) for a in range(0x80, 256) for b in range(256)]
_THREE = [bytes([0x8F, a, b]) for a in range(0xA0, 256) for b in range(0xA0, 256)]
_PLANES = [chr(p).encode("gb18030") for p in (*range(0x80, 0xD800, 7), *range(0xE000, 0x110000, 97))]


def _sequences(charset: str) -> list[bytes]:
    if charset in SINGLE_BYTE:
        return _ONE
    return _ONE + _TWO + {"ujis": _THREE, "eucjpms": _THREE, "gb18030": _PLANES}.get(charset, [])


def _converted(server: Server, charset: str, sequences: list[bytes]) -> Iterator[tuple[bytes, str | None]]:
    """What the server makes of each sequence; None for one that it does not accept."""
    for i in range(0, len(sequences), 30_000):
        rows = server.query(
            f"SELECT j.h, HEX(CONVERT(CONVERT(UNHEX(j.h) USING {charset}) USING utf8mb4))"
            " FROM JSON_TABLE(%s, '$[*]' COLUMNS (h VARCHAR(16) PATH '$')) j",
            json.dumps([s.hex() for s in sequences[i : i + 30_000]]),
        )
        for sequence, text in rows:
            yield bytes.fromhex(sequence), None if text is None else bytes.fromhex(text).decode()


def _decoded(charset: str, sequence: bytes) -> str | None:
    try:
        return decoder(charset)(sequence)
    except (UnicodeDecodeError, DecodeError):
        return None


@pytest.mark.parametrize("charset", [*SINGLE_BYTE, *MULTI_BYTE])
def test_every_sequence_is_read_as_the_server_reads_it(charset: str, mysql97_gtid: Server) -> None:
    wrong = []
    for sequence, text in _converted(mysql97_gtid, charset, _sequences(charset)):
        # the server puts ? for what has no character; that is an error here
        unknown = not text or ("?" in text and b"?" not in sequence)
        ours = _decoded(charset, sequence)
        if ours != (None if unknown else text):
            wrong.append((sequence.hex(), ours, text))
    assert wrong == []


@pytest.mark.parametrize("charset", [*SINGLE_BYTE, *(c for c in MULTI_BYTE if c != "gb18030")])
def test_mariadb_has_the_same_characters(charset: str, mariadb1011: Server) -> None:
    wrong = []
    for sequence, text in _converted(mariadb1011, charset, _sequences(charset)):
        ours = _decoded(charset, sequence)
        if text and "?" not in text and "?" not in (ours or "") and ours != text:
            wrong.append((sequence.hex(), ours, text))
    assert wrong == []


def test_every_collation_belongs_to_its_character_set(any_server: Server) -> None:
    table = "collations" if any_server.flavor == "mysql" else "collation_character_set_applicability"
    rows = any_server.query(f"SELECT id, character_set_name FROM information_schema.{table} WHERE id IS NOT NULL")
    assert len(rows) > 250
    assert [(i, c, charset_of(i)) for i, c in rows if not same_charset(charset_of(i), c)] == []
