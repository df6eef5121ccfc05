"""What a form's records are read back with, for `verify`.

Every method raises ValueError, KeyError, TypeError or ArithmeticError for what is no record of the
form, and nothing is guessed of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from cdcsync_core.tables.source_table import Column


class LastRows(NamedTuple):
    """`rows` has a row for each of `places` in what was read, which are ascending; the other
    records say that their key has ended."""

    places: Sequence[int]
    rows: pa.Table


class RecordReader(Protocol):
    """Reads the records of one topic."""

    @property
    def form(self) -> str: ...

    def of(self, columns: Sequence[Column]) -> RecordReader:
        """The same for a table with these columns of the source."""

    def keys(self, keys: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """The key columns, with the types of `schema`."""

    def rows(self, values: Sequence[bytes | None], schema: pa.Schema) -> LastRows:
        """The rows that keys have after these records, each the last one of its key. A column that
        a record does not know yet is NULL."""
