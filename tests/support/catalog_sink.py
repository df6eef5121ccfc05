"""A table format whose metadata are values in this process: the lake's writer and its files without
Delta, held to the contract of all sinks beside it.

It commits as a catalog does: one compare-and-set on a table's newest version, data and deletion
vectors in the lake, a file for each vector. `answers` says what becomes of the next commit's
answer: it may be lost before the commit or after it. A sink that was pickled is found again in the
same process by its name.
"""

from __future__ import annotations

import math
import tempfile
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.evolve import rewrites
from cdcsync_core.tables.schema_change import Origin
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Build, Commit, Staged
from cdcsync_spark.sinks.contract.checks import no_copy_error, refuse_other_identity
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import MaintenanceStep, Outcome, Writer, commit_each
from cdcsync_spark.sinks.lake.files.deletion_vectors import DeletedRows, framed, serialised
from cdcsync_spark.sinks.lake.files.file_changes import AddedFile
from cdcsync_spark.sinks.lake.files.row_lineage import NO_LINEAGE, RowLineage
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.lake.files.staging import DataFile, stage
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, LostRace, Writing
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.table_folder import TableFolder
from cdcsync_spark.sinks.lake.writer import LakeWriter

#: versions that readers may still have open
KEPT_VERSIONS = 20
_MAGIC = b"PFA1"


@dataclass(frozen=True)
class CatalogFile:
    """A live file as a manifest's entry would have it."""

    path: str
    file: DataFile
    deleted: DeletedRows | None = None

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def rows(self) -> int:
        return self.file.rows

    @property
    def paths(self) -> set[str]:
        return {self.path, self.deleted.path} if self.deleted else {self.path}


@dataclass(frozen=True)
class CatalogVersion:
    number: int
    state: TableState
    files: Mapping[str, CatalogFile]
    operation: CommitOperation = CommitOperation.STATE

    @property
    def names(self) -> tuple[str, ...]:
        return self.state.schema.names

    @property
    def field_ids(self) -> None:
        """Files go by names."""

    @property
    def paths(self) -> set[str]:
        return {path for file in self.files.values() for path in file.paths}


@dataclass
class Catalog:
    """The versions of each table, the newest last, by its folder."""

    tables: dict[str, list[CatalogVersion]] = field(default_factory=dict)
    answers: Literal["come", "lost before", "lost after"] = "come"
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def newest(self, folder: str) -> CatalogVersion | None:
        return self.tables[folder][-1] if folder in self.tables else None

    def swap(self, folder: str, on: CatalogVersion | None, version: CatalogVersion) -> None:
        """Raises LostRace where `on` is not the newest version."""
        answer, self.answers = self.answers, "come"
        if answer == "lost before":
            raise _no_answer()
        with self._lock:
            if self.newest(folder) is not on:
                raise LostRace
            self.tables.setdefault(folder, []).append(version)
        if answer == "lost after":
            raise _no_answer()


def _no_answer() -> CdcError:
    return fail(Reason.SINK_UNREACHABLE, "no answer to a commit", remedy="wait")


@dataclass(frozen=True)
class CatalogFormat:
    """See `TableFormat`."""

    folder: TableFolder
    sink: str

    @property
    def catalog(self) -> Catalog:
        return _SINKS[self.sink].catalog

    def open(self) -> CatalogVersion | None:
        return self.catalog.newest(self.folder.folder)

    def follow(self, version: CatalogVersion) -> CatalogVersion | None:
        return self.open()

    def has_news(self, version: CatalogVersion, *, or_loss: bool) -> bool:
        return self.open() is not version

    def publish(self, on: CatalogVersion, commit: FileCommit) -> CatalogVersion:
        vectors = {name: self._vector(rows) for name, rows in commit.changes.deleted_rows.items()}
        if commit.operation is CommitOperation.MERGE:
            gate("vectors-written")
        after = CatalogVersion(on.number + 1, commit.state, _files(on, commit, vectors), commit.operation)
        try:
            self.catalog.swap(self.folder.folder, on, after)
        except LostRace:
            self.folder.remove(vector.path for vector in vectors.values())
            raise
        gate("entry-written")
        return after

    def _vector(self, rows: BitMap) -> DeletedRows:
        data, path = serialised(rows), f"dv-{uuid.uuid4().hex}"
        with self.folder.store.new_file(path) as local:
            local.write_bytes(_MAGIC + framed(data))
        return DeletedRows(path, len(rows), len(data), path, len(_MAGIC))

    def stamp(self, on: CatalogVersion, after: TableState, origins: tuple[Origin, ...]) -> None:
        """Rows have the form of files."""

    def lineage(self, scratch: Path) -> RowLineage:
        return NO_LINEAGE

    def expiry(
        self, writing: Writing[CatalogVersion]
    ) -> Mapping[str, Callable[[CatalogVersion], MaintenanceStep | None]]:
        return {"expire": self._expire}

    def _expire(self, version: CatalogVersion) -> MaintenanceStep | None:
        """A file is known before its version is, so what no version names is not removed here."""
        versions = self.catalog.tables[self.folder.folder]
        if len(versions) <= KEPT_VERSIONS:
            return None
        old, versions[:] = versions[:-KEPT_VERSIONS], versions[-KEPT_VERSIONS:]
        dead = set[str]().union(*(v.paths for v in old)) - set[str]().union(*(v.paths for v in versions))
        self.folder.remove(dead)
        return MaintenanceStep("expire", files_removed=len(dead))

    def unsupported_reason(self, version: CatalogVersion, *, merging: bool) -> str:
        return ""

    def publish_otherwise(self, on: CatalogVersion, commit: Commit, reason: str) -> None:
        raise AssertionError(reason)

    def refuse_altered(self, version: CatalogVersion) -> None:
        """No other program reaches it."""

    def beside(self, version: CatalogVersion, ours: Collection[str]) -> Sequence[pa.Field]:
        """No other program reaches it."""
        return ()

    def rewrites(self, version: CatalogVersion, after: TableState, origins: tuple[Origin, ...]) -> bool:
        return rewrites(version.state.schema, after.schema, origins)

    def max_idle_seconds(self, version: CatalogVersion) -> float:
        return math.inf

    def foreign_table_error(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"there is no table of {self.folder.sync}",
            needed="a table that this sync made",
            remedy="prepare it",
            table=str(self.folder.table),
        )


def _files(on: CatalogVersion, commit: FileCommit, vectors: Mapping[str, DeletedRows]) -> dict[str, CatalogFile]:
    changes, files = commit.changes, dict(on.files)
    for name in changes.removed:
        del files[name]
    for name, new in changes.rewritten.items():
        files[new.path] = _added(new, files.pop(name).deleted)
    for name, deleted in vectors.items():
        assert len(commit.changes.deleted_rows[name]) < files[name].rows == changes.rows[name]
        files[name] = replace(files[name], deleted=deleted)
    added = {new.path: _added(new, None) for new in commit.adding()}
    assert not added.keys() & files.keys(), "a file twice"
    return files | added


def _added(new: AddedFile, deleted: DeletedRows | None) -> CatalogFile:
    return CatalogFile(new.path, new.file, deleted)


@dataclass(frozen=True)
class CatalogTarget:
    """One table's target."""

    folder: TableFolder
    sink: str
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS

    @property
    def _format(self) -> CatalogFormat:
        return CatalogFormat(self.folder, self.sink)

    def prepare(self, state: TableState) -> TableState:
        with suppress(LostRace):
            if self._format.open() is None:
                self._format.catalog.swap(self.folder.folder, None, CatalogVersion(0, state, {}))
        version = self._format.open()
        assert version is not None
        refuse_other_identity(version.state, state)
        return version.state

    def last_commit(self) -> TableState | None:
        return self.writer().last_commit()

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        root = self.folder.lake.below(self.folder.root)
        files = stage(root, self.folder.staged, TargetSchema.of(table), batches, name)
        gate("staged")
        return tuple(file.as_part() for file in files)

    def staged(self) -> Staged:
        version = self._format.open()
        if version is None:
            raise no_copy_error(str(self.folder.table))
        return tuple(file.file.as_part() for file in version.files.values())

    def commit(self, epoch: int, build: Build) -> TableState:
        writer = self.writer()
        state = writer.commit(epoch, build)
        writer.maintain()
        return state

    def writer(self, scratch: Path | None = None) -> LakeWriter[CatalogVersion]:
        scratch = scratch or Path(tempfile.gettempdir())
        return LakeWriter(self._format, self.folder, scratch, self.policy, self.limits)

    def open_snapshot(self) -> LakeSnapshot:
        version = self._format.open()
        if version is None:
            raise self._format.foreign_table_error()
        files = tuple((file.path, file.deleted) for file in version.files.values())
        return LakeSnapshot(self.folder.store, version.number, version.state, files)


@dataclass
class CatalogSink:
    """The tables of a catalog whose files are in the lake at `store`."""

    store: Store
    sync: str
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS
    catalog: Catalog = field(default_factory=Catalog)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        _SINKS[self.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _sink, (self.name,)

    @property
    def capabilities(self) -> Capabilities:
        return LakeWriter.capabilities()

    def target(self, table: TableId, *, generation: int = 0) -> CatalogTarget:
        folder = TableFolder(self.store, self.sync, table, f"_copy-{generation}" if generation else "")
        return CatalogTarget(folder, self.name, self.policy, self.limits)

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        return commit_each(epoch, parts)

    def discard(self, table: TableId, generation: int) -> None:
        """What a version of the table has of the copy stays."""
        main, copy = self.target(table).folder, self.target(table, generation=generation).folder
        self.catalog.tables.pop(copy.folder, None)
        versions = self.catalog.tables.get(main.folder, [])
        if not any(path.startswith(copy.prefix) for version in versions for path in version.paths):
            self.store.delete_folder(copy.folder)


_SINKS: WeakValueDictionary[str, CatalogSink] = WeakValueDictionary()


def _sink(name: str) -> CatalogSink:
    return _SINKS[name]
