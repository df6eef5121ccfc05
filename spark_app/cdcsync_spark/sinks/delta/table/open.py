"""Opening a Delta table by its log: the newest checkpoint, then every entry after it.

Only checkpoints in one file or in numbered parts are read (the Delta protocol, "Classic
Checkpoint"); tables with others name the feature `v2Checkpoint`, which is not one of ours. An entry
that is missing between the checkpoint and the newest one stops the table: without it no one knows
what the table holds. So does one that cannot be parsed; a checkpoint that cannot is passed over
where an older one, or none, has all entries after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.delta.table.foreign import settled_state
from cdcsync_spark.sinks.delta.table.log import OWN_TABLE, Log, TornFile, parsing
from cdcsync_spark.sinks.delta.table.paths import foreign_path, inside
from cdcsync_spark.sinks.delta.table.view import Action, TableView
from cdcsync_spark.sinks.delta.table.weight import refuse_heavy_view
from cdcsync_spark.sinks.lake.storage.checked_parquet import refuse_heavy_pages, spelled_out
from cdcsync_spark.sinks.lake.storage.store import LARGEST_READ

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.)?parquet")
_ACTIONS = ("protocol", "metaData", "add", "remove", "sidecar")
#: what Spark's checkpoints say twice, with values that an entry cannot hold
_PARSED = ("stats_parsed", "partitionValues_parsed")
#: version and files
_Checkpoint = tuple[int, list[str]]
#: of a checkpoint that are read at once; bytes of one without any value
_ROWS, _ROW_BYTES = 4096, 16
#: before the first entry
_NOTHING: _Checkpoint = (-1, [])

_log = get_logger()


#: entries that one opening reads: there is a checkpoint every few hundred, and other programs make
#: one every ten
MOST_ENTRIES = 100_000


class _LogReading:
    """The files that one opening reads of a Delta log: so many, and together no more than one of
    them may have. Raises SinkConflict."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.entries = self._size = 0

    def entry(self, version: int) -> str | None:
        text = self._log.entry(version)
        if text is not None:
            self.entries += 1
            self._take(len(text))
        return text

    def file(self, path: str) -> bytes | None:
        content = self._log.read(path)
        self._take(len(content or b""))
        return content

    def _take(self, size: int) -> None:
        self._size += size
        if self.entries > MOST_ENTRIES or self._size > LARGEST_READ:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the Delta log of {self._log.folder} has more than {MOST_ENTRIES} entries, or {LARGEST_READ} bytes, to be read",
                needed="a checkpoint of a newer version",
                remedy=f"make one; or, {OWN_TABLE}, {RUN_AGAIN}",
            )


def open_view(log: Log) -> TableView | None:
    """The newest version; None where there is no table. Raises `SinkConflict` for a Delta log with
    gaps, or with a file that cannot be parsed and is needed."""
    names = log.names()
    versions = _entries(names)
    checkpoints = _checkpoints(names)
    if not checkpoints and not versions:
        return None
    reading = _LogReading(log)
    view = _begun(log, reading, versions, checkpoints)
    _follow(log, reading, view)
    if view.version < max([view.version, *versions]) or not view.metadata:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the Delta log of {log.folder} has no entry {view.version + 1} and goes to {versions[-1]}",
            needed="every entry since the newest checkpoint",
            remedy=f"restore the Delta log; or, {OWN_TABLE}, {RUN_AGAIN}",
        )
    return view


def catch_up(log: Log, view: TableView) -> int:
    """Brings `view` to the newest version; the number of entries that were read."""
    return _follow(log, _LogReading(log), view)


def _follow(log: Log, reading: _LogReading, view: TableView) -> int:
    before = reading.entries
    while (text := reading.entry(view.version + 1)) is not None:
        with parsing(log.entry_path(view.version + 1)):
            view.entry(view.version + 1, text)
        refuse_heavy_view(log.folder, view.held)
    _refuse_foreign(log, view)
    if view.unsettled if view.state else view.checkpoint >= 0:
        view.state, view.unsettled = settled_state(log, view.version, partial(view_at, log)), False
    return reading.entries - before


def view_at(log: Log, version: int) -> TableView | None:
    """The files at `version`; None where the Delta log does not reach back to it."""
    names = log.names()
    versions = [entry for entry in _entries(names) if entry <= version]
    checkpoints = [checkpoint for checkpoint in _checkpoints(names) if checkpoint[0] <= version]
    if not versions and not checkpoints:
        return None
    reading = _LogReading(log)
    view = _begun(log, reading, versions, checkpoints)
    while view.version < version and (text := reading.entry(view.version + 1)) is not None:
        with parsing(log.entry_path(view.version + 1)):
            view.entry(view.version + 1, text)
        refuse_heavy_view(log.folder, view.held)
    return view if view.version == version and view.metadata else None


def _entries(names: Iterable[str]) -> list[int]:
    """The versions whose entries are there, in order."""
    return sorted(int(m[1]) for m in map(_ENTRY.fullmatch, names) if m)


def entry_alone(log: Log, version: int) -> TableView | None:
    """What the entry of `version` brings, on top of nothing; None where it is not there."""
    text = log.entry(version)
    if text is None:
        return None
    view = TableView(version - 1)
    with parsing(log.entry_path(version)):
        view.entry(version, text)
    _refuse_foreign(log, view)
    return view


def _refuse_foreign(log: Log, view: TableView) -> None:
    """New files that still are live must be the table's own; a view with another one is not
    used."""
    for file in filter(None, map(view.files.get, view.named)):
        for path in filter(None, (file.path, file.vector.path if file.vector else "")):
            if not inside(path):
                raise foreign_path(path, "is outside of the table")
            if log.linked(path):
                raise foreign_path(path, "is a symbolic link, or below one")
    view.named.clear()


def _begun(log: Log, reading: _LogReading, versions: list[int], checkpoints: list[_Checkpoint]) -> TableView:
    """The table as of the newest checkpoint that can be read; an older one serves only with all
    entries after it."""
    first: TornFile | None = None
    for checkpoint in [*checkpoints, _NOTHING]:
        if first is None or _followed(checkpoint[0], max(checkpoints[0][0], *versions, 0), versions):
            try:
                return _at(log, reading, checkpoint)
            except TornFile as unreadable:
                _log.warning("a checkpoint is passed over: remove it, readers stumble", error=unreadable.found)
                first = first or unreadable
    assert first is not None
    raise first


def _followed(version: int, newest: int, versions: list[int]) -> bool:
    """Whether all entries from `version` to `newest` are there."""
    return set(range(version + 1, newest + 1)) <= set(versions)


def _at(log: Log, reading: _LogReading, checkpoint: _Checkpoint) -> TableView:
    view = TableView()
    view.version = view.checkpoint = checkpoint[0]
    for name in checkpoint[1]:
        path = f"{log.folder}/_delta_log/{name}"
        content = reading.file(path)
        if content is None:
            raise FileNotFoundError(path)
        with parsing(path):
            for action in _checkpointed(path, content):
                if "sidecar" in action:
                    raise _elsewhere(path)
                view.take(action)
                if "remove" in action:
                    view.left(action["remove"])
                refuse_heavy_view(log.folder, view.held)
    return view


def _checkpoints(names: Iterable[str]) -> list[_Checkpoint]:
    """All whose files are there, the newest first."""
    parts: dict[tuple[int, int], list[str]] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(match[0])
    whole = [(version, sorted(files)) for (version, count), files in parts.items() if len(files) == count]
    return sorted(whole, reverse=True)


def _checkpointed(path: str, content: bytes) -> Iterator[Action]:
    """Each action. Rows are weighed with their texts as numbers of a dictionary first, because a
    dictionary of one long text may stand for any number of rows."""
    parquet = pq.ParquetFile(pa.BufferReader(content))
    refuse_heavy_view(path, announced(parquet))
    leaves = _wanted_leaves(parquet)
    refuse_heavy_pages(path, content, parquet.metadata, leaves)
    texts = [parquet.schema.column(n).path for n in leaves if parquet.schema.column(n).physical_type == "BYTE_ARRAY"]
    columns = [c for c in _ACTIONS if c in parquet.schema_arrow.names]
    numbered = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
    for batch in weighed_batches(path, parquet, numbered, columns):
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield {k: _plain(v) for k, v in row.items() if v is not None}


def weighed_batches(
    path: str, plain: pq.ParquetFile, numbered: pq.ParquetFile, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of `plain`, each read after the same rows of `numbered` were weighed. One row group
    at a time: PyArrow reads no nested texts as numbers across two groups, which have a dictionary
    each."""
    rows = 0
    for group in range(plain.metadata.num_row_groups):
        batches = plain.iter_batches(_ROWS, row_groups=[group], columns=columns)
        for light in numbered.iter_batches(_ROWS, row_groups=[group], columns=columns):
            refuse_heavy_view(path, sum(map(spelled_out, light.columns)))
            batch = next(batches, None)
            if batch is None or batch.num_rows != light.num_rows:
                raise ValueError(f"its row group {group} has two numbers of rows")
            rows += batch.num_rows
            yield batch
    if rows != plain.metadata.num_rows:
        raise ValueError(f"it has {rows} rows, and its footer says {plain.metadata.num_rows}")


def _wanted_leaves(parquet: pq.ParquetFile) -> list[int]:
    paths = (parquet.schema.column(n).path for n in range(len(parquet.schema)))
    return [n for n, path in enumerate(paths) if path.split(".")[0] in _ACTIONS]


def announced(parquet: pq.ParquetFile) -> int:
    """The bytes that the footer announces: of pages, of rows, and of values that one row may have
    any number of."""
    leaves, total = _wanted_leaves(parquet), parquet.metadata.num_rows * _ROW_BYTES
    for group in map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups)):
        for n in leaves:
            chunk = group.column(n)
            repeated = parquet.schema.column(n).max_repetition_level > 0
            total += chunk.total_uncompressed_size + (chunk.num_values * _ROW_BYTES if repeated else 0)
    return int(total)


def _plain(value: Any) -> Any:
    """Parquet's empty fields left out, as JSON leaves them out."""
    if not isinstance(value, dict):
        return value
    return {k: _plain(v) for k, v in value.items() if v is not None and k not in _PARSED}


def _elsewhere(path: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the checkpoint {path} has its files in sidecars",
        needed="a checkpoint that is whole",
        remedy=f"take the feature v2Checkpoint from the target table; or, {OWN_TABLE}, {RUN_AGAIN}",
    )
