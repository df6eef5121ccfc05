"""Positions in one history of one binlog, partially ordered: there is no `<`.

Two kinds, because the servers give two kinds of truth (rule R5):

- `GtidPosition` (MySQL with GTIDs): *which* transactions a table has. Membership is exact, sets
  have gaps. The file and offset beside it are where the reader stood; they order nothing, but a
  `LogOffset` (a high watermark) is reached by them.
- `FilePosition` (MariaDB, MySQL without GTIDs): everything before `file`, `offset`. GTIDs of
  MariaDB do not order a binlog (`gtid_strict_mode=OFF` lets numbers go backwards), so they serve as
  `gtid_pos` only: the proof that a place still belongs to the same history (rule R6).

An offset means nothing in another server's binlog. So a position's place, a watermark and whatever
else leaves the connection that it was read on is a `Place`, which names its binlog; a plain
`LogOffset` is for one connection, whose binlog is known. No offset is compared with one of another
binlog, nor a named one with a plain one: that raises.

Both kinds answer the same questions: `covers` (is this transaction in?), `includes` (is all that
another has in?), `join` (what two readers have seen together, of which one started at or before the
other), `meet` (what both have: where one reader for both must start) and `has_reached` (is a high
watermark passed?). A table's new position after a batch is `table.join(reader)`: the reader began
at the meet of its tables and left nothing out. Two positions of different kinds cannot be compared
at all: they belong to a source before and after its `gtid_mode` was changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, TypeVar

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.positions.mariadb_gtid import UNKNOWN, MariaDbGtid, MariaDbGtidPos
from cdcsync_core.positions.witness import Witness
from cdcsync_core.remedies import RESNAPSHOT_ALL

#: where the first event of a file begins
_FIRST_EVENT = 4
_FILE = re.compile(r".+\.(\d+)")


@lru_cache(maxsize=1024)
def _number(file: str) -> int:
    """A file's number, -1 for what is none; a binlog has few files and many places in them."""
    match = _FILE.fullmatch(file)
    return int(match[1]) if match else -1


def file_number(file: str) -> int:
    """The number of a binlog file; raises ValueError for a name without one."""
    return LogOffset(file, _FIRST_EVENT).number


@dataclass(frozen=True)
class LogOffset:
    """The byte `offset` of `file`, in the binlog of one connection. Files are ordered by number,
    never as text."""

    file: str
    offset: int

    def __post_init__(self) -> None:
        if _number(self.file) < 0 or self.offset < _FIRST_EVENT:
            raise ValueError(
                f"not a place in a binlog: {self.file!r}:{self.offset}; needed name.000001 and an offset >= 4"
            )

    @property
    def number(self) -> int:
        return _number(self.file)

    def covers(self, other: LogOffset) -> bool:
        """True if everything before `other` is also before this; raises PositionLost for an offset
        of another binlog."""
        refuse_other_binlog(self, other)
        if self.file == other.file:
            return self.offset >= other.offset
        return (self.number, self.offset) >= (other.number, other.offset)

    def in_binlog(self, binlog: BinlogId) -> Place:
        return Place(self.file, self.offset, binlog)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    def to_dict(self) -> dict[str, Any]:
        """Leaves out the binlog, which the reader of the dictionary knows."""
        return {"file": self.file, "offset": self.offset}


@dataclass(frozen=True)
class Place(LogOffset):
    """An offset that names its binlog: what leaves the connection on which it was read."""

    binlog: BinlogId

    def in_binlog(self, binlog: BinlogId) -> Place:
        """Itself; raises PositionLost where it is in another one."""
        if binlog != self.binlog:
            raise other_binlog(self.binlog, binlog)
        return self

    @classmethod
    def parse(cls, text: str, binlog: BinlogId) -> Place:
        """`file:offset` in `binlog`, or `binlog/file:offset` in the one that the text names. No
        name of a file has a slash."""
        named, _, place = text.rpartition("/")
        file, _, offset = place.rpartition(":")
        return cls(file, int(offset), named or binlog)

    @classmethod
    def from_dict(cls, data: dict[str, Any], binlog: BinlogId) -> Place:
        return cls(data["file"], data["offset"], binlog)


def _offset(data: dict[str, Any], binlog: BinlogId) -> LogOffset:
    at = LogOffset(data["file"], data["offset"])
    return at.in_binlog(binlog) if binlog else at


def binlog_of(at: Watermark | None) -> BinlogId | None:
    """None where it names none."""
    return at.binlog if isinstance(at, Place) else None


def refuse_other_binlog(a: LogOffset, b: LogOffset) -> None:
    """Raises PositionLost unless both are in the same binlog: by name, or both on one
    connection."""
    binlog, needed = binlog_of(a), binlog_of(b)
    if binlog != needed:
        raise other_binlog(binlog or "", needed or "")


def furthest(places: Sequence[LogOffset]) -> LogOffset:
    """The place that covers all the given ones."""
    return reduce(lambda a, b: a if a.covers(b) else b, places)


#: What a reader must have passed before rows that a SELECT saw are consistent (rule R2): a place in
#: one server's binlog, a GTID set (MySQL), or a GTID position (MariaDB in strict mode). See
#: `watermark`.
Watermark = LogOffset | GtidSet | MariaDbGtidPos


@dataclass(frozen=True)
class TransactionId:
    """A committed transaction: the end of its last event, and its GTID where the server gives one.

    `gtid` is MySQL's, and decides which positions cover the transaction. `mariadb_gtid` is
    MariaDB's (`domain-server-sequence`, else empty), which names it and orders nothing: its numbers
    may go backwards.
    """

    end: LogOffset
    gtid: Gtid | None = None
    mariadb_gtid: str = ""

    @property
    def numbered(self) -> Gtid | None:
        """The GTID of either server; None for an anonymous transaction."""
        if self.gtid is not None or not self.mariadb_gtid:
            return self.gtid
        numbered = MariaDbGtid.parse(self.mariadb_gtid).numbered
        return numbered if numbered.number else None

    @property
    def gtid_text(self) -> str | None:
        """As the server writes it; None for an anonymous transaction."""
        return str(self.gtid) if self.gtid else self.mariadb_gtid or None


@dataclass(frozen=True)
class FilePosition:
    """Everything before `at`. What proves the history: `gtid_pos`, MariaDB's GTID position there,
    empty where unknown; `file_created_at`, the second since 1970 in which the file was begun (the
    timestamp of its first event), 0 where unknown.

    What proves it on another MariaDB: `witnesses`, the last transaction and some before it, all of
    one server and numbered without a gap; `others`, the last GTIDs of all other servers before
    them, None where unknown. They follow from the place, so they are not compared.
    """

    at: LogOffset
    gtid_pos: MariaDbGtidPos = UNKNOWN
    file_created_at: int = 0
    witnesses: tuple[Witness, ...] = field(default=(), compare=False)
    others: MariaDbGtidPos | None = field(default=None, compare=False)

    @property
    def gtids(self) -> GtidSet:
        """The transactions from the oldest witness on; not all that the position has."""
        if not self.witnesses:
            return GtidSet()
        newest, oldest = self.witnesses[0].gtid, self.witnesses[-1].gtid
        return GtidSet({newest.source: [(oldest.number, newest.number)]})

    @property
    def passed(self) -> GtidSet:
        """The transactions up to the last witness, and to the last ones of all other servers."""
        last = MariaDbGtidPos((MariaDbGtid.of(self.witnesses[0].gtid),)) if self.witnesses else UNKNOWN
        return last.up_to.union((self.others or UNKNOWN).up_to)

    @property
    def binlog(self) -> BinlogId | None:
        """None where the place names none."""
        return binlog_of(self.at)

    @property
    def dump_from(self) -> LogOffset | None:
        """The place where a dump of what comes after it begins."""
        return self.at

    @property
    def reached(self) -> Watermark:
        """The watermark that exactly this position has reached."""
        return self.at

    def in_binlog(self, binlog: BinlogId) -> FilePosition:
        """Names the binlog of its place; raises PositionLost where that is another one."""
        return replace(self, at=self.at.in_binlog(binlog))

    def covers(self, transaction: TransactionId) -> bool:
        return self.at.covers(transaction.end)

    def has_reached(self, high: Watermark) -> bool:
        if isinstance(high, LogOffset):
            return self.at.covers(high)
        if isinstance(high, GtidSet):
            raise other_kind()
        return self.gtid_pos.covers(high)

    def includes(self, other: Position) -> bool:
        """True if nothing that `other` has is missing here."""
        return self.at.covers(_alike(self, other).at)

    def join(self, other: Position) -> FilePosition:
        other = _alike(self, other)
        return self if self.at.covers(other.at) else other

    def meet(self, other: Position) -> FilePosition:
        other = _alike(self, other)
        return other if self.at.covers(other.at) else self

    def to_dict(self) -> dict[str, Any]:
        """The fields of `status.….position` but for the binlog; MariaDB's GTID position travels as
        `gtidSet`."""
        data = self.at.to_dict() | {"gtidSet": str(self.gtid_pos)}
        data |= {"created": self.file_created_at} if self.file_created_at else {}
        data |= {"others": str(self.others)} if self.others is not None else {}
        return data | ({"witnesses": [w.to_list() for w in self.witnesses]} if self.witnesses else {})

    def moved(self, gtids: GtidSet, end: Anchor, witnesses: tuple[Witness, ...]) -> FilePosition:
        """The position at `end` of another server's binlog, where the newest witness ends."""
        gtid_pos = MariaDbGtidPos((MariaDbGtid.of(witnesses[0].gtid),))
        return FilePosition(end.at, gtid_pos, end.file_created_at, witnesses, self.others)

    def __str__(self) -> str:
        return str(self.at)


@dataclass(frozen=True)
class Anchor:
    """A place that the binlog had when a position was taken, and the second since 1970 in which its
    file was begun."""

    at: LogOffset
    file_created_at: int

    def to_dict(self) -> dict[str, Any]:
        return self.at.to_dict() | {"created": self.file_created_at}

    @classmethod
    def from_dict(cls, data: dict[str, Any], binlog: BinlogId = "") -> Anchor:
        return cls(_offset(data, binlog), data["created"])


@dataclass(frozen=True)
class GtidPosition:
    """The transactions in `gtids`. `at` is where the reader stood, None where no reader has been
    yet.

    `anchor` proves the history: after a RESET the same GTIDs come again, the same file does not.
    `witnesses` prove it on another server: the last transaction, and some before it. They follow
    from the set, so they are not compared.
    """

    gtids: GtidSet
    at: LogOffset | None = None
    anchor: Anchor | None = None
    witnesses: tuple[Witness, ...] = field(default=(), compare=False)

    @property
    def binlog(self) -> BinlogId | None:
        """None where it has no place, or none that names one."""
        return binlog_of(self.at or (self.anchor.at if self.anchor else None))

    @property
    def dump_from(self) -> LogOffset | None:
        """None: the server finds where a dump of the other transactions begins."""
        return None

    @property
    def reached(self) -> Watermark:
        """The watermark that exactly this position has reached."""
        return self.gtids

    def in_binlog(self, binlog: BinlogId) -> GtidPosition:
        """Names the binlog of its places; raises PositionLost where that is another one."""
        anchor = self.anchor and replace(self.anchor, at=self.anchor.at.in_binlog(binlog))
        return replace(self, at=self.at and self.at.in_binlog(binlog), anchor=anchor)

    def covers(self, transaction: TransactionId) -> bool:
        if transaction.gtid is None:
            raise other_kind()
        return transaction.gtid in self.gtids

    def has_reached(self, high: Watermark) -> bool:
        if isinstance(high, LogOffset):
            return self.at is not None and self.at.covers(high)
        if isinstance(high, MariaDbGtidPos):
            raise other_kind()
        return self.gtids.covers(high)

    def includes(self, other: Position) -> bool:
        """True if nothing that `other` has is missing here."""
        return self.gtids.covers(_alike(self, other).gtids)

    def join(self, other: Position) -> GtidPosition:
        other = _alike(self, other)
        places = [p.at for p in (self, other) if p.at]
        place = furthest(places) if places else None
        joined = self.gtids.union(other.gtids)
        return GtidPosition(joined, place, _later(self.anchor, other.anchor), _witnesses_of(joined, self, other))

    def meet(self, other: Position) -> GtidPosition:
        other = _alike(self, other)
        place = None if self.at != other.at else self.at
        met = self.gtids.intersection(other.gtids)
        return GtidPosition(met, place, _later(self.anchor, other.anchor), _witnesses_of(met, self, other))

    def moved(self, gtids: GtidSet, end: Anchor, witnesses: tuple[Witness, ...]) -> GtidPosition:
        """The position of `gtids` in another server's binlog, where the newest of the `witnesses`
        ends at `end`."""
        return GtidPosition(gtids, end.at, end, witnesses)

    def to_dict(self) -> dict[str, Any]:
        place = self.at.to_dict() if self.at else {"file": "", "offset": 0}
        data = place | {"gtidSet": str(self.gtids), "exact": True}
        data |= {"anchor": self.anchor.to_dict()} if self.anchor else {}
        return data | ({"witnesses": [w.to_list() for w in self.witnesses]} if self.witnesses else {})

    def __str__(self) -> str:
        return str(self.gtids)


def _witnesses_of(gtids: GtidSet, *positions: GtidPosition) -> tuple[Witness, ...]:
    """None where no position has just these transactions: which of them is the last is not
    known."""
    return next((p.witnesses for p in positions if p.witnesses and p.gtids == gtids), ())


def _later(a: Anchor | None, b: Anchor | None) -> Anchor | None:
    """Both belong to one binlog; the later file is purged later. Raises PositionLost for two
    binlogs."""
    if a is None or b is None:
        return a or b
    refuse_other_binlog(a.at, b.at)
    return max(a, b, key=lambda k: (k.at.number, k.at.offset, k.file_created_at))


Position = FilePosition | GtidPosition
_Kind = TypeVar("_Kind", FilePosition, GtidPosition)


def _alike(position: _Kind, other: Position) -> _Kind:
    """`other`, which must be of the same kind; raises PositionLost."""
    if not isinstance(other, type(position)):
        raise other_kind()
    return other


def other_kind() -> CdcError:
    """Positions and watermarks of two kinds belong to a source before and after a change."""
    return fail(
        Reason.POSITION_LOST,
        "transactions with GTIDs meet transactions without: gtid_mode was changed on the source",
        needed="the gtid_mode with which the tables were read",
        remedy=f"set gtid_mode as it was, or {RESNAPSHOT_ALL}",
    )


def other_binlog(binlog: BinlogId, needed: BinlogId) -> CdcError:
    """The refusal to compare offsets in the binlogs of two servers; an empty name is one that is
    not known."""
    return fail(
        Reason.POSITION_LOST,
        f"an offset in the binlog {binlog or '(of a connection)'}",
        needed=f"one in the binlog {needed or '(of a connection)'}: offsets in two binlogs have no order",
        remedy=f"point spec.source at the server that the tables were read from, or {RESNAPSHOT_ALL}",
    )


def position_to_dict(position: Position) -> dict[str, Any]:
    """`to_dict` with the binlog, where the position names one: for what is read elsewhere than
    beside its lineage."""
    return position.to_dict() | ({"binlog": position.binlog} if position.binlog else {})


def position_from_dict(data: dict[str, Any], binlog: BinlogId = "") -> Position:
    """The inverse of `to_dict`, in the `binlog` that is named here or in `data`; in that of a
    connection where neither names any. Raises PositionLost where they differ. `exact` is True for a
    MySQL GTID set (membership counts), not for MariaDB's GTID position."""
    named = data.get("binlog", "")
    if named and binlog and named != binlog:
        raise other_binlog(named, binlog)
    binlog = binlog or named
    at = _offset(data, binlog) if data.get("file") else None
    witnesses = tuple(Witness.from_list(w) for w in data.get("witnesses", ()))
    if data.get("exact"):
        anchor = Anchor.from_dict(data["anchor"], binlog) if data.get("anchor") else None
        return GtidPosition(GtidSet.parse(data["gtidSet"]), at, anchor, witnesses)
    if at is None:
        raise ValueError(f"not a position: {data!r}; needed file and offset")
    others = MariaDbGtidPos.parse(data["others"]) if "others" in data else None
    return FilePosition(at, MariaDbGtidPos.parse(data.get("gtidSet", "")), data.get("created", 0), witnesses, others)


def meet_all(positions: list[Position]) -> Position:
    """Where one reader for all of them starts. Raises PositionLost if they are of two kinds,
    ValueError where there are none."""
    if not positions:
        raise ValueError("no position to start from; needed at least one table")
    return reduce(lambda a, b: a.meet(b), positions)
