"""Manifests and manifest lists: which data files and vectors a snapshot has.

An entry is encoded once, as an existing one, and kept: a commit writes again the manifests whose
files it takes away and the newest one, to which it adds, and names all others as they are. What a
snapshot takes away it names once, as deleted: other programs' clean-up goes by that. A manifest
without live entries is left out by the next snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cdcsync_spark.sinks.iceberg.table.avro import Encoder, Record, read_container, too_heavy, weight
from cdcsync_spark.sinks.iceberg.table.avro_schemas import MANIFEST_ENTRY, MANIFEST_FILE
from cdcsync_spark.sinks.iceberg.table.schema import TableSchema
from cdcsync_spark.sinks.lake.files.position_deletes import PATH_ID

ENTRIES, FILES = Encoder(MANIFEST_ENTRY), Encoder(MANIFEST_FILE)
#: no count and no id of a row comes near it
_MOST = 2**62
#: live entries from which a manifest gets no more
LARGE_MANIFEST = 500
#: the content of a file of deletes, vectors among them
POSITION_DELETES = 1


class ManifestContent(IntEnum):
    """What a manifest has."""

    DATA = 0
    DELETES = 1


class _EntryStatus(IntEnum):
    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True)
class Entry:
    """A live file, in little memory: `existing` is how every later manifest has it, and the rest of
    what it says is decoded where it is needed. Snapshot and sequence numbers are those that added
    it; `referenced` is the data file of a vector, whose frame has the place `frame`, offset and
    size; `first_row_id` the id of a data file's first row, None before the table gave it one."""

    existing: bytes
    path: str
    referenced: str
    content: int
    format: str
    rows: int
    size: int
    frame: tuple[int, int] | None
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    first_row_id: int | None

    @classmethod
    def of(cls, file: Record, snapshot_id: int, sequence_number: int, file_sequence_number: int) -> Entry:
        """Raises TypeError for a file of other types."""
        offset, size = file.get("content_offset"), file.get("content_size_in_bytes")
        required = (file["content"], file["record_count"], file["file_size_in_bytes"])
        numbers = (*required, offset or 0, size or 0, file.get("first_row_id") or 0)
        if not isinstance(file["file_path"], str) or not all(isinstance(n, int) and 0 <= n < _MOST for n in numbers):
            raise TypeError("a file of other types")
        return cls(
            _encoded(file, _EntryStatus.EXISTING, snapshot_id, sequence_number, file_sequence_number),
            file["file_path"],
            file.get("referenced_data_file") or _only_data_file(file),
            file["content"],
            str(file["file_format"]).upper(),
            file["record_count"],
            file["file_size_in_bytes"],
            None if offset is None or size is None else (offset, size),
            snapshot_id,
            sequence_number,
            file_sequence_number,
            file.get("first_row_id"),
        )

    @property
    def name(self) -> str:
        """A data file's path; a vector's is that of the file whose rows it deletes."""
        return self.referenced or self.path

    @property
    def file(self) -> Record:
        """Its whole record."""
        file: Record = ENTRIES.decoded(self.existing)["data_file"]
        return file

    def deleted(self, snapshot_id: int) -> bytes:
        return _encoded(self.file, _EntryStatus.DELETED, snapshot_id, self.sequence_number, self.file_sequence_number)


def _only_data_file(file: Record) -> str:
    """The one whose rows a file of position deletes has, by the bounds of its paths; empty for
    several, and for a data file."""
    if file["content"] != POSITION_DELETES:
        return ""
    low, high = (
        [pair["value"] for pair in file.get(name) or () if pair["key"] == PATH_ID]
        for name in ("lower_bounds", "upper_bounds")
    )
    return low[0].decode() if low and low == high else ""


def _encoded(file: Record, status: _EntryStatus, snapshot_id: int, number: int, file_number: int) -> bytes:
    return ENTRIES.encoded(
        {
            "status": status,
            "snapshot_id": snapshot_id,
            "sequence_number": number,
            "file_sequence_number": file_number,
            "data_file": file,
        }
    )


@dataclass(frozen=True)
class ListedManifest:
    """A manifest as the list of a snapshot names it, and its live entries by their names."""

    row: Record
    entries: Mapping[str, Entry]

    @property
    def path(self) -> str:
        return str(self.row["manifest_path"])

    @property
    def content(self) -> ManifestContent:
        return ManifestContent(self.row["content"])


def read_manifest(row: Record, content: bytes, most_bytes: int) -> tuple[ListedManifest, int]:
    """And the bytes that it takes unpacked. Raises one of `avro.BROKEN`."""
    container = read_container(content, most_bytes)
    first, entries = row.get("first_row_id"), dict[str, Entry]()
    for record in container.records:
        file = record["data_file"]
        if record["status"] == _EntryStatus.DELETED:
            continue
        if row["content"] == ManifestContent.DATA and file.get("first_row_id") is None and first is not None:
            file = {**file, "first_row_id": first}
            first += file["record_count"]
        entry = _inherited(record, file, row)
        if entry.name in entries:
            raise ValueError(f"the file {entry.name[:200]!r} twice")
        entries[entry.name] = entry
    return ListedManifest(row, entries), container.size


def _inherited(record: Record, file: Record, row: Record) -> Entry:
    """Numbers that an entry leaves out are its manifest's."""
    snapshot_id, number = record.get("snapshot_id"), record.get("sequence_number")
    file_number = record.get("file_sequence_number")
    inherited = row["sequence_number"] or 0
    return Entry.of(
        file,
        row["added_snapshot_id"] if snapshot_id is None else snapshot_id,
        inherited if number is None else number,
        inherited if file_number is None else file_number,
    )


def read_list(content: bytes, most_bytes: int) -> list[dict[str, Any]]:
    """The manifests of a snapshot. Raises one of `avro.BROKEN`."""
    rows, left = [], most_bytes
    for row in read_container(content, most_bytes).records:
        ManifestContent(row["content"])
        if not isinstance(row["manifest_path"], str) or not isinstance(row["manifest_length"], int):
            raise TypeError("a manifest of other types")
        FILES.encoded(row)  # it is written again as it is
        left -= weight(row)
        if left < 0:
            raise too_heavy(most_bytes)
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Snapshotting:
    """The snapshot for which manifests are written, of a table with this schema. In format version
    2 rows have no ids: `first_row_id` is None."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    first_row_id: int | None
    schema: TableSchema

    @property
    def format_version(self) -> str:
        return "2" if self.first_row_id is None else "3"


@dataclass(frozen=True)
class WrittenManifest:
    """A manifest's content, and what its snapshot has of it. `row` lacks path and length until the
    file has a place."""

    content: bytes
    row: Record
    entries: Mapping[str, Entry]

    def at(self, path: str) -> ListedManifest:
        return ListedManifest({**self.row, "manifest_path": path, "manifest_length": len(self.content)}, self.entries)


def write_manifest(
    of: Snapshotting,
    content: ManifestContent,
    added: Sequence[Record],
    existing: Sequence[Entry],
    deleted: Sequence[Entry],
    first_row_id: int | None,
) -> WrittenManifest:
    """`added` are the records of new files, whose rows get ids from `first_row_id` on."""
    first_row_id = first_row_id if content is ManifestContent.DATA else None
    number, files = of.sequence_number, [*_with_row_ids(added, first_row_id)]
    new = [Entry.of(file, of.snapshot_id, number, number) for file in files]
    records = [
        *(_added(file, of.snapshot_id) for file in added),
        *(entry.existing for entry in existing),
        *(entry.deleted(of.snapshot_id) for entry in deleted),
    ]
    live = {entry.name: entry for entry in (*existing, *new)}
    row = {
        "partition_spec_id": 0,
        "content": content,
        "sequence_number": number,
        "min_sequence_number": min((e.sequence_number for e in live.values()), default=number),
        "added_snapshot_id": of.snapshot_id,
        "added_files_count": len(added),
        "existing_files_count": len(existing),
        "deleted_files_count": len(deleted),
        "added_rows_count": sum(entry.rows for entry in new),
        "existing_rows_count": sum(entry.rows for entry in existing),
        "deleted_rows_count": sum(entry.rows for entry in deleted),
        "partitions": [],
        "key_metadata": None,
        "first_row_id": first_row_id,
    }
    return WrittenManifest(ENTRIES.container(_header(of, content), records), row, live)


def _with_row_ids(added: Sequence[Record], first: int | None) -> Iterator[Record]:
    for file in added:
        yield file if first is None else {**file, "first_row_id": first}
        first = None if first is None else first + file["record_count"]


def _added(file: Record, snapshot_id: int) -> bytes:
    """Its numbers are its manifest's."""
    return ENTRIES.encoded({"status": _EntryStatus.ADDED, "snapshot_id": snapshot_id, "data_file": file})


def _header(of: Snapshotting, content: ManifestContent) -> dict[str, str]:
    return {
        "schema": json.dumps(of.schema.to_dict(), ensure_ascii=False),
        "schema-id": str(of.schema.id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": of.format_version,
        "content": "data" if content is ManifestContent.DATA else "deletes",
    }


def write_list(of: Snapshotting, manifests: Sequence[ListedManifest]) -> bytes:
    header = {
        "snapshot-id": str(of.snapshot_id),
        "parent-snapshot-id": "null" if of.parent_id is None else str(of.parent_id),
        "sequence-number": str(of.sequence_number),
        **({} if of.first_row_id is None else {"first-row-id": str(of.first_row_id)}),
        "format-version": of.format_version,
    }
    return FILES.container(header, [FILES.encoded(manifest.row) for manifest in manifests])
