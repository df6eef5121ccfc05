"""A Kafka broker that a test session owns: one KRaft node from Maven's jars
(`tests/support/kafka-broker.sh`), on loopback, on free ports, in a folder of its own.

Why it is right: the process is ours (`ServerProcess`), so it is ended by its process id and never
outlives the session. It is ready when it lists itself to a client as the broker of the cluster. It
makes no topic by itself: what a sink forgets to make is an error, as in a guarded cluster.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cdcsync_demo.server_process import LOOPBACK, ServerProcess, free_port

BROKER = Path(__file__).parents[2] / ".cache" / "kafka-4.3.1"
_SECONDS, _DECIDED_SECONDS = 120.0, 5.0
_CLOCK = itertools.count(1)


class Record(NamedTuple):
    """What a consumer saw: NULLs are None, headers are in their order."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class KafkaBroker:
    """A broker on a data folder; may be killed and started again on the same port. At `address`,
    one of this machine's, it listens for clients that do not reach loopback."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, address: str = "") -> None:
        self.folder, self._settings = folder, settings or {}
        self._address, self._outside_port = address, 0
        shutil.copytree(BROKER / "formatted", folder / "data")
        self._chosen_with: int | None = None
        self._process = ServerProcess(self._command, folder / "broker.log", _serves)

    def start(self) -> KafkaBroker:
        self._process.start(self._process.port)
        return self

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """Ends the broker as a crash would."""
        self._process.kill()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self._process.port}"

    @property
    def outside(self) -> str:
        """The outside address of a broker that has been started."""
        return f"{self._address}:{self._outside_port}" if self._address else ""

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def new_topic(self, prefix: str = "topic", partitions: int = 1, **config: str) -> str:
        """A topic that no other test has."""
        name = f"{prefix}.{next(_CLOCK)}"
        admin = self.admin()  # held until the answer: its requests end with it
        admin.create_topics([NewTopic(name, partitions, 1, config=config)], request_timeout=_SECONDS)[name].result(
            _SECONDS
        )
        return name

    def read(self, topic: str, *, committed: bool = True) -> list[Record]:
        """See `read_topic`."""
        return read_topic(self.bootstrap, topic, committed=committed)

    def _choose_ports(self) -> None:
        """Chooses the ports beside the one that `ServerProcess` chooses."""
        self._controller, self._outside_port = free_port(), free_port()

    def _command(self, port: int) -> Sequence[str]:
        if port != self._chosen_with:  # an attempt with other ports, as one of the last was taken
            self._choose_ports()
            self._chosen_with = port
        settings = self.folder / "server.properties"
        settings.write_text("".join(f"{k}={v}\n" for k, v in self._server_settings(port).items()))
        java = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        options = ("-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        return [*java, *options, "-cp", f"{BROKER / 'jars'}/*", "kafka.Kafka", str(settings)]

    def _outside(self) -> str:
        return f",OUTSIDE://{self.outside}" if self.outside else ""

    def _server_settings(self, port: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{self._controller}" + self._outside(),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            # one node holds everything once, and few partitions of the broker's own topics
            **dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), "1"),
            **dict.fromkeys(("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"), "1"),
            **dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), "1"),
            "share.coordinator.state.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            "log.cleaner.threads": "1",
            **self._settings,
        }


def read_topic(bootstrap: str, topic: str, *, committed: bool = True) -> list[Record]:
    """Everything that a consumer sees in a topic, partition by partition, up to its end as of now;
    a transaction that is just committed is waited for."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        places = [
            TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        ]
        if committed:
            _wait_until_decided(bootstrap, places)
        return [r for place in places for r in _of_partition(consumer, place)]
    finally:
        consumer.close()


def _wait_until_decided(bootstrap: str, places: list[TopicPartition]) -> None:
    """The brokers mark the records of a committed transaction a moment after they say so; one that
    is open stays so."""
    admin, until = AdminClient({"bootstrap.servers": bootstrap}), time.monotonic() + _DECIDED_SECONDS
    isolations = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    while time.monotonic() < until:
        committed, all_of_them = ([f.result().offset for f in _ends(admin, places, i).values()] for i in isolations)
        if committed == all_of_them:
            return
        time.sleep(0.01)


def _ends(
    admin: AdminClient, places: list[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, Future[Any]]:
    wanted = dict.fromkeys(places, OffsetSpec.latest())
    return admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_SECONDS)


def _serves(port: int) -> bool:
    try:
        client = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0})
        return bool(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def _of_partition(consumer: Consumer, partition: TopicPartition) -> list[Record]:
    """`poll`, because `consume` waits for a full list or its whole timeout."""
    consumer.assign([partition])
    found: list[Record] = []
    while True:
        message = consumer.poll(_SECONDS)
        if message is None:
            raise TimeoutError(f"no end of {partition} within {_SECONDS:.0f} s")
        if message.error() is None:
            headers = tuple(message.headers() or ())
            found.append(Record(message.partition(), message.offset(), message.key(), message.value(), headers))
        elif message.error().name() == "_PARTITION_EOF":
            return found
        else:
            raise KafkaException(message.error())
