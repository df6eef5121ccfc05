"""Topics whose snapshot is sent as soon as it is read (`snapshot.delivery: early`), on a real
broker: what a consumer of committed records sees, under kills at every failpoint and beside runs
that wake after their successors."""

from __future__ import annotations

import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.contract.sink import Counting, Target
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from contract.sinkcase import ORDERS, content, first_state
from support.deaths import Died, dying_at
from support.early_topic import SPLITS, check, early_rows, early_sink, events_behind, read_early_topic, seen, topic_in
from support.event_consumer import CheckingConsumer, Event
from support.event_source import (
    END,
    HIGH,
    LOW,
    NAME,
    EventSource,
    applier,
    error_of_a_crash,
    follow,
    read_early,
    read_snapshot,
)
from support.kafka import KafkaBroker
from support.kafka_stream import SUPERSEDED
from support.kafka_worker import Worker, wait_for_gate

pytestmark = pytest.mark.timeout(300)
Kill = tuple[str, str, int]
#: a run, the failpoint at which it dies, and how often that is passed. A snapshot's run that dies
#: behind `entry-written` leaves one more wave in the copy; at last the copy is complete, and what
#: is not sent of it is the stream's.
USUAL = [
    ("snapshot", "entry-written", 1),
    ("snapshot", "kafka-sent", 2),
    ("snapshot", "part-sent", 2),
    ("snapshot", "before-publish", 3),
    ("stream", "part-sent", 1),
    ("stream", "kafka-committed", 2),
]
ALL = [
    ("snapshot", "kafka-opened", 1),
    ("snapshot", "table-created", 1),
    ("snapshot", "table-created", 1),
    ("snapshot", "staged", 1),
    ("snapshot", "entry-written", 1),
    ("snapshot", "kafka-sent", 1),
    ("snapshot", "kafka-committed", 2),
    ("snapshot", "part-sent", 2),
    ("snapshot", "published", 1),
    ("snapshot", "before-publish", 1),
    ("stream", "kafka-begun", 1),
    ("stream", "part-sent", 1),
    ("stream", "kafka-sent", 1),
    ("stream", "kafka-committed", 2),
]


class Early:
    """A sync whose topics are named after its folder."""

    def __init__(self, kafka: KafkaBroker, folder: Path, seed: int = 11, *, plain: bool = False) -> None:
        self.brokers, self.folder, self.plain = kafka.bootstrap, folder, plain
        self.source = EventSource(random.Random(seed))
        self.topic = topic_in(self.brokers, folder)
        self.worker = Worker(self.brokers, folder, seed, ("early", *["plain"] * plain))

    def sink(self, role: str) -> KafkaSink:
        """The sink of a new process."""
        return early_sink(self.brokers, self.folder, role, exactly_once=not self.plain)

    def follow(self, scratch: Path, end: int = END) -> KafkaSink:
        sink = self.sink("stream")
        follow(sink, self.source, scratch, end=end)
        return sink

    def check(self, upto: int = END) -> None:
        check(self.source, self.brokers, self.topic, upto)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its name is no other test's."""
    made = tmp_path / f"t{random.getrandbits(48)}"
    made.mkdir()
    return made


@pytest.mark.parametrize(("seed", "plain"), [(0, False), (1, False), (2, True)])
def test_rows_that_are_sent_early_end_right(
    kafka: KafkaBroker, folder: Path, tmp_path: Path, seed: int, plain: bool
) -> None:
    early = Early(kafka, folder, seed, plain=plain)
    state = read_early_topic(early.sink("snapshot"), early.source)
    assert (state.position is not None, state.consistent, state.published) == (True, False, True)
    assert {r.op for records in seen(early.brokers, early.topic).values() for r in records} == {"r"}
    for end in (HIGH, END):
        sink = early.follow(tmp_path, end)
        early.check(end)
        assert content(sink.target(ORDERS.id)) == sorted(early.source.at[end].items(), key=repr), "folded"
    found = sink.target(ORDERS.id).last_commit()
    assert found is not None
    assert found.consistent
    assert found.events == sum(len(images) for images in early.source.log.values())
    assert not list((folder / "lake").rglob("*.parquet")), "the staged copy is removed"


def test_a_run_counts_the_records_of_its_waves(kafka: KafkaBroker, folder: Path) -> None:
    early = Early(kafka, folder)

    def shown(target: Target) -> list[Event]:
        rows = early_rows(early.brokers, early.topic)
        assert isinstance(target, Counting)
        assert target.counts == {"records": len(rows)}
        return rows

    read_early(early.sink("snapshot"), early.source.snapshot(), shown, SPLITS)


@pytest.mark.parametrize("kills", [USUAL, pytest.param(ALL, marks=pytest.mark.long)], ids=["usual", "all"])
def test_a_run_that_is_killed_anywhere_is_gone_on_from(kafka: KafkaBroker, folder: Path, kills: list[Kill]) -> None:
    early = Early(kafka, folder)
    for role, gate, count in kills:
        code = early.worker.start(f"{gate}:{count}:kill", role).wait(120)
        assert code == -signal.SIGKILL, (role, gate, count, code)
    assert early.worker.start().wait(120) == 0
    early.check()


@pytest.mark.long
def test_without_transactions_a_kill_may_repeat_rows_and_loses_nothing(kafka: KafkaBroker, folder: Path) -> None:
    early = Early(kafka, folder, plain=True)
    for role, gate, count in ALL:
        assert early.worker.start(f"{gate}:{count}:kill", role).wait(120) in (-signal.SIGKILL, 0)
    assert early.worker.start().wait(120) == 0
    check(early.source, early.brokers, early.topic, repeats=True)


@pytest.mark.parametrize(
    ("gate", "successor"),
    [
        ("committed:1", "stream"),
        pytest.param("kafka-begun:1", "snapshot", marks=pytest.mark.long),
        pytest.param("committed:1", "snapshot", marks=pytest.mark.long),
        pytest.param("part-sent:1", "snapshot", marks=pytest.mark.long),
        pytest.param("kafka-begun:1", "stream", marks=pytest.mark.long),
        pytest.param("part-sent:1", "stream", marks=pytest.mark.long),
    ],
)
def test_a_snapshot_that_wakes_after_its_successor_changes_nothing(
    kafka: KafkaBroker, folder: Path, gate: str, successor: str
) -> None:
    """One of the same kind fences it; a stream, which sends what is left of the rows, is ordered by
    the state topic."""
    early = Early(kafka, folder)
    read_early_topic(early.sink("snapshot"), early.source, 2 if successor == "snapshot" else len(SPLITS) - 1)
    zombie = early.worker.start(f"{gate}:stop", "snapshot")
    wait_for_gate(early.worker.fired, zombie)
    fresh = early.worker.start(role=successor)
    if successor == "stream":
        zombie.send_signal(signal.SIGCONT)  # its open transaction holds the state back
    assert fresh.wait(120) in (0, SUPERSEDED)
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(120) in (0, 1, SUPERSEDED)
    for role in ("snapshot", "stream"):
        assert early.worker.start(role=role).wait(120) == 0
    early.check()


@pytest.mark.parametrize("waves", [2, len(SPLITS)])
def test_a_resnapshot_is_sent_as_of_one_position(kafka: KafkaBroker, folder: Path, tmp_path: Path, waves: int) -> None:
    """Whatever the delivery, and wherever the first snapshot was."""
    early = Early(kafka, folder)
    read_early_topic(early.sink("snapshot"), early.source, waves)
    before = {key: len(records) for key, records in seen(early.brokers, early.topic).items()}
    read_snapshot(early.sink("snapshot"), early.source.snapshot(), nonce=1, early=True)
    assert {key: len(records) for key, records in seen(early.brokers, early.topic).items()} == before, "silent"
    sink = early.follow(tmp_path)
    record = sink.session.record(NAME)
    assert record is not None
    assert not record.state.early
    consumer = CheckingConsumer(("id",)).take(events_behind(early.brokers, early.topic, record.begins))
    assert consumer.faults == []
    assert {k: r["note"] for (k,), r in consumer.rows.items()} == early.source.at[END]
    assert content(sink.target(ORDERS.id)) == sorted(early.source.at[END].items(), key=repr)


def test_a_copy_that_is_gone_stops_the_table_until_it_is_resnapshot(
    kafka: KafkaBroker, folder: Path, tmp_path: Path
) -> None:
    """Its rows are not read anew beside those that were sent."""
    early = Early(kafka, folder)
    read_early_topic(early.sink("snapshot"), early.source, 2)
    shutil.rmtree(folder / "lake")
    with pytest.raises(CdcError) as found:
        read_early_topic(early.sink("snapshot"), early.source)
    assert found.value.reason is Reason.SINK_CONFLICT
    assert "resnapshot" in found.value.remedy
    read_snapshot(early.sink("snapshot"), early.source.snapshot(), nonce=1, early=True)
    sink = early.follow(tmp_path)
    assert content(sink.target(ORDERS.id)) == sorted(early.source.at[END].items(), key=repr)


def test_a_copy_that_is_gone_stops_the_stream_that_would_send_the_rest(
    kafka: KafkaBroker, folder: Path, tmp_path: Path
) -> None:
    early = Early(kafka, folder)
    with pytest.raises(Died), dying_at("before-publish", len(SPLITS)):
        read_early_topic(early.sink("snapshot"), early.source)
    before, run = seen(early.brokers, early.topic), applier(early.sink("stream"), tmp_path)
    shutil.rmtree(folder / "lake")
    run.apply(early.source.batch(LOW, END, tmp_path))
    error = run.tables[NAME].error
    assert error is not None
    assert (error.reason, "staged copy" in error.found) == (Reason.SINK_CONFLICT, True)
    assert seen(early.brokers, early.topic) == before


def test_an_early_topic_stops_where_the_source_crashed_before_it_is_consistent(
    kafka: KafkaBroker, folder: Path, tmp_path: Path
) -> None:
    """Its rows may be of transactions that the source has lost."""
    early = Early(kafka, folder)
    read_early_topic(early.sink("snapshot"), early.source)
    before = seen(early.brokers, early.topic)
    error = error_of_a_crash(early.sink("stream"), tmp_path)
    assert error is not None
    assert error.reason is Reason.POSITION_LOST
    assert seen(early.brokers, early.topic) == before


@pytest.mark.parametrize("before", [False, True])
def test_a_snapshot_ends_in_the_way_that_it_began(kafka: KafkaBroker, folder: Path, before: bool) -> None:
    """`snapshot.delivery` is changed between two runs."""
    early, first = Early(kafka, folder), replace(first_state(), early=before)
    assert early.sink("snapshot").target(ORDERS.id).prepare(first).early is before
    assert early.sink("snapshot").target(ORDERS.id).prepare(replace(first, early=not before)).early is before


def test_a_row_that_is_too_large_stops_its_table_and_no_other_row_is_lost(kafka: KafkaBroker, folder: Path) -> None:
    early = Early(kafka, folder)
    early.source.at = {end: rows | {1: "x" * 2_000_000} for end, rows in early.source.at.items()}
    with pytest.raises(CdcError) as found:
        read_early_topic(early.sink("snapshot"), early.source)
    assert (found.value.reason, found.value.table) == (Reason.SPEC_INVALID, NAME)
    sent = seen(early.brokers, early.topic)
    with pytest.raises(CdcError):
        read_early_topic(early.sink("snapshot"), early.source)
    assert seen(early.brokers, early.topic) == sent, "the next run meets the same row"
