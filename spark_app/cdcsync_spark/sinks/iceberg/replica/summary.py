"""What a snapshot's summary says of it, as engines read and estimate by it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdcsync_spark.sinks.iceberg.table.manifests import Entry, ListedManifest, ManifestContent
from cdcsync_spark.sinks.iceberg.table.tree import SnapshotDifference
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit


def summary(
    commit: FileCommit,
    change: SnapshotDifference,
    deleted: Iterable[Entry],
    manifests: Sequence[ListedManifest],
    *,
    vectors: bool = True,
) -> dict[str, str]:
    """`vectors`: rows are deleted by them, and not by files of positions."""
    kind = "dvs" if vectors else "position-delete-files"
    files = [e for e in deleted if e.content == ManifestContent.DATA]
    gone = [e for e in deleted if e.content != ManifestContent.DATA]
    changed = {
        "added-data-files": len(change.added),
        "deleted-data-files": len(files),
        "added-records": change.added_rows,
        "deleted-records": sum(e.rows for e in files),
        "added-delete-files": len(change.vectors),
        f"added-{kind}": len(change.vectors),
        "removed-delete-files": len(gone),
        f"removed-{kind}": len(gone),
        "added-position-deletes": sum(v["record_count"] for v in change.vectors.values()),
        "removed-position-deletes": sum(e.rows for e in gone),
    }
    counts = {name: count for name, count in changed.items() if count} | _totals(manifests)
    return {"operation": _operation(commit, change, files), **{name: str(count) for name, count in counts.items()}}


def _operation(commit: FileCommit, change: SnapshotDifference, removed: Sequence[Entry]) -> str:
    """Readers of changes follow appends, and pass by what changes no row. A new content is none,
    even the first, which may have vectors: such a reader would not go by them. Nor is a compaction
    that deletes rows of a file that stays: Iceberg's library looks for deletes that a rewrite of
    that file would undo, and does not expect any in a `replace`."""
    if not commit.data_change and not commit.changes.deleted_rows:
        return "replace"
    if commit.operation is CommitOperation.EMPTY:
        return "delete"
    return "overwrite" if removed or change.vectors or commit.operation is CommitOperation.REPLACE else "append"


def _totals(manifests: Sequence[ListedManifest]) -> dict[str, int]:
    data = [e for m in manifests if m.content is ManifestContent.DATA for e in m.entries.values()]
    vectors = [e for m in manifests if m.content is ManifestContent.DELETES for e in m.entries.values()]
    return {
        "total-records": sum(e.rows for e in data),
        "total-files-size": sum(e.size for e in (*data, *vectors)),
        "total-data-files": len(data),
        "total-delete-files": len(vectors),
        "total-position-deletes": sum(e.rows for e in vectors),
        "total-equality-deletes": 0,
    }
