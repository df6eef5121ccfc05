"""Transactions of Kafka as a sink that do not go as they should: a topic that is replaced
meanwhile, a timeout, a fault in the middle, a broker that hangs. Each with its reason, on a real
broker."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_spark.sinks.contract.checks import Superseded
from cdcsync_spark.sinks.formats.json_records import Records
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, TopicRecords
from cdcsync_spark.sinks.kafka.transactions.table_fault import TableFault
from contract.sinkcase import ORDERS, first_state
from support.event_source import END, HIGH, NAME, EventSource, applier, follow, read_snapshot
from support.kafka import KafkaBroker
from support.kafka_case import LONG, KafkaCase
from support.kafka_stream import kafka_sink

pytestmark = pytest.mark.timeout(300)
#: seconds of a transaction that the brokers end while a test waits
BOUND = 2.0
#: of one that is slow, half of which a busy machine may take between two of its records
SLOW = 8.0


def _decided(session: KafkaSession, records: dict[str, TableRecord], pieces: list[TopicRecords]) -> None:
    """As a writer does: again where it is not known yet."""
    while not session.transact(records, pieces):
        pass


@pytest.fixture
def case(kafka: KafkaBroker) -> KafkaCase:
    return KafkaCase(kafka, f"t{uuid.uuid4().hex[:12]}")


# -- topics that change while a run writes


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_while_a_run_writes_stops_the_table(
    kafka: KafkaBroker, tmp_path: Path, made_again: bool
) -> None:
    """Nothing of it goes to the topic that has its name then."""
    folder = tmp_path / f"t{random.getrandbits(48)}"
    source, sink = EventSource(random.Random(8)), kafka_sink(kafka.bootstrap, folder, "stream")
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot())
    follow(kafka_sink(kafka.bootstrap, folder, "stream"), source, tmp_path, end=HIGH)
    run = applier(sink, tmp_path)
    run.apply(source.batch(HIGH, HIGH + 1000, tmp_path))
    assert run.tables[NAME].error is None
    topic = sink.target(ORDERS.id).topic  # type: ignore[union-attr]
    admin = kafka.admin()
    admin.delete_topics([topic], operation_timeout=120)[topic].result(120)
    if made_again:
        sink.session.topics.make(topic, 3, 1, {})
        sink.session.topics.made(topic)
    run.apply(source.batch(HIGH + 1000, END, tmp_path))
    error = run.tables[NAME].error
    assert error is not None
    assert error.reason is Reason.SINK_CONFLICT
    assert ("made again" if made_again else "is gone") in error.found
    assert not made_again or kafka.read(topic) == []


def test_partitions_that_are_added_while_a_run_writes_stop_the_table(case: KafkaCase) -> None:
    session = case.session()
    assert case.send(session, case.piece(b"1"))
    record = case.record(session)
    admin = case.kafka.admin()
    admin.create_partitions([NewPartitions(case.name, 2)])[case.name].result(120)
    with pytest.raises(TableFault) as found:
        session.transact({NAME: record}, [case.piece(b"2")])
    assert "has 2 partitions, and had 1" in found.value.error.found
    assert case.seen() == [b"1"]


def test_a_state_topic_that_is_replaced_while_a_run_writes_ends_it(case: KafkaCase) -> None:
    session = case.session()
    assert case.send(session, case.piece(b"1"))
    admin = case.kafka.admin()
    admin.delete_topics([session.state], operation_timeout=120)[session.state].result(120)
    session.topics.make(session.state, 1, 1, {})
    session.topics.made(session.state)
    with pytest.raises(PermanentError) as found:
        case.send(session, case.piece(b"2"))
    assert (found.value.reason, found.value.table) == (Reason.SINK_CONFLICT, "")
    assert case.seen() == [b"1"]


# -- transactions that take too long


def test_a_transaction_that_is_too_large_is_told_from_a_successor(case: KafkaCase) -> None:
    with pytest.raises(CdcError) as found:
        case.send(case.session(transaction=SLOW), *[case.piece(b"slow"), SLOW / 16] * 120)
    assert found.value.reason is Reason.TRANSACTION_TOO_LARGE
    assert not isinstance(found.value, Superseded)
    assert case.send(case.session(), case.piece(b"next"))
    assert case.seen() == [b"next"]


def test_a_transaction_that_hung_is_tried_again(case: KafkaCase) -> None:
    """Its process was stopped, say: it is the next run's."""
    session = case.session(transaction=BOUND)
    with pytest.raises(CdcError) as found:
        case.send(session, case.piece(b"hung"), 2 * BOUND, case.piece(b"late"))
    assert found.value.reason is Reason.SINK_UNREACHABLE
    assert "nothing was sent" in found.value.found
    assert case.send(case.session(), case.piece(b"next"))
    assert case.seen() == [b"next"]


@pytest.mark.parametrize("pause", [0.0, 2 * BOUND])
def test_a_run_whose_successor_has_written_is_superseded(case: KafkaCase, pause: float) -> None:
    """However long its transaction was open."""
    session = case.session(transaction=BOUND)

    def overtaken() -> Iterator[TopicRecords]:
        yield case.piece(b"late")
        time.sleep(pause)
        assert case.send(case.session(), case.piece(b"successor"), epoch=2)
        yield case.piece(b"late")

    record = case.record(session)
    with pytest.raises(Superseded):
        session.transact({NAME: record}, overtaken())
    assert case.seen() == [b"successor"]


# -- faults in the middle


def test_whatever_goes_wrong_in_a_transaction_holds_no_consumer_up(case: KafkaCase) -> None:
    def faulty() -> Iterator[TopicRecords]:
        yield case.piece(b"half")
        raise ValueError("a fault of ours")

    session = case.session()
    record = case.record(session)
    with pytest.raises(ValueError, match="a fault of ours"):
        session.transact({NAME: record}, faulty())
    begun = time.monotonic()
    assert case.send(case.session("catch-up"), case.piece(b"other"))
    assert case.seen() == [b"other"]
    assert time.monotonic() - begun < LONG, "the brokers did not have to end it"
    assert session.transact({NAME: replace(record, partitions=1)}, [case.piece(b"again")]) in (True, False)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_record_that_its_topic_refuses_is_its_tables_fault(case: KafkaCase, exactly_once: bool) -> None:
    """And the other table goes on in the same session."""
    session = case.session(exactly_once=exactly_once)
    small = f"{case.name}.small"
    session.topics.make(small, 1, 1, {"max.message.bytes": "2000"})
    found = session.topics.made(small)
    other = TableRecord(first_state(epoch=1), found.name, found.id, found.partitions)
    records = {NAME: case.record(session), "shop.small": other}
    large = TopicRecords("shop.small", small, Records(pa.array([b"k"]), pa.array([random.Random(1).randbytes(5000)])))
    for _ in range(2):
        with pytest.raises(TableFault) as fault:
            _decided(session, records, [case.piece(b"1"), large])
        assert (fault.value.table, fault.value.error.reason) == ("shop.small", Reason.SPEC_INVALID)
    assert case.send(session, case.piece(b"2"))
    assert case.seen() == [b"2"] if exactly_once else [b"1", b"1", b"2"]
    assert case.kafka.read(small) == []


def test_a_broker_that_hangs_is_unreachable_within_a_bound_and_then_gone_on_with(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path).start()
    case = KafkaCase(broker, "t")
    try:
        session = case.session()
        assert case.send(session, case.piece(b"1"))
        record = case.record(session)
        session.settings = session.brokers.settings = replace(session.settings, timeout=2.0)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(CdcError) as found:
            session.transact({NAME: record}, [case.piece(b"2")])
        assert found.value.reason is Reason.SINK_UNREACHABLE
        assert time.monotonic() - begun < LONG / 2
        os.kill(broker.pid, signal.SIGCONT)
        assert case.send(case.session(), case.piece(b"3"))
        assert case.seen()[-1] == b"3"
    finally:
        broker.kill()


def test_a_broker_that_hangs_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path).start()
    case = KafkaCase(broker, "t")
    try:
        session = case.session()
        record = case.record(session)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        timer = threading.Timer(1.0, os.kill, (broker.pid, signal.SIGCONT))
        timer.start()
        assert session.transact({NAME: record}, [case.piece(b"1")])
        assert case.seen() == [b"1"]
    finally:
        broker.kill()
