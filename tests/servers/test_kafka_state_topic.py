"""What a start reads of the state topic: the newest state of each table, and little else, however
much the sync has written. On a real broker."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.gates import observed
from cdcsync_spark.sinks.kafka.connection.brokers import error_of
from cdcsync_spark.sinks.kafka.state import fold
from cdcsync_spark.sinks.kafka.state.state_topic import STATE_CONFIG, missing_config
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession
from contract.sinkcase import ORDERS, first_state
from support.event_source import HIGH, NAME, EventSource, follow, read_snapshot
from support.kafka import KafkaBroker
from support.kafka_case import KafkaCase
from support.kafka_stream import kafka_sink

pytestmark = pytest.mark.timeout(600)
#: records behind the last repeats after which they are due, where a test says so
FEW = 15
PER_TRANSACTION = 1000


@pytest.fixture
def case(kafka: KafkaBroker) -> KafkaCase:
    return KafkaCase(kafka, f"t{uuid.uuid4().hex[:12]}")


def numbered(record: TableRecord, number: int, epoch: int = 1) -> TableRecord:
    return replace(record, state=replace(record.state, commit_number=number, epoch=epoch))


def written_before(case: KafkaCase, tables: Sequence[str], record: TableRecord, size: int) -> None:
    """Writes as a version that repeated nothing: states of the tables in turns, in transactions."""
    producer = Producer({"bootstrap.servers": case.kafka.bootstrap, "transactional.id": case.name, "linger.ms": 5})
    producer.init_transactions(60)
    text = numbered(record, 12345).to_json("before")
    for begin in range(0, size, PER_TRANSACTION):
        producer.begin_transaction()
        for number in range(begin, min(size, begin + PER_TRANSACTION)):
            value = text.replace(b"12345", b"%d" % number)
            producer.produce(f"{case.name}.state", value, tables[number % len(tables)], partition=0)
        producer.commit_transaction(60)


def opened(case: KafkaCase, role: str = "", *, exactly_once: bool = True) -> KafkaSession:
    session = case.session(role, exactly_once=exactly_once)
    session.open()
    return session


def test_a_long_state_topic_is_read_whole_only_once(case: KafkaCase) -> None:
    tables, size = [f"shop.t{n}" for n in range(50)], 200_000
    session = case.session()
    session.topics.make(session.state, 1, 1, {"cleanup.policy": "compact"})  # as it was made before
    record = TableRecord(first_state(), session.state, "id", 1)
    written_before(case, tables, record, size)
    reader = opened(case)
    assert reader.records() == {table: numbered(record, size - 50 + n) for n, table in enumerate(tables)}
    assert reader.states_read == size
    assert opened(case, "stream").states_read == size  # a reader repeats nothing
    later = opened(case, "stream")
    assert later.records() == reader.records()
    assert later.states_read <= 2 * len(tables)
    record = case.record(later)
    assert later.transact({NAME: record}, [])
    assert opened(case).records() == {**reader.records(), NAME: record}


@pytest.mark.parametrize("exactly_once", [True, False])
def test_any_order_of_writers_and_starts_ends_with_the_newest_states(
    case: KafkaCase, monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    """Runs of two kinds write in turns, each as what it knows allows; some start anew."""
    monkeypatch.setattr(fold, "REPEAT_AFTER", FEW)
    monkeypatch.setattr(fold, "REPEAT_AFTER_PER_TABLE", 0)
    rng = random.Random(7)
    roles = ("stream", "snapshot")
    runs = {role: opened(case, role, exactly_once=exactly_once) for role in roles}
    record, tables = case.record(runs["stream"]), [f"shop.t{n}" for n in range(4)]
    newest: dict[str, TableRecord] = {}
    for number in range(30):
        role = rng.choice(roles)
        if rng.random() < 0.05:
            runs[role] = opened(case, role, exactly_once=exactly_once)
        chosen = {table: numbered(record, number) for table in rng.sample(tables, rng.randint(1, 2))}
        while not runs[role].transact(chosen, []):
            assert all(runs[role].record(table) == newest.get(table) for table in chosen)
        newest |= chosen
        if number % 15 == 14:
            later = opened(case)
            assert later.records() == newest
            assert later.states_read <= 4 * FEW


def test_a_repeat_never_undoes_what_another_run_wrote_meanwhile(
    case: KafkaCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one writes between what is read and what is repeated."""
    monkeypatch.setattr(fold, "REPEAT_AFTER", FEW)
    stream, other = opened(case, "stream", exactly_once=False), opened(case, "catch-up", exactly_once=False)
    record = case.record(stream)
    ours = stream._states.repeats

    def late() -> list[tuple[bytes, bytes]] | None:
        made = ours()
        if made is not None:
            assert other.transact({"shop.b": numbered(record, 1000)}, [])
        return made

    assert other.transact({"shop.b": numbered(record, 999)}, [])
    stream._states.repeats = late  # type: ignore[method-assign]
    for number in range(2 * FEW):
        while not stream.transact({NAME: numbered(record, number)}, []):
            pass
    assert opened(case).records()["shop.b"] == numbered(record, 1000)


def test_a_run_that_dies_behind_its_repeats_is_followed_by_one_that_repeats_again(
    case: KafkaCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "REPEAT_AFTER", FEW)
    record = case.record(opened(case, "stream"))
    written_before(case, ["shop.a", "shop.b"], record, 3 * FEW)
    expected = opened(case).records()

    def dies(gate: str) -> None:
        if gate == "states-repeated":
            raise InterruptedError

    with observed(dies), pytest.raises(InterruptedError):
        opened(case, "stream")
    again = opened(case, "stream")
    assert again.records() == expected
    later = opened(case, "stream")
    assert (later.records(), later.states_read) == (expected, 3)


# -- its settings


def test_one_that_is_there_gets_the_settings_of_a_new_one(case: KafkaCase) -> None:
    name = f"{case.name}.state"
    topics = case.session().topics
    topics.make(name, 1, 1, {"cleanup.policy": "delete", "segment.bytes": "20000000"})
    opened(case, "stream")
    settings = topics.config(name)
    assert settings is not None
    assert {n: settings[n].value for n in STATE_CONFIG} == {**STATE_CONFIG, "segment.bytes": "20000000"}
    fresh = case.session("stream")
    fresh.open()
    assert missing_config(fresh.topics.config(name)) == {}


@pytest.mark.parametrize("cut", ["the older state", "all states"])
def test_states_that_have_expired_are_missed_by_their_tables_alone(case: KafkaCase, cut: str) -> None:
    """A state behind the cut is enough; a topic whose state is gone is refused as foreign."""
    session = case.session("stream")
    record = case.record(session)
    assert session.transact({"shop.idle": record}, [])
    assert session.transact({NAME: numbered(record, 1)}, [case.piece(b"1")])
    at = session.topics.end(session.state)
    assert session.transact({NAME: numbered(record, 2)}, [case.piece(b"2")])
    _expire(session, at if cut == "the older state" else session.topics.end(session.state))
    later = opened(case, "stream")
    if cut == "the older state":
        assert later.records() == {NAME: numbered(record, 2)}
        assert later.transact({NAME: numbered(record, 3)}, [case.piece(b"3")])
    else:
        assert later.records() == {}


def test_a_table_whose_state_has_expired_is_refused(kafka: KafkaBroker, tmp_path: Path) -> None:
    folder = tmp_path / f"t{random.getrandbits(48)}"
    folder.mkdir()
    sink = kafka_sink(kafka.bootstrap, folder, "snapshot")
    read_snapshot(sink, EventSource(random.Random(3)).snapshot())
    stream = kafka_sink(kafka.bootstrap, folder, "stream")
    follow(stream, EventSource(random.Random(3)), tmp_path, end=HIGH)
    _expire(stream.session, stream.session.topics.end(stream.session.state))
    with pytest.raises(CdcError) as found:
        kafka_sink(kafka.bootstrap, folder, "snapshot").target(ORDERS.id).prepare(first_state(epoch=9))  # type: ignore[union-attr]
    assert found.value.reason is Reason.SINK_CONFLICT
    assert "the state topic has no record of the table" in found.value.found


def _expire(session: KafkaSession, before: int) -> None:
    """As retention does; the broker learns of the policy a moment later."""
    assert session.topics.configure(session.state, {"cleanup.policy": "delete"})
    place, until = TopicPartition(session.state, 0, before), time.monotonic() + 120
    while True:
        try:
            session.topics.admin.delete_records([place])[place].result(120)
            return
        except KafkaException as error:
            if error_of(error).name() != "POLICY_VIOLATION" or time.monotonic() > until:
                raise
        time.sleep(0.05)
