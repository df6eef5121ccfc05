"""Rows in portions of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

#: of a portion, whichever is less; a row is never divided
_ROWS, _BYTES = 5_000, 16 * 2**20
_FIRST_ROWS = 100


def portions(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of a table."""
    count = max(1, min(_ROWS, rows.num_rows * _BYTES // max(1, rows.nbytes)))
    for first in range(0, rows.num_rows, count):
        yield rows.slice(first, count)


def in_portions(fetch: Callable[[int], list[tuple[Any, ...]]]) -> Iterator[list[tuple[Any, ...]]]:
    """What `fetch` returns for so many rows, until it returns none. How many it is asked for goes
    by the bytes of the rows before."""
    count = _FIRST_ROWS
    while rows := fetch(count):
        yield rows
        size = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
        count = max(1, min(_ROWS, 2 * count, len(rows) * _BYTES // max(1, size)))
