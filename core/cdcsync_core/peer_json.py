"""JSON that servers, registries and other writers sent.

Why it exists: Python's parser raises RecursionError for values that nest thousands of levels deep,
which no caller that expects a ValueError catches. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def parse_json(text: str | bytes, number: Callable[[str], Any] | None = None) -> Any:
    """The value of `text`; `number` makes numbers of their digits. Raises ValueError, also for a
    value that nests too deeply."""
    try:
        return json.loads(text, parse_float=number, parse_int=number)
    except RecursionError:
        raise ValueError("a value that nests too deeply") from None
