"""Positions in one history of one binlog, partially ordered: there is no `<`.

Two kinds, because the servers give two kinds of truth (rule R5):

- `GtidPosition` (MySQL with GTIDs): *which* transactions a table has. Membership is exact, sets
  have gaps. The file and offset beside it are where the reader stood; they order nothing, but a
  `LogOffset` (a high watermark) is reached by them.
- `FilePosition` (MariaDB, MySQL without GTIDs): everything before `file`, `offset`. GTIDs of
  MariaDB do not order a binlog (`gtid_strict_mode=OFF` lets numbers go backwards), so they serve as
  `gtid_pos` only: the proof that a place still belongs to the same history (rule R6).

Both kinds answer the same questions: `covers` (is this transaction in?), `includes` (is all that
another has in?), `join` (what two readers have seen together, of which one started at or before the
other), `meet` (what both have: where one reader for both must start) and `has_reached` (is a high
watermark passed?). A table's new position after a batch is `table.join(reader)`: the reader began
at the meet of its tables and left nothing out. Two positions of different kinds cannot be compared
at all: they belong to a source before and after its `gtid_mode` was changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, TypeVar

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gtid import Gtid, GtidSet
from cdcsync_core.mariadb_gtid import UNKNOWN, MariaDbGtidPos
from cdcsync_core.remedies import RESNAPSHOT_ALL

_FILE = re.compile(r".+\.(\d+)")


@lru_cache(maxsize=1024)
def _number(file: str) -> int:
    """A file's number, -1 for what is none; a binlog has few files and many places in them."""
    match = _FILE.fullmatch(file)
    return int(match[1]) if match else -1


@dataclass(frozen=True)
class LogOffset:
    """A place in the binlog: the byte `offset` of `file`. Files are ordered by number, never as
    text."""

    file: str
    offset: int

    def __post_init__(self) -> None:
        if _number(self.file) < 0 or self.offset < 4:
            raise ValueError(
                f"not a place in a binlog: {self.file!r}:{self.offset}; needed name.000001 and an offset >= 4"
            )

    @property
    def number(self) -> int:
        return _number(self.file)

    def covers(self, other: LogOffset) -> bool:
        """True if everything before `other` is also before this."""
        if self.file == other.file:
            return self.offset >= other.offset
        return (self.number, self.offset) >= (other.number, other.offset)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LogOffset:
        file, _, offset = text.rpartition(":")
        return cls(file, int(offset))

    def to_dict(self) -> dict[str, Any]:
        return {"file": self.file, "offset": self.offset}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LogOffset:
        return cls(data["file"], data["offset"])


def furthest(places: list[LogOffset]) -> LogOffset:
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
    def gtid_text(self) -> str | None:
        """As the server writes it; None for an anonymous transaction."""
        return str(self.gtid) if self.gtid else self.mariadb_gtid or None


@dataclass(frozen=True)
class FilePosition:
    """Everything before `at`. What proves the history: `gtid_pos`, MariaDB's GTID position there,
    empty where unknown; `file_created_at`, the second since 1970 in which the file was begun (the
    timestamp of its first event), 0 where unknown."""

    at: LogOffset
    gtid_pos: MariaDbGtidPos = UNKNOWN
    file_created_at: int = 0

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
        """The fields of `status.….position`; MariaDB's GTID position travels as `gtidSet`."""
        place = self.at.to_dict() | {"gtidSet": str(self.gtid_pos)}
        return place | ({"created": self.file_created_at} if self.file_created_at else {})

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
    def from_dict(cls, data: dict[str, Any]) -> Anchor:
        return cls(LogOffset.from_dict(data), data["created"])


@dataclass(frozen=True)
class GtidPosition:
    """The transactions in `gtids`. `at` is where the reader stood, None where no reader has been
    yet.

    `anchor` proves the history: after a RESET the same GTIDs come again, the same file does not.
    """

    gtids: GtidSet
    at: LogOffset | None = None
    anchor: Anchor | None = None

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
        return GtidPosition(self.gtids.union(other.gtids), place, _later(self.anchor, other.anchor))

    def meet(self, other: Position) -> GtidPosition:
        other = _alike(self, other)
        place = None if self.at != other.at else self.at
        return GtidPosition(self.gtids.intersection(other.gtids), place, _later(self.anchor, other.anchor))

    def to_dict(self) -> dict[str, Any]:
        place = self.at.to_dict() if self.at else {"file": "", "offset": 0}
        data = place | {"gtidSet": str(self.gtids), "exact": True}
        return data | ({"anchor": self.anchor.to_dict()} if self.anchor else {})

    def __str__(self) -> str:
        return str(self.gtids)


def _later(a: Anchor | None, b: Anchor | None) -> Anchor | None:
    """Both belong to one history; the later file is purged later."""
    known = [anchor for anchor in (a, b) if anchor]
    return max(known, key=lambda k: (k.at.number, k.at.offset, k.file_created_at), default=None)


Position = FilePosition | GtidPosition
_Kind = TypeVar("_Kind", FilePosition, GtidPosition)


def _alike(mine: _Kind, other: Position) -> _Kind:
    """`other`, which must be of the same kind; raises PositionLost."""
    if not isinstance(other, type(mine)):
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


def position_from_dict(data: dict[str, Any]) -> Position:
    """The inverse of `to_dict`. `exact` is True for a MySQL GTID set (membership counts), not
    for MariaDB's GTID position."""
    at = LogOffset(data["file"], data["offset"]) if data.get("file") else None
    if data.get("exact"):
        anchor = Anchor.from_dict(data["anchor"]) if "anchor" in data else None
        return GtidPosition(GtidSet.parse(data["gtidSet"]), at, anchor)
    if at is None:
        raise ValueError(f"not a position: {data!r}; needed file and offset")
    return FilePosition(at, MariaDbGtidPos.parse(data.get("gtidSet", "")), data.get("created", 0))


def meet_all(positions: list[Position]) -> Position:
    """Where one reader for all of them starts. Raises PositionLost if they are of two kinds,
    ValueError where there are none."""
    if not positions:
        raise ValueError("no position to start from; needed at least one table")
    return reduce(lambda a, b: a.meet(b), positions)
