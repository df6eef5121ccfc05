"""Decides which candidate keys really differ, in rounds, for all tables at once. The rule is in the package's docstring.

LOW -> source rows -> HIGH -> wait until the targets have passed HIGH -> target rows -> those that differ ->
what does the log change between what both sides are as of? -> untouched: proven; touched: next round
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.position import LogOffset, Position, meet_all
from cdcsync_core.table import Table, TableId
from cdcsync_core.verification import Kind, Step
from cdcsync_mysql.connection import Source, connect
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.watermark import high, low
from cdcsync_spark.sinks.base import Target, TargetSnapshot
from cdcsync_spark.verify.digest import Digests
from cdcsync_spark.verify.keys import DigestSet, matching, scan_keys, select_keys
from cdcsync_spark.verify.logged import LogSearch, Watched
from cdcsync_spark.verify.progressed import Opened, SyncStatus, open_target, position_of
from cdcsync_spark.verify.reading import Digesters

ROUNDS = 6
_POLL_SECONDS = 0.3


@dataclass
class Suspect:
    """One table's candidate keys on their way: `keys` and `digests` are undecided, `proven` keys differ, `kinds` says how, in their order.

    `why` says why the undecided ones stay so; `error` ended the table's verification.
    """

    table: Table
    target: Target
    nonce: int
    digesters: Digesters
    keys: pa.Table
    digests: Digests
    proven: list[pa.Table] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    position: Position | None = None
    why: str = ""
    error: CdcError | None = None

    @property
    def name(self) -> str:
        return str(self.table.id)

    @property
    def open(self) -> bool:
        return self.keys.num_rows > 0 and not self.why and self.error is None

    def keep(self, indices: list[int]) -> None:
        self.keys = self.keys.take(pa.array(indices, pa.int64()))
        self.digests = self.digests[indices]


@dataclass
class _Seen:
    """A suspect in one round: row digests by key digest on both sides, the target as it was opened then."""

    suspect: Suspect
    source: dict[bytes, list[bytes]]
    target: dict[bytes, list[bytes]] = field(default_factory=dict)
    opened: Opened | None = None
    passed: bool = False

    def kind(self, key: bytes) -> Kind:
        if key not in self.target:
            return Kind.MISSING
        if key not in self.source:
            return Kind.EXTRA
        return Kind.DIFFERENT if len(self.target[key]) == 1 else Kind.DUPLICATE


@dataclass(frozen=True)
class Settler:
    """`tell` is called with a table's name and what is being done; `patience` in seconds."""

    source: Source
    facts: ServerFacts
    status: SyncStatus
    replica_id: int
    scratch: Path
    max_seconds: int
    patience: float
    tell: Callable[[str, Step], None]

    def settle(self, suspects: list[Suspect]) -> None:
        """Decides as many keys as can be. Errors of single tables are in them; raises CdcError for the source as a whole."""
        for number in range(ROUNDS):
            undecided = [s for s in suspects if s.open]
            if not undecided:
                return
            self._round(undecided, number)
        for suspect in suspects:
            if suspect.open:
                suspect.why = f"they were changed again and again while they were compared, {ROUNDS} times"

    def _round(self, suspects: list[Suspect], number: int) -> None:
        safe = low(self.source, self.facts)
        seen = [self._read_source(s) for s in suspects]
        with connect(self.source) as connection:
            end = high(connection, self.facts)
        seen = [s for s in seen if s.suspect.error is None]
        self._wait(seen, end)
        differing = [s for s in seen if self._read_target(s)]
        if differing:
            self._judge(differing, safe, end, self.scratch / f"log-{number}")

    # -- reading

    def _read_source(self, suspect: Suspect) -> _Seen:
        self.tell(suspect.name, Step.READING_AGAIN)
        rows: dict[bytes, list[bytes]] = {}
        try:
            # the server may give one row for two spellings of its key: the last one read wins
            for batch, keys in matching(
                select_keys(self.source, suspect.table, suspect.keys, self.max_seconds),
                suspect.digesters.keys,
                DigestSet(suspect.digests),
            ):
                digests = suspect.digesters.rows.of(batch)
                rows |= {k.tobytes(): [d.tobytes()] for k, d in zip(keys, digests, strict=True)}
        except CdcError as e:
            suspect.error = e
        return _Seen(suspect, rows)

    def _read_target(self, seen: _Seen) -> bool:
        """Keeps the keys that differ; whether there are any."""
        suspect = seen.suspect
        try:
            seen.opened = open_target(suspect.target, suspect.name, self.status.read())
            refuse_replaced(suspect, seen.opened.snapshot)
            seen.target = target_rows(suspect, seen.opened.snapshot)
        except CdcError as e:
            suspect.error = e
            return False
        suspect.position = seen.opened.position
        keys = [d.tobytes() for d in suspect.digests]
        suspect.keep([i for i, key in enumerate(keys) if seen.target.get(key) != seen.source.get(key)])
        return suspect.keys.num_rows > 0

    # -- waiting

    def _wait(self, seen: Iterable[_Seen], end: LogOffset) -> None:
        """Until the targets have passed `end`, or nobody is there who would bring them there."""
        waiting = list(seen)
        for s in waiting:
            self.tell(s.suspect.name, Step.WAITING)
        deadline = time.monotonic() + self.patience
        while True:
            running = self.status.running
            status = self.status.read()
            for s in waiting:
                state = s.suspect.target.last_commit()
                entry = status.table(s.suspect.name)
                s.passed = state is not None and position_of(state, entry).reached(end)
            waiting = [s for s in waiting if not s.passed]
            if not waiting or not running or time.monotonic() > deadline:
                return
            time.sleep(_POLL_SECONDS)

    # -- judging

    def _judge(self, differing: list[_Seen], safe: Position, end: LogOffset, folder: Path) -> None:
        """Moves what the log does not touch to `proven`; what is left waits for the next round, if that can help."""
        positions = [s.opened.position for s in differing if s.opened]
        watched: dict[TableId, Watched] = {
            s.suspect.table.id: Watched(s.suspect.table, s.suspect.digesters.keys, DigestSet(s.suspect.digests))
            for s in differing
        }
        search = LogSearch(self.source, self.facts.log, self.replica_id, folder, self.patience)
        try:
            touched = search.between(meet_all([safe, *positions]), end, positions, watched)
        except CdcError as e:
            for s in differing:
                s.suspect.error = e
            return
        for s in differing:
            suspect, log = s.suspect, touched[s.suspect.table.id]
            if log.stop is not None:
                suspect.error = log.stop
                continue
            undecided = [i for i, d in enumerate(suspect.digests) if d.tobytes() in log.keys]
            decided = sorted(set(range(suspect.keys.num_rows)) - set(undecided))
            suspect.proven.append(suspect.keys.take(pa.array(decided, pa.int64())))
            suspect.kinds += [s.kind(suspect.digests[i].tobytes()) for i in decided]
            suspect.keep(undecided)
            if undecided and not s.passed:
                suspect.why = self._why_not_passed()

    def _why_not_passed(self) -> str:
        if not self.status.running:
            return "the source has newer changes of them, and the sync is not running: run it and verify again"
        return f"the source has newer changes of them that the stream did not bring within {self.patience:.0f} s"


def target_rows(suspect: Suspect, snapshot: TargetSnapshot) -> dict[bytes, list[bytes]]:
    """Key digest -> the digests of its rows, for the undecided keys that are there."""
    rows: dict[bytes, list[bytes]] = {}
    scanned = scan_keys(snapshot, suspect.table, suspect.keys)
    for batch, keys in matching(scanned, suspect.digesters.keys, DigestSet(suspect.digests)):
        for key, digest in zip(keys, suspect.digesters.rows.of(batch), strict=True):
            rows.setdefault(key.tobytes(), []).append(digest.tobytes())
    return rows


def refuse_replaced(suspect: Suspect, snapshot: TargetSnapshot) -> None:
    """A target that was read again meanwhile is another table."""
    state = snapshot.state
    if state.nonce != suspect.nonce or state.table != suspect.table or state.position is None:
        raise fail(
            Reason.INTERNAL_ERROR,
            "the table was read again while it was compared",
            remedy="verify again",
            table=suspect.name,
        )
