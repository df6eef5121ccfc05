"""The tests' own Kafka broker: transactions, fencing and a crash, as a sink needs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from support.kafka import KafkaBroker


def _producer(broker: KafkaBroker, **settings: str) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random", **settings})


def test_a_committed_transaction_is_seen_and_an_aborted_one_is_not(kafka: KafkaBroker) -> None:
    topic, producer = kafka.new_topic(), _producer(kafka, **{"transactional.id": "one"})
    producer.init_transactions(30)
    for value, ends in ((b"kept", producer.commit_transaction), (b"given up", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, b"k", headers=[("name", b"x")])
        producer.flush(30)
        ends(30)
    assert [(r.key, r.value, r.headers) for r in kafka.read(topic)] == [(b"k", b"kept", (("name", b"x"),))]
    assert [r.value for r in kafka.read(topic, committed=False)] == [b"kept", b"given up"]


def test_a_successor_fences_its_predecessor(kafka: KafkaBroker) -> None:
    topic, first = kafka.new_topic(), _producer(kafka, **{"transactional.id": "two"})
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, b"late")
    _producer(kafka, **{"transactional.id": "two"}).init_transactions(30)
    with pytest.raises(KafkaException) as found:
        first.commit_transaction(30)
    assert found.value.args[0].name() == "_FENCED"
    assert kafka.read(topic) == []


def test_a_topic_that_was_not_made_is_not_made_by_asking_for_it(kafka: KafkaBroker) -> None:
    producer = _producer(kafka)
    found = [producer.list_topics("forgotten", timeout=300).topics["forgotten"].error.name() for _ in range(2)]
    assert found == ["UNKNOWN_TOPIC_OR_PART"] * 2


@pytest.mark.long
def test_a_broker_that_was_killed_has_its_records_afterwards(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path).start()
    try:
        topic, producer = broker.new_topic(), _producer(broker, acks="all")
        producer.produce(topic, b"before")
        assert producer.flush(30) == 0
        broker.kill()
        broker.start()
        assert [r.value for r in broker.read(topic)] == [b"before"]
    finally:
        broker.kill()
