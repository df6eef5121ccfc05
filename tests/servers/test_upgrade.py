"""A lake and a state folder of an earlier release go on where they were (R4): no rows are
copied a second time, and the rows are the source's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import NewTopic

from support import earlier_release
from support.fixtures import FreshServer
from support.kafka import KafkaBroker
from support.kafka_syncs import kafka_spec, records
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]
COLUMNS = {
    "shop.orders": ["id", "word", "at", "amount", "note"],
    "shop.items": ["word", "number", "kind"],
    "shop.idle": ["id", "doc", "code"],
}
NUMBERS = "half.numbers"
SHOP = {"tables": {"overrides": [{"table": "shop.items", "columns": {"exclude": ["secret"]}}]}}


def assert_equal(sync: Sync, table: str, names: list[str]) -> None:
    target = sync.target(table).select(names)
    source = sync.server.query(f"SELECT {', '.join(names)} FROM {table}")
    rows = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in source]).cast(target.schema)
    keys = [(name, "ascending") for name in names[:2]]
    assert target.sort_by(keys).equals(rows.sort_by(keys))


def states(sync: Sync, table: str) -> list[dict[str, Any]]:
    """The state of each own commit, oldest first."""
    entries = sorted((sync.path(table) / "_delta_log").glob("*.json"))
    lines = [json.loads(entry.read_text(encoding="utf-8").splitlines()[0]) for entry in entries]
    return [json.loads(line["commitInfo"]["cdcsync"]) for line in lines if "cdcsync" in line.get("commitInfo", {})]


@pytest.fixture
def source(fresh_server: FreshServer) -> Server:
    server = fresh_server("mariadb1011", server_id=earlier_release.SERVER_ID)
    earlier_release.become_the_source(server)
    return server


def test_a_sync_that_streamed_goes_on(source: Server, tmp_path: Path) -> None:
    earlier_release.extract("shop", tmp_path / "shop")
    with Sync(source, [r"shop\..*"], tmp_path / "shop", "shop", SHOP) as sync:
        before = {table: states(sync, table)[-1] for table in COLUMNS}
        source.run(*earlier_release.statements("changes for the next release"))
        sync.run_to_completion()
        for table, recorded in before.items():
            assert_equal(sync, table, COLUMNS[table])
            newest = states(sync, table)[-1]
            assert [newest[k] for k in ("splits", "rows", "nonce", "generation", "finished")] == [
                recorded[k] for k in ("splits", "rows", "nonce", "generation", "finished")
            ], "the snapshot is the one of then"
            assert newest["epoch"] > recorded["epoch"]


def test_a_snapshot_that_was_killed_goes_on(source: Server, tmp_path: Path) -> None:
    """Its first split was committed by the earlier release, and its rows have changed since."""
    earlier_release.extract("half", tmp_path / "half")
    with Sync(source, [r"half\..*"], tmp_path / "half", "half") as sync:
        (recorded,) = states(sync, NUMBERS)[-1:]
        assert (recorded["position"], recorded["finished"]) == (None, [{"start": None, "end": [121]}])
        source.run(*earlier_release.statements("changes for the next release"))
        sync.run_to_completion(timeout=1200)
        assert_equal(sync, NUMBERS, ["id", "word"])
        newest = states(sync, NUMBERS)[-1]
        begun = [[state[k] for k in ("low", "nonce", "generation")] for state in (recorded, newest)]
        assert begun[0] == begun[1], "the snapshot is the one of then"
        assert newest["rows"] == recorded["rows"] + len(source.query(f"SELECT 1 FROM {NUMBERS} WHERE id > 121"))


def test_a_topic_goes_on(source: Server, kafka: KafkaBroker, tmp_path: Path) -> None:
    """No row is sent a second time; the record of the state is the earlier release's, but for the
    topic's id, which is a broker's own."""
    recorded = earlier_release.states()["kafka"]
    topic, state_topic = recorded["topic"], "cdcsync.default.topics.state"
    produce_earlier_topics(kafka, recorded, state_topic)
    source.run("""UPDATE shop.idle SET doc = '{"a": [3]}'""", "INSERT INTO shop.idle VALUES (2, NULL, NULL)")
    with Sync(source, [r"shop\.idle"], tmp_path / "sync", "topics", kafka_spec(kafka)) as sync:
        sync.run_to_completion(timeout=1200)
    (row, _), *new = records(kafka, topic)
    assert [(key, value["op"], value["after"]["id"]) for key, value in new] == [(row, "u", 1), ({"id": 2}, "c", 2)]
    newest = states_in(kafka, state_topic)[-1]
    for part in ("low", "nonce", "generation", "splits", "rows"):
        assert newest[part] == recorded["state"][part], part
    assert newest["epoch"] > recorded["state"]["epoch"]


def produce_earlier_topics(kafka: KafkaBroker, recorded: dict[str, Any], state_topic: str) -> None:
    """The topic of a table with the record of its one row, and the state topic with its state."""
    topic, admin = recorded["topic"], kafka.admin()
    creations = admin.create_topics([NewTopic(topic, recorded["partitions"], 1), NewTopic(state_topic, 1, 1)])
    for future in creations.values():
        future.result(120)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(120)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    row = {"before": None, "after": {"id": 1, "doc": '{"a": [1, 2]}'}, "op": "r"}
    producer.produce(topic, json.dumps(row), json.dumps({"id": 1}))
    producer.produce(state_topic, json.dumps(recorded | {"topicId": str(described.topic_id)}), "shop.idle")
    assert producer.flush(120) == 0


def states_in(kafka: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    """The table's states in a state topic, oldest first."""
    return [json.loads(r.value)["state"] for r in kafka.read(topic) if r.key == b"shop.idle" and r.value]
