"""Plain transactions of many events as columns: a GTID, TABLE_MAP and rows events, an XID.

Why it exists: most transactions are of this form and small, so that what all of them have in common
is found once for all. Why it is right: a transaction is plain only if each of its events is of a
kind of the list, in its place, of the length that its header gives, with the right checksum, and
ends behind the one before it. Whatever else there is (savepoints, XA, statements, compressed
events, rollbacks, garbage) is no plain transaction and is read event by event by `EventParser`,
which is the oracle of this module: both give the same facts
(`tests/property/test_plain_transactions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cdcsync_spark.wire.binlog.columnar.event_arrays import EventArrays
from cdcsync_spark.wire.binlog.event import events
from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Numbers

#: what an event is in a plain transaction
_ODD, _OPENS, _BEGINS, MAPS, CHANGES, _SAYS_NOTHING, _ENDS = range(7)
_ROWS = (
    EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
)
#: a rows event's number, flags; a TABLE_MAP is longer
_LEAST_BODY = 8
_SIGNED = (1 << 63) - 1


@dataclass(frozen=True)
class Stretch:
    """Plain transactions one after the other: transaction `i` are the events from `first[i]` to
    before `after[i]`, which ends at `ends[i]` of the file and was committed at `times[i]` (seconds
    since 1970).

    MySQL: `sources` are the runs of transactions of one source, (UUID or None for anonymous ones,
    index of the first), `numbers` those of the GTIDs. MariaDB: GTIDs of `domains`, `servers`,
    `numbers`.
    """

    first: Cursors
    after: Cursors
    ends: Cursors
    times: npt.NDArray[np.float64]
    numbers: Cursors
    sources: tuple[tuple[str | None, int], ...]
    domains: Numbers | None = None
    servers: Numbers | None = None

    @property
    def count(self) -> int:
        return len(self.first)


class Plain(NamedTuple):
    """What each event of a buffer is (`MAPS`, `CHANGES`, or something else), and the first events
    of the plain transactions and those after them."""

    roles: npt.NDArray[np.uint8]
    first: Cursors
    after: Cursors


def _table(mariadb: bool) -> npt.NDArray[np.uint8]:
    roles = np.zeros(256, np.uint8)
    roles[[EventType.MARIADB_GTID] if mariadb else [EventType.GTID, EventType.ANONYMOUS_GTID]] = _OPENS
    roles[EventType.ANNOTATE_ROWS if mariadb else EventType.ROWS_QUERY] = _SAYS_NOTHING
    roles[EventType.TABLE_MAP], roles[EventType.XID] = MAPS, _ENDS
    roles[list(_ROWS)] = CHANGES
    if not mariadb:
        roles[EventType.QUERY] = _BEGINS
    return roles


_TABLES = {mariadb: _table(mariadb) for mariadb in (False, True)}


def opening(kinds: npt.NDArray[np.uint8], mariadb: bool) -> int:
    """How many events of these types begin a transaction: as many as may be plain."""
    return int(np.count_nonzero(_TABLES[mariadb][kinds] == _OPENS))


def find_plain(arrays: EventArrays, mariadb: bool) -> Plain:
    """The plain transactions, checksums verified."""
    roles = _TABLES[mariadb][arrays.kinds]
    odd = (roles == _ODD) | ~arrays.whole | _misplaced(arrays.places, roles)
    odd |= (roles != _ENDS) & (arrays.ends - arrays.bodies < _LEAST_BODY)
    first = np.flatnonzero(roles == _OPENS)
    after = np.append(first[1:], len(roles))
    if not len(first):
        return Plain(roles, first, after[:0])
    odd[: first[0]] = False
    plain = (roles[after - 1] == _ENDS) & (_sums(roles == _ENDS, first) == 1) & (_sums(odd, first) == 0)
    if not mariadb:
        plain &= _sums(roles == _BEGINS, first) == 1
        plain[plain] = _begins(arrays, first[plain] + 1)
    plain[plain] = (_is_row_group if mariadb else _is_mysql_gtid)(arrays, first[plain])
    chosen = np.flatnonzero(np.repeat(plain, after - first)) + first[0]
    damaged = arrays.damaged(chosen)
    if len(damaged):
        plain[np.searchsorted(first, damaged, "right") - 1] = False
    return Plain(roles, first[plain], after[plain])


def _misplaced(places: Cursors, roles: npt.NDArray[np.uint8]) -> Flags:
    """Events that do not end behind the last one that has a place. MariaDB since 11.4 gives places
    to the first and the last event of a transaction only (`binlog_legacy_event_pos=OFF`)."""
    placed = places > 0
    last = places[np.maximum.accumulate(np.where(placed, np.arange(len(places)), 0))]
    back = placed & (places <= np.append(0, last[:-1]))
    return back | ~placed & ((roles == _OPENS) | (roles == _ENDS))


def _sums(flags: Flags, first: Cursors) -> npt.NDArray[np.int64]:
    """Per transaction, from its first event to before the next one's."""
    return np.add.reduceat(flags, first, dtype=np.int64)


def _begins(arrays: EventArrays, at: Cursors) -> Flags:
    """Which of the events are a QUERY that is exactly BEGIN (`events.is_begin`)."""
    bodies, ends = arrays.bodies[at], arrays.ends[at]
    sizes = ends - bodies
    right = (arrays.kinds[at] == EventType.QUERY) & (sizes >= events.QUERY_HEAD + len(events.BEGIN))
    bodies, ends = np.where(right, bodies, arrays.starts[at]), np.where(right, ends, arrays.starts[at] + 8)
    length = arrays.numbers(bodies + 8, "u1").astype(np.int64) + arrays.numbers(bodies + 11, "<u2")
    right &= length + events.QUERY_HEAD + len(events.BEGIN) == sizes
    right &= arrays.numbers(ends - 6, "<u2") == int.from_bytes(events.BEGIN[:2], "little")
    return right & (arrays.numbers(ends - 4, "<u4") == int.from_bytes(events.BEGIN[2:], "little"))


def _is_row_group(arrays: EventArrays, at: Cursors) -> Flags:
    """MariaDB: no statement alone, no DDL, no XA."""
    right = arrays.ends[at] - arrays.bodies[at] >= events.MARIADB_GTID_HEAD
    odd = events.STANDALONE | events.DDL | events.PREPARED_XA | events.COMPLETED_XA
    flags = arrays.numbers(np.where(right, arrays.bodies[at] + 12, 0), "u1")
    return right & (flags & odd == 0) & (arrays.numbers(np.where(right, arrays.bodies[at], 0), "<u8") <= _SIGNED)


def _is_mysql_gtid(arrays: EventArrays, at: Cursors) -> Flags:
    """Whether each has a number of an interval, and whole times."""
    sizes = arrays.ends[at] - arrays.bodies[at]
    right = (sizes == events.GTID_HEAD) | (sizes >= _IMMEDIATE)
    numbers = arrays.numbers(np.where(right, arrays.bodies[at] + 17, 0), "<u8")
    anonymous = arrays.kinds[at] == EventType.ANONYMOUS_GTID
    right &= anonymous | ((numbers >= 1) & (numbers <= _SIGNED))
    has_time, original = _times_of(arrays, at)
    return right & (~(has_time & original) | (sizes >= _ORIGINAL + _TIME))


#: where the commit's time is, and the original commit's where that differs; the bytes of each
_IMMEDIATE, _ORIGINAL, _TIME = 42, 49, 7


def _times_of(arrays: EventArrays, at: Cursors) -> tuple[Flags, Flags]:
    """Which GTID events have a commit time, and whose original commit was at another one."""
    bodies = arrays.bodies[at]
    has_time = arrays.ends[at] - bodies >= _IMMEDIATE + _TIME
    typed = arrays.numbers(np.where(has_time, bodies + events.GTID_HEAD, 0), "u1")
    has_time &= typed == events.LOGICAL_CLOCK[0]
    top = arrays.numbers(np.where(has_time, bodies + _IMMEDIATE + _TIME - 1, 0), "u1")
    return has_time, has_time & (top >> 7 == 1)


def stretch(arrays: EventArrays, first: Cursors, after: Cursors, mariadb: bool) -> Stretch:
    """Transactions that `find_plain` found, one after the other."""
    ends, times = arrays.places[after - 1], arrays.times[after - 1].astype(np.float64)
    bodies = arrays.bodies[first]
    if mariadb:
        numbers = arrays.numbers(bodies, "<u8").astype(np.int64)
        return Stretch(
            first, after, ends, times, numbers, ((None, 0),), arrays.numbers(bodies + 8, "<u4"), arrays.servers[first]
        )
    numbers = arrays.numbers(bodies + 17, "<u8").astype(np.int64)
    committed = _committed(arrays, first)
    times = np.where(committed > 0, committed / 1e6, times)
    return Stretch(first, after, ends, times, numbers, tuple(_sources(arrays, first)))


def _committed(arrays: EventArrays, first: Cursors) -> npt.NDArray[np.int64]:
    """Unix time in microseconds, 0 if not logged."""
    has_time, original = _times_of(arrays, first)
    # eight bytes before a time's end, of which the first is not its
    at = arrays.bodies[first] + np.where(original, _ORIGINAL, _IMMEDIATE) - 1
    return np.where(has_time, arrays.numbers(np.where(has_time, at, 0), "<u8") >> np.uint64(8), 0).astype(np.int64)


def _sources(arrays: EventArrays, first: Cursors) -> Iterator[tuple[str | None, int]]:
    at = arrays.bodies[first] + 1
    low, high = arrays.numbers(at, "<u8"), arrays.numbers(at + 8, "<u8")
    anonymous = arrays.kinds[first] == EventType.ANONYMOUS_GTID
    changes = (np.diff(low) != 0) | (np.diff(high) != 0) | (np.diff(anonymous.view(np.int8)) != 0)
    for index in [0, *(np.flatnonzero(changes) + 1).tolist()]:
        start = int(at[index])
        yield None if anonymous[index] else events.uuid_text(arrays.data[start : start + 16]), index
