"""Topics and records that Kafka as a sink refuses, each with its reason, on a real broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.gates import observed
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from contract.sinkcase import ORDERS, content, first_state
from support.event_source import END, HIGH, NAME, EventSource, applier, follow, read_snapshot
from support.kafka import KafkaBroker
from support.kafka_stream import kafka_sink

pytestmark = pytest.mark.timeout(300)
SinkMaker = Callable[[str], KafkaSink]


@pytest.fixture
def sink_for(kafka: KafkaBroker, tmp_path: Path) -> SinkMaker:
    """A new process's sink, by its role; all of a test have the same topics."""
    folder = tmp_path / f"t{random.getrandbits(48)}"
    folder.mkdir()
    return lambda role: kafka_sink(kafka.bootstrap, folder, role)


def refusal(sink: KafkaSink) -> CdcError:
    with pytest.raises(CdcError) as found:
        sink.target(ORDERS.id).prepare(first_state(epoch=1))  # type: ignore[union-attr]
    return found.value


def topic_of(sink: KafkaSink) -> str:
    return sink.topics.name(sink.sync, ORDERS.id)


def test_a_topic_with_records_of_others_is_refused_and_stays(kafka: KafkaBroker, sink_for: SinkMaker) -> None:
    sink = sink_for("snapshot")
    topic = topic_of(sink)
    sink.session.topics.make(topic, 1, 1, {})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"theirs")
    assert producer.flush(30) == 0
    error = refusal(sink)
    assert (error.reason, error.table) == (Reason.SINK_CONFLICT, NAME)
    assert [r.value for r in kafka.read(topic)] == [b"theirs"]


def test_two_tables_of_one_name_are_refused(sink_for: SinkMaker) -> None:
    """What a topic's name cannot have becomes an underscore."""
    one, other = (replace(ORDERS, source=replace(ORDERS.source, id=TableId("shop", n))) for n in ("a b", "a?b"))
    sink_for("snapshot").target(one.id).prepare(_state(one))
    with pytest.raises(CdcError) as found:
        sink_for("snapshot").target(other.id).prepare(_state(other))
    assert found.value.reason is Reason.SPEC_INVALID
    assert "is that of shop.a b, too" in found.value.found


def _state(table: Capture) -> TableState:
    state = first_state(epoch=1)
    return replace(state, capture=table, identity=replace(state.identity, table=str(table.id)))


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_was_deleted_stops_the_table_until_a_resnapshot(
    kafka: KafkaBroker, sink_for: SinkMaker, tmp_path: Path, made_again: bool
) -> None:
    """It is made again and has all rows, and the stream goes on."""
    source = EventSource(random.Random(5))
    read_snapshot(sink_for("snapshot"), source.snapshot())
    follow(sink_for("stream"), source, tmp_path, end=HIGH)
    sink = sink_for("stream")
    topic = topic_of(sink)
    admin = kafka.admin()
    admin.delete_topics([topic], operation_timeout=120)[topic].result(120)
    if made_again:
        sink.session.topics.make(topic, 3, 1, {})
        sink.session.topics.made(topic)
    for refused in (
        lambda: sink_for("stream").target(ORDERS.id).writer(tmp_path).last_commit(),
        lambda: refusal_of_open(sink_for("")),
    ):
        with pytest.raises(CdcError) as gone:
            refused()
        assert gone.value.reason is Reason.SINK_CONFLICT
        assert ("deleted and made again" if made_again else "is gone") in gone.value.found
        assert gone.value.remedy.startswith("resnapshot the table: spec.resnapshot")
    assert refusal(sink_for("snapshot")).reason is Reason.SINK_CONFLICT
    read_snapshot(sink_for("snapshot"), source.snapshot(), nonce=1)
    follow(sink_for("stream"), source, tmp_path)
    assert content(sink_for("").target(ORDERS.id)) == sorted(source.at[END].items(), key=repr)


def test_a_run_that_dies_behind_the_topic_that_it_made_again_is_followed_by_another(
    kafka: KafkaBroker, sink_for: SinkMaker, tmp_path: Path
) -> None:
    source = EventSource(random.Random(5))
    read_snapshot(sink_for("snapshot"), source.snapshot())
    admin, topic = kafka.admin(), topic_of(sink_for(""))
    admin.delete_topics([topic], operation_timeout=120)[topic].result(120)

    def dies(gate: str) -> None:
        if gate == "topic-made-again":
            raise InterruptedError

    with observed(dies), pytest.raises(InterruptedError):
        read_snapshot(sink_for("snapshot"), source.snapshot(), nonce=1)
    read_snapshot(sink_for("snapshot"), source.snapshot(), nonce=2)
    follow(sink_for("stream"), source, tmp_path)
    assert content(sink_for("").target(ORDERS.id)) == sorted(source.at[END].items(), key=repr)


def refusal_of_open(sink: KafkaSink) -> object:
    return sink.target(ORDERS.id).open_snapshot()


def test_a_topic_that_was_deleted_and_has_records_of_others_is_not_taken(
    kafka: KafkaBroker, sink_for: SinkMaker
) -> None:
    read_snapshot(sink_for("snapshot"), EventSource(random.Random(5)).snapshot())
    admin, topic = kafka.admin(), topic_of(sink_for(""))
    admin.delete_topics([topic], operation_timeout=120)[topic].result(120)
    sink_for("").session.topics.make(topic, 3, 1, {})
    sink_for("").session.topics.made(topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"theirs")
    assert producer.flush(30) == 0
    with pytest.raises(CdcError) as foreign:
        read_snapshot(sink_for("snapshot"), EventSource(random.Random(5)).snapshot(), nonce=1)
    assert foreign.value.reason is Reason.SINK_CONFLICT
    assert [r.value for r in kafka.read(topic)] == [b"theirs"]


def test_a_record_that_is_too_large_stops_its_table_and_nothing_of_it_is_there(
    kafka: KafkaBroker, sink_for: SinkMaker, tmp_path: Path
) -> None:
    source = EventSource(random.Random(6))
    read_snapshot(sink_for("snapshot"), source.snapshot())
    run = follow(sink_for("stream"), source, tmp_path, end=HIGH)
    sink = sink_for("stream")
    before = kafka.read(topic_of(sink))
    source.log[HIGH + 100] = [(ChangeKind.DELETE, k, v) for k, v in list(source.at[HIGH].items())[:2]] + [
        (ChangeKind.INSERT, 1000, "x" * 2_000_000)
    ]
    run = applier(sink, tmp_path)
    run.apply(source.batch(HIGH, HIGH + 100, tmp_path))
    error = run.tables[NAME].error
    assert error is not None
    assert (error.reason, error.table) == (Reason.SPEC_INVALID, NAME)
    assert "message.max.bytes" in error.remedy
    assert kafka.read(topic_of(sink)) == before


def test_brokers_that_are_not_there_are_tried_within_a_bound(sink_for: SinkMaker, tmp_path: Path) -> None:
    sink = sink_for("stream")
    away = KafkaSink(
        KafkaSettings("127.0.0.1:9", timeout=2.0), sink.topics, sink.form, sink.sync, sink.staging, "stream", state="x"
    )
    with pytest.raises(CdcError) as found:
        away.target(ORDERS.id).last_commit()
    assert found.value.reason is Reason.SINK_UNREACHABLE
