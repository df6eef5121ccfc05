"""Rows in portions of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

#: of a portion, whichever is less; a row is never divided
ROWS, _BYTES = 5_000, 16 * 2**20


def portions(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of a table."""
    count = max(1, min(ROWS, rows.num_rows * _BYTES // max(1, rows.nbytes)))
    for first in range(0, rows.num_rows, count):
        yield rows.slice(first, count)


def next_portion(answer: Iterator[Sequence[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """The next rows of an answer, which comes in parts; none at its end."""
    portion, size = list[tuple[Any, ...]](), 0
    while len(portion) < ROWS and size < _BYTES and (part := next(answer, None)) is not None:
        portion.extend(part)
        size += bytes_of(part)
    return portion


def bytes_of(rows: Sequence[tuple[Any, ...]]) -> int:
    """About the size of their texts and bytes."""
    return sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
