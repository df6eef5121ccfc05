"""A data file that a version of a table has, whatever the table's format.

A format makes one from its metadata: Delta from an `add` action, Iceberg from an entry of a
manifest and the vector whose `referenced_data_file` it is. Bounds of columns are not part of it:
what reads a table here goes by keys and by Parquet's own footers, and to parse the bounds of all
files is most of what opening a large table would cost.
"""

from __future__ import annotations

from typing import Protocol

from cdcsync_spark.sinks.lake.files.deletion_vectors import DeletedRows


class LiveFile(Protocol):
    @property
    def path(self) -> str:
        """Relative to the table. The metadata may name it otherwise: Delta escapes it, Iceberg has
        it whole."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def rows(self) -> int | None:
        """Physical rows, deleted ones included; None where the metadata does not say."""
        ...

    @property
    def deleted(self) -> DeletedRows | None: ...


def deleted_count(file: LiveFile) -> int:
    return file.deleted.count if file.deleted else 0
