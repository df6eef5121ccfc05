"""The manifests of a table's next snapshot, from those of the one before and what changes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cdcsync_spark.sinks.iceberg.table.avro import Record
from cdcsync_spark.sinks.iceberg.table.manifests import (
    LARGE_MANIFEST,
    Entry,
    ListedManifest,
    ManifestContent,
    Snapshotting,
    WrittenManifest,
    write_manifest,
)


@dataclass(frozen=True)
class SnapshotDifference:
    """What a snapshot changes: records of new data files, names of those that go; the vectors that
    data files have from now on, by their names. The vectors of files that go, go with them."""

    added: Sequence[Record] = ()
    removed: Collection[str] = ()
    vectors: Mapping[str, Record] = field(default_factory=dict)

    @property
    def added_rows(self) -> int:
        return sum(file["record_count"] for file in self.added)


@dataclass(frozen=True)
class NextManifests:
    """In the order of the snapshot's list, with the entries that are deleted by it."""

    manifests: tuple[ListedManifest | WrittenManifest, ...]
    deleted: tuple[Entry, ...]


def next_manifests(before: Sequence[ListedManifest], change: SnapshotDifference, of: Snapshotting) -> NextManifests:
    data = _Content(before, ManifestContent.DATA, change.added, set(change.removed), of)
    gone = {*change.removed, *change.vectors}
    vectors = _Content(before, ManifestContent.DELETES, list(change.vectors.values()), gone, of)
    manifests = (*data.manifests(), *vectors.manifests())
    return NextManifests(manifests, (*data.deleted, *vectors.deleted))


class _Content:
    """The manifests of one content."""

    def __init__(
        self,
        before: Sequence[ListedManifest],
        content: ManifestContent,
        added: Sequence[Record],
        gone: set[str],
        of: Snapshotting,
    ) -> None:
        self._before = [m for m in before if m.content is content and m.entries]
        self._content, self._added, self._gone, self._of = content, added, gone, of
        self._first_row_id = of.first_row_id
        self.deleted: list[Entry] = []

    def manifests(self) -> Iterator[ListedManifest | WrittenManifest]:
        newest = self._before[-1] if self._before else None
        left = self._added
        for manifest in self._before:
            taken = left if manifest is newest and self._has_room(manifest) else ()
            deleted = [e for name, e in manifest.entries.items() if name in self._gone]
            if taken or deleted:
                yield self._write(taken, [e for n, e in manifest.entries.items() if n not in self._gone], deleted)
                left = () if taken else left
            else:
                yield manifest
        for start in range(0, len(left), LARGE_MANIFEST):
            yield self._write(left[start : start + LARGE_MANIFEST], [], [])

    def _has_room(self, manifest: ListedManifest) -> bool:
        return len(manifest.entries) + len(self._added) <= LARGE_MANIFEST

    def _write(self, added: Sequence[Record], existing: list[Entry], deleted: list[Entry]) -> WrittenManifest:
        written = write_manifest(self._of, self._content, added, existing, deleted, self._first_row_id)
        if self._first_row_id is not None:
            self._first_row_id += written.row["added_rows_count"]
        self.deleted += deleted
        return written
