"""A session without transactions: at least once, for brokers that have none.

Why it is right: a state is written when all records before it are acknowledged, so what a state
says is there; a run that ended in between is followed by one that sends the batch again, from its
beginning and in the same order, so the last record of a key is its newest. No broker fences the
writers. Each looks for states of others before it sends, and again before it writes its own; what
an older run writes after that does not count (`state_topic`), and the newer one writes its own
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException

from cdcsync_core.gates import gate
from cdcsync_spark.sinks.kafka.connection.brokers import is_forbidden, is_lost_topic
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.pace import Pace
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, TopicRecords


@dataclass
class PlainSession(KafkaSession):
    """As `KafkaSession`, but for what its transactions promise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._on_delivery = self._note

    def _start_producer(self) -> None:
        self._producer = self.brokers.producer()

    def _begin(self) -> None:
        """There is nothing to begin, to commit or to give up."""

    def _commit(self) -> None:
        self._raise_failure()

    def _give_up(self) -> None:
        pass

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed)

    def transact(self, records: Mapping[str, TableRecord], pieces: Iterable[TopicRecords]) -> bool:
        """The records, then the states; False, and the newest states are known, where another
        writer was first. Raises TableFault, or what ends the run."""
        with self.lock:
            self._pace, self._failed, self._failed_topic = Pace(), None, None
            if self._is_followed(records):
                return False
            gate("kafka-begun")
            try:
                for piece in pieces:
                    self._send(piece)
                self._settle(records)
                self._raise_failure()
                gate("kafka-sent")
                if self._is_followed(records):
                    return False
                self._send_states(records)
            except KafkaException as error:
                if is_lost_topic(error):
                    self._check_topics(records)
                if is_forbidden(error):
                    self._check_rights(records)
                raise self._refused(error, records) or self.brokers.error(error, "sending records") from None
            gate("kafka-committed")
            self._states.records.update(records)
            self._repeat_states()
            return True

    def _is_followed(self, records: Mapping[str, TableRecord]) -> bool:
        followed = self._states.followed(records.keys(), self._writer)
        if followed:
            self._states.refresh()
        return followed
