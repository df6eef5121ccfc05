"""How brokers are reached: the settings of each kind of client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: seconds for one question to a broker
TIMEOUT_SECONDS = 30.0
#: of a transaction: the broker ends it afterwards
TRANSACTION_SECONDS = 60.0
#: of the process's memory for records that are not sent yet
_QUEUE_KILOBYTES = 64 * 1024


@dataclass(frozen=True)
class KafkaSettings:
    """The brokers `bootstrap`, settings of the producer beyond ours, the seconds for one question
    to a broker, and those of a transaction."""

    bootstrap: str
    producer: tuple[tuple[str, str], ...] = ()
    timeout: float = TIMEOUT_SECONDS
    transaction: float = TRANSACTION_SECONDS

    def common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "cdcsync",
            "socket.timeout.ms": int(min(10.0, self.transaction) * 1000),
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
            "transaction.timeout.ms": int(self.transaction * 1000),
        }
