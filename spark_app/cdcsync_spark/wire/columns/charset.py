"""From the server's collation ids to text, exactly as the server converts it to utf8mb4.

Every collation id belongs to one character set, on both servers; PAD SPACE collations have a twin
without padding 1024 further (MariaDB), and MariaDB's UCA 14.0.0 collations lie in blocks of 256. A
byte sequence that has no character is an error: the server would print `?`, which is not the value.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.columns.charset_tables import EUCJPMS_ROWS, MULTI_BYTE, SINGLE_BYTE

Decode = Callable[[bytes], str]

_BASE: dict[str, tuple[int | range, ...]] = {
    "armscii8": (32, 64),
    "ascii": (11, 65),
    "big5": (1, 84),
    "binary": (63,),
    "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52),
    "cp1256": (57, 67),
    "cp1257": (29, 58, 59),
    "cp850": (4, 80),
    "cp852": (40, 81),
    "cp866": (36, 68),
    "cp932": (95, 96),
    "dec8": (3, 69),
    "eucjpms": (97, 98),
    "euckr": (19, 85),
    "gb18030": (248, 249, 250),
    "gb2312": (24, 86),
    "gbk": (28, 87),
    "geostd8": (92, 93),
    "greek": (25, 70),
    "hebrew": (16, 71),
    "hp8": (6, 72),
    "keybcs2": (37, 73),
    "koi8r": (7, 74),
    "koi8u": (22, 75),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "latin2": (2, 9, 21, 27, 77),
    "latin5": (30, 78),
    "latin7": (20, 41, 42, 79),
    "macce": (38, 43),
    "macroman": (39, 53),
    "sjis": (13, 88),
    "swe7": (10, 82),
    "tis620": (18, 89),
    "ucs2": (35, 90, range(128, 160), range(640, 672)),
    "ujis": (12, 91),
    "utf16": (54, 55, range(101, 125), range(672, 704)),
    "utf16le": (56, 62),
    "utf32": (60, 61, range(160, 184), range(736, 768)),
    "utf8mb3": (33, 76, 83, range(192, 224), range(576, 608)),
    "utf8mb4": (45, 46, range(224, 248), range(255, 324), range(608, 640)),
}
_NO_PAD = 1024
_UCA_1400 = {2048: "utf8mb3", 2304: "utf8mb4", 2560: "ucs2", 2816: "utf16", 3072: "utf32"}
#: the members of an ENUM or SET in `binary` are sent as they are, to sessions that take them for
#: UTF-8
_UNICODE = {
    "binary": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
#: EUC: from this byte on, two- and three-byte sequences are user-defined and map to the private use
#: area
_USER_DEFINED = 0xF5
_PRIVATE_USE = {2: 0xE000, 3: 0xE3AC}
_EUC_ROW = 94
#: utf8mb3 has no such byte
BEYOND_UTF8MB3 = 0xF0
_ONLY_PYTHON = re.compile("[\x80\xa0\uf8f0-\uf8f3]")


def _ids() -> dict[int, str]:
    flat: dict[int, str] = {}
    for charset, entries in _BASE.items():
        for entry in entries:
            flat |= dict.fromkeys(entry if isinstance(entry, range) else (entry,), charset)
    return flat


_CHARSETS = _ids()


def charset_of(collation: int) -> str:
    """The character set of a collation id; raises DecodeError for an unknown one."""
    block = _UCA_1400.get(collation & ~0xFF)
    charset = block or _CHARSETS.get(collation - _NO_PAD if collation >= _NO_PAD else collation)
    if charset is None:
        raise DecodeError(f"the collation with the id {collation}", needed="a known character set")
    return charset


def collation_in(charset: str) -> int:
    """The id of a collation of the character set; raises DecodeError for an unknown one."""
    ids = _BASE.get(charset)
    if ids is None:
        raise DecodeError(f"the character set {charset}", needed="a known one")
    first = ids[0]
    return first if isinstance(first, int) else first.start


def stored_charset(planned: str) -> str:
    """The character set of a column's values; what has none of its own (a DECIMAL, JSON) is ASCII
    or UTF-8."""
    return {"": "utf8mb4", "utf8": "utf8mb3"}.get(planned, planned)


def same_charset(recorded: str, planned: str) -> bool:
    """Old servers call utf8mb3 utf8."""
    return recorded == stored_charset(planned)


@cache
def decoder(charset: str) -> Decode:
    """What reads bytes of a character set; it raises UnicodeDecodeError or DecodeError."""
    if charset in SINGLE_BYTE:
        return _single_byte(*SINGLE_BYTE[charset])
    if charset in MULTI_BYTE:
        return _multi_byte(charset)
    if charset == "ucs2":
        return _ucs2
    if charset == "utf8mb3":
        return _utf8mb3
    codec = codec_of(charset)
    if codec is None:
        raise DecodeError(f"the character set {charset}", needed="a known one")
    return lambda raw: raw.decode(codec)


def codec_of(charset: str) -> str | None:
    """Python's codec of a form of Unicode; None for other character sets."""
    return _UNICODE.get(charset)


def is_utf8(charset: str) -> bool:
    """Whether its bytes are Arrow's."""
    return _UNICODE.get(charset) == "utf-8"


def is_single_byte(charset: str) -> bool:
    """Whether each byte is a character."""
    return charset in SINGLE_BYTE


@cache
def contains_ascii(charset: str) -> bool:
    """Whether bytes below 128 are the characters that ASCII has there, wherever they stand."""
    if charset not in SINGLE_BYTE:
        return charset in MULTI_BYTE
    codec, replaced = SINGLE_BYTE[charset]
    return min(replaced, default=128) >= 128 and bytes(range(128)).decode(codec).isascii()


def decode_loosely(raw: bytes, collation: int) -> str:
    """Text whose undecodable parts become U+FFFD, for SQL statements. In UTF-8 no byte of ASCII is
    one of these, so that quotes stay where the server has them."""
    try:
        return decoder(charset_of(collation))(raw)
    except (DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")


def _single_byte(codec: str, replaced: dict[int, str]) -> Decode:
    table = [bytes([b]).decode(codec, "replace").replace("\ufffd", "\ufffe") for b in range(256)]
    for first, characters in replaced.items():
        table[first : first + len(characters)] = characters
    mapping = "".join(table)
    return lambda raw: codecs.charmap_decode(raw, "strict", mapping)[0]


def _ucs2(raw: bytes) -> str:
    text = raw.decode("utf-16-be")
    if len(text) * 2 != len(raw):
        raise DecodeError("a surrogate in ucs2 text", needed="characters of the basic multilingual plane")
    return text


def _utf8mb3(raw: bytes) -> str:
    if max(raw, default=0) >= BEYOND_UTF8MB3:
        raise DecodeError("four bytes of UTF-8 in utf8mb3 text", needed="characters of the basic multilingual plane")
    return raw.decode("utf-8")


def _multi_byte(charset: str) -> Decode:
    codec, listed = MULTI_BYTE[charset]
    replaced = {bytes.fromhex(sequence): character for sequence, character in listed.items()}
    if charset == "eucjpms":
        replaced |= _euc_rows()
    euc = codec == "euc_jp"

    def one(sequence: bytes) -> str:
        if sequence in replaced:
            return replaced[sequence]
        if euc and len(sequence) > 1 and _USER_DEFINED <= sequence[-2] < 0xFF and 0xA1 <= sequence[-1] < 0xFF:
            return chr(_PRIVATE_USE[len(sequence)] + (sequence[-2] - _USER_DEFINED) * _EUC_ROW + sequence[-1] - 0xA1)
        return sequence.decode(codec)

    def decode(raw: bytes) -> str:
        if raw.isascii():
            return raw.decode("ascii")
        if not any(sequence in raw for sequence in replaced):
            try:
                return _known_to_server(raw.decode(codec)) if charset == "cp932" else raw.decode(codec)
            except UnicodeDecodeError:
                if not euc:
                    raise
        return "".join(map(one, _sequences(raw, charset)))

    return decode


def _known_to_server(text: str) -> str:
    """Python's cp932 has characters for five bytes that the server refuses."""
    if _ONLY_PYTHON.search(text):
        raise DecodeError("a byte that has no character in its character set")
    return text


def _euc_rows() -> dict[bytes, str]:
    rows: dict[bytes, str] = {}
    for first, characters in EUCJPMS_ROWS.items():
        *lead, row, cell = bytes.fromhex(first)
        for i, character in enumerate(characters, cell - 0xA1):
            rows[bytes([*lead, row + i // _EUC_ROW, 0xA1 + i % _EUC_ROW])] = character
    return rows


def _sequences(raw: bytes, charset: str) -> list[bytes]:
    """The bytes of each character."""
    sequences: list[bytes] = []
    at = 0
    while at < len(raw):
        width = sequence_width(raw, at, charset)
        sequences.append(raw[at : at + width])
        at += width
    return sequences


def sequence_width(raw: bytes, at: int, charset: str) -> int:
    """How many bytes the character at `at` has in a character set of several bytes, by its first
    ones."""
    lead = raw[at]
    if lead < 0x80 or (charset in ("sjis", "cp932") and 0xA1 <= lead <= 0xDF):
        return 1
    if lead == 0x8F and charset in ("ujis", "eucjpms"):
        return 3
    if charset == "gb18030" and raw[at + 1 : at + 2].isdigit():
        return 4
    return 2
