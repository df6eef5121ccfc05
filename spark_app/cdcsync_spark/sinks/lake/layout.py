"""Where a table lies in a lake: names of databases and tables to names of folders. Pure.

A table's folder is injective in its name: letters, digits, `_` and `-` stay, every other byte of
the UTF-8 name becomes `@` and two hexadecimal digits; so does the first of `_delta_log`, which
inside a lake means something else. The escape is not `%`, because delta-rs decodes percent signs in
a table's location, twice for some of its requests: a database called `..` would leave the lake. For
the same reason a lake whose own path holds a `%` is refused (`cdcsync_lake.location`). On a store
that ignores case `Orders` and `orders` meet in one folder; then the second one finds a table of
another identity and stops with `SinkConflict`: nothing is mixed.
"""

from __future__ import annotations

import hashlib
import re

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_LOG = "_delta_log"
#: names longer than this are cut and closed with their hash; file systems allow 255 bytes
_LONGEST = 180


def segment(name: str) -> str:
    """A database's or table's name as one folder name; different names never share one (see above
    for case)."""
    if name == _LOG:
        return f"@5F{_LOG[1:]}"
    escaped = "".join(chr(b) if b in _SAFE else f"@{b:02X}" for b in name.encode())
    if len(escaped) <= _LONGEST:
        return escaped
    cut = re.sub("@.?$", "", escaped[: _LONGEST - 66])
    return f"{cut}@@{hashlib.sha256(name.encode()).hexdigest()}"
