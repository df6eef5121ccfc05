"""Kafka topics on the node: every change of a table, exactly once, also after its driver was
killed."""

from __future__ import annotations

import json

import pytest

from support.event_consumer import CheckingConsumer
from support.kafka import KafkaBroker
from support.node import Node, wait_until
from support.node_sync import DRIVER
from support.node_topics import NAME, PATH, TopicSync
from support.servers import Server
from support.topic_events import debezium_events

pytestmark = pytest.mark.timeout(900)


def test_every_change_is_a_record_once(node: Node, source: Server, topic_sync: TopicSync) -> None:
    """The sync was made before, while another one waited for its time (`test_stream`)."""
    database, broker, topic = topic_sync.database, topic_sync.broker, topic_sync.topic
    wait_until(lambda: topic_sync.flows, 300, "it flows", topic_sync.describe)
    change(source, database, 1)
    (driver,) = node.pods(NAME, f"{DRIVER},cdcsync.io/kind=stream")
    node.kill(NAME, driver["metadata"]["name"])
    change(source, database, 2)
    rows = {(k,): {"id": k, "n": n} for k, n in source.query("SELECT id, n FROM t", db=database)}
    wait_until(lambda: consumed(broker, topic).rows == rows, 300, "the topic has all changes", topic_sync.describe)
    assert consumed(broker, topic).faults == []
    node.api.delete(PATH)


def change(server: Server, database: str, n: int) -> None:
    """A transaction for each of a few keys."""
    for key in range(1, 11):
        server.run(f"UPDATE t SET n = {n} WHERE id = {key}", db=database)
    server.run(f"DELETE FROM t WHERE id = {20 + n}", f"INSERT INTO t VALUES ({1000 + n}, {n})", db=database)


def consumed(broker: KafkaBroker, topic: str) -> CheckingConsumer:
    """What a reader of committed records makes of them."""
    records = ((json.loads(r.key or b""), json.loads(r.value) if r.value else None) for r in broker.read(topic))
    return CheckingConsumer(("id",)).take(debezium_events(records))
