"""The status of a sync: what is shown to people and programs, and all that a controller keeps.

Why it exists: one object says where a sync stands, in a file locally and in the resource on a
cluster, under the same names. Why it is right: it is a view; the truth is in the targets' commits
(rule R4), so a lost status is found again. It stays small whatever the size of the tables: finished
splits are merged intervals, everything else is a count (rule R7). Every function here is a function
of values: time comes in as unix seconds and stands in the status as RFC 3339 text.

`Ready`, `Reconciling` and `Stalled` follow kstatus
(https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus): Stalled wins over
Reconciling, and both are False only when there is nothing left to wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field, RootModel, computed_field, model_serializer, model_validator

from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.position import LogOffset, binlog_of
from cdcsync_core.quoting import visible
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status_part import (
    Restarts,
    StatusPart,
    StatusPosition,
    StatusServer,
    Text,
    Word,
)
from cdcsync_core.runs.table_status import CONSISTENT, TableCounts, TableStatus, count_tables
from cdcsync_core.runs.verification_status import VerificationStatus
from cdcsync_core.timestamps import unix_time, utc

#: long enough for several failures with their remedies, short enough for an event and a terminal
MAX_MESSAGE = 4096
#: seconds for which a report is fresh, however short the stream's interval
_FRESH = 10.0
_KINDS = frozenset(kind.value for kind in RunKind)


class Phase(StrEnum):
    """A summary for people; programs read the conditions."""

    PENDING = "Pending"
    PLANNING = "Planning"
    SNAPSHOTTING = "Snapshotting"
    STREAMING = "Streaming"
    WAITING = "Waiting"
    PAUSED = "Paused"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Condition(StatusPart):
    """As metav1.Condition; `last_transition_time` moves only with `status`."""

    type: str
    status: Literal["True", "False", "Unknown"] = "Unknown"
    reason: Word = "Unknown"
    message: Text = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class RunRef(StatusPart):
    """`report` is the number of the driver's last report that is in this status; 0 where reports
    are not numbered."""

    id: str
    epoch: int
    pod: str = ""
    started_at: str = ""
    report: int = 0


class Runs(RootModel[dict[RunKind, RunRef]]):
    """The runs that are named, by kind; a table belongs to one of them. In JSON every kind has its
    key, with null where no run is named; kinds of a newer version are left aside."""

    model_config = ConfigDict(frozen=True)

    root: dict[RunKind, RunRef] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _named_only(cls, data: Any) -> Any:
        return (
            {k: ref for k, ref in data.items() if ref is not None and k in _KINDS} if isinstance(data, dict) else data
        )

    @model_serializer
    def _every_kind(self) -> dict[str, RunRef | None]:
        return {kind.value: self.get(kind) for kind in RunKind}

    def get(self, kind: RunKind) -> RunRef | None:
        return self.root.get(kind)

    def put(self, kind: RunKind, ref: RunRef | None) -> Runs:
        others = {k: run for k, run in self.root.items() if k is not kind}
        return Runs(others if ref is None else others | {kind: ref})

    def kind_of(self, run: str) -> RunKind | None:
        return next((kind for kind, ref in self.root.items() if ref.id == run), None)

    @property
    def named(self) -> tuple[RunRef, ...]:
        """In the order of the kinds."""
        return tuple(ref for kind in RunKind if (ref := self.get(kind)))

    @property
    def highest_epoch(self) -> int:
        return max((ref.epoch for ref in self.named), default=0)

    @property
    def snapshot(self) -> RunRef | None:
        return self.get(RunKind.SNAPSHOT)

    @property
    def stream(self) -> RunRef | None:
        return self.get(RunKind.STREAM)


class ScheduleStatus(StatusPart):
    """The times of a stream with a schedule that has caught up once. `next_time` is the first time
    that is not caught up, so one that is past is due; `last_start` is when the run began that
    caught up last: what was committed before it is applied; `caught_up_at` when it ended."""

    next_time: str
    last_start: str
    caught_up_at: str

    def overdue(self, now: float) -> float:
        """Seconds since the time that is due; 0 where none is."""
        return max(0.0, now - (unix_time(self.next_time) or now))


class SnapshotProgress(StatusPart):
    """`max_rows_per_second` and `max_bytes_per_second` are the bounds that its run keeps, the
    source's own included (0: none);
    `throttled` is why the run waits, empty where it does not."""

    splits_total: int = 0
    splits_finished: int = 0
    rows: int = 0
    rows_per_second: float = 0
    started_at: str | None = None
    finished_at: str | None = None
    max_rows_per_second: int = 0
    max_bytes_per_second: int = 0
    throttled: Text = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def percent(self) -> str:
        """For a column of `kubectl get`; rounded down, so that 100 % means all."""
        return f"{100 * self.splits_finished // self.splits_total} %" if self.splits_total else ""


class Status(StatusPart):
    """The whole. `observed_generation` -1: not reconciled yet. `table_digest` is that of the shards
    (see `table_shards`) of a written status which does not have all tables itself."""

    observed_generation: int = -1
    phase: Phase = Phase.PENDING
    conditions: tuple[Condition, ...] = ()
    runs: Runs = Field(default_factory=Runs)
    restarts: Restarts = Field(default_factory=Restarts)
    source: StatusServer = Field(default_factory=StatusServer)
    tables: TableCounts = Field(default_factory=TableCounts)
    snapshot: SnapshotProgress = Field(default_factory=SnapshotProgress)
    position: StatusPosition | None = None
    lag_seconds: float | None = None
    schedule: ScheduleStatus | None = None
    verification: VerificationStatus | None = None
    table_digest: Word = ""
    table_status: tuple[TableStatus, ...] = ()

    def with_(self, **changes: Any) -> Status:
        return self.model_copy(update=changes)

    def condition(self, kind: str) -> Condition:
        return next((c for c in self.conditions if c.type == kind), Condition(type=kind))

    def table(self, name: str) -> TableStatus | None:
        return next((t for t in self.table_status if t.name == name), None)

    @property
    def followed(self) -> BinlogId:
        """The binlog that most tables are in, of those that did not fail, and of those that are
        to be resnapshotted only where there are no others; empty where none is in one."""
        placed = [t for t in self.table_status if t.binlog and not t.failed]
        staying = [t for t in placed if not t.is_resnapshotted]
        counts = Counter(t.binlog for t in staying or placed)
        return max(counts, key=lambda binlog: counts[binlog], default="")

    def covered_positions(self, table: TableStatus) -> tuple[StatusPosition, ...]:
        """What the content of a table has: all that these positions have (rule R5).

        A stream reports a table when that changes, and its reader all the time: what
        that has passed since, a table has that flows in the stream. Its first report names all its
        tables with the reader's place, so both are of the same run.
        """
        stream = self.runs.stream
        flows = stream is not None and table.run == stream.id and table.phase in CONSISTENT
        return tuple(p for p in (table.position, self.position if flows else None) if p)

    def has_reached(self, table: TableStatus, end: LogOffset) -> bool:
        """Whether the content of a table has all that is before `end`. A position in another
        binlog says nothing of this one's end."""
        covered = [p for p in self.covered_positions(table) if p.binlog == (binlog_of(end) or "")]
        return any(p.parsed().has_reached(end) for p in covered)

    def to_dict(self) -> dict[str, Any]:
        """The object under its public names, as JSON values."""
        return self.model_dump(by_alias=True, mode="json")


# ---- tables


def with_tables(status: Status, tables: Iterable[TableStatus]) -> Status:
    """Puts these entries in the place of those of the same name, new ones added; in order of
    names, counted."""
    merged = {t.name: t for t in status.table_status} | {t.name: t for t in tables}
    return only_tables(status, merged.values())


def only_tables(status: Status, tables: Iterable[TableStatus]) -> Status:
    ordered = tuple(sorted(tables, key=lambda t: t.name))
    if ordered == status.table_status:
        ordered = status.table_status
    return status.with_(table_status=ordered, tables=count_tables(ordered))


# ---- the lag


def effective_lag(status: Status, reported_at: float | None, interval: float, now: float) -> float | None:
    """Seconds behind; None while that is not known.

    What a driver reported counts while it is fresh. Once reports are older than three intervals
    (drivers report every few seconds whatever their interval), and while a driver has applied
    nothing yet, the position's own age counts, or where it has no time the report's: neither a dead
    driver nor a new one appears fresh.

    With a schedule it is the time since the one that is due, and 0 between times.
    """
    if status.schedule is not None:
        return round(status.schedule.overdue(now), 1)
    if status.position is None:
        return status.lag_seconds
    fresh = reported_at is not None and now - reported_at <= max(3 * interval, _FRESH)
    if fresh and status.lag_seconds is not None:
        return status.lag_seconds
    stamp = status.position.seconds or (None if fresh else reported_at)
    return status.lag_seconds if stamp is None else max(round(now - stamp, 1), status.lag_seconds or 0)


# ---- conditions


def with_condition(status: Status, kind: str, value: bool | None, reason: str, message: str, now: float) -> Status:
    """Sets one condition; None is Unknown."""
    before = status.condition(kind)
    word: Literal["True", "False", "Unknown"] = "Unknown" if value is None else "True" if value else "False"
    after = Condition(
        type=kind,
        status=word,
        reason=reason,
        message=shown_message(message),
        last_transition_time=before.last_transition_time
        if before.status == word and before.last_transition_time
        else utc(now),
        observed_generation=status.observed_generation,
    )
    others = tuple(c for c in status.conditions if c.type != kind)
    at = next((i for i, c in enumerate(status.conditions) if c.type == kind), len(others))
    return status.with_(conditions=(*others[:at], after, *others[at:]))


def shown_message(message: str) -> str:
    """Its lines, with nothing hidden in them, as far as the CRD allows."""
    message = "\n".join(map(visible, message.split("\n")))
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 3] + "..."
