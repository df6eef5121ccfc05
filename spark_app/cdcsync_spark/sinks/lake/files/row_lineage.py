"""What keeps a row's identity when it is written again, where a format asks for that: the new row
of an updated key has the id of the one before, and a row that is only moved keeps id and number.

Without it (`NO_LINEAGE`) rows are written as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from cdcsync_spark.sinks.lake.files.field_ids import FieldIds
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.keys.key_index import Located

#: live files, by the names that the metadata gives them
Files = Mapping[str, LiveFile]


class RowLineage(Protocol):
    """The identities of the rows of one table, as a writer asks for them. Not thread safe."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The columns of identity (`row_ids`) that rows are read with to be written again."""
        ...

    def field_ids(self, ids: FieldIds | None) -> FieldIds | None:
        """The field ids by which files have those columns, too."""
        ...

    def inherited(self, file: LiveFile, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Rows of a file, from its row `first` on, with what the file's metadata say of them in
        place of NULL."""
        ...

    def continued(self, files: Files, upserts: pa.Table, located: Callable[[], Sequence[Located]]) -> pa.Table:
        """Upserts with the ids of the rows that they replace: where their keys are, which are the
        first ones that were located."""
        ...

    def add(self, files: Files, ids: Mapping[str, pa.ChunkedArray]) -> None:
        """New files are live, with these ids as `continued` gave them to their rows."""
        ...


class NoLineage:
    """See `RowLineage`: rows have no identity."""

    fields: tuple[pa.Field, ...] = ()

    def field_ids(self, ids: FieldIds | None) -> FieldIds | None:
        return ids

    def inherited(self, file: LiveFile, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        return rows

    def continued(self, files: Files, upserts: pa.Table, located: Callable[[], Sequence[Located]]) -> pa.Table:
        """It waits for no place of a key."""
        return upserts

    def add(self, files: Files, ids: Mapping[str, pa.ChunkedArray]) -> None:
        """Nothing is kept."""


NO_LINEAGE = NoLineage()
