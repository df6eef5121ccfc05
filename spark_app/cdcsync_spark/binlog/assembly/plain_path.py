"""Plain transactions of a buffer of events: from the parser to the assembler as columns.

Why it is right: both are left as if each event had been fed to them. A stretch is taken only where
the parser stands between transactions, behind no event of it; as far as the batch is not full, so
that batches end where they would; and as far as nothing in it is odd. All else is fed event by
event.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from cdcsync_core.errors import DecodeError
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.assembly.plain_transactions import TRANSACTION_BYTES, PlainTransactions
from cdcsync_spark.binlog.assembly.spool import EVENT_BYTES
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.assembly.transactions import TransactionAssembler
from cdcsync_spark.binlog.dump.packets import Arrived
from cdcsync_spark.wire.binlog.columnar.event_arrays import EventArrays, event_columns
from cdcsync_spark.wire.binlog.columnar.plain import Plain, Stretch, find_plain, opening, stretch
from cdcsync_spark.wire.binlog.columnar.plain_rows import PlainRows, plain_rows
from cdcsync_spark.wire.binlog.event.header import KIND
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.columns.gather import Cursors, Flags

LEAST_EVENTS = 128
LEAST_TRANSACTIONS = 16


class PlainPath:
    """The path of one dump's plain transactions. `limit` is the size of a batch that is full; a
    buffer of fewer events, or a stretch of fewer transactions, is not worth the fixed steps."""

    def __init__(
        self,
        parser: EventParser,
        assembler: TransactionAssembler,
        limit: int,
        least_events: int = LEAST_EVENTS,
        least_transactions: int = LEAST_TRANSACTIONS,
    ) -> None:
        self._least_events, self._least_transactions = least_events, least_transactions
        self._parser, self._assembler, self._limit = parser, assembler, limit
        self._found: EventArrays | None = None
        self._plain: Plain | None = None
        #: where the stretch of each transaction of `_plain` ends
        self._stretches: Cursors = np.empty(0, np.int64)

    def index(self, arrived: Arrived) -> None:
        """Finds the plain transactions of the events that are read next."""
        self._found = self._plain = None
        if len(arrived) < self._least_events or not self._may_be_plain(arrived):
            return
        low, high = int(arrived.starts[0]), int(arrived.ends[-1])
        self._found = event_columns(bytes(arrived.data[low:high]), arrived.starts - low, arrived.ends - low)
        if self._found is None:
            return
        self._plain = find_plain(self._found, self._parser.mariadb)
        first, after = self._plain.first, self._plain.after
        breaks = np.append(np.flatnonzero(first[1:] != after[:-1]) + 1, len(first))
        self._stretches = breaks[np.searchsorted(breaks, np.arange(len(first)), "right")]

    def _may_be_plain(self, arrived: Arrived) -> bool:
        """Whether enough transactions begin: the checksums of large ones are verified once."""
        kinds = np.frombuffer(arrived.data, np.uint8)[np.minimum(arrived.starts + KIND, len(arrived.data) - 1)]
        return opening(kinds, self._parser.mariadb) >= self._least_transactions

    def take(self, at: int) -> int:
        """Takes the plain transactions that begin with event `at`, and returns the event after
        them; `at` if it is to be fed."""
        if self._plain is None or self._found is None:
            return at
        first = self._plain.first
        low = int(np.searchsorted(first, at))
        if low == len(first) or first[low] != at:
            return at
        high, here = int(self._stretches[low]), self._here()
        if high - low < self._least_transactions or here is None or self._found.places[at] < here.offset:
            return at
        transactions = stretch(self._found, first[low:high], self._plain.after[low:high], self._parser.mariadb)
        return self._take(at, transactions, here)

    def next_start(self, at: int) -> int | None:
        """The first event behind event `at` with which plain transactions begin; None if all the
        others are to be fed."""
        if self._plain is None:
            return None
        following = self._plain.first[np.searchsorted(self._plain.first, at, "right") :]
        return int(following[0]) if len(following) else None

    def _here(self) -> LogOffset | None:
        with suppress(DecodeError):
            return self._parser.between
        return None

    def _take(self, at: int, transactions: Stretch, here: LogOffset) -> int:
        assert self._found is not None
        assert self._plain is not None
        try:
            rows = plain_rows(self._found, self._plain, transactions, self._parser.tables)
        except DecodeError:
            rows = None
        if rows is None or not self._assembler.reached.takes(source for source, _ in transactions.sources):
            self._plain = None  # the parser of single events names the fault, or finds none
            return at
        if rows.count < transactions.count:
            self._plain = None
        taken = self._fitting(transactions, rows, here)
        if taken is None:
            return at
        after = int(transactions.after[taken.count - 1])
        gtid_pos = self._parser.pass_plain(taken.end.offset, rows.learned(after), _gtids(transactions, taken.count))
        self._assembler.take_plain(replace(taken, gtid_pos=gtid_pos))
        return after

    def _fitting(self, transactions: Stretch, rows: PlainRows, here: LogOffset) -> PlainTransactions | None:
        """The first ones, as many as the batch takes before it is full."""
        lacking = _kept(transactions, rows, here, self._assembler.rows.ahead)
        sizes = np.bincount(rows.transactions, rows.lengths + EVENT_BYTES, rows.count)
        sizes[np.unique(rows.transactions[lacking])] += TRANSACTION_BYTES
        sizes = np.cumsum(sizes)
        count = int(np.searchsorted(sizes, self._limit - self._assembler.rows.size))
        if not count:
            return None
        fits = rows.transactions < count
        spooled = int((rows.ends - rows.starts)[fits].sum()) + EVENT_BYTES * int(fits.sum())
        return PlainTransactions(transactions, rows, lacking & fits, here, count, int(sizes[count - 1]), spooled, "")


def _kept(transactions: Stretch, rows: PlainRows, here: LogOffset, ahead: Mapping[TableId, Position]) -> Flags:
    """Which events are of transactions that their tables lack."""
    lacking = np.ones(len(rows.classes), bool)
    if not ahead:
        return lacking
    ids = TransactionIds()
    every = PlainTransactions(transactions, rows, lacking, here, transactions.count, 0, 0, "")
    for source, low, high in every.runs():
        ids.extend(
            here,
            transactions.ends[low:high].astype(np.uint64),
            source,
            transactions.numbers[low:high].astype(np.uint64),
        )
    for table, events in rows.of_tables():
        if table in ahead:
            lacking[events] = ~ids.covered(ahead[table])[rows.transactions[events]]
    return lacking


def _gtids(transactions: Stretch, count: int) -> dict[int, str]:
    """MariaDB's last GTID of each domain."""
    if transactions.domains is None or transactions.servers is None:
        return {}
    domains = transactions.domains[:count][::-1]
    distinct, last = np.unique(domains, return_index=True)
    places = [count - 1 - i for i in last.tolist()]
    return {
        d: f"{d}-{transactions.servers[i]}-{transactions.numbers[i]}"
        for d, i in zip(distinct.tolist(), places, strict=True)
    }
