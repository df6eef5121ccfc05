"""The key of a row, for an error about one of its values."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column

#: of a key's value
_SHOWN = 64


def key_text(table: Capture, row: int, column: Callable[[Column], pa.Array]) -> str:
    """`id=5, name='a'`, of the row with the index `row` of the key's columns; empty where it is not
    known."""
    if row < 0:
        return ""
    try:
        return ", ".join(f"{c.name}={column(c)[row].as_py()!r:.{_SHOWN}}" for c in table.key_columns)
    except (CdcError, pa.ArrowException, IndexError):
        return ""
