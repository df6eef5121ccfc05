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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.checks import Superseded
from cdcsync_spark.sinks.formats.json_records import Header, Records
from cdcsync_spark.sinks.kafka.connection.brokers import (
    Brokers,
    error_of,
    is_fenced,
    is_forbidden,
    is_lost_topic,
    is_too_large,
    is_unanswered,
)
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.rights import On
from cdcsync_spark.sinks.kafka.connection.topics import Topics
from cdcsync_spark.sinks.kafka.state.fold import stating
from cdcsync_spark.sinks.kafka.state.state_topic import StateTopic
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.conflicts import check_topic, missing_right, replaced_state
from cdcsync_spark.sinks.kafka.transactions.pace import Pace
from cdcsync_spark.sinks.kafka.transactions.table_fault import TableFault, faults_of, too_large_fault

_log = get_logger()
#: of records that wait when their transaction fails
_DROPPED = frozenset(("_PURGE_QUEUE", "_PURGE_INFLIGHT"))
#: seconds between two checks of what is acknowledged
_STEP = 0.5
#: seconds without an acknowledgement after which the topics are described
_PAUSE = 2.0


OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], None]


class TopicRecords(NamedTuple):
    """Records for a table's topic."""

    table: str
    topic: str
    records: Records


@dataclass
class KafkaSession:
    """The connection of the sync `namespace/name`; `role` is the kind of run, empty for who only
    reads; `state` is the name of the state topic."""

    settings: KafkaSettings
    sync: str
    role: str
    replication: int = -1
    state: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _producer: Producer | None = None
    _writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: of the records that the open transaction has in the state topic, by table
    _own: dict[str, int] = field(default_factory=dict)
    _failed: KafkaError | None = None
    #: of records, whose topic is told where it fails; a transaction tells of them as a whole
    _on_delivery: OnDelivery | None = None
    _failed_topic: str | None = None
    _pace: Pace = field(default_factory=Pace)
    #: of the state topic
    _state_id: str = ""

    def __post_init__(self) -> None:
        self.brokers = Brokers(self.settings)
        self.topics = Topics(self.brokers)
        self._states = StateTopic(self.brokers, self.topics, self.state)
        self._open = False

    def record(self, table: str) -> TableRecord | None:
        self.open()
        return self._states.records.get(table)

    def records(self) -> Mapping[str, TableRecord]:
        """The records of all tables, as far as is known."""
        return self._states.records

    @property
    def states_read(self) -> int:
        """Records of the state topic, since the start."""
        return self._states.read

    def open(self) -> None:
        """Once; from then on no predecessor can commit."""
        with self.lock:
            if self._open:
                return
            if self.role:
                self._state_id = self._states.make(self.replication)
                self._start_producer()
                gate("kafka-opened")
            if self.role or self.topics.find(self._states.name):
                self._states.refresh()
            if self.role:
                self._repeat_states()
            self._open = True

    def _start_producer(self) -> None:
        self._producer = self.brokers.producer(f"{self.state}:{self.role}")
        self._calling(lambda p: p.init_transactions(self.settings.timeout), "opening the transactional producer")

    def refresh(self) -> None:
        with self.lock:
            self.open()
            self._states.refresh()

    def transact(self, records: Mapping[str, TableRecord], pieces: Iterable[TopicRecords]) -> bool:
        """All of it or nothing; False, and the newest records are known, where another writer was
        first, or where a second try tells whose record a topic refuses. Raises TableFault, or what
        ends the run; nothing is left open then."""
        with self.lock:
            self._pace = Pace()
            self._begin()
            try:
                if not self._write(records, pieces):
                    self._abort()
                    self._states.refresh()
                    return False
                self._commit()
            except TableFault:
                self._abort()
                raise
            except KafkaException as purged:
                error = self._cause(purged)
                self._give_up()
                if is_lost_topic(error):
                    self._check_topics(records)
                if is_forbidden(error):
                    self._check_rights(records)
                if is_too_large(error) and self._on_delivery is None:
                    self._on_delivery = self._note
                    return False
                self._on_delivery = None
                raise self._refused(error, records) or self._ended(error, "sending a transaction", records) from None
            except BaseException:
                self._give_up()
                raise
            gate("kafka-committed")
            self._states.records.update(records)
            self._repeat_states()
            return True

    def _repeat_states(self) -> None:
        """So that those who come later read little of the state topic: when the repeats are there,
        a record says so."""
        repeats = self._states.repeats()
        if not repeats:
            return
        self._send_repeats(repeats)
        gate("states-repeated")
        self._states.since = self._states.at
        self._send_repeats([(key, stating(value, self._states.since)) for key, value in repeats[:1]])

    def _send_repeats(self, repeats: Iterable[tuple[bytes, bytes]]) -> None:
        self._pace, self._failed = Pace(), None
        self._begin()
        try:
            for key, value in repeats:
                self._produce(self._states.name, value, key, self._on_delivery, 0)
            while left := self._live.flush(_STEP):
                self._check_progress(left)
            self._commit()
        except KafkaException as error:
            self._give_up()
            raise self._ended(error, "repeating the states") from None
        except BaseException:
            self._give_up()
            raise

    def _begin(self) -> None:
        self._calling(lambda p: p.begin_transaction(), "beginning a transaction")

    def _write(self, records: Mapping[str, TableRecord], pieces: Iterable[TopicRecords]) -> bool:
        """False where another writer was first."""
        self._send_states(records)
        gate("kafka-begun")
        if self._states.overtaken(self._own, self._writer):
            return False
        for piece in pieces:
            self._send(piece)
        self._settle(records)
        gate("kafka-sent")
        return True

    def _settle(self, records: Mapping[str, TableRecord]) -> None:
        """Waits until all is acknowledged by the topics that the states are about."""
        while left := self._live.flush(_STEP):
            self._check_progress(left)
            if self._pace.pause > _PAUSE:
                self._check_topics(records)  # the client waits for one that is gone
        self._check_topics(records)

    def _send_states(self, records: Mapping[str, TableRecord]) -> None:
        """Until their places in the state topic are known."""
        self._own, self._failed, self._failed_topic = {}, None, None
        for table, record in records.items():
            with faults_of(table):
                value = record.to_json(self._writer, self._states.since)
                self._produce(self._states.name, value, table.encode(), self._acknowledged, 0)
        until = time.monotonic() + self.settings.timeout
        while len(self._own) < len(records):
            if self._failed is not None:
                raise KafkaException(self._failed)
            if time.monotonic() > until:
                raise self.brokers.timeout("writing the state")
            self._live.poll(0.1)

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        offset, key = message.offset(), message.key()
        if error is not None or offset is None:
            self._failed = error
        elif message.topic() == self._states.name and key is not None:
            self._own[key if isinstance(key, str) else key.decode()] = offset

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and not (self._failed and is_too_large(KafkaException(self._failed))):
            self._failed, self._failed_topic = error, message.topic()

    def _refused(self, error: KafkaException, records: Mapping[str, TableRecord]) -> TableFault | None:
        """Whose record a topic refuses as too large, as far as that is known."""
        cause = self._failed if self._failed is not None else error_of(error)
        tables = [table for table, record in records.items() if record.topic == self._failed_topic]
        if not tables or not is_too_large(KafkaException(cause)):
            return None
        return too_large_fault(tables[0], cause.str())

    def _send(self, piece: TopicRecords) -> None:
        if piece.records.headers:
            self._send_with_headers(piece)
            return
        produce, topic, on_delivery = self._live.produce, piece.topic, self._on_delivery
        # without keys, one partition has the order
        partition = 0 if piece.records.keys.null_count else -1
        with faults_of(piece.table):
            for key, value in piece.records.pairs():
                try:  # here and not by `_produce`: a call a record costs a third of the sending
                    produce(topic, value, key, partition, on_delivery=on_delivery)
                except (BufferError, KafkaException):
                    self._produce(topic, value, key, on_delivery, partition)
        self._pace.moved()

    def _send_with_headers(self, piece: TopicRecords) -> None:
        headers = piece.records.headers
        with faults_of(piece.table):
            for number, (key, value) in enumerate(piece.records.pairs()):
                own = [headers[number]] if number in headers else []
                self._produce(piece.topic, value, key, self._on_delivery, headers=own)
        self._pace.moved()

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        on_delivery: OnDelivery | None,
        partition: int = -1,
        headers: Sequence[Header] = (),
    ) -> None:
        """A full queue is waited for."""
        while True:
            try:
                self._live.produce(topic, value, key, partition, on_delivery=on_delivery, headers=list(headers))
                return
            except BufferError:
                self._live.poll(0.1)
                self._check_progress(len(self._live))
            except KafkaException:
                self._raise_failure()
                raise

    def _check_progress(self, left: int) -> None:
        """Brokers that acknowledge nothing hang; slow ones are given the transaction's time."""
        self._pace.note(left)
        self._raise_failure()
        if self._pace.pause > self.settings.timeout:
            raise self.brokers.timeout("sending records")

    def _cause(self, error: KafkaException) -> KafkaException:
        """Records that are dropped because their transaction has failed say only that."""
        if error_of(error).name() not in _DROPPED:
            return error
        try:
            self._raise_failure()
        except KafkaException as cause:
            return cause
        return error

    def _raise_failure(self) -> None:
        """The client tells what has failed an open transaction where the next call is refused, and
        begins no second one. Raises KafkaException."""
        try:
            self._live.begin_transaction()
        except KafkaException as error:
            if error_of(error).name() != "_STATE":
                raise

    def _check_topics(self, records: Mapping[str, TableRecord]) -> None:
        """What was acknowledged is in the topics that have the names now, so these are the ones
        that the states are about, or nothing is committed."""
        try:
            existing = self.topics.find_all({self._states.name, *(record.topic for record in records.values())})
        except PermanentError as error:
            if error.reason is Reason.PRIVILEGE_MISSING:
                self._check_rights(records)
            raise
        state = existing.get(self._states.name)
        if state is None or state.id != self._state_id:
            raise replaced_state(self._states.name)
        for table, record in records.items():
            try:
                check_topic(table, record, existing.get(record.topic))
            except PermanentError as error:
                raise TableFault(table, error) from None

    def _check_rights(self, records: Mapping[str, TableRecord]) -> None:
        """Whose topic may not be written. Raises TableFault, or what ends the run."""
        rights = self.topics.rights({self._states.name, *(record.topic for record in records.values())})
        denied = {topic for topic, operations in rights.items() if "WRITE" not in operations}
        for table, record in records.items():
            if record.topic in denied and self._states.name not in denied:
                raise TableFault(table, missing_right(record.topic, "WRITE", On.TOPICS, table))
        if self._states.name in denied:
            raise missing_right(self._states.name, "WRITE", On.STATE)

    def _commit(self) -> None:
        """Tried again within a bound where the client says that it may be."""
        until = time.monotonic() + self.settings.transaction
        while True:
            try:
                self._live.commit_transaction(self.settings.timeout)
                return
            except KafkaException as error:
                if not error_of(error).retriable() or time.monotonic() > until:
                    raise

    def _abort(self) -> None:
        self._calling(lambda p: p.abort_transaction(self.settings.timeout), "aborting a transaction")

    def _give_up(self) -> None:
        """Ends the transaction as well as that is possible: consumers wait behind an open one. One
        whose commit got no answer is not aborted by the client."""
        try:
            self._live.abort_transaction(self.settings.timeout)
        except KafkaException as error:
            _log.warning("a transaction is left to its timeout", error=error_of(error).str())

    def _calling(self, call: Callable[[Producer], object], doing: str) -> None:
        until = time.monotonic() + 2 * self.settings.timeout
        while True:
            try:
                call(self._live)
                return
            except KafkaException as error:
                if not error_of(error).retriable() or time.monotonic() > until:
                    raise self._ended(error, doing) from None

    def _ended(self, error: KafkaException, doing: str, records: Mapping[str, TableRecord] | None = None) -> CdcError:
        """A run that is fenced was superseded, and never asks for the producer's place again: two
        would take it from each other in turns. Brokers that ended a transaction by its timeout
        answer alike; then it is a later run's state that tells."""
        lost = is_fenced(error) or is_unanswered(error)
        if records and lost and self._pace.seconds >= self.settings.transaction and not self._succeeded(records):
            return self._timed_out()
        if is_fenced(error):
            return Superseded(
                Reason.SINK_CONFLICT,
                f"superseded: another run has the transactional id of {doing}",
                needed="one run of a sync at a time",
                remedy="nothing to do where the other run goes on",
            )
        return self.brokers.error(error, doing)

    def _succeeded(self, records: Mapping[str, TableRecord]) -> bool:
        """Whether a later run has written one of these tables."""
        self._states.refresh()
        recorded = self._states.records
        return any(t in recorded and recorded[t].state.epoch > record.state.epoch for t, record in records.items())

    def _timed_out(self) -> CdcError:
        """It was too large where it got on all the time; else something hung, which may pass."""
        bound = self.settings.transaction
        if self._pace.longest_pause > bound / 2:
            return fail(
                Reason.SINK_UNREACHABLE,
                f"a transaction was ended after {bound:.0f} s; for {self._pace.longest_pause:.0f} s nothing was sent",
                needed="brokers that answer",
                remedy="none if it passes; else check that the brokers are up",
            )
        return fail(
            Reason.TRANSACTION_TOO_LARGE,
            f"a transaction could not be sent within {bound:.0f} s",
            needed="one transaction of Kafka for each of the source",
            remedy="commit in smaller transactions on the source, or give the brokers more room",
        )

    @property
    def _live(self) -> Producer:
        assert self._producer is not None, "a session that writes"
        return self._producer


def state_topic(sync: str) -> str:
    namespace, _, name = sync.partition("/")
    return f"cdcsync.{namespace}.{name}.state"
