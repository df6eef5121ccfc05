"""JSON that servers, registries and other writers sent.

Why it exists: Python's parser raises RecursionError for values that nest thousands of levels deep,
which no caller that expects a ValueError catches; and a text of small values takes twenty times its
size once it is parsed. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

#: bytes of one of the least JSON values as an object of Python, with its place in what holds it
_VALUE = 80
#: a string, which ends with its line at the latest, or what begins a value or a line
_TOKEN = re.compile(r'"[^"\n]*"?|([,{\[\n])')
#: a string, which may have escapes, or what begins or ends a value that nests; possessive, or it
#: would take memory for each character
_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"|([{\[])|[}\]]', re.DOTALL)


class NestsTooDeeply(ValueError):
    """The value has more levels than Python's parser takes."""


def parse_json(text: str | bytes, number: Callable[[str], Any] | None = None, most: int | None = None) -> Any:
    """The value of `text`; `number` makes numbers of their digits. Raises ValueError, also for a
    value that nests too deeply, or takes more than `most` bytes of memory."""
    if most is not None:
        text = text.decode() if isinstance(text, bytes) else text
        if (size := size_beyond(text, most)) is not None:
            raise ValueError(f"{size} bytes of memory once it is parsed, at most {most} are there for it")
    try:
        return json.loads(text, parse_float=number, parse_int=number)
    except RecursionError:
        raise NestsTooDeeply("a value that nests too deeply") from None


def cut_below(text: str, levels: int) -> str:
    """The text of JSON with `null` for each object or list that has `levels` others around it."""
    parts, depth, begin = list[str](), 0, 0
    for token in _NESTING.finditer(text):
        if token.lastindex:
            if depth == levels:
                parts += [text[begin : token.start()], "null"]
            depth += 1
        elif text[token.start()] != '"':
            depth -= 1
            begin = token.end() if depth == levels else begin
    return "".join([*parts, text[begin:]])


def size_beyond(text: str, most: int) -> int | None:
    """The bytes that a text of JSON lines takes while it is parsed; None where that is within
    `most`."""
    if 2 * len(text) + _VALUE * sum(map(text.count, ",{[\n")) <= most:
        return None  # even if no comma were within a string
    size = parsed_size(text)
    return size if size > most else None


def parsed_size(text: str) -> int:
    """About the bytes that a text of JSON lines takes while it is parsed, never much less. A string
    (statistics are one) counts by its length, whatever is in it."""
    plain = text.replace("\\\\", "").replace('\\"', "")
    return 2 * len(text) + _VALUE * sum(1 for token in _TOKEN.finditer(plain) if token.lastindex)
