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
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.sinks.kafka.brokers import Brokers, is_unanswered
from cdcsync_spark.sinks.kafka.table_record import TableRecord, writer_of
from cdcsync_spark.sinks.kafka.topics import Topics

_POLL = 0.2


@dataclass
class StateTopic:
    """`records` are the committed ones as of the last `refresh`, by table."""

    brokers: Brokers
    topics: Topics
    name: str
    records: dict[str, TableRecord] = field(default_factory=dict)
    _committed: Consumer | None = None
    _all: Consumer | None = None
    #: behind what each of them has read
    _at: int = 0
    _seen: int = 0
    #: by table, the offset of the first record of another writer since the last `refresh`
    _foreign: dict[str, int] = field(default_factory=dict)

    def refresh(self) -> None:
        """Reads what was committed up to now."""
        end = self.topics.end(self.name)
        if self._committed is None:
            self._committed = self._consumer("read_committed", 0)
        # an open transaction of a process that died ends within its timeout
        until = time.monotonic() + self.brokers.settings.transaction + self.brokers.settings.timeout
        while self._at < end:
            if time.monotonic() > until:
                raise self._held_back(end)
            self._take(self._committed.poll(_POLL))
        if self._all is None:
            self._all = self._consumer("read_uncommitted", end)
        elif end > self._seen:
            self._all.seek(TopicPartition(self.name, 0, end))
        self._seen = max(self._seen, end)
        self._foreign = {}

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        at = message.offset()
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                self._raise_lasting(KafkaException(error))
            elif at is not None:
                self._at = max(self._at, at)
            return
        assert at is not None
        self._at = at + 1
        key, value = message.key(), message.value()
        if key is not None and value is not None:
            self._keep(_text(key), self._read(_text(key), _bytes(value)))

    def _keep(self, table: str, record: TableRecord) -> None:
        """Where no broker fences it, an older run may write after a newer one."""
        known = self.records.get(table)
        if known is None or record.state.epoch >= known.state.epoch:
            self.records[table] = record

    def _read(self, table: str, value: bytes) -> TableRecord:
        try:
            return TableRecord.from_json(value)
        except (ValueError, KeyError, TypeError):
            raise fail(
                Reason.SINK_CONFLICT,
                f"the state topic {self.name} holds a record that no version of this program has written",
                needed="a topic that only this sync writes",
                remedy="stop the other writer, then delete the sync's topics and create it again",
                table=table,
            ) from None

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
        assert self._all is not None, "refreshed before"
        until = time.monotonic() + self.brokers.settings.timeout
        while self._seen < end:
            if time.monotonic() > until:
                raise self.brokers.timeout(f"reading the state topic {self.name} to its own record")
            message = self._all.poll(_POLL)
            if message is None:
                continue
            at = message.offset()
            error = message.error()
            if error is not None:
                if error.name() != "_PARTITION_EOF":
                    self._raise_lasting(KafkaException(error))
                elif at is not None:
                    self._seen = max(self._seen, at)
                continue
            assert at is not None
            self._seen = at + 1
            key, value = message.key(), message.value()
            if key is not None and writer_of(None if value is None else _bytes(value)) != writer:
                self._foreign.setdefault(_text(key), at)

    def _consumer(self, isolation: str, offset: int) -> Consumer:
        consumer = self.brokers.consumer(isolation)
        consumer.assign([TopicPartition(self.name, 0, offset)])
        return consumer

    def _raise_lasting(self, error: KafkaException) -> None:
        """What librdkafka tries again by itself is bounded by who waits."""
        if not is_unanswered(error):
            raise self.brokers.error(error, f"reading the state topic {self.name}") from None

    def _held_back(self, end: int) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the state topic {self.name} could be read to offset {self._at} of {end}: a transaction is open there",
            needed="brokers that end transactions after their timeout",
            remedy="check that the brokers are up",
        )


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
