"""The state topic: the newest record of each table, and the order of all writers.

It is compacted and has one partition, so its offsets are one order for all who write to it: runs of
different kinds have a transactional id each, and the broker's fencing does not order them. A writer
therefore puts its records there first, in its open transaction, and then reads what is before each
of them: if another writer's record of the same table came since the committed state was read, open
or not, it aborts, reads that state again and decides on it. A record of another table is remembered
until then, because a later transaction may be of that table. Of two writers of a table at most one
passes, whatever either of them knew or how long it slept.

Why `refresh` reads to the end that is asked for with read_uncommitted: a read_committed reader's
own end is held back by any open transaction, so it would miss what was committed behind one.

A first `refresh` reads the last records alone, then from where they say (`fold`). Where none
says so, as in a topic with few records, it reads all. What the brokers have removed before that
place, as retention does, is not needed; where it is, tables are without a state, and their topics
are refused as foreign.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.logs import get_logger
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers, passes
from cdcsync_spark.sinks.kafka.connection.topics import Setting, Topics
from cdcsync_spark.sinks.kafka.state.fold import ENTRY_BYTES, StateFold, header_of, repeats_due
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord

Late: TypeAlias = Callable[[int], CdcError]
_log = get_logger()
#: of the state topic. Its files are closed early, because brokers compact closed ones only; both
#: values are the least that managed brokers allow
STATE_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(50 << 20), "segment.ms": str(4 * 3600 * 1000)}
_POLL, _PAUSE = 0.2, 1.0
#: records that are taken from the client at once; with more of them each costs twice as much,
#: because they no longer fit into the processor's caches
_AT_ONCE = 1000
#: of the end, which is read first
_TAIL, _LONGER = 200, 16
#: seconds of one reading
LONGEST_READING = 1200.0
#: of this process's memory for the newest records, and the names of tables of which another
#: writer's records are noted
_SHARE = 4
_MOST_UNSETTLED = 64 * 2**20


@dataclass
class StateTopic:
    """`records` are the committed ones as of the last `refresh`, by table. `since` is where a
    reader may begin, `at` how far the committed ones are read, `read` how many that were."""

    brokers: Brokers
    topics: Topics
    name: str
    records: dict[str, TableRecord] = field(default_factory=dict)
    since: int = 0
    at: int = 0
    read: int = 0
    _fold: StateFold = field(default_factory=StateFold)
    _committed: Consumer | None = None
    _all: Consumer | None = None
    #: behind what `_all` has read
    _seen: int = 0
    #: bytes of records that were taken and may still be as the client has them
    _unsettled: int = 0
    #: how far it had read when records were to be repeated last
    _tried: int = 0
    #: by table, the offset of the first record of another writer since the last `refresh`
    _foreign: dict[str, int] = field(default_factory=dict)
    _foreign_bytes: int = 0

    def make(self, replication: int) -> str:
        """Its id; one that is there gets the settings of a new one, as far as this client may."""
        self.topics.make(self.name, 1, replication, STATE_CONFIG)
        topic = self.topics.made(self.name)
        missing = missing_config(self.topics.config(self.name))
        if missing and not self.topics.configure(self.name, missing):
            _log.warning("the state topic keeps settings that do not fit", topic=self.name, needed=missing)
        return topic.id

    def refresh(self) -> None:
        """Reads what was committed up to now."""
        end = self.topics.end(self.name)
        if self._committed is None:
            self._begin(end)
        # an open transaction of a process that died ends within its timeout
        self._read_committed(end, self.brokers.settings.transaction + self.brokers.settings.timeout, self._held_back)
        for table, value in self._fold.changed():
            self.records[table] = self._parsed(table, value)
        if end > self._seen:
            self._assign(self._all, end)
            self._seen = end
        self._foreign, self._foreign_bytes = {}, 0

    def _begin(self, end: int) -> None:
        self._all = self.brokers.consumer("read_uncommitted")
        self.since = self.at = self._found_since(end)
        self._assign(self._all, end)  # it may have read further
        self._seen = end
        committed = self.brokers.consumer("read_committed")
        self._assign(committed, self.at)
        self._committed = committed

    def _found_since(self, end: int) -> int:
        """As the last records say; they may be of transactions that are open or aborted."""
        begin, tail = self.topics.begins(self.name, 1)[0], _TAIL
        while True:
            start = max(begin, end - tail)
            self._assign(self._all, start)
            since, only_repeats = -1, True
            for _, value in self._pairs_seen(start, end):
                header = header_of(value)
                since = max(since, -1 if header.since is None else header.since)
                only_repeats = only_repeats and header.repeats is not None
            if since >= 0:
                return max(begin, since)
            if start == begin or not only_repeats:
                return begin
            tail *= _LONGER

    def _read_committed(self, end: int, patience: float, late: Late | None) -> None:
        assert self._committed is not None, "refreshed before"
        for place, messages in self._batches(self._committed, self.at, end, patience, late):
            self.at = place
            self.read += len(messages)
            self._fold.take_all(messages)
            self._unsettled += sum(map(len, messages))
            if self._unsettled > _MOST_UNSETTLED:
                self._fold.settle()
                self._unsettled = 0
            if self._fold.size > memory_limit() // _SHARE:
                raise self._too_large(f"{self._fold.size} bytes of records of different tables")

    def _parsed(self, table: str, value: bytes) -> TableRecord:
        try:
            return TableRecord.from_json(value)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
            raise fail(
                Reason.SINK_CONFLICT,
                f"the state topic {self.name} holds a record that this version of the program does not read",
                needed="a topic that only this sync writes, by this version",
                remedy="run the version that wrote it, or stop the other writer; or delete the sync's topics"
                " and create it again",
                table=table,
            ) from None

    def repeats(self) -> list[tuple[bytes, bytes]] | None:
        """Key and value of the records to be written, so that later readers may begin at `at`; None
        while that would spare them little. What this process knows of the tables stays as it is,
        because it may be in the middle of a decision."""
        if not repeats_due(self._seen - max(self.since, self._tried), len(self.records)):
            return None
        self._tried = self._seen
        self._read_committed(self._seen, _PAUSE, None)  # an open transaction is not waited for
        return self._fold.repeats() if repeats_due(self.at - self.since, len(self.records)) else None

    def overtaken(self, own: Mapping[str, int], writer: str) -> bool:
        """Whether another writer's record of a table is before its own one, whose offset `own` has,
        and behind what was known when the decision was made."""
        self._read_to(max(own.values()) + 1, writer)
        return any(table in self._foreign and self._foreign[table] < at for table, at in own.items())

    def followed(self, tables: Collection[str], writer: str) -> bool:
        """The same of `tables`, up to the end."""
        self._read_to(self.topics.end(self.name), writer)
        return not self._foreign.keys().isdisjoint(tables)

    def _read_to(self, end: int, writer: str) -> None:
        """Notes the records of other writers up to offset `end`."""
        for key, value in self._pairs_seen(self._seen, end):
            header = header_of(value)
            self.since = max(self.since, header.since or 0)
            if header.repeats is None and header.writer != writer:
                self._note_foreign(key.decode(errors="replace"))

    def _note_foreign(self, table: str) -> None:
        if table in self._foreign:
            return
        self._foreign[table] = self._seen - 1
        self._foreign_bytes += sys.getsizeof(table) + ENTRY_BYTES
        if self._fold.size + self._foreign_bytes > memory_limit() // _SHARE:
            raise self._too_large(f"records of other writers of {len(self._foreign)} tables")

    def _pairs_seen(self, start: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, those of open transactions included; an absent value is empty. Each is
        behind `_seen` by one."""
        assert self._all is not None, "refreshed before"
        timeout = self.brokers.settings.timeout
        for place, messages in self._batches(self._all, start, end, timeout, self._silent):
            for message in messages:
                self._seen = (message.offset() or 0) + 1
                key = message.key()
                if key is not None:
                    yield _bytes(key), _bytes(message.value() or b"")
            self._seen = place

    def _batches(
        self, consumer: Consumer, at: int, end: int, patience: float, late: Late | None
    ) -> Iterator[tuple[int, list[Message]]]:
        """Records from `at` to `end`, each list with the place behind it; an empty one where that
        is the end of what is there. When nothing has come for `patience` seconds it ends, or raises
        what `late` makes."""
        begun = time.monotonic()
        until = begun + patience
        while at < end:
            if time.monotonic() - begun > LONGEST_READING:
                raise self.brokers.timeout(f"reading the state topic {self.name} for more than {LONGEST_READING:g} s")
            before = at
            try:
                messages, ended = self._taken(consumer)
            except CdcError:
                self._assign(consumer, at)  # its own place is behind records that came with the error
                raise
            if messages or ended is not None:
                behind = (messages[-1].offset() or 0) + 1 if messages else 0
                at = max(at, behind, ended or 0)
                yield at, messages
            if at > before:
                until = time.monotonic() + patience
            elif time.monotonic() > until:
                if late is not None:
                    raise late(end)
                return

    def _taken(self, consumer: Consumer) -> tuple[list[Message], int | None]:
        """Records that are there; where the topic ends, if the client has come there."""
        taken = [m for m in consumer.consume(_AT_ONCE, 0) or [consumer.poll(_POLL)] if m is not None]
        others = [(message, error) for message in taken if (error := message.error()) is not None]
        ended = None
        for message, error in others:
            if error.name() == "_PARTITION_EOF":
                ended = message.offset()
            else:
                self._raise_lasting(KafkaException(error))
        return [m for m in taken if m.error() is None] if others else taken, ended

    def _assign(self, consumer: Consumer | None, offset: int) -> None:
        assert consumer is not None
        consumer.assign([TopicPartition(self.name, 0, offset)])

    def _raise_lasting(self, error: KafkaException) -> None:
        if not passes(error):
            raise self.brokers.error(error, f"reading the state topic {self.name}") from None

    def _too_large(self, size: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the state topic {self.name} has {size}",
            needed="a topic that only this sync writes",
            remedy="raise spec.driver.memory, or spec.stream.driver.memory; or, where another program writes there, stop "
            "it, then delete the sync's topics and create it again",
        )

    def _silent(self, end: int) -> CdcError:
        return self.brokers.timeout(f"reading the state topic {self.name} to its record at {end - 1}")

    def _held_back(self, end: int) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the state topic {self.name} could be read to offset {self.at} of {end}: a transaction is open there",
            needed="brokers that end transactions after their timeout",
            remedy="check that the brokers are up",
        )


def missing_config(settings: Mapping[str, Setting] | None) -> dict[str, str]:
    """What the state topic needs and does not have. Sizes of files are taken as they are where they
    were set for it; records that expire never are. None: its settings may not be asked for."""
    if settings is None:
        return {}
    return {
        name: value
        for name, value in STATE_CONFIG.items()
        if name in settings and settings[name].value != value and (name == "cleanup.policy" or not settings[name].own)
    }


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
