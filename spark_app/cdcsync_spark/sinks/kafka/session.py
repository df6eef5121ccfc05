"""A process's connection to the brokers: one producer, whose transactions hold the records of all
tables and the states that belong to them.

Why it is right. `init_transactions` ends what a predecessor of the same kind of run left open, and
fences it for good; what is read of the state topic afterwards is the truth that decisions are made
on. Runs of other kinds are ordered by the state topic (`state_topic`). A transaction is there for
readers of committed records whole or not at all, over all topics. One whose commit got no answer
ends the run; the next one finds in the state whether it was made.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_spark.sinks.base import Superseded
from cdcsync_spark.sinks.formats.json_records import Records
from cdcsync_spark.sinks.kafka.client import (
    TRANSACTION_SECONDS,
    KafkaSettings,
    error_of,
    is_fenced,
    is_too_large,
    sink_error,
    too_large,
)
from cdcsync_spark.sinks.kafka.state_topic import StateTopic, sink_timeout
from cdcsync_spark.sinks.kafka.table_record import TableRecord
from cdcsync_spark.sinks.kafka.topics import Topics

_STATE_CONFIG = {"cleanup.policy": "compact"}


class Piece(NamedTuple):
    """Records for a table's topic."""

    table: str
    topic: str
    records: Records


class TableFault(Exception):
    """What is wrong with one table of a transaction, which was given up."""

    def __init__(self, table: str, error: PermanentError) -> None:
        super().__init__(table)
        self.table, self.error = table, error


@dataclass
class KafkaSession:
    """Of the sync `namespace/name`; `role` is the kind of run, empty for who only reads; `state`
    is the name of the state topic."""

    settings: KafkaSettings
    sync: str
    role: str
    replication: int = -1
    state: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _producer: Producer | None = None
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _offsets: list[int] = field(default_factory=list)
    _failed: KafkaError | None = None

    def __post_init__(self) -> None:
        self.topics = Topics(self.settings)
        self._states = StateTopic(self.settings, self.topics, self.state)
        self._open = False

    def record(self, table: str) -> TableRecord | None:
        self.open()
        return self._states.records.get(table)

    def records(self) -> Mapping[str, TableRecord]:
        """Of all tables, as far as is known."""
        return self._states.records

    def open(self) -> None:
        """Once; from then on no predecessor can commit."""
        with self.lock:
            if self._open:
                return
            if self.role:
                self.topics.make(self._states.name, 1, self.replication, _STATE_CONFIG)
                self._producer = Producer(self.settings.transactional(f"{self.state}:{self.role}"))
                self._calling(
                    lambda p: p.init_transactions(self.settings.timeout), "opening the transactional producer"
                )
                gate("kafka-opened")
            if self.role or self.topics.find(self._states.name):
                self._states.refresh()
            self._open = True

    def refresh(self) -> None:
        with self.lock:
            self.open()
            self._states.refresh()

    def transact(self, records: Mapping[str, TableRecord], pieces: Iterable[Piece]) -> bool:
        """All of it or nothing; False, and the newest records are known, where another writer was
        first. Raises TableFault, or what ends the run."""
        with self.lock:
            begun = time.monotonic()
            self._calling(lambda p: p.begin_transaction(), "beginning a transaction")
            try:
                first = self._send_states(records)
                gate("kafka-begun")
                if self._states.overtaken(records.keys(), self._writer, first):
                    self._abort()
                    self._states.refresh()
                    return False
                for piece in pieces:
                    self._send(piece)
                gate("kafka-sent")
                self._commit(begun)
            except TableFault:
                self._abort()
                raise
            gate("kafka-committed")
            self._states.records.update(records)
            return True

    def _send_states(self, records: Mapping[str, TableRecord]) -> int:
        """The offset of the first one."""
        self._offsets, self._failed = [], None
        for table, record in records.items():
            try:
                self._produce(self._states.name, record.to_json(self._writer), table.encode(), 0)
            except KafkaException as error:
                raise self._fault(table, error) from None
        until = time.monotonic() + self.settings.timeout
        while len(self._offsets) < len(records):
            if self._failed is not None:
                raise self._ended(KafkaException(self._failed), "writing the state")
            if time.monotonic() > until:
                raise sink_timeout("writing the state")
            self._live.poll(0.1)
        return min(self._offsets)

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            self._failed = error
        elif message.topic() == self._states.name:
            self._offsets.append(offset)

    def _send(self, piece: Piece) -> None:
        """A full queue is waited for."""
        try:
            for key, value in zip(piece.records.keys.to_pylist(), piece.records.values.to_pylist(), strict=True):
                self._produce(piece.topic, value, key)
        except KafkaException as error:
            raise self._fault(piece.table, error) from None

    def _produce(self, topic: str, value: bytes | None, key: bytes, partition: int = -1) -> None:
        until = time.monotonic() + TRANSACTION_SECONDS
        on_delivery = self._acknowledged if partition >= 0 else None
        while True:
            try:
                self._live.produce(topic, value, key, partition, on_delivery=on_delivery)
                return
            except BufferError:
                if time.monotonic() > until:
                    raise sink_timeout(f"sending to the topic {topic}") from None
                self._live.poll(0.1)

    def _fault(self, table: str, error: KafkaException) -> Exception:
        """A record that is too large is its table's; all else ends the run."""
        if is_too_large(error):
            fault = too_large(table, "more than message.max.bytes")
            assert isinstance(fault, PermanentError)
            return TableFault(table, fault)
        return self._ended(error, "sending records")

    def _commit(self, begun: float) -> None:
        """Tried again within a bound where the client says that it may be."""
        until = time.monotonic() + TRANSACTION_SECONDS
        while True:
            try:
                self._live.commit_transaction(self.settings.timeout)
                return
            except KafkaException as error:
                if error_of(error).retriable() and time.monotonic() < until:
                    continue
                if time.monotonic() - begun > TRANSACTION_SECONDS:
                    raise _timed_out() from None
                raise self._ended(error, "committing a transaction") from None

    def _abort(self) -> None:
        self._calling(lambda p: p.abort_transaction(self.settings.timeout), "aborting a transaction")

    def _calling(self, call: Callable[[Producer], object], doing: str) -> None:
        until = time.monotonic() + 2 * self.settings.timeout
        while True:
            try:
                call(self._live)
                return
            except KafkaException as error:
                if not error_of(error).retriable() or time.monotonic() > until:
                    raise self._ended(error, doing) from None

    def _ended(self, error: KafkaException, doing: str) -> CdcError:
        """A run that is fenced was superseded, and never asks for the producer's place again: two
        would take it from each other in turns."""
        if is_fenced(error):
            return Superseded(
                Reason.SINK_CONFLICT,
                f"superseded: another run has the transactional id of {doing}",
                needed="one run of a sync at a time",
                remedy="nothing to do where the other run goes on",
            )
        return sink_error(error, doing)

    @property
    def _live(self) -> Producer:
        assert self._producer is not None, "a session that writes"
        return self._producer


def state_topic(sync: str) -> str:
    namespace, _, name = sync.partition("/")
    return f"cdcsync.{namespace}.{name}.state"


def _timed_out() -> CdcError:
    return fail(
        Reason.TRANSACTION_TOO_LARGE,
        f"a transaction of the source could not be sent within {TRANSACTION_SECONDS:.0f} s",
        needed="one transaction of Kafka for each of the source",
        remedy="commit in smaller transactions on the source, or give the brokers more room",
    )
