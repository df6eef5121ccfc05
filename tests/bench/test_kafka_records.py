"""What a change costs from decoded images to records that a Kafka broker has acknowledged.

    make bench ARGS='-k kafka_records -s'

The client process's CPU with all its threads, a transaction each 10,000 updates with both images:
first the form alone, then form and producer together. The topic is read at the end: it must have a
record for each change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from bench.delta_tables import TABLE
from bench.test_history_commits import CHANGES, updates
from cdcsync_spark.sinks.events import Events
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro
from cdcsync_spark.sinks.formats.json_records import FORMS, Form, Origin
from cdcsync_spark.wire.columns.change import KIND, TRANSACTION
from support.kafka import KafkaBroker

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
BATCHES, WARM_UP, COLUMNS = 10, 2, 18
ORIGIN = Origin(TABLE.id, TABLE.key, "mysql", 1, "bench", sent=1)
ALL_FORMS: dict[str, Form] = {**FORMS, "avro": lambda e, o: debezium_avro(e, o, Registered(1, 2))}


@pytest.mark.parametrize("form", ["debezium-json", "changelog-json", "upsert-json", "avro"])
def test_kafka_records(kafka: KafkaBroker, form: str) -> None:
    topic = kafka.new_topic("bench", 2)
    batches = [_wide(updates(n)) for n in range(1, BATCHES + 1)]
    producer = _producer(kafka, f"bench-{form}")
    made = _cpu_seconds(lambda events: ALL_FORMS[form](events, ORIGIN), batches)
    sent = _cpu_seconds(lambda events: _send(producer, topic, ALL_FORMS[form](events, ORIGIN)), batches)
    records = kafka.read(topic)
    changes = BATCHES * CHANGES // 2
    assert len(records) == changes * (2 if form == "changelog-json" else 1)
    size = sum(len(r.value or b"") for r in records) / len(records)
    print(
        f"\n{form}: {COLUMNS} columns, {size:.0f} bytes a record; thousand changes per"
        f" CPU second: made {changes / made / 1000:.0f}, made and acknowledged {changes / sent / 1000:.0f}"
    )


def _wide(events: Events) -> Events:
    """With the table's columns again under other names, until there are as many as wanted."""
    images, columns = events.images, events.images.drop_columns([KIND, TRANSACTION])
    for n in range(COLUMNS - columns.num_columns):
        source = columns.column_names[n % columns.num_columns]
        images = images.append_column(f"{source}_{n}", columns[source])
    return replace(events, images=images)


def _producer(kafka: KafkaBroker, name: str) -> Producer:
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap,
        "transactional.id": name,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        "batch.size": 1 << 20,
        "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    producer.init_transactions(60)
    return producer


def _send(producer: Producer, topic: str, records: tuple[object, object]) -> None:
    keys, values = (column.to_pylist() for column in records)  # type: ignore[attr-defined]
    producer.begin_transaction()
    for key, value in zip(keys, values, strict=True):
        producer.produce(topic, value, key)
    producer.commit_transaction(60)


def _cpu_seconds(work: Callable[[Events], object], batches: Sequence[Events]) -> float:
    """Of all batches, as the later ones cost: the first ones open connections and buffers."""
    spent = []
    for events in batches:
        begin = time.process_time()
        work(events)
        spent.append(time.process_time() - begin)
    return sum(spent[WARM_UP:]) / (len(batches) - WARM_UP) * len(batches)
