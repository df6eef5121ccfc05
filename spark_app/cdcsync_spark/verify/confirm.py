"""Decides which candidate keys really differ, for all tables at once. The rule is in the package's
docstring.

LOW -> source rows -> HIGH -> wait for the stream to pass HIGH -> target rows -> keys that differ
again -> the binlog between what both sides are as of -> what each key must have on each side
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.position import LogOffset, Position, meet_all
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.runs.verification import DifferenceKind, ReaderName, VerificationStep
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.checks import replaced_meanwhile
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.verify.digest import Digesters, Digests, DigestSet
from cdcsync_spark.verify.independent_reader import IndependentSearch
from cdcsync_spark.verify.key_history import BinlogSearch, KeyHistory, State, Watched
from cdcsync_spark.verify.keys import matching, scan_keys, select_keys
from cdcsync_spark.verify.sync_status import SyncStatus
from cdcsync_spark.verify.target_position import open_target, position_of

_log = get_logger()
_POLL_SECONDS = 0.3
#: phases in which no driver brings the targets on
_AT_REST = (Phase.WAITING, Phase.PAUSED)

#: key digest -> the digests of its rows, sorted: one, or more where a target holds the key more
#: than once
Rows = dict[bytes, list[bytes]]


@dataclass
class Suspect:
    """One table's candidate keys: `keys` and their `digests`; when it is settled, those that
    differ, and `kinds` says how.

    `position` is what the target was as of then, `until` and `catching_up` as in `Opened`. `error`
    ended the table's verification.
    """

    table: Capture
    target: Target
    generation: int
    digesters: Digesters
    keys: pa.Table
    digests: Digests
    kinds: list[DifferenceKind] = field(default_factory=list)
    position: Position | None = None
    until: Position | None = None
    catching_up: bool = False
    error: CdcError | None = None

    @property
    def name(self) -> str:
        return str(self.table.id)

    @property
    def key_bytes(self) -> list[bytes]:
        return [d.tobytes() for d in self.digests]

    def keep(self, indices: list[int]) -> None:
        self.keys = self.keys.take(pa.array(indices, pa.int64()))
        self.digests = self.digests[indices]


class _Verified(Protocol):
    @property
    def name(self) -> str: ...

    error: CdcError | None


@contextmanager
def kept_in(table: _Verified) -> Iterator[None]:
    """Ends the verification of one table by whatever its rows are: another program may have written
    values that no column of the source has."""
    try:
        yield
    except CdcError as e:
        table.error = table.error or e
    except Exception as e:  # noqa: BLE001 (the others are compared)
        _log.exception("rows that cannot be compared", table=table.name)
        table.error = table.error or fail(
            Reason.INTERNAL_ERROR,
            f"a row that cannot be compared ({type(e).__name__})",
            needed="values that the source's types have",
            remedy="see the log of the verification",
            table=table.name,
        )


@dataclass
class _Reread:
    """A suspect's rows on both sides, reread."""

    suspect: Suspect
    source: Rows
    target: Rows = field(default_factory=dict)

    def kind(self, key: bytes) -> DifferenceKind:
        if key not in self.target:
            return DifferenceKind.MISSING
        if key not in self.source:
            return DifferenceKind.EXTRA
        return DifferenceKind.DIFFERENT if len(self.target[key]) == 1 else DifferenceKind.DUPLICATE


@dataclass(frozen=True)
class DifferenceConfirmation:
    """`report` is called with a table and what is being done; waits take `timeout` seconds;
    `reader` decodes the binlog."""

    source: Source
    facts: ServerFacts
    status: SyncStatus
    replica_id: int
    scratch: Path
    max_seconds: int
    timeout: float
    reader: ReaderName
    report: Callable[[str, VerificationStep], None]

    def confirm(self, suspects: list[Suspect]) -> None:
        """Keeps the keys that really differ. Errors of single tables are in them; raises CdcError
        for the source as a whole."""
        suspects = [s for s in suspects if s.keys.num_rows]
        if not suspects:
            return
        safe = LowMark(self.source, self.facts).take()
        reread = [_Reread(s, self._read_source(s)) for s in suspects]
        with open_session(self.source) as session:
            end = high(session.proved(self.facts.lineage), session.facts)
        self._wait([s for s in suspects if s.error is None], end)
        differing = [r for r in reread if self._read_target(r)]
        if differing:
            self._judge(differing, safe, end)

    # -- reading

    def _read_source(self, suspect: Suspect) -> Rows:
        self.report(suspect.name, VerificationStep.READING_AGAIN)
        rows: Rows = {}
        with kept_in(suspect):
            # the server may give one row for two spellings of its key: the last one read wins
            for batch, keys in matching(
                select_keys(self.source, self.facts.lineage, suspect.table, suspect.keys, self.max_seconds),
                suspect.digesters.keys,
                DigestSet(suspect.digests),
            ):
                digests = suspect.digesters.rows.of(batch)
                rows |= {k.tobytes(): [d.tobytes()] for k, d in zip(keys, digests, strict=True)}
        return rows

    def _read_target(self, reread: _Reread) -> bool:
        """Keeps the keys that differ again; whether there are any."""
        suspect = reread.suspect
        if suspect.error is not None:
            return False
        with kept_in(suspect):
            opened = open_target(suspect.target, suspect.name, self.status.read())
            refuse_replaced(suspect, opened.snapshot)
            reread.target = target_rows(suspect, opened.snapshot)
            suspect.position, suspect.until, suspect.catching_up = opened.position, opened.until, opened.catching_up
            suspect.keep([i for i, k in enumerate(suspect.key_bytes) if reread.target.get(k) != reread.source.get(k)])
        return suspect.error is None and suspect.keys.num_rows > 0

    # -- waiting

    def _wait(self, suspects: list[Suspect], end: LogOffset) -> None:
        """Until the targets have passed `end`; not longer than the timeout, and not at all where
        no sync runs, or where it rests."""
        for suspect in suspects:
            self.report(suspect.name, VerificationStep.WAITING)
        deadline = time.monotonic() + self.timeout
        while self.status.running and time.monotonic() < deadline:
            status = self.status.read()
            suspects = [s for s in suspects if not _has_passed(s, status, end)]
            if not suspects or status.phase in _AT_REST:
                return
            time.sleep(_POLL_SECONDS)

    # -- judging

    def _judge(self, differing: list[_Reread], safe: Position, end: LogOffset) -> None:
        """Keeps what the binlog does not explain."""
        watched = {r.suspect.table.id: _watched(r.suspect) for r in differing}
        start = meet_all([safe, *(w.position for w in watched.values())])
        try:
            self._search().between(start, end, watched)
        except CdcError as e:
            for r in differing:
                r.suspect.error = e
            return
        for r in differing:
            suspect, watched_keys = r.suspect, watched[r.suspect.table.id]
            suspect.error = _unproven(watched_keys.stop)
            suspect.keep(
                [
                    i
                    for i, k in enumerate(suspect.key_bytes)
                    if not explained(r.source.get(k), r.target.get(k), watched_keys.histories.get(k))
                ]
            )
            suspect.kinds = [r.kind(k) for k in suspect.key_bytes]

    def _search(self) -> BinlogSearch | IndependentSearch:
        if self.reader is ReaderName.MYSQL_REPLICATION:
            return IndependentSearch(self.source, self.facts.lineage, self.replica_id, self.timeout)
        folder = self.scratch / "binlog"
        return BinlogSearch(self.source, self.facts.lineage, self.replica_id, folder, self.timeout)


def _unproven(stop: CdcError | None) -> CdcError | None:
    """A change of the definition says nothing against the copy: the stream may have followed it."""
    if stop is None or stop.reason is not Reason.SCHEMA_CHANGE_REFUSED:
        return stop
    needed = "one definition of the table while it is verified"
    return fail(stop.reason, stop.found, needed=needed, remedy="verify again", table=stop.table)


def _has_passed(suspect: Suspect, status: Status, end: LogOffset) -> bool:
    """Also where waiting would not help: the table was stopped, or is being made from scratch."""
    state, entry = suspect.target.last_commit(), status.table(suspect.name)
    stopped = entry is not None and entry.failed
    return (
        stopped or state is None or state.position is None or position_of(state, status, suspect.name).has_reached(end)
    )


def explained(source: list[bytes] | None, target: list[bytes] | None, history: KeyHistory | None) -> bool:
    """Whether rows that differ are right all the same: the target's is what the binlog says for its
    position, and the source's is one that the key had in between. Without a change in the binlog
    both had to be equal."""
    if history is None:
        return False
    there = source[0] if source else None
    here: list[State] = [*target] if target else [None]
    return len(here) == 1 and here[0] in history.at_target and there in history.states


def _watched(suspect: Suspect) -> Watched:
    assert suspect.position is not None
    assert suspect.until is not None
    digests = DigestSet(suspect.digests)
    return Watched(
        suspect.table, suspect.digesters, digests, suspect.position, suspect.until, catching_up=suspect.catching_up
    )


def target_rows(suspect: Suspect, snapshot: TargetSnapshot) -> Rows:
    """The rows of the candidate keys that are there."""
    rows: Rows = {}
    scanned = scan_keys(snapshot, suspect.table, suspect.keys)
    for batch, keys in matching(scanned, suspect.digesters.keys, DigestSet(suspect.digests)):
        for key, digest in zip(keys, suspect.digesters.rows.of(batch), strict=True):
            rows.setdefault(key.tobytes(), []).append(digest.tobytes())
    return rows


def refuse_replaced(suspect: Suspect, snapshot: TargetSnapshot) -> None:
    """Raises InternalError for a target that was resnapshotted meanwhile."""
    state = snapshot.state
    if state.generation != suspect.generation or state.capture != suspect.table or state.position is None:
        raise replaced_meanwhile(suspect.name)
