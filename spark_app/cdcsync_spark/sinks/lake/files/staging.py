"""Rows to Parquet files that no reader sees yet.

Runs inside a Spark task: rows are gathered to row groups of bounded size, so memory is a row group
and never a split. A file's name holds the caller's name and a fresh UUID, so that two attempts of
one task, or a speculative copy, never write the same file; whatever a commit does not name is an
orphan, invisible to readers. Nothing is converted: rows that do not have the table's schema are
refused.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cdcsync_core.errors import Reason, fail
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Append, Change, Replace, StagedPart
from cdcsync_spark.sinks.lake.files.bounds import BoundsOfFile, FileBounds
from cdcsync_spark.sinks.lake.files.row_ids import without_identity
from cdcsync_spark.sinks.lake.storage.store import Store

_KIND = "parquet"


@dataclass(frozen=True)
class DataFile:
    """One Parquet file, written and invisible until a commit names it.

    `path` is relative to the table's root, with forward slashes (files of a staged copy lie below
    the same root); `size` in bytes; `rows` in it; `bounds` of its columns, None where none were
    gathered.
    """

    path: str
    size: int
    rows: int
    bounds: FileBounds | None = None

    def as_part(self) -> StagedPart:
        bounds = self.bounds.to_dict() if self.bounds else None
        body = {"path": self.path, "size": self.size, "rows": self.rows, "bounds": bounds}
        return StagedPart(_KIND, self.rows, json.dumps(body, ensure_ascii=False))

    @classmethod
    def of(cls, part: StagedPart) -> DataFile:
        """Raises `InternalError` for a part that another kind of sink has staged."""
        if part.kind != _KIND:
            raise fail(
                Reason.INTERNAL_ERROR,
                f"rows that were staged as {part.kind!r}",
                needed=_KIND,
                remedy="report this with the driver log",
            )
        body = json.loads(part.body)
        return cls(**body | {"bounds": body["bounds"] and FileBounds.from_dict(body["bounds"])})


def data_files(change: Change) -> tuple[DataFile, ...]:
    """The files that a change brings; none for one that brings no staged rows."""
    return tuple(map(DataFile.of, change.staged)) if isinstance(change, Append | Replace) else ()


@dataclass(frozen=True)
class FileSizes:
    """When a row group ends, by rows or by bytes in memory, and a file, by bytes written."""

    group_rows: int = 128 * 1024
    group_bytes: int = 64 * 2**20
    file_bytes: int = 512 * 2**20


SIZES = FileSizes()

#: what is done to rows before they are written
Stamp = Callable[[pa.Table], pa.Table]


def stage(
    store: Store,
    folder: str,
    schema: TargetSchema,
    batches: Iterable[pa.RecordBatch],
    name: str,
    stamp: Stamp | None = None,
    sizes: FileSizes = SIZES,
    beside: Sequence[pa.Field] = (),
) -> list[DataFile]:
    """Writes `batches` below `folder` (relative to `place`, empty for the place itself) and makes
    them durable, with the columns that `stamp` adds; they have the columns `beside`, too.

    A file ends after the row group with which it passes `sizes.file_bytes`. Without rows there
    is no file.
    """
    groups = row_groups(schema, batches, sizes, beside)
    return stage_groups(store, folder, map(stamp, groups) if stamp else groups, schema.key, name, sizes)


def stage_groups(
    store: Store,
    folder: str,
    groups: Iterator[pa.Table],
    bounded: tuple[str, ...],
    name: str,
    sizes: FileSizes = SIZES,
) -> list[DataFile]:
    """The same for row groups of any one schema; the columns `bounded` have bounds wherever they
    are."""
    files = []
    group = next(groups, None)
    while group is not None:
        path = f"{folder}/{_file_name(name)}" if folder else _file_name(name)
        gathered = BoundsOfFile(group.schema, bounded)
        with store.new_file(path) as local:
            group, rows = _write(local, group, groups, gathered, sizes.file_bytes)
            size = local.stat().st_size
        files.append(DataFile(path, size, rows, gathered.bounds()))
    return files


def write_one(
    store: Store,
    folder: str,
    schema: TargetSchema,
    batches: Iterable[pa.RecordBatch],
    name: str,
    stamp: Stamp | None = None,
) -> DataFile | None:
    """All rows of `batches` in one file, however large, with the columns that `stamp` adds; None
    where there are none."""
    groups = map(stamp, row_groups(schema, batches)) if stamp else row_groups(schema, batches)
    path = f"{folder}/{_file_name(name)}" if folder else _file_name(name)
    group = next(groups, None)
    if group is None:
        return None
    gathered = BoundsOfFile(group.schema, schema.key)
    with store.new_file(path) as local:
        _, rows = _write(local, group, groups, gathered, math.inf)
        size = local.stat().st_size
    return DataFile(path, size, rows, gathered.bounds())


def _write(
    path: Path, group: pa.Table, groups: Iterator[pa.Table], bounds: BoundsOfFile, most: float
) -> tuple[pa.Table | None, int]:
    """One file from `group` on, of about `most` bytes; the group that begins the next file, and
    this file's rows."""
    rows = 0
    with ExitStack() as stack:
        sink = stack.enter_context(path.open("xb"))
        # A dictionary of more than a byte a row helps no column: its values come again too seldom.
        # Half of the work of writing, and a fifth of the file, were dictionaries that did not pay
        # [measured].
        writer = stack.enter_context(
            pq.ParquetWriter(sink, group.schema, dictionary_pagesize_limit=group.num_rows, **_FORMAT)
        )
        following: pa.Table | None = group
        while following is not None and (rows == 0 or sink.tell() < most):
            writer.write_table(following, row_group_size=following.num_rows)
            bounds.add(following)
            rows += following.num_rows
            following = next(groups, None)
    return following, rows


_FORMAT = {"compression": "zstd", "compression_level": 1, "coerce_timestamps": "us", "version": "2.6"}


def row_groups(
    target: TargetSchema,
    batches: Iterable[pa.RecordBatch],
    sizes: FileSizes = SIZES,
    beside: Sequence[pa.Field] = (),
) -> Iterator[pa.Table]:
    """Batches gathered to tables of about `group_rows` rows or `group_bytes`; raises
    `InternalError` for another schema than that of `target` with the columns `beside` after it. All
    may have the columns of `row_ids` besides."""
    schema = pa.schema([*arrow_schema(target), *beside])
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not without_identity(batch.schema).equals(schema):
            raise _other_schema(batch.schema, schema)
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= sizes.group_rows or size >= sizes.group_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _file_name(name: str) -> str:
    """Only characters that are themselves in a URL: a Delta log escapes paths, and not every reader
    agrees how."""
    return f"{re.sub('[^A-Za-z0-9_-]', '-', name).lstrip('_')[:80]}-{uuid.uuid4().hex}.zstd.parquet"


def _other_schema(schema: pa.Schema, needed: pa.Schema) -> Exception:
    return fail(
        Reason.INTERNAL_ERROR,
        f"rows with the schema [{_one_line(schema)}]",
        needed=f"[{_one_line(needed)}]",
        remedy="report this with the driver log",
    )


def _one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
