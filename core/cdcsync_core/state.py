"""The whole state of one table, as every commit of its target carries it (rule R4).

The newest own commit suffices to go on: which table of which log by which sync this is, who may
write (`epoch`), what of the snapshot is finished between which watermarks, or which position the
rows are as of. `status` is a view of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.positions.chunk import WHOLE, Intervals, Split
from cdcsync_core.positions.failover import Copied
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import BinlogId, Lineage
from cdcsync_core.positions.position import (
    FilePosition,
    GtidPosition,
    Place,
    Position,
    Watermark,
    binlog_of,
    other_binlog,
    position_from_dict,
)
from cdcsync_core.positions.watermark import HighMark, join, watermark_from_dict, watermark_to_dict
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Kind
from cdcsync_core.tables.target_schema import TargetSchema

#: the version of the state's own form; every other one is refused. It grows where an earlier
#: release would misread what is written; a key that is added needs no other version, because a
#: release that does not know it refuses the state
STATE_VERSION = 3
#: intervals of each source's GTIDs that `touched` has at most
_MOST_INTERVALS = 4


@dataclass(frozen=True)
class Identity:
    """Whose table this is: `sync` is namespace/name, `lineage` the binlogs of its rows,
    `table` is database.table. Never a resource's uid: the tables survive
    the resource."""

    sync: str
    lineage: Lineage
    table: str

    @property
    def app_id(self) -> str:
        """The application id of all commits of this (sync, table): the same for every run (rule
        R8)."""
        return f"cdcsync:{self.sync}:{self.table}"

    def to_dict(self) -> dict[str, Any]:
        return {"sync": self.sync, "lineage": list(self.lineage.binlogs), "table": self.table}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Identity:
        return cls(data["sync"], Lineage(tuple(data["lineage"])), data["table"])


@dataclass(frozen=True)
class LastChange:
    """The last change of a table's definition that was followed.

    `version` counts the definitions of the content from 0, `at` is when the statement was committed
    (seconds since 1970), `statement` its beginning, `kind` what it meant. `unproved`: no row was
    seen since that has the definition as it was predicted. `shown`: such a row differs from those
    before the change, or nothing was predicted to change. `unseen` is what was predicted and is in
    no row event. `unconfirmed`: the server's catalog was not compared since; `defaults` are then
    the defaults that were predicted for added columns, as pairs of a column and its default in
    comparable form.
    """

    version: int = 0
    at: float | None = None
    statement: str = ""
    kind: Kind = Kind.NOTHING
    unproved: bool = False
    unconfirmed: bool = False
    defaults: tuple[tuple[str, str], ...] = ()
    shown: bool = False
    unseen: tuple[str, ...] = ()

    def confirmed(self) -> LastChange:
        """The catalog has what was predicted."""
        return replace(self, unconfirmed=False, defaults=(), unseen=())

    def is_of(self, other: LastChange | None) -> bool:
        """Whether both are the same change, proved or not."""
        return other is not None and replace(self, unproved=other.unproved) == other

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "at": self.at,
            "statement": self.statement,
            "kind": self.kind.value,
            "unproved": self.unproved,
            "unconfirmed": self.unconfirmed,
            **({"defaults": [list(pair) for pair in self.defaults]} if self.defaults else {}),
            **({"shown": True} if self.shown else {}),
            **({"unseen": list(self.unseen)} if self.unseen else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LastChange:
        return cls(
            data["version"],
            data["at"],
            data["statement"],
            Kind(data["kind"]),
            data["unproved"],
            data["unconfirmed"],
            tuple((column, default) for column, default in data.get("defaults", [])),
            data.get("shown", False),
            tuple(data.get("unseen", [])),
        )


@dataclass(frozen=True)
class SinkWrite:
    """A commit of another program that changed rows of the target: `version` is the target's,
    `program` and `operation` are as the commit names them (empty where it does not), `at` is when
    it was made (seconds since 1970)."""

    version: int
    program: str = ""
    operation: str = ""
    at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SinkWrite:
        return cls(data["version"], data["program"], data["operation"], data["at"])


@dataclass(frozen=True)
class TableState:
    """The state after a commit: what is read of the source (`capture`), what the target has
    (`schema`), and how far it is.

    `commit_number` counts own commits (the transaction version); `epoch` is the writing run's;
    `generation` is the number of the content: a resnapshot makes the next one, whether the user or
    the controller asked for it. `resnapshot_nonce` is the user's request that this content honours.
    While `position` is None the snapshot is not complete. `low` is the meet of all waves' low
    watermarks, `high` the furthest of their high watermarks. `splits` counts the finished splits,
    `rows` their rows, `nulled_dates` the dates that became NULL because they were zero or partial;
    `events` the events that a target has which takes them: the ordinal of the last one.
    `change` is the last one of the definition. `early`: a target that takes events has the rows of
    the snapshot at once, and the changes since `low` after them. `written` is the last change of
    rows by another program since the content was known to be the source's; None: there is none.
    `replaying` is the position that the rows had before another program took them back; None once
    they have it again. `undescribed`: some of the rows since `low` came without the names of
    their columns. `without_snapshot`: the content began at `low` without the rows of then.
    """

    identity: Identity
    capture: Capture
    schema: TargetSchema
    epoch: int
    commit_number: int = 0
    resnapshot_nonce: int = 0
    generation: int = 0
    finished: Intervals = field(default_factory=Intervals)
    low: Position | None = None
    high: Watermark | None = None
    position: Position | None = None
    splits: int = 0
    rows: int = 0
    nulled_dates: int = 0
    events: int = 0
    change: LastChange | None = None
    early: bool = False
    written: SinkWrite | None = None
    replaying: Position | None = None
    undescribed: bool = False
    without_snapshot: bool = False
    touched: GtidSet | None = None

    def __post_init__(self) -> None:
        """Refuses an offset of another binlog than the lineage ends with: a state's offsets are
        written without its name."""
        places = (self.low, self.position, self.replaying)
        named = {p.binlog for p in places if p is not None} | {binlog_of(self.high)}
        for binlog in named - {None, self.identity.lineage.newest}:
            raise other_binlog(binlog or "", self.identity.lineage.newest)

    @property
    def snapshot_complete(self) -> bool:
        return self.finished.complete

    @property
    def consistent(self) -> bool:
        """The stream has passed everything that a snapshot row may already contain (rule R2)."""
        return self.position is not None and self.high is not None and self.position.has_reached(self.high)

    @property
    def published(self) -> bool:
        """Whether a target that takes events shows the rows that it has."""
        return self.early or self.consistent

    def after_wave(
        self, splits: list[Split], low: Position, high: Watermark, rows: int, nulled_dates: int
    ) -> TableState:
        """The state with one more wave; the last one makes `low` the position from which the stream
        goes on."""
        finished = self.finished
        for split in splits:
            finished = finished.add(split)
        met = self.low.meet(low) if self.low else low
        reached = join(self.high, high) if self.high else high
        return replace(
            self,
            commit_number=self.commit_number + 1,
            finished=finished,
            low=met,
            high=reached if finished.complete else _without_set(reached),
            position=met if finished.complete else None,
            splits=self.splits + len(splits),
            rows=self.rows + rows,
            nulled_dates=self.nulled_dates + nulled_dates,
            touched=_of_the_snapshot(met) if finished.complete else None,
        )

    def begun_at(self, start: Position) -> TableState:
        """The state of content that begins at `start` with no row: what comes after is to be
        applied, and no row may be younger."""
        begun = self.after_wave([WHOLE], start, start.reached, rows=0, nulled_dates=0)
        return replace(begun, without_snapshot=True, early=False)

    def after_batch(self, reader: Position, nulled_dates: int = 0, changing: GtidSet | None = None) -> TableState:
        """The state with all that the reader has passed; `changing` are the GTIDs among it that
        changed the table."""
        assert self.position is not None
        position = self.position.join(reader)
        return replace(
            self,
            commit_number=self.commit_number + 1,
            position=position,
            high=_unless_reached(self.high, position),
            nulled_dates=self.nulled_dates + nulled_dates,
            replaying=None if self.replaying is None or position.includes(self.replaying) else self.replaying,
            touched=self._touched_by(changing) if changing else self.touched,
        )

    def _touched_by(self, changing: GtidSet) -> GtidSet | None:
        """Adds `changing`; a state without the set counts all that its position includes, which a
        place does not say."""
        before = self.touched
        if before is None and isinstance(self.position, GtidPosition):
            before = self.position.gtids
        return None if before is None else before.union(changing).filled(_MOST_INTERVALS)

    @property
    def copied(self) -> Copied:
        """What another server's proof is judged by."""
        assert self.position is not None
        high = None if self.consistent else self.high
        return Copied(str(self.capture.id), self.position, self.touched, high)

    def moved(self, binlog: BinlogId, position: Position, executed: GtidSet, end: Place | None = None) -> TableState:
        """On another server, whose `binlog` leads on from `position`, and which has executed these
        transactions of MySQL: no others will come that are to be replayed. What is only compared
        keeps its GTIDs; its places were in the binlog before, and a low watermark that is one
        becomes the place of the move. `end` is behind all that the snapshot may have read (None:
        the table is consistent)."""
        return replace(
            self,
            commit_number=self.commit_number + 1,
            identity=replace(self.identity, lineage=self.identity.lineage.moved_to(binlog)),
            low=_low_there(self.low, position),
            high=self._high_there(position, end),
            position=position,
            replaying=_replayed_there(self.replaying, position, executed),
        )

    def _high_there(self, position: Position, end: Place | None) -> Watermark | None:
        if end is None or self.position is None or not isinstance(self.high, HighMark):
            return position.at
        return self.high.at_place(end, self.position.gtids.subtract(position.gtids))

    def with_proof(self) -> TableState:
        """Rows have confirmed the last change."""
        return replace(self, change=replace(self.change, unproved=False)) if self.change else self

    def with_confirmation(self, confirmed: LastChange | None) -> TableState:
        """Unchanged where that is not the last change any more."""
        if confirmed is None or self.change is None or not confirmed.is_of(self.change):
            return self
        return replace(self, change=self.change.confirmed())

    def restored(self, newest: TableState) -> TableState:
        """This state as it counts after `newest`, where another program took the rows back: what
        only counts up goes on, so that no overtaken run writes and no number is used twice."""
        before, position = newest.replaying or newest.position, self.position
        same_binlog = self.identity.lineage == newest.identity.lineage and type(before) is type(position)
        replayed = before is None or position is None or not same_binlog or position.includes(before)
        return replace(
            self,
            replaying=None if replayed else before,
            epoch=max(self.epoch, newest.epoch),
            commit_number=newest.commit_number,
            resnapshot_nonce=max(self.resnapshot_nonce, newest.resnapshot_nonce),
            generation=max(self.generation, newest.generation),
        )

    def after_verification(self, verified: TableState) -> TableState | None:
        """The state with its rows known to be the source's, where those of `verified` were found
        equal; None where that says nothing of this state: another write came, or the rows went
        back."""
        if self.written is None or self.written != verified.written or self.generation != verified.generation:
            return None
        if self.position is None or verified.position is None or not self.position.includes(verified.position):
            return None
        return replace(self, commit_number=self.commit_number + 1, written=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "v": STATE_VERSION,
            "identity": self.identity.to_dict(),
            "table": self.capture.to_dict(),
            **self._recorded_schema(),
            "epoch": self.epoch,
            "number": self.commit_number,
            "nonce": self.resnapshot_nonce,
            "generation": self.generation,
            "finished": self.finished.to_list(),
            "low": self.low.to_dict() if self.low else None,
            "high": watermark_to_dict(self.high) if self.high else None,
            **({"highSet": self.high.set_to_dict()} if isinstance(self.high, HighMark) else {}),
            "position": self.position.to_dict() if self.position else None,
            "splits": self.splits,
            "rows": self.rows,
            "nulled": self.nulled_dates,
            **({"events": self.events} if self.events else {}),
            **({"change": self.change.to_dict()} if self.change else {}),
            **({"early": True} if self.early else {}),
            **({"written": self.written.to_dict()} if self.written else {}),
            **({"replaying": self.replaying.to_dict()} if self.replaying else {}),
            **({"undescribed": True} if self.undescribed else {}),
            **({"withoutSnapshot": True} if self.without_snapshot else {}),
            **({"touched": str(self.touched)} if self.touched is not None else {}),
        }

    def _recorded_schema(self) -> dict[str, Any]:
        """Nothing where the schema is that of a new copy, as most are: it follows from the
        capture."""
        return {} if self.schema == TargetSchema.of(self.capture) else {"schema": self.schema.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableState:
        """Raises SinkConflict for a state that another release wrote and this one would misread;
        ValueError, KeyError or TypeError for what is none."""
        if data["v"] != STATE_VERSION:
            raise _other_form(data, f"has version {data['v']}")
        state = cls._parsed(data)
        unread = sorted(_unread(data, state.to_dict() | {"schema": state.schema.to_dict()}))
        if unread:
            raise _other_form(data, f"has {', '.join(unread[:5])}, which this release does not know")
        return state

    @classmethod
    def _parsed(cls, data: dict[str, Any]) -> TableState:
        capture = Capture.from_dict(data["table"])
        identity = Identity.from_dict(data["identity"])
        binlog = identity.lineage.newest
        return cls(
            identity=identity,
            capture=capture,
            schema=TargetSchema.from_dict(data["schema"]) if "schema" in data else TargetSchema.of(capture),
            epoch=data["epoch"],
            commit_number=data["number"],
            resnapshot_nonce=data["nonce"],
            generation=data["generation"],
            finished=Intervals.from_list(data["finished"]),
            low=position_from_dict(data["low"], binlog) if data["low"] else None,
            high=_high_of(data, binlog),
            position=position_from_dict(data["position"], binlog) if data["position"] else None,
            splits=data["splits"],
            rows=data["rows"],
            nulled_dates=data["nulled"],
            events=data.get("events", 0),
            change=LastChange.from_dict(data["change"]) if "change" in data else None,
            early=data.get("early", False),
            written=SinkWrite.from_dict(data["written"]) if "written" in data else None,
            replaying=position_from_dict(data["replaying"], binlog) if "replaying" in data else None,
            undescribed=data.get("undescribed", False),
            without_snapshot=data.get("withoutSnapshot", False),
            touched=GtidSet.parse(data["touched"]) if "touched" in data else None,
        )


def _unread(data: Any, read: Any, path: str = "") -> Iterator[str]:
    """The keys of `data` that `read`, which was made of it, has not. A key without a value says
    nothing."""
    if isinstance(data, dict) and isinstance(read, dict):
        for key, value in data.items():
            if key in read:
                yield from _unread(value, read[key], f"{path}{key}.")
            elif value:
                yield f"{path}{key}"
    elif isinstance(data, list) and isinstance(read, list):
        for value, same in zip(data, read, strict=False):
            yield from _unread(value, same, path)


def _other_form(data: dict[str, Any], found: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the target's state {found}",
        needed=f"version {STATE_VERSION} with the fields that this release writes",
        remedy=f"run the release that wrote it, or a newer one; or remove the target with its state, {RUN_AGAIN}",
        table=data.get("identity", {}).get("table", ""),
    )


def _high_of(data: dict[str, Any], binlog: BinlogId) -> Watermark | None:
    high = watermark_from_dict(data["high"], binlog) if data["high"] else None
    return HighMark.from_set(high, data["highSet"]) if isinstance(high, Place) and "highSet" in data else high


def _without_set(high: Watermark) -> Watermark:
    """Leaves out what another server is asked for."""
    return high.place if isinstance(high, HighMark) else high


def _unless_reached(high: Watermark | None, position: Position) -> Watermark | None:
    """Leaves it out once the table is consistent."""
    return _without_set(high) if high is not None and position.has_reached(high) else high


def _of_the_snapshot(low: Position) -> GtidSet | None:
    """The transactions that a snapshot may have; None where they are not known."""
    if isinstance(low, GtidPosition):
        return low.gtids.filled(_MOST_INTERVALS)
    return low.gtid_pos.up_to or None


def _low_there(low: Position | None, position: Position) -> Position | None:
    if isinstance(position, FilePosition):
        return replace(position, witnesses=(), others=None)
    return GtidPosition(low.gtids) if isinstance(low, GtidPosition) else None


def _replayed_there(replaying: Position | None, position: Position, executed: GtidSet) -> Position | None:
    if not isinstance(replaying, GtidPosition):
        return None
    coming = GtidPosition(replaying.gtids.intersection(executed))
    return None if position.includes(coming) else coming
