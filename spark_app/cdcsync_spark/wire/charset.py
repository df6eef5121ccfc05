"""From the server's collation ids to text, as the server itself would convert it to utf8mb4."""

from __future__ import annotations

from cdcsync_core.errors import DecodeError

_RANGES: tuple[tuple[int, int, str], ...] = (
    (33, 33, "utf-8"),
    (45, 46, "utf-8"),
    (63, 63, "binary"),
    (8, 8, "cp1252"),
    (255, 323, "utf-8"),
)


def codec_of(collation: int) -> str:
    """The codec of a collation id; raises DecodeError for one that is not known."""
    for first, last, codec in _RANGES:
        if first <= collation <= last:
            return codec
    raise DecodeError(f"the collation {collation}", needed="a known character set")


def decode_loosely(raw: bytes, collation: int) -> str:
    """Text whose undecodable parts become U+FFFD."""
    known = any(first <= collation <= last and codec != "binary" for first, last, codec in _RANGES)
    return raw.decode(codec_of(collation) if known else "utf-8", "replace")
