"""Kafka as a sink under kills: at every failpoint of a transaction and of a snapshot that is sent,
and a run that wakes after its successor. No record is false, missing or there twice."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcsync_spark.rows.changes import ChangeKind
from contract.sinkcase import ORDERS
from support.event_consumer import CheckingConsumer, Event
from support.event_source import END, HIGH, EventSource, applier, apply_while_completed_by, read_snapshot
from support.kafka import KafkaBroker
from support.kafka_stream import SUPERSEDED, kafka_sink
from support.kafka_worker import Worker, wait_for_gate

pytestmark = pytest.mark.timeout(300)
SEED = 11
#: a failpoint and how often it is passed before
KILLS = [
    ("kafka-opened", 1),
    ("before-publish", 1),
    ("kafka-begun", 1),
    ("kafka-sent", 2),
    ("kafka-committed", 2),
    ("part-sent", 3),
    ("published", 1),
    ("kafka-begun", 2),
    ("kafka-sent", 1),
    ("kafka-committed", 1),
    ("kafka-sent", 3),
]


class KafkaRuns(Worker):
    """The runs behind a snapshot that is read; `plain` without transactions."""

    def __init__(self, kafka: KafkaBroker, folder: Path, *, plain: bool = False) -> None:
        super().__init__(kafka.bootstrap, folder, SEED, ["plain"] * plain)
        self.kafka = kafka
        self.source = EventSource(random.Random(SEED))
        sink = kafka_sink(kafka.bootstrap, folder, "snapshot", exactly_once=not plain)
        read_snapshot(sink, self.source.snapshot())

    def check(self) -> None:
        """Every committed record, in each partition in its order."""
        consumer = CheckingConsumer(("id",)).take(self.events())
        assert consumer.faults == []
        assert {k: r["note"] for (k,), r in consumer.rows.items()} == self.source.at[END]
        assert sum(len(images) for images in self.source.log.values()), "something changed"

    def check_last(self) -> int:
        """The last record of each key is right, and no change is missing; how many are repeats."""
        events = [(e.operation, e.row["id"], e.row["note"]) for e in self.events()]
        last = {key: (operation, note) for operation, key, note in events}
        assert {k: note for k, (operation, note) in last.items() if operation[0] == "+"} == self.source.at[END]
        sent = {(key, note) for operation, key, note in events if operation[0] == "+"}
        for end, images in self.source.log.items():
            later = {(k, v) for kind, k, v in images if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)}
            assert end <= HIGH + 700 or later <= sent, "the topic begins at most so far behind HIGH"
        return len(events) - len(set(events))

    def events(self) -> Iterator[Event]:
        """A key that changes has records in two partitions; each key's own are in one."""
        topic = kafka_sink(self.kafka.bootstrap, self.folder, "").target(ORDERS.id).topic
        for record in self.kafka.read(topic):
            value = json.loads(record.value or b"")
            yield Event(value["op"], value["data"], 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its name is no other test's."""
    made = tmp_path / f"t{random.getrandbits(48)}"
    made.mkdir()
    return made


@pytest.fixture
def runs(kafka: KafkaBroker, folder: Path) -> KafkaRuns:
    return KafkaRuns(kafka, folder)


def test_a_run_that_is_killed_anywhere_is_gone_on_from(runs: KafkaRuns) -> None:
    for name, count in KILLS:
        worker = runs.start(f"{name}:{count}:kill")
        code = worker.wait(120)
        assert code in (-signal.SIGKILL, 0), (name, code)
    assert runs.start().wait(120) == 0
    runs.check()


@pytest.mark.parametrize(
    ("successor", "gate"),
    [
        ("stream", "kafka-begun:2"),
        ("stream", "kafka-sent:2"),
        ("catch-up", "kafka-sent:2"),
        ("catch-up", "part-sent:2"),
        pytest.param("stream", "part-sent:2", marks=pytest.mark.long),
        pytest.param("catch-up", "kafka-begun:2", marks=pytest.mark.long),
    ],
)
def test_a_run_that_wakes_after_its_successor_changes_nothing(runs: KafkaRuns, gate: str, successor: str) -> None:
    """A successor of the same kind fences it; one of another kind is ordered by the state topic."""
    zombie = runs.start(f"{gate}:stop")
    wait_for_gate(runs.fired, zombie)
    fresh = runs.start(role=successor)
    if successor != "stream":
        zombie.send_signal(signal.SIGCONT)  # its open transaction holds the state back
    assert fresh.wait(120) in (0, SUPERSEDED)
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(120) in (0, 1, SUPERSEDED)
    assert runs.start().wait(120) == 0
    runs.check()


def test_a_copy_that_another_run_completes_meanwhile_loses_no_change(runs: KafkaRuns) -> None:
    """Between what a run has found of the staged copy and its commit, its predecessor makes it
    consistent, at a position before the end of the run's batch."""
    brokers, folder, source = runs.kafka.bootstrap, runs.folder, runs.source
    before = applier(kafka_sink(brokers, folder, "stream"), folder)
    run = applier(kafka_sink(brokers, folder, "catch-up"), folder, epoch=before.epoch + 1)
    apply_while_completed_by(before, run, source, folder)
    runs.check()


@pytest.mark.long
def test_without_transactions_a_kill_may_repeat_and_loses_nothing(kafka: KafkaBroker, folder: Path) -> None:
    runs = KafkaRuns(kafka, folder, plain=True)
    for name, count in KILLS:
        code = runs.start(f"{name}:{count}:kill").wait(120)
        assert code in (-signal.SIGKILL, 0), (name, code)
    assert runs.start().wait(120) == 0
    assert runs.check_last() > 0, "what was sent before a kill is there twice"


@pytest.mark.parametrize("gate", [pytest.param("kafka-begun:2", marks=pytest.mark.long), "kafka-sent:2"])
def test_without_transactions_a_run_that_wakes_sees_its_successor(kafka: KafkaBroker, folder: Path, gate: str) -> None:
    """In time for the states; records that it was about to send are older ones."""
    runs = KafkaRuns(kafka, folder, plain=True)
    zombie = runs.start(f"{gate}:stop")
    wait_for_gate(runs.fired, zombie)
    assert runs.start().wait(120) == 0
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(120) in (0, 1, SUPERSEDED)
    assert runs.start().wait(120) == 0
    if gate.startswith("kafka-sent"):
        runs.check_last()
