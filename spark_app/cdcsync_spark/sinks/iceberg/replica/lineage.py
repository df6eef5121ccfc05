"""The identities of an Iceberg table's rows, for one writer (`RowLineage`).

The id of a row that a snapshot's wave brought is arithmetic: such a file has no ids written down.
Those of the stream and of compactions have them, and the ids of their rows are kept from when they
are written: 8 bytes of scratch space a row. Of what a run before this one wrote, or another
program, one column is read when a batch first replaces a row there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_spark.sinks.iceberg.replica.place import IcebergFolder
from cdcsync_spark.sinks.iceberg.replica.schemas import STAGED
from cdcsync_spark.sinks.iceberg.table.lineage import FIELD_IDS, NONE, nullable, row_ids
from cdcsync_spark.sinks.iceberg.table.view import IcebergFile
from cdcsync_spark.sinks.lake.files.field_ids import FieldIds
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.files.row_ids import FIELDS, LAST_UPDATED, ROW_ID
from cdcsync_spark.sinks.lake.files.row_lineage import Files
from cdcsync_spark.sinks.lake.files.snapshot import key_batches
from cdcsync_spark.sinks.lake.keys.key_index import Located
from cdcsync_spark.sinks.lake.keys.scratch import Scratch
from cdcsync_spark.sinks.lake.table_folder import AT_ONCE

#: contents of small files that are in memory together: so many of the largest size that stays there
_SMALL = 4
_COLUMN = pa.schema([FIELDS[0]])
Ids = npt.NDArray[np.int64]


class _FileIds:
    """The ids of a file's rows; an empty `content` for those that are arithmetic."""

    def __init__(self, content: pa.Buffer) -> None:
        self.content = content

    def move(self, content: pa.Buffer) -> None:
        """See `Movable`."""
        self.content = content

    @property
    def ids(self) -> Ids:
        return np.frombuffer(self.content, np.int64)


_ARITHMETIC = _FileIds(pa.py_buffer(b""))


class IcebergLineage:
    """See `RowLineage`; `scratch` is a folder on a local disk."""

    fields = FIELDS

    def __init__(self, folder: IcebergFolder, scratch: Path) -> None:
        self._folder = folder
        self._scratch = Scratch(scratch)
        #: by path and first row id: another table of the same name may have a file of one path
        self._ids: dict[tuple[str, int | None], _FileIds] = {}
        self._small: list[_FileIds] = []

    # -- rows that are moved

    def field_ids(self, ids: FieldIds | None) -> FieldIds:
        """See `RowLineage`."""
        assert ids is not None
        return replace(ids, ids={**ids.ids, **FIELD_IDS})

    def inherited(self, file: LiveFile, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """See `RowLineage`."""
        entry = cast(IcebergFile, file).entry
        ids, updated = rows.column(ROW_ID), rows.column(LAST_UPDATED)
        columns = {
            ROW_ID: nullable(row_ids(entry.first_row_id, ids, first)),
            LAST_UPDATED: updated.fill_null(entry.sequence_number),
        }
        arrays = [columns.get(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    # -- rows that are replaced

    def continued(self, files: Files, upserts: pa.Table, located: Callable[[], Sequence[Located]]) -> pa.Table:
        """See `RowLineage`. A batch that replaces no row has no such column."""
        ids = np.full(upserts.num_rows, NONE)
        replaced = [(cast(IcebergFile, files[path]), keys, rows) for path, keys, rows in located()]
        self._load([file for file, *_ in replaced])
        for file, keys, rows in replaced:
            ours = keys < upserts.num_rows  # deletes come behind
            ids[keys[ours]] = self._ids_at(file, rows[ours])
        return upserts.append_column(FIELDS[0], nullable(ids)) if (ids != NONE).any() else upserts

    def _ids_at(self, file: IcebergFile, rows: npt.NDArray[np.uint32]) -> Ids:
        written = _ARITHMETIC if _is_staged(file) else self._ids[_key(file)]
        if written is not _ARITHMETIC:
            return written.ids[rows]
        first = file.entry.first_row_id
        return np.full(len(rows), NONE) if first is None else rows.astype(np.int64) + first

    def _load(self, files: Sequence[IcebergFile]) -> None:
        missing = {_key(file): file for file in files if not _is_staged(file) and _key(file) not in self._ids}
        if missing:
            with ThreadPoolExecutor(min(AT_ONCE, len(missing))) as pool:
                for key, ids in zip(missing, pool.map(self._read, missing.values()), strict=True):
                    self._keep(key, ids)

    def _read(self, file: IcebergFile) -> _FileIds:
        explicit, files = False, self._folder.lake.files()
        path, column = f"{self._folder.folder}/{file.path}", FieldIds({ROW_ID: FIELD_IDS[ROW_ID]})

        def ids() -> Iterator[Ids]:
            nonlocal explicit
            first = 0
            for batch in key_batches(files, path, _COLUMN, [ROW_ID], column):
                explicit |= batch.column(0).null_count < batch.num_rows
                yield row_ids(file.entry.first_row_id, batch.column(0), first)
                first += batch.num_rows

        written = self._written(ids())
        return written if explicit else _ARITHMETIC

    def _written(self, ids: Iterator[Ids]) -> _FileIds:
        with self._scratch.writing() as written:
            for some in ids:
                written.file.write(np.ascontiguousarray(some).data)
        return _FileIds(written.content)

    def add(self, files: Files, ids: Mapping[str, pa.ChunkedArray]) -> None:
        """See `RowLineage`. The ids of files that are live no more go."""
        for path, column in ids.items():
            file = cast(IcebergFile, files[path])
            self._keep(_key(file), self._written(iter([row_ids(file.entry.first_row_id, column, 0)])))
        for path, first in [key for key in self._ids if key[0] not in files]:
            del self._ids[path, first]

    def _keep(self, key: tuple[str, int | None], ids: _FileIds) -> None:
        self._ids[key] = ids
        if 0 < ids.content.size <= self._scratch.read_bytes:
            self._small.append(ids)
        if sum(small.content.size for small in self._small) > _SMALL * self._scratch.read_bytes:
            live = set(map(id, self._ids.values()))
            self._scratch.move([small for small in self._small if id(small) in live])
            self._small = []


def _key(file: IcebergFile) -> tuple[str, int | None]:
    return file.path, file.entry.first_row_id


def _is_staged(file: IcebergFile) -> bool:
    """Whether a wave of a snapshot brought it, by its name: no id is written down in those."""
    return STAGED.fullmatch(file.path.rpartition("/")[2]) is not None
