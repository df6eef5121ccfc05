"""Tables of a catalog as Iceberg tables, of format version 3 unless another is asked for.

How a commit is made is in `sinks.iceberg.replica.commit`; here is how tables are made, and how they
are read. A table is created with its first state as a property; its first snapshot comes with its
first rows.

A staged copy is a branch of the same table, whose snapshots begin with none: readers of `main` see
nothing of it, and other programs' clean-up takes no file that a branch names. Its publication is
one commit of `main` that names the copy's files, and takes the branch away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Build, Staged
from cdcsync_spark.sinks.contract.checks import no_copy_error, refuse_other_identity
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import Outcome, Writer, commit_each
from cdcsync_spark.sinks.history.rows import HISTORY, mark
from cdcsync_spark.sinks.iceberg.catalog.port import Catalog, CatalogTableName, CommitLost, NewTable, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.replica.commit import VersionPublication, copy_removal
from cdcsync_spark.sinks.iceberg.replica.folder_mark import mark_folder
from cdcsync_spark.sinks.iceberg.replica.format import IcebergFormat, stamp
from cdcsync_spark.sinks.iceberg.replica.maintenance import remove_own
from cdcsync_spark.sinks.iceberg.replica.place import Loaded, Stores, TablePlace
from cdcsync_spark.sinks.iceberg.replica.schemas import known, staged_name
from cdcsync_spark.sinks.iceberg.replica.unnamed_files import UnnamedFiles
from cdcsync_spark.sinks.iceberg.replica.writer import IcebergWriter
from cdcsync_spark.sinks.iceberg.table.bounds import file_bounds
from cdcsync_spark.sinks.iceberg.table.expiry import DEFAULT_AGE, HISTORY_AGE, MOST_AGE
from cdcsync_spark.sinks.iceberg.table.metadata import FORMAT_VERSION, MAIN, parsing
from cdcsync_spark.sinks.iceberg.table.schema import TableSchema, new_schema
from cdcsync_spark.sinks.iceberg.table.state import RecordedState, branch_in, property_of
from cdcsync_spark.sinks.iceberg.table.view import IcebergFile, IcebergVersion, branch_schema
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.lake.files.staging import DataFile, stage
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, LostRace
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.writer import LakeWriter

#: metadata files that the catalog keeps, where it keeps any, and its own retries: a commit that
#: lost decides again on what won
_PROPERTIES = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    MOST_AGE: str(DEFAULT_AGE),
}


@dataclass(frozen=True)
class IcebergSink:
    """The tables of `catalog` for the sync `namespace/name`: those of a database in the namespace
    of its name, or all in the one that is given. `properties` are those that tables are made
    with."""

    catalog: Catalog
    stores: Stores
    sync: str
    namespace: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS
    format_version: int = FORMAT_VERSION

    @property
    def capabilities(self) -> Capabilities:
        return LakeWriter.capabilities()

    def target(self, table: TableId, *, generation: int = 0) -> IcebergTarget:
        name = CatalogTableName(self.namespace or (segment(table.database),), segment(table.name))
        place = TablePlace(
            self.catalog,
            self.stores,
            name,
            self.sync,
            table,
            generation or None,
            format_version=self.format_version,
        )
        return IcebergTarget(place, self.properties, self.policy, self.limits)

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        return commit_each(epoch, parts)

    def discard(self, table: TableId, generation: int) -> None:
        """See `Sink.discard`."""
        discard_copy(self.target(table, generation=generation).place, self.limits)


def discard_copy(place: TablePlace, limits: CommitLimits) -> bool:
    """The branch goes first: a copy without it is none, and its files that no snapshot of the table
    has are orphans then. Whether there was anything of it."""
    branch_removed = False
    for _ in range(limits.attempts):
        loaded = place.load()
        if loaded is None or place.ref not in loaded.metadata.refs:
            break
        with suppress(CommitLost, OutcomeUnknown):
            _remove_branch(place, loaded)
            branch_removed = True
    else:
        raise place.contention_error(limits.attempts)
    return (loaded is not None and _remove_unnamed(place, loaded)) or branch_removed


def _remove_unnamed(place: TablePlace, loaded: Loaded) -> bool:
    """Removes the files of a staged copy's folder that no snapshot has; whether there were any."""
    folder = place.folder(loaded)
    with folder.translating_errors("removing a staged copy"):
        names = [f"{folder.folder}/{name}" for name in folder.lake.listed(folder.folder)]
        unnamed = UnnamedFiles(folder, names)
        while not unnamed.read(loaded.metadata):
            pass
        return bool(unnamed.paths) and remove_own(folder, unnamed.paths)


def _remove_branch(place: TablePlace, loaded: Loaded) -> None:
    metadata, ref = loaded.metadata, place.ref
    held = {named["snapshot-id"] for name, named in metadata.refs.items() if name != ref}
    gone = [s.id for s in metadata.snapshots.values() if branch_in(s) == ref and s.id not in held]
    needed = {name: at["snapshot-id"] for name, at in metadata.refs.items() if name == ref or at.get("type") == "tag"}
    place.catalog.commit(
        place.name,
        [
            {"type": "assert-table-uuid", "uuid": metadata.uuid},
            *({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": n} for name, n in needed.items()),
        ],
        [*copy_removal(ref), *([{"action": "remove-snapshots", "snapshot-ids": gone}] if gone else [])],
    )


@dataclass(frozen=True)
class IcebergTarget:
    """One table's target."""

    place: TablePlace
    properties: tuple[tuple[str, str], ...] = ()
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS

    def prepare(self, state: TableState) -> TableState:
        if self.place.generation is None:
            self.create(state)
        else:
            self._prepare_copy(state)
        version = self.version()
        if version is None or version.state is None:
            raise self.place.foreign_table_error()
        refuse_other_identity(version.state, state)
        self._mark_folder(Loaded(version.metadata))
        return version.state

    def _mark_folder(self, loaded: Loaded) -> None:
        """Before a file is staged: it may be old when a commit names it."""
        folder = self.place.folder(loaded)
        with folder.translating_errors("marking the folder"):
            mark_folder(folder)

    def create(self, state: TableState) -> None:
        """Makes the table where there is none. The second of two runs finds it made."""
        self.place.refuse_reserved(state.schema)
        if self.place.load() is not None:
            return
        events = self.place.events
        given = dict(self.properties)
        if events:
            given = {MOST_AGE: str(HISTORY_AGE), **given, HISTORY: mark(events)}
        first = {property_of(MAIN): RecordedState(state, 0, None).text}
        schema = new_schema(state.schema, 0, 0, events).to_dict()
        new = NewTable(schema, self.place.format_version, {**_PROPERTIES, **given, **first})
        with suppress(CommitLost):
            self.place.catalog.create(self.place.name, new)
            gate("table-created")

    def _prepare_copy(self, state: TableState) -> None:
        """A branch whose first snapshot has no file."""
        self.place.refuse_reserved(state.schema)
        for _ in range(self.limits.attempts):
            loaded = self.place.load()
            if loaded is None or self.place.ref in loaded.metadata.refs:
                return
            metadata = loaded.metadata
            current, events = metadata.current_schema, self.place.events
            fresh = new_schema(state.schema, max(metadata.schemas) + 1, metadata.last_column_id, events)
            schema = current if current.serves(state.schema, events) else known(metadata, fresh)
            on = IcebergVersion(metadata, self.place.ref, schema, None)
            with suppress(LostRace):
                first = FileCommit(state, CommitOperation.STATE)
                VersionPublication(self.place, self.place.folder(loaded), on, first).publish()
                gate("table-created")
                return
        raise self.place.contention_error(self.limits.attempts)

    def _format(self, loaded: Loaded) -> IcebergFormat:
        return IcebergFormat(self.place, self.place.folder(loaded), loaded.metadata.location, self.policy)

    def version(self) -> IcebergVersion | None:
        """The newest version; None where there is no table."""
        loaded = self.place.load()
        if loaded is None:
            return None
        table_format = self._format(loaded)
        with table_format.folder.translating_errors("opening the table"):
            return table_format.version(loaded.metadata)

    def last_commit(self) -> TableState | None:
        version = self.version()
        if version is not None and version.state is None:
            raise self.place.foreign_table_error()
        return version.state if version else None

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        loaded = self.place.load()
        if loaded is None:
            raise self.place.foreign_table_error()
        folder, target = self.place.folder(loaded), TargetSchema.of(table)
        schema = branch_schema(loaded.metadata, self.place.ref, MAIN)
        events, without_branch = self.place.events, self.place.ref not in loaded.metadata.refs
        if without_branch and self.place.generation is not None and not schema.serves(target, events):
            raise no_copy_error(str(self.place.table))
        with folder.translating_errors("staging rows"):
            root = folder.lake.below(folder.root)
            files = stage(
                root, folder.staged, target, batches, staged_name(schema, name), stamp(schema, target, events)
            )
        gate("staged")
        return tuple(file.as_part() for file in files)

    def commit(self, epoch: int, build: Build) -> TableState:
        writer = self.writer()
        state = writer.commit(epoch, build)
        writer.maintain()
        return state

    def writer(self, scratch: Path | None = None) -> IcebergWriter:
        return IcebergWriter(self.place, scratch or Path(tempfile.gettempdir()), self.policy, self.limits)

    def staged(self) -> Staged:
        version = self.version()
        if version is None:
            raise no_copy_error(str(self.place.table))
        if version.state is None:
            raise self.place.foreign_table_error()
        prefix, schema = f"{self.place.staged}/" if self.place.staged else "", version.schema
        return tuple(_staged(prefix, file, schema).as_part() for file in version.files.values())

    def open_snapshot(self) -> LakeSnapshot:
        version = self.version()
        if version is None:
            raise self.place.foreign_table_error()
        return self.rows(version)

    def rows(self, version: IcebergVersion) -> LakeSnapshot:
        """The rows of a version. Raises SinkConflict for one that cannot be read."""
        loaded = self.place.load()
        if loaded is None or version.state is None:
            raise self.place.foreign_table_error()
        table = self._format(loaded)
        table.refuse_unreadable(version)
        files = tuple((file.path, file.deleted) for file in version.files.values())
        return LakeSnapshot(table.folder.store, version.number, version.state, files, ids=version.field_ids)


def _staged(prefix: str, file: IcebergFile, schema: TableSchema) -> DataFile:
    with parsing(file.entry.path):
        bounds = file_bounds(file.entry.file, schema)
    return DataFile(prefix + file.path, file.size, file.rows, bounds)
