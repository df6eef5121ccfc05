"""A version of an Iceberg table: the live files of a branch's newest snapshot, schema, our state.

A manifest never changes, so one that is known is not read again: to follow another program's commit
costs its manifests. All that is read is bounded by a part of the memory that there is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.state import TableState
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.iceberg.table.expiry import Gone
from cdcsync_spark.sinks.iceberg.table.manifests import (
    POSITION_DELETES,
    Entry,
    ListedManifest,
    ManifestContent,
    read_list,
    read_manifest,
)
from cdcsync_spark.sinks.iceberg.table.metadata import FORMAT_VERSION, Snapshot, TableMetadata, parsing, unreadable
from cdcsync_spark.sinks.iceberg.table.schema import TableSchema, field_ids
from cdcsync_spark.sinks.iceberg.table.state import found_state
from cdcsync_spark.sinks.lake.files.deletion_vectors import FRAME_BYTES, DeletedRows
from cdcsync_spark.sinks.lake.files.field_ids import FieldIds
from cdcsync_spark.sinks.lake.storage.store import Store

#: of the memory, for the records of all manifests
_SHARE = 4
DATA, METADATA = "data", "metadata"


@dataclass(frozen=True)
class TablePaths:
    """The paths of a table's files: whole in its metadata, relative to `location` in its store."""

    location: str

    def whole(self, relative: str) -> str:
        return f"{self.location}/{relative}"

    def relative(self, path: str) -> str:
        """Raises SinkConflict for a file that lies elsewhere: this run may not reach it there."""
        inside = path.removeprefix(f"{self.location}/")
        if inside == path or not inside or {"", ".", ".."} & set(inside.split("/")) or "\0" in inside:
            raise fail(
                Reason.SINK_CONFLICT,
                f"the table names the file {quoted(path)}",
                needed=f"files below the table's location, {quoted(self.location)}",
                remedy=f"take write.data.path and write.metadata.path from the table's properties, then drop it, {RUN_AGAIN}",
            )
        return inside


@dataclass(frozen=True)
class IcebergFile:
    """See `LiveFile`: `path` is relative to the folder with the data files."""

    path: str
    entry: Entry
    vector: Entry | None = None
    vector_path: str = ""

    @property
    def size(self) -> int:
        return self.entry.size

    @property
    def rows(self) -> int:
        return self.entry.rows

    @cached_property
    def deleted(self) -> DeletedRows | None:
        if self.vector is None:
            return None
        if self.vector.format == "PARQUET":
            file, rows = self.vector, self.vector.rows
            return DeletedRows(file.path, rows, file.size, self.vector_path, data_file=self.entry.path)
        offset, size = self.vector.frame or (0, 0)
        identity = f"{self.vector.path}@{offset}"
        return DeletedRows(identity, self.vector.rows, size - FRAME_BYTES, self.vector_path, offset)


@dataclass(frozen=True)
class IcebergVersion:
    """A branch (`ref`) of a table at its newest snapshot, None without one. `gone` has the files
    that this process saw go, by their relative paths."""

    metadata: TableMetadata
    ref: str
    schema: TableSchema
    state: TableState | None
    snapshot: Snapshot | None = None
    manifests: tuple[ListedManifest, ...] = ()
    files: Mapping[str, IcebergFile] = field(default_factory=dict)
    gone: dict[str, Gone] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """See `TableVersion`."""
        return self.snapshot.number if self.snapshot else 0

    @property
    def names(self) -> Collection[str]:
        """See `TableVersion`."""
        return self.schema.names

    @property
    def field_ids(self) -> FieldIds:
        """See `TableVersion`."""
        return field_ids(self.schema)

    @property
    def paths(self) -> TablePaths:
        return TablePaths(self.metadata.location)


def branch_schema(metadata: TableMetadata, ref: str, main: str) -> TableSchema:
    """The schema of a branch's rows: the table's, for `main` and where the snapshot names none."""
    head = None if ref == main else metadata.head(ref)
    if head is None or head.schema_id is None:
        return metadata.current_schema
    return metadata.schemas[head.schema_id]


@dataclass(frozen=True)
class VersionReader:
    """Reads versions of the table whose files are in `store`; `folder` is that of its data files,
    relative to `store`."""

    store: Store
    folder: str

    def version(
        self, metadata: TableMetadata, ref: str, schema: TableSchema, before: IcebergVersion | None = None
    ) -> IcebergVersion:
        """The newest version of a branch; `before` is one that is known."""
        with parsing(f"the metadata of {metadata.location}"):
            snapshot, state = metadata.head(ref), found_state(metadata, ref)
        read_before = {m.path: m for m in before.manifests} if before else {}
        manifests = () if snapshot is None else self.manifests(metadata, snapshot, read_before)
        files = self.files(metadata, manifests)
        gone = before.gone if before else {}
        return IcebergVersion(metadata, ref, schema, state, snapshot, manifests, files, gone)

    def manifests(
        self, metadata: TableMetadata, snapshot: Snapshot, read_before: Mapping[str, ListedManifest]
    ) -> tuple[ListedManifest, ...]:
        """The manifests of a snapshot, which are read unless they are `read_before`."""
        paths, left, manifests = TablePaths(metadata.location), memory_limit() // _SHARE, []
        content = self.content(paths, snapshot.manifest_list)
        with parsing(snapshot.manifest_list):
            rows = read_list(content, left)
        for row in rows:
            path = row["manifest_path"]
            if path not in read_before:
                content = self.content(paths, path)
                with parsing(path):
                    manifest, size = read_manifest(row, content, left)
                left -= size
            else:
                manifest = ListedManifest(row, read_before[path].entries)
            manifests.append(manifest)
        return tuple(manifests)

    def content(self, paths: TablePaths, path: str) -> bytes:
        """A whole file of the table. Raises SinkConflict where it is not there."""
        content = self.store.read(paths.relative(path))
        if content is None:
            raise unreadable(path, "it is not there")
        return content

    def files(self, metadata: TableMetadata, manifests: Collection[ListedManifest]) -> dict[str, IcebergFile]:
        """The live data files by their paths in the folder."""
        paths, vectors = TablePaths(metadata.location), _vectors(manifests, metadata.format_version)
        live = (
            self._file(paths, entry, vectors.get(name))
            for manifest in manifests
            if manifest.content is ManifestContent.DATA
            for name, entry in manifest.entries.items()
        )
        return {file.path: file for file in live}

    def _file(self, paths: TablePaths, entry: Entry, vector: Entry | None) -> IcebergFile:
        if entry.format != "PARQUET":
            raise _other_files(f"the data file {quoted(entry.path)} is no Parquet file")
        path = self._below(paths, entry.path)
        if vector is None:
            return IcebergFile(path, entry)
        if vector.sequence_number < entry.sequence_number:
            raise _other_files(f"the delete file {quoted(vector.path)} is older than its data file")
        return IcebergFile(path, entry, vector, self._below(paths, vector.path))

    def _below(self, paths: TablePaths, path: str) -> str:
        """Relative to the folder with the data files."""
        return TablePaths(paths.whole(self.folder)).relative(path)


def _vectors(manifests: Collection[ListedManifest], format_version: int) -> dict[str, Entry]:
    """What deletes rows, by data files. Raises SinkConflict for deletes of another kind: position
    deletes that format version 3 takes over from older tables, those of several data files or
    several of one, and equality deletes."""
    fits, vectors = _FITS[format_version], dict[str, Entry]()
    for manifest in manifests:
        for name, entry in manifest.entries.items() if manifest.content is ManifestContent.DELETES else ():
            if not fits(entry):
                raise _other_files(f"the delete file {quoted(entry.path)} is of another kind")
            if name in vectors:
                raise _other_files(f"the data file {quoted(name)} has two delete files")
            vectors[name] = entry
    return vectors


def _is_vector(entry: Entry) -> bool:
    return entry.format == "PUFFIN" and bool(entry.referenced) and entry.frame is not None


def _is_position_file(entry: Entry) -> bool:
    return entry.format == "PARQUET" and bool(entry.referenced) and entry.content == POSITION_DELETES


_FITS = {2: _is_position_file, FORMAT_VERSION: _is_vector}


def _other_files(found: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        found,
        needed="Parquet files, and for each at most one deletion vector (format version 2: one position delete file), "
        "as this program writes them",
        remedy=f"let Spark rewrite the table's data files with them, {RUN_AGAIN}",
    )
