"""Which snapshots a commit expires, and which files no snapshot has any more. Pure.

The whole metadata are written again with each commit, so tens of snapshots are kept, not thousands:
the newest ones, then one a minute as long as the table's properties say. Readers that follow a
history table go from each snapshot to the next, so there none is left out that long. Whatever the
properties say, their number has a bound: a catalog's answer with all of them must be read. What
other programs' branches and tags hold stays, and what they have staged to publish it later stays as
long as the properties say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from cdcsync_spark.sinks.iceberg.table.metadata import MAIN, Snapshot, TableMetadata
from cdcsync_spark.sinks.iceberg.table.state import branch_in, event_names, is_ours, our_branches

#: how long readers may still use a version, in milliseconds, and what a table of ours is made with
MOST_AGE = "history.expire.max-snapshot-age-ms"
DEFAULT_AGE = 2 * 3600 * 1000
#: the same for a history table, which keeps each snapshot that long
HISTORY_AGE = 3600 * 1000
#: snapshots of a branch of ours that are kept whatever their age
NEWEST = 20
#: snapshots of `main` that are kept at most: some 10 MB of metadata
MOST = 10_000
_MINUTE = 60_000
#: what the summary of a snapshot has that Spark staged
_STAGED = "wap.id"


def most_age(properties: Mapping[str, str]) -> int:
    """A value that is no number counts as the default."""
    text = properties.get(MOST_AGE, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else DEFAULT_AGE


def expired(metadata: TableMetadata, now: int) -> list[int]:
    """The ids of snapshots that go by a commit at `now` (milliseconds). The newest one of each
    branch always stays."""
    oldest = now - most_age(metadata.properties)
    staying = set(islice(_recent(metadata, oldest), MOST))
    staying.update(s.id for s in metadata.snapshots.values() if _is_staged(s) and s.milliseconds >= oldest)
    for name, ref in metadata.refs.items():
        head = metadata.snapshots.get(ref["snapshot-id"])
        is_foreign = ref.get("type") == "branch" and name not in our_branches(metadata)
        staying.update(s.id for s in metadata.ancestors(head) if is_foreign or s is head)
    return [number for number in metadata.snapshots if number not in staying]


def _is_staged(snapshot: Snapshot) -> bool:
    """Whether another program may still publish it (Spark's write, audit, publish)."""
    return _STAGED in snapshot.summary


def _recent(metadata: TableMetadata, oldest: int) -> Iterator[int]:
    """The ids of the snapshots of `main` that stay, the newest first. Where a snapshot was left
    out, those before it are no ancestors any more."""
    minute, followed = None, bool(event_names(metadata))
    plain = (s for s in metadata.snapshots.values() if branch_in(s) == MAIN and not _is_staged(s))
    for place, snapshot in enumerate(sorted(plain, key=lambda s: s.number, reverse=True)):
        chosen = followed or snapshot.milliseconds // _MINUTE != minute
        if place < NEWEST or (snapshot.milliseconds >= oldest and chosen):
            minute = snapshot.milliseconds // _MINUTE
            yield snapshot.id


@dataclass(frozen=True, slots=True)
class Gone:
    """A file that left the table at `at` (milliseconds): snapshots have it whose sequence numbers
    are `first` or more, and less than `end`."""

    first: int
    end: int
    at: int


def dead(gone: Mapping[str, Gone], metadata: TableMetadata, now: int) -> list[str]:
    """The files that no snapshot has and no reader needs: a snapshot that has expired may still be
    read, as long as the table's properties say. Other programs' branches, and tags of them, have
    files that left `main` since, so with one of them there are none."""
    if others_have_branches(metadata):
        return []
    numbers = sorted(snapshot.number for snapshot in metadata.snapshots.values())
    oldest = now - most_age(metadata.properties)
    return [path for path, file in gone.items() if file.at < oldest and not _has(numbers, file)]


def _has(numbers: list[int], file: Gone) -> bool:
    place = bisect_left(numbers, file.first)
    return place < len(numbers) and numbers[place] < file.end


def others_have_branches(metadata: TableMetadata) -> bool:
    """Whether a branch of theirs is there, or a tag that may be all that is left of one."""
    on_main = {snapshot.id for snapshot in metadata.ancestors(metadata.head(MAIN))}
    ours = on_main | {s.id for s in metadata.snapshots.values() if is_ours(s) and branch_in(s) == MAIN}
    tagged = {ref["snapshot-id"] for ref in metadata.refs.values() if ref.get("type") == "tag"}
    return bool(metadata.branches.keys() - our_branches(metadata)) or not tagged <= ours
