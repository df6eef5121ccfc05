"""Our state (rule R4) in an Iceberg table: the whole of it in a property of the table, and in each
snapshot's summary what it must be. Pure.

Why both: a summary is forgotten when other programs rewrite manifests and expire snapshots; a
property stays when `main` is taken back, and would be ahead of the rows. So the property counts
only where the newest snapshot of ours names it by number, epoch and hash. Where that snapshot has
expired, its child names it, by the id that the property has. Where that child has expired, too, a
rewrite of our rows and one of older rows are alike: the state counts, with a change of rows noted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.state import SinkWrite, TableState
from cdcsync_spark.sinks.history.rows import HISTORY
from cdcsync_spark.sinks.iceberg.table.metadata import MAIN, Snapshot, TableMetadata

_PROPERTY = "cdcsync.state"
_NUMBER, _EPOCH, _HASH = "cdcsync.number", "cdcsync.epoch", "cdcsync.hash"
#: the branch of a snapshot of a staged copy
_BRANCH = "cdcsync.branch"
#: operations that change no row
_HARMLESS = frozenset({"replace"})
#: of what a commit says of itself
_LONGEST = 100
#: what a change of rows is noted as that no snapshot shows
_UNKNOWN = "not known: snapshots before it have expired"


def property_of(ref: str) -> str:
    """The property with the state of a branch."""
    return _PROPERTY if ref == MAIN else f"{_PROPERTY}.{ref}"


@dataclass(frozen=True)
class RecordedState:
    """A state as a commit records it; `sequence_number` and `snapshot_id` are the commit's, 0 and
    None for a table without snapshots. Earlier releases did not record the id. `field_ids` are
    those of our columns in their order: a name does not say that a column still has its values.
    None before the first commit, because the catalog gives a new table its ids."""

    state: TableState
    sequence_number: int
    snapshot_id: int | None
    field_ids: tuple[int, ...] | None = None

    @property
    def text(self) -> str:
        body = {
            "sequence": self.sequence_number,
            "snapshot": self.snapshot_id,
            "fields": self.field_ids,
            "state": self.state.to_dict(),
        }
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> RecordedState:
        data = json.loads(text)
        ids = _field_ids(data)
        return cls(TableState.from_dict(data["state"]), int(data["sequence"]), data.get("snapshot"), ids)

    def summary(self, ref: str) -> dict[str, str]:
        """What the commit's snapshot, of a branch, says of it."""
        state, branch = self.state, {} if ref == MAIN else {_BRANCH: ref}
        return {_NUMBER: str(state.commit_number), _EPOCH: str(state.epoch), _HASH: _hash(self.text), **branch}


def event_names(metadata: TableMetadata) -> set[str]:
    """The metadata columns of a history table; none for a replica."""
    marked = metadata.properties.get(HISTORY)
    return set(json.loads(marked)) if marked else set()


def branch_in(snapshot: Snapshot) -> str:
    """The branch for which a snapshot was made, as far as we know."""
    return snapshot.summary.get(_BRANCH, MAIN)


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a commit of ours made it."""
    return _NUMBER in snapshot.summary


def our_branches(metadata: TableMetadata) -> set[str]:
    """`main` and those of staged copies."""
    return {name for name in metadata.branches if name == MAIN or property_of(name) in metadata.properties}


def found_state(metadata: TableMetadata, ref: str) -> TableState | None:
    """The state of the rows that a branch has, with what others changed of them since; None for
    another program's table. Raises SinkConflict where the property is not of these rows."""
    text = metadata.properties.get(property_of(ref))
    if text is None:
        return None
    recorded = RecordedState.parse(text)
    head, written = metadata.head(ref), None
    if head is None:
        return _unless(recorded.sequence_number != 0, recorded, ref, "it has no snapshot")
    last = head
    for snapshot in metadata.ancestors(head):
        if is_ours(snapshot):
            differs = not _names(snapshot, recorded, text, ref)
            found = f"its newest snapshot of ours, {snapshot.id}, has another state"
            state = _unless(differs, recorded, ref, found)
            return replace(state, written=written or state.written)
        if snapshot.operation not in _HARMLESS:
            written = written or _write_of(snapshot)
        last = snapshot
    return _of_expired(recorded, ref, last, written)


def _of_expired(recorded: RecordedState, ref: str, oldest: Snapshot, written: SinkWrite | None) -> TableState:
    """The state where our snapshot has expired; `oldest` is the first after it that has not, and
    `written` what others changed since then."""
    if oldest.parent is not None and oldest.parent == recorded.snapshot_id:
        return replace(recorded.state, written=written or recorded.state.written)
    is_first = oldest.parent is None and recorded.sequence_number == 0
    wrong = not is_first and (written is not None or not _may_follow(oldest, recorded))
    state = _unless(wrong, recorded, ref, "our snapshot has expired, and rows were changed, or taken back, after it")
    return replace(state, written=written or SinkWrite(oldest.number, operation=_UNKNOWN, at=_seconds(oldest)))


def _may_follow(snapshot: Snapshot, recorded: RecordedState) -> bool:
    """Whether one that does not name ours as its parent may come after it. Sequence numbers have no
    gaps, so the next one names it; unless PyIceberg expired ours, which takes its id from there, or
    we do not have the id."""
    between = snapshot.number - recorded.sequence_number - 1
    return between > 0 or (between == 0 and None in (snapshot.parent, recorded.snapshot_id))


def recorded_field_ids(metadata: TableMetadata, ref: str) -> tuple[int, ...] | None:
    """The field ids of our columns as our newest commit to a branch left them."""
    return _field_ids(json.loads(metadata.properties[property_of(ref)]))  # each commit asks: the state is left alone


def _field_ids(recorded: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids = recorded.get("fields")
    return None if ids is None else tuple(map(int, ids))


def _names(snapshot: Snapshot, recorded: RecordedState, text: str, ref: str) -> bool:
    needed = recorded.summary(ref) | {_HASH: _hash(text)}
    return branch_in(snapshot) == ref and all(snapshot.summary.get(key) == value for key, value in needed.items())


def _unless(wrong: bool, recorded: RecordedState, ref: str, found: str) -> TableState:
    if wrong:
        raise _other_rows(recorded, ref, found)
    return recorded.state


def _write_of(snapshot: Snapshot) -> SinkWrite:
    """Who changed rows by a snapshot, as it says."""
    summary = snapshot.summary
    program = f"{summary.get('engine-name', '')} {summary.get('engine-version', '')}".strip()
    return SinkWrite(snapshot.number, program[:_LONGEST], snapshot.operation[:_LONGEST], _seconds(snapshot))


def _seconds(snapshot: Snapshot) -> float:
    return snapshot.milliseconds / 1000


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _other_rows(recorded: RecordedState, ref: str, found: str) -> CdcError:
    state, number = recorded.state, recorded.sequence_number
    return fail(
        Reason.SINK_CONFLICT,
        f"the branch {ref} is not as our commit {state.commit_number} (sequence number {number}) left it: {found}",
        needed="a branch that was not taken back to an older snapshot",
        remedy=f"set it to the snapshot of sequence number {number} again, or drop the table and its files, {RUN_AGAIN}",
        table=state.identity.table,
    )
