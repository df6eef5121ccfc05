"""One commit to an Iceberg table: vectors, manifests and their list are written, then the catalog
takes all by one compare-and-set, or nothing.

The requirement is that each branch is where it was: a snapshot has a sequence number and row ids of
its own, so two branches of one table do not commit at once. Vectors are durable before the
manifests that name them, those before the list, and that before the commit. Dying between leaves
files that no snapshot names.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from pyroaring import BitMap

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_spark.sinks.iceberg.catalog.port import CommitLost, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.replica.place import IcebergFolder, TablePlace, branch_of
from cdcsync_spark.sinks.iceberg.replica.schemas import next_schema
from cdcsync_spark.sinks.iceberg.replica.summary import summary
from cdcsync_spark.sinks.iceberg.table.avro import Record
from cdcsync_spark.sinks.iceberg.table.bounds import column_metrics, pairs
from cdcsync_spark.sinks.iceberg.table.expiry import Gone, expired
from cdcsync_spark.sinks.iceberg.table.manifests import POSITION_DELETES, ListedManifest, Snapshotting, write_list
from cdcsync_spark.sinks.iceberg.table.metadata import MAIN, Snapshot, TableMetadata, checked_metadata
from cdcsync_spark.sinks.iceberg.table.puffin import vector_file
from cdcsync_spark.sinks.iceberg.table.schema import all_columns
from cdcsync_spark.sinks.iceberg.table.state import RecordedState, property_of
from cdcsync_spark.sinks.iceberg.table.tree import NextManifests, SnapshotDifference, next_manifests
from cdcsync_spark.sinks.iceberg.table.view import METADATA, IcebergVersion
from cdcsync_spark.sinks.lake.files.file_changes import AddedFile
from cdcsync_spark.sinks.lake.files.position_deletes import PATH_ID, position_file
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, LostRace
from cdcsync_spark.sinks.lake.table_folder import AT_ONCE

#: files that went and that a process knows at most; what it forgets are orphans
MOST_GONE = 50_000
#: snapshots that go by one commit at least: before it the catalog is asked for branches and tags
EXPIRED_TOGETHER = 20
#: of metadata; each commit that has to do with ours changes one of them
_CHANGING = ("last-updated-ms", "last-sequence-number", "last-column-id")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class _DeleteFile:
    """The deleted rows of a data file as a file; `described` is what its manifest says of its
    form. Readers plan by the bounds of its paths."""

    name: str
    content: bytes
    described: Record


@dataclass(frozen=True)
class _Expiry:
    """The snapshots that go by a commit, and what has to be at the snapshot where it is: branches,
    because a commit to one takes the sequence number, and tags where snapshots go."""

    refs: Mapping[str, int]
    snapshots: Sequence[int] = ()


@dataclass(frozen=True)
class VersionPublication:
    """A commit `commit` on the version `on`. `copy` is the staged copy whose files, with their
    vectors, are the content then, where they lie; None where the commit brings its own."""

    place: TablePlace
    folder: IcebergFolder
    on: IcebergVersion
    commit: FileCommit
    copy: IcebergVersion | None = None

    def publish(self) -> IcebergVersion:
        """The next version. Raises LostRace, and then has removed what it wrote."""
        vectors = self._vectors()
        if self.commit.operation is CommitOperation.MERGE:
            gate("vectors-written")
        files = [*self._files().values(), *self._files_of_copy()]
        change = SnapshotDifference(files, self._gone, {**vectors, **self._vectors_of_copy()})
        tree = next_manifests(self.on.manifests, change, self._of)
        manifests = self._write_manifests(tree)
        snapshot = self._snapshot(change, tree, manifests)
        try:
            metadata = self._commit(snapshot)
        except CommitLost:
            self._remove(tree, vectors)
            raise LostRace from None
        gate("entry-written")
        return self._after(metadata, snapshot, tree, manifests)

    @cached_property
    def _of(self) -> Snapshotting:
        before, metadata = self.on.snapshot, self.on.metadata
        return Snapshotting(
            secrets.randbits(63),
            before.id if before else None,
            metadata.last_sequence_number + 1,
            metadata.next_row_id,
            self.copy.schema if self.copy else next_schema(self.on, self.commit),
        )

    @cached_property
    def _now(self) -> int:
        """The commit's time, after that of the one before whatever the clock says: readers follow a
        table by times, and Iceberg's library refuses one whose snapshots went back."""
        return max(time.time_ns() // 1_000_000, self.on.metadata.last_updated + 1)

    @cached_property
    def _name(self) -> str:
        return uuid.uuid4().hex

    @property
    def _gone(self) -> set[str]:
        """The whole paths of data files that go."""
        changes = self.commit.changes
        return {self.on.files[name].entry.path for name in (*changes.removed, *changes.rewritten)}

    def _whole(self, name: str) -> str:
        """The path of a data file, or a vector, in metadata."""
        return self.on.paths.whole(f"{self.folder.folder}/{name}")

    # -- vectors

    def _vectors(self) -> dict[str, Record]:
        """Writes the vectors: a manifest's record for each, by the path of its data file."""
        changes, deleted = self.commit.changes, dict[str, BitMap]()
        for name, rows in changes.deleted_rows.items():
            deleted[self.on.files[name].entry.path] = rows
        for name, new in changes.rewritten.items():
            if (before := self.on.files[name]).deleted is not None:
                deleted[self._whole(new.path)] = self.folder.deleted(before)
        if not deleted:
            return {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(deleted, pool.map(self._write_vector, deleted, deleted.values()), strict=True))

    def _write_vector(self, data_file: str, rows: BitMap) -> Record:
        deletes = self._deletes(data_file, rows)
        with self.folder.store.new_file(deletes.name) as local:
            local.write_bytes(deletes.content)
        return {
            "content": POSITION_DELETES,
            "file_path": self._whole(deletes.name),
            "partition": {},
            "record_count": len(rows),
            "file_size_in_bytes": len(deletes.content),
            "lower_bounds": pairs({PATH_ID: data_file.encode()}),
            "upper_bounds": pairs({PATH_ID: data_file.encode()}),
            "referenced_data_file": data_file,
            **deletes.described,
        }

    def _deletes(self, data_file: str, rows: BitMap) -> _DeleteFile:
        unique = uuid.uuid4().hex
        if self._of.first_row_id is None:
            return _DeleteFile(f"deletes-{unique}.parquet", position_file(data_file, rows), {"file_format": "PARQUET"})
        vector = vector_file(data_file, rows)
        place = {"content_offset": vector.offset, "content_size_in_bytes": vector.size}
        return _DeleteFile(f"dv-{unique}.puffin", vector.content, {"file_format": "PUFFIN", **place})

    def _vectors_of_copy(self) -> dict[str, Record]:
        files = self.copy.files.values() if self.copy else ()
        return {file.entry.path: file.vector.file for file in files if file.vector is not None}

    # -- manifests

    def _files_of_copy(self) -> list[Record]:
        """Its rows get ids of this commit: to this branch its files are new."""
        return [{**file.entry.file, "first_row_id": None} for file in self.copy.files.values()] if self.copy else []

    def _files(self) -> dict[str, Record]:
        """A manifest's record for each new data file, by its name."""
        new = (*self.commit.adding(), *self.commit.changes.rewritten.values())
        return {file.path: self._record(file) for file in new}

    def _record(self, new: AddedFile) -> Record:
        return {
            "content": 0,
            "file_path": self._whole(new.path),
            "file_format": "PARQUET",
            "partition": {},
            "record_count": new.file.rows,
            "file_size_in_bytes": new.file.size,
            "sort_order_id": 0,
            **column_metrics(new.file.bounds, new.file.rows, self._of.schema),
        }

    def _write_manifests(self, tree: NextManifests) -> tuple[ListedManifest, ...]:
        """Writes the manifests that are new; they are durable when it returns."""
        written = [
            m if isinstance(m, ListedManifest) else m.at(self.on.paths.whole(self._manifest_path(n)))
            for n, m in enumerate(tree.manifests)
        ]
        new = {n: m.content for n, m in enumerate(tree.manifests) if not isinstance(m, ListedManifest)}
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._put, map(self._manifest_path, new), new.values()))
        return tuple(written)

    def _manifest_path(self, number: int) -> str:
        return f"{METADATA}/{self._name}-m{number}.avro"

    @property
    def _list_path(self) -> str:
        return f"{METADATA}/snap-{self._of.snapshot_id}-1-{self._name}.avro"

    def _put(self, relative: str, content: bytes) -> None:
        with self.folder.lake.new_file(relative) as local:
            local.write_bytes(content)

    def _snapshot(self, change: SnapshotDifference, tree: NextManifests, manifests: tuple[ListedManifest, ...]) -> Json:
        """Its manifest list is durable then."""
        of = self._of
        self._put(self._list_path, write_list(of, manifests))
        parent = {} if of.parent_id is None else {"parent-snapshot-id": of.parent_id}
        counts = summary(self.commit, change, tree.deleted, manifests, vectors=of.first_row_id is not None)
        return {
            "snapshot-id": of.snapshot_id,
            **parent,
            "sequence-number": of.sequence_number,
            "timestamp-ms": self._now,
            "manifest-list": self.on.paths.whole(self._list_path),
            **({} if of.first_row_id is None else {"first-row-id": of.first_row_id, "added-rows": change.added_rows}),
            "schema-id": of.schema.id,
            "summary": {**counts, **self._recorded.summary(self.on.ref)},
        }

    @cached_property
    def _recorded(self) -> RecordedState:
        of, columns = self._of, all_columns(self.commit.state.schema, self.place.events).names
        return RecordedState(self.commit.state, of.sequence_number, of.snapshot_id, of.schema.ids_of(columns))

    # -- the compare-and-set

    def _commit(self, snapshot: Json) -> TableMetadata:
        """Raises CommitLost. A table that has our snapshot has the commit, whatever the answer was:
        none, or a conflict that a balancer got when it sent the same request again. A commit may
        still come that had no answer, or whose second request was refused while the first one was
        under way (nothing has changed then), and a table that the catalog has forgotten may come
        back with it, so nothing is removed then. One that was refused as invalid may have lost a
        race that no requirement names, such as another branch's first commit, which takes the
        sequence number."""
        place = self.place
        try:
            metadata = place.catalog.commit(place.name, self._requirements(), self._updates(snapshot)).metadata
        except (CommitLost, OutcomeUnknown, PermanentError) as error:
            loaded = place.catalog.load(place.name)
            if loaded is None:
                raise place.foreign_table_error() from None
            if self._of.snapshot_id not in checked_metadata(loaded.metadata, str(place)).snapshots:
                raise self._undone(error, loaded.metadata) from None
            metadata = loaded.metadata
        return checked_metadata(metadata, str(place))

    def _undone(self, error: Exception, metadata: Json) -> Exception:
        """The error of a commit that the table does not have, from the catalog's."""
        before = self.on.metadata.document
        changed = any(metadata.get(name) != before.get(name) for name in _CHANGING)
        if isinstance(error, OutcomeUnknown) or (isinstance(error, CommitLost) and not changed):
            return self._not_confirmed(error)
        return CommitLost() if changed else error

    def _not_confirmed(self, error: Exception) -> Exception:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"a commit to {self.place} was not confirmed, and the table does not have it: {error}",
            remedy="wait; where the catalog names a fault of its own, such as a missing right, correct that",
            table=str(self.place.table),
        )

    def _requirements(self) -> list[Json]:
        metadata, ref, before = self.on.metadata, self.on.ref, self.on.snapshot
        # metadata that answered a commit of ours may have a later one on the branch already
        refs = {**self._expiry.refs, ref: before.id if before else None}
        required: list[Json] = [{"type": "assert-table-uuid", "uuid": metadata.uuid}]
        adds_schema = self._of.schema.id not in metadata.schemas
        if adds_schema:
            required.append(
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata.last_column_id}
            )
        if ref == MAIN or adds_schema:  # a renamed column takes the number of ours, and no field id
            required.append({"type": "assert-current-schema-id", "current-schema-id": metadata.current_schema.id})
        return required + [
            {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": number} for name, number in refs.items()
        ]

    def _updates(self, snapshot: Json) -> list[Json]:
        ref, number = self.on.ref, self._of.snapshot_id
        return [
            *self._schema_updates(),
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": number},
            {"action": "set-properties", "updates": {property_of(ref): self._recorded.text}},
            *self._copy_updates(),
            *self._expiry_updates(),
        ]

    def _schema_updates(self) -> list[Json]:
        metadata, schema = self.on.metadata, self._of.schema
        updates: list[Json] = []
        if schema.id not in metadata.schemas:
            last = max(metadata.last_column_id, schema.last_id)
            updates.append({"action": "add-schema", "schema": schema.to_dict(), "last-column-id": last})
        if self.on.ref == MAIN and schema.id != metadata.current_schema.id:
            updates.append({"action": "set-current-schema", "schema-id": schema.id})
        return updates

    @property
    def _copy(self) -> str:
        """The branch that goes by this commit, because it is published; empty where none goes. That
        of a history goes later, because a run that writes to it finds there that it is complete."""
        copy = branch_of(self.commit.state.generation)
        replaces = self.commit.operation is CommitOperation.REPLACE and self.copy is None
        return copy if replaces and copy in self.on.metadata.refs else ""

    def _copy_updates(self) -> list[Json]:
        return copy_removal(self._copy) if self._copy else []

    def _expiry_updates(self) -> list[Json]:
        gone = self._expiry.snapshots
        return [{"action": "remove-snapshots", "snapshot-ids": gone}] if gone else []

    @cached_property
    def _expiry(self) -> _Expiry:
        """REST catalogs remove a branch or tag together with its snapshot. So snapshots expire by
        those that the table has now, and only as long as these are as they are. A commit that came
        since the load has taken the sequence number of this one, which has to fail by the branch
        that is not as it was."""
        metadata = self.on.metadata
        # with a copy that goes, its snapshots go with a later commit
        if self._copy or len(expired(metadata, self._now)) < EXPIRED_TOGETHER:
            return _Expiry(metadata.branches)
        loaded = self.place.load()
        if loaded is None or loaded.metadata.last_sequence_number != metadata.last_sequence_number:
            return _Expiry(metadata.branches)
        refs = {name: ref["snapshot-id"] for name, ref in loaded.metadata.refs.items()} | metadata.branches
        return _Expiry(refs, [n for n in expired(loaded.metadata, self._now) if n in metadata.snapshots])

    # -- afterwards

    def _remove(self, tree: NextManifests, vectors: Mapping[str, Record]) -> None:
        """What was written for a commit that lost; a later run's maintenance removes what stays."""
        written = [self._list_path]
        written += [self._manifest_path(n) for n, m in enumerate(tree.manifests) if not isinstance(m, ListedManifest)]
        written += [self.on.paths.relative(record["file_path"]) for record in vectors.values()]
        with suppress(OSError):
            remove(self.folder, written)

    def _after(
        self, metadata: TableMetadata, snapshot: Json, tree: NextManifests, manifests: tuple[ListedManifest, ...]
    ) -> IcebergVersion:
        files = self.folder.reader.files(self.on.metadata, manifests)
        after = replace(self.on, metadata=metadata, schema=self._of.schema, state=self.commit.state)
        gone = dict(islice((self._left(tree, {m.path for m in manifests}) | self.on.gone).items(), MOST_GONE))
        return replace(after, snapshot=Snapshot(snapshot), manifests=manifests, files=files, gone=gone)

    def _left(self, tree: NextManifests, live: set[str]) -> dict[str, Gone]:
        """The files that the newest snapshot has no more, and lists of snapshots that expired."""
        number, now, relative = self._of.sequence_number, self._now, self.on.paths.relative
        shared = {e.path for m in tree.manifests for e in m.entries.values()}
        left = {relative(e.path): Gone(e.sequence_number, number, now) for e in tree.deleted if e.path not in shared}
        for manifest in self.on.manifests:
            if manifest.path not in live:
                left[relative(manifest.path)] = Gone(manifest.row["sequence_number"], number, now)
        for snapshot in map(self.on.metadata.snapshots.__getitem__, self._expiry.snapshots):
            if snapshot.manifest_list.startswith(self.on.paths.whole("")):  # not another program's elsewhere
                left[relative(snapshot.manifest_list)] = Gone(snapshot.number, snapshot.number + 1, now)
        return left


def copy_removal(branch: str) -> list[Json]:
    """The updates that take a staged copy's branch away."""
    return [
        {"action": "remove-snapshot-ref", "ref-name": branch},
        {"action": "remove-properties", "removals": [property_of(branch)]},
    ]


def remove(folder: IcebergFolder, paths: Iterable[str]) -> None:
    """Files by their paths in the table's location; one that is not there is no error."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(folder.lake.delete, paths))
