"""What of an account no message may show, and messages without it.

Why it exists: a server repeats in its errors what it was sent ("Access denied for user ..."), and
errors are shown in conditions, events and logs. Why it is right: the password is left out always,
and the account's name where it is in another key than the usual ones, because a spec may name any
key of a Secret by mistake. Servers cut long names, so a text's beginning counts, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

#: where an account's name is no secret
_NAMES = ("username", "AWS_ACCESS_KEY_ID")
#: characters by which the beginning of a longer text is known
_BEGINNING = 8
#: characters of a text that is not in a word by chance
_WITHIN_WORDS = 4


def hidden_texts(username: Path | None, password: Path | None) -> tuple[str, ...]:
    """What the files of an account have that is not shown; a file that cannot be read has
    nothing."""
    names = (username,) if username is not None and username.name not in _NAMES else ()
    return tuple(filter(None, map(_text, filter(None, (password, *names)))))


def without_texts(message: str, texts: Iterable[str]) -> str:
    """The message with `***` for each of the texts, and for what begins as one."""
    for text in sorted(filter(None, texts), key=len, reverse=True):
        first, *parts = _around(message, text)
        message = "***".join((first, *(part[_same(part, text[_BEGINNING:]) :] for part in parts)))
    return message


def _around(message: str, text: str) -> list[str]:
    """A short text counts as a word alone: stars within a word would show which letters it has."""
    if len(text) < _WITHIN_WORDS:
        return re.split(rf"(?<!\w){re.escape(text)}(?!\w)", message)
    return message.split(text[:_BEGINNING])


def _same(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _text(file: Path) -> str:
    """A line end that an editor added is no part of it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").rstrip("\r\n")
    except OSError:
        return ""
