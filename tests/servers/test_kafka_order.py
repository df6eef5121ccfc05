"""The order of writers of one sync's topics: a run never passes over what another run has written
of a table, whatever it wrote itself meanwhile. On a real broker."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.sinks.contract.changes import Commit
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, OnDelivery
from contract.sinkcase import ORDERS, content, first_state, stage
from support.event_consumer import CheckingConsumer, Event
from support.event_source import END, HIGH, LOW, NAME, EventSource, applier, follow, place, read_snapshot
from support.kafka import KafkaBroker
from support.kafka_case import KafkaCase
from support.kafka_stream import kafka_sink
from support.lost_copies import LOST, read_again, refuse

pytestmark = pytest.mark.timeout(300)
BESIDE = "shop.b"
#: without a key; two rows are equal
BAG = replace(ORDERS, key=())
ROWS = [(1, "x"), (1, "x"), (2, None)]
OPS = {
    ChangeKind.INSERT: "+I",
    ChangeKind.UPDATE_BEFORE: "-U",
    ChangeKind.UPDATE_AFTER: "+U",
    ChangeKind.DELETE: "-D",
}


@pytest.fixture
def case(kafka: KafkaBroker) -> KafkaCase:
    return KafkaCase(kafka, f"t{uuid.uuid4().hex[:12]}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its name is in those of the topics."""
    made = tmp_path / f"t{random.getrandbits(48)}"
    made.mkdir()
    return made


def beside(session: KafkaSession, topic: str) -> dict[str, TableRecord]:
    """The record of another table."""
    session.topics.make(topic, 1, 1, {})
    made = session.topics.made(topic)
    return {BESIDE: TableRecord(first_state(epoch=1), made.name, made.id, made.partitions)}


def later(record: TableRecord) -> TableRecord:
    return replace(record, state=replace(record.state, epoch=2))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_another_runs_record_is_remembered_over_transactions_of_other_tables(
    case: KafkaCase, exactly_once: bool
) -> None:
    stream, other = (case.session(role, exactly_once=exactly_once) for role in ("stream", "catch-up"))
    record = case.record(stream)
    another = beside(stream, f"{case.name}.b")
    while not stream.transact({NAME: record}, [case.piece(b"1")]):
        pass
    other.refresh()
    assert other.transact({NAME: later(record)}, [case.piece(b"2")])
    assert stream.transact(another, [])  # reads past the other run's record
    assert not stream.transact({NAME: record}, [case.piece(b"late")])
    assert case.seen() == [b"1", b"2"]


class Interrupted(KafkaSession):
    """Calls `before_state`, once, when the state of `NAME` is to be sent and those before it have
    been."""

    before_state: Callable[[], None] | None = None

    def _produce(
        self, topic: str, value: bytes | None, key: bytes | None, on_delivery: OnDelivery | None, partition: int = -1
    ) -> None:
        if self.before_state is not None and topic == self.state and key == NAME.encode():
            call, self.before_state = self.before_state, None
            self._live.flush(10)
            call()
        super()._produce(topic, value, key, on_delivery, partition)


def test_of_two_writers_whose_records_interleave_at_most_one_passes(case: KafkaCase) -> None:
    plain, other = case.session("stream"), case.session("catch-up")
    one = Interrupted(plain.settings, plain.sync, "stream", 1, plain.state)
    record = case.record(one)
    both = {**beside(one, f"{case.name}.b"), NAME: record}
    while not one.transact(both, [case.piece(b"1")]):
        pass
    other.refresh()
    passed: list[bool] = []
    one.before_state = lambda: passed.append(other.transact({NAME: later(record)}, [case.piece(b"2")]))
    passed.append(one.transact(both, [case.piece(b"late")]))
    assert passed == [True, False]
    assert case.seen() == [b"1", b"2"]


def test_a_stream_never_sends_behind_a_resnapshot_that_another_run_sent(
    kafka: KafkaBroker, folder: Path, tmp_path: Path
) -> None:
    """It had a batch of another table meanwhile."""
    source = EventSource(random.Random(3))
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot())
    sink = kafka_sink(kafka.bootstrap, folder, "stream")
    follow(sink, source, tmp_path, end=HIGH)
    run = applier(sink, tmp_path)
    run.apply(source.batch(HIGH, HIGH + 500, tmp_path))
    name = sink.target(ORDERS.id).topic  # type: ignore[union-attr]
    another = beside(sink.session, f"{name}.b")
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot(), nonce=1)
    follow(kafka_sink(kafka.bootstrap, folder, "catch-up"), source, tmp_path, end=END - 500)
    assert sink.session.transact(another, ())
    run.apply(source.batch(HIGH + 500, END, tmp_path))
    assert run.tables[NAME].handed_over
    fresh = kafka_sink(kafka.bootstrap, folder, "stream")
    follow(fresh, source, tmp_path)
    record = fresh.session.record(NAME)
    assert record is not None
    behind = [r for r in kafka.read(name) if r.offset >= record.begins[r.partition]]
    events = [Event(v["op"], v["data"], 0) for v in (json.loads(r.value or b"") for r in behind)]
    consumer = CheckingConsumer(("id",)).take(iter(events))
    assert consumer.faults == []
    assert {key: row["note"] for (key,), row in consumer.rows.items()} == source.at[END]


def test_a_resnapshot_whose_copy_is_gone_is_helped_by_another_one(
    kafka: KafkaBroker, folder: Path, tmp_path: Path
) -> None:
    """As the error says; the same one again does not begin an empty copy."""
    source = EventSource(random.Random(3))
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot())
    follow(kafka_sink(kafka.bootstrap, folder, "stream"), source, tmp_path)
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot(), nonce=1)
    shutil.rmtree(folder / "lake")
    with pytest.raises(CdcError) as streaming:
        kafka_sink(kafka.bootstrap, folder, "stream").target(ORDERS.id).writer(tmp_path).last_commit()
    with pytest.raises(CdcError) as again:
        read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot(), nonce=1)
    assert {streaming.value.reason, again.value.reason} == {Reason.SINK_CONFLICT}
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot(), nonce=2)
    sink = kafka_sink(kafka.bootstrap, folder, "stream")
    follow(sink, source, tmp_path)
    assert content(sink.target(ORDERS.id)) == sorted(source.at[END].items(), key=repr)


def test_a_copy_that_is_gone_before_its_publication_is_not_claimed(
    kafka: KafkaBroker, folder: Path, tmp_path: Path
) -> None:
    """The topic goes on as it was."""
    source = EventSource(random.Random(4))
    read_snapshot(kafka_sink(kafka.bootstrap, folder, "snapshot"), source.snapshot())
    follow(kafka_sink(kafka.bootstrap, folder, "stream"), source, tmp_path, end=HIGH)
    sink = kafka_sink(kafka.bootstrap, folder, "snapshot")
    before = sink.target(ORDERS.id).last_commit()
    table = read_again(sink, tmp_path)
    shutil.rmtree(folder / "lake")
    refuse(table, LOST)
    assert sink.target(ORDERS.id).last_commit() == before
    follow(kafka_sink(kafka.bootstrap, folder, "stream"), source, tmp_path)


@pytest.mark.parametrize("form", ["changelog-json", "debezium-json"])
def test_a_topic_of_a_table_without_a_key(kafka: KafkaBroker, folder: Path, tmp_path: Path, form: str) -> None:
    """A record of each row and change, none with a key, in one partition in the binlog's order."""
    source = EventSource(random.Random(7))
    target = kafka_sink(kafka.bootstrap, folder, "snapshot", form).target(BAG.id)
    target.prepare(first_state(BAG))
    append = stage(target, BAG, ROWS)
    start = place(LOW)
    target.commit(1, lambda found: Commit(found.after_wave([Split()], start, start.at, len(ROWS), 0), append))
    follow(kafka_sink(kafka.bootstrap, folder, "stream", form), source, tmp_path)
    records = kafka.read(f"{folder.name}.{BAG.id.database}.{BAG.id.name}")
    assert {(r.partition, r.key) for r in records} == {(0, None)}
    changes = [(OPS[kind], {"id": key, "note": note}) for end in source.log for kind, key, note in source.log[end]]
    rows = [("+I", {"id": key, "note": note}) for key, note in ROWS]
    assert _images([json.loads(r.value or b"") for r in records]) == rows + changes


def _images(values: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """As the form with a record for each image has them."""
    images: list[tuple[str, dict[str, Any]]] = []
    for value in values:
        match value:
            case {"op": "r" | "c", "before": None, "after": row}:
                images.append(("+I", row))
            case {"op": "u", "before": before, "after": after}:
                images += [("-U", before), ("+U", after)]
            case {"op": "d", "before": row, "after": None}:
                images.append(("-D", row))
            case {"op": op, "data": row}:
                images.append((op, row))
    return images


def test_the_history_has_changes_of_each_kind() -> None:
    source = EventSource(random.Random(7))
    kinds = {kind for end in range(LOW + 100, END + 1, 100) for kind, _, _ in source.log[end]}
    assert kinds == set(OPS)
