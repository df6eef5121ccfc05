"""How a broker is reached, and what its errors mean.

Every wait on a broker is bounded: one that hangs is `SinkUnreachable`, which is tried again. Text
of a broker or of librdkafka is quoted, and none of it holds a secret: credentials are given to the
client as settings and appear in no message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import resnapshot

#: seconds for one question to a broker
TIMEOUT_SECONDS = 30.0
#: of a transaction: the broker ends it afterwards
TRANSACTION_SECONDS = 60.0
#: of the process's memory for records that are not sent yet
_QUEUE_KILOBYTES = 64 * 1024
_LOST_TOPICS = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"))
_TOO_LARGE = frozenset(("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"))
_FENCED = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"))
_UNAUTHENTICATED = frozenset(("SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION"))


@dataclass(frozen=True)
class KafkaSettings:
    """The brokers `bootstrap`, settings of the producer beyond ours, and the seconds for one
    question to a broker."""

    bootstrap: str
    producer: tuple[tuple[str, str], ...] = ()
    timeout: float = TIMEOUT_SECONDS

    def common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "cdcsync",
            "socket.timeout.ms": 10_000,
            "socket.connection.setup.timeout.ms": 10_000,
            "allow.auto.create.topics": False,
            "log_level": 2,
        }

    def admin(self) -> dict[str, Any]:
        return {k: v for k, v in self.common().items() if k != "allow.auto.create.topics"}

    def consumer(self, isolation: str) -> dict[str, Any]:
        """Of one that is assigned its partitions and commits no offsets: the group is only a
        name."""
        return {
            **self.common(),
            "group.id": "cdcsync",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }

    def transactional(self, transactional_id: str) -> dict[str, Any]:
        """The user's settings may tune the sending, never its guarantees."""
        return {
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "compression.type": "lz4",
            **dict(self.producer),
            **self.common(),
            "transactional.id": transactional_id,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": _QUEUE_KILOBYTES,
            "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
        }


def error_of(error: KafkaException) -> KafkaError:
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def is_fenced(error: KafkaException) -> bool:
    """A later producer has our transactional id."""
    return error_of(error).name() in _FENCED


def is_too_large(error: KafkaException) -> bool:
    return error_of(error).name() in _TOO_LARGE


def sink_error(error: KafkaException, doing: str, table: str = "") -> CdcError:
    """What it means for a run, or for its table."""
    found = error_of(error)
    name, text = found.name(), f"{doing}: {quoted(found.str())}"
    if name in _TOO_LARGE:
        return too_large(table, quoted(found.str()))
    if name in _LOST_TOPICS:
        return fail(
            Reason.SINK_CONFLICT,
            text,
            needed="the topics that this sync made",
            remedy=resnapshot(table) if table else RUN_AGAIN,
            table=table,
        )
    if name.endswith("_AUTHORIZATION_FAILED"):
        return fail(
            Reason.PRIVILEGE_MISSING,
            text,
            needed="WRITE and CREATE on the topics, READ on the state topic, WRITE on the transactional ids cdcsync.*",
            remedy=f"grant them, {RUN_AGAIN}",
            table=table,
        )
    if name in _UNAUTHENTICATED:
        return fail(Reason.AUTHENTICATION_FAILED, text, remedy="correct the Secret of spec.sink.kafka", table=table)
    return fail(
        Reason.SINK_UNREACHABLE,
        text,
        needed="brokers that answer",
        remedy="check spec.sink.kafka.bootstrapServers, and that the brokers are up",
        table=table,
    )


def too_large(table: str, found: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"a record is larger than the topic takes: {found}",
        needed="a topic that takes the largest row with both images",
        remedy=(
            "raise the topic's max.message.bytes and spec.sink.kafka.producerConfig message.max.bytes, "
            f"or leave the column out (columns.exclude), {RUN_AGAIN}"
        ),
        table=table,
    )
