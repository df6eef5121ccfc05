"""A broker and the names of one test at it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdcsync_spark.sinks.formats.json_records import Records
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.plain_session import PlainSession
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, TopicRecords
from contract.sinkcase import SYNC, first_state
from support.event_source import NAME
from support.kafka import KafkaBroker

#: of one that nothing but its own run ends
LONG = 240.0


@dataclass
class KafkaCase:
    """A sync of one table, at the level of its transactions."""

    kafka: KafkaBroker
    name: str

    def session(self, role: str = "stream", *, exactly_once: bool = True, **settings: Any) -> KafkaSession:
        made = KafkaSettings(self.kafka.bootstrap, exactly_once=exactly_once, **({"transaction": LONG} | settings))
        return (KafkaSession if exactly_once else PlainSession)(made, SYNC, role, 1, f"{self.name}.state")

    def record(self, session: KafkaSession, epoch: int = 1) -> TableRecord:
        session.open()
        session.topics.make(self.name, 1, 1, {})
        topic = session.topics.made(self.name)
        return TableRecord(first_state(epoch=epoch), topic.name, topic.id, topic.partitions)

    def piece(self, value: bytes) -> TopicRecords:
        return TopicRecords(NAME, self.name, Records(pa.array([b"k"]), pa.array([value])))

    def send(self, session: KafkaSession, *pieces: TopicRecords | float, epoch: int = 1) -> bool:
        """Numbers are pauses, in seconds."""
        return session.transact({NAME: self.record(session, epoch)}, _paced(pieces))

    def seen(self) -> list[bytes | None]:
        return [record.value for record in self.kafka.read(self.name)]


def _paced(pieces: tuple[TopicRecords | float, ...]) -> Iterator[TopicRecords]:
    for piece in pieces:
        if isinstance(piece, TopicRecords):
            yield piece
        else:
            time.sleep(piece)
