"""Text of others (servers, stores, the API server) as it may be shown to people and programs.

Why it exists: what a server sends appears in conditions, events, driver logs and terminals, beside
words of our own. Why it is right: `quoted` puts it in quotation marks that it cannot close, on one
line, without any character that a terminal acts on or that reorders what is read, and bounded; so
it is data wherever it is shown. Pure.
"""

from __future__ import annotations

import unicodedata

#: characters of the text that are shown
LONGEST = 300
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: control, format (also those that reorder text), surrogates, private use, and the two line
#: separators
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def quoted(text: str, longest: int = LONGEST) -> str:
    """`text` in quotation marks: one line, at most `longest` of its characters, nothing hidden in
    it."""
    inside = visible(text[:longest].replace("\\", "\\\\").replace('"', '\\"'))
    more = len(text) - longest
    return f'"{inside}"' + (f" and {more} more characters" if more > 0 else "")


def visible(text: str) -> str:
    """`text` with every character that is not shown as itself written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
