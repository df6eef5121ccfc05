"""The check of brokers and topics asks and writes nothing; what a run would refuse is named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.kafka.check import BrokerCheck
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from contract.sinkcase import ORDERS
from support.event_source import NAME, EventSource, read_snapshot
from support.fixtures import FreshDatabase
from support.kafka import KafkaBroker
from support.kafka_stream import kafka_sink
from support.kafka_syncs import command, kafka_spec, new_name
from support.servers import Server
from support.sync_process import Sync

pytestmark = pytest.mark.timeout(300)
SinkMaker = Callable[[str], KafkaSink]


@pytest.fixture
def sink_for(kafka: KafkaBroker, tmp_path: Path) -> SinkMaker:
    folder = tmp_path / f"t{random.getrandbits(48)}"
    folder.mkdir()
    return lambda role: kafka_sink(kafka.bootstrap, folder, role)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that allows short transactions only."""
    broker = KafkaBroker(tmp_path_factory.mktemp("strict"), {"transaction.max.timeout.ms": "30000"}).start()
    yield broker
    broker.kill()


def check(sink: KafkaSink, *tables: TableId) -> Checks:
    found = BrokerCheck(sink.session, sink.topics).run(tables or (ORDERS.id,))
    assert Checks.from_json(found.to_json()).topics == found.topics
    return found


def topic_of(sink: KafkaSink) -> str:
    return sink.topics.name(sink.sync, ORDERS.id)


def test_a_topic_that_is_not_there_is_not_made(kafka: KafkaBroker, sink_for: SinkMaker) -> None:
    sink = sink_for("")
    before = set(kafka.admin().list_topics(timeout=300).topics)
    found = check(sink)
    assert found.servers.startswith("1 broker of the cluster ")
    assert (found.errors, found.warnings) == ((), ())
    assert [(t.table, t.topic, t.partitions, t.exists) for t in found.topics] == [(NAME, topic_of(sink), 3, False)]
    assert set(kafka.admin().list_topics(timeout=300).topics) == before


def test_what_a_run_would_refuse_is_named(kafka: KafkaBroker, sink_for: SinkMaker) -> None:
    sink = sink_for("")
    sink.session.topics.make(topic_of(sink), 2, 1, {})
    (topic,) = check(sink).topics
    assert (topic.partitions, topic.exists) == (2, True)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic_of(sink), b"theirs")
    assert producer.flush(30) == 0
    (foreign,) = check(sink).errors
    assert (foreign.reason, foreign.table) == (Reason.SINK_CONFLICT, NAME)
    meeting = list(check(sink, TableId("shop", "a b"), TableId("shop", "a?b")).errors)
    assert [(e.reason, e.table) for e in meeting] == [(Reason.SPEC_INVALID, "shop.a?b")]


def test_settings_that_the_brokers_would_refuse_are_named_once(sink_for: SinkMaker) -> None:
    sink = sink_for("")
    before = set(sink.session.topics.admin.list_topics(timeout=300).topics)
    sink.topics = replace(sink.topics, replication=3)
    (copies,) = check(sink, TableId("shop", "a"), TableId("shop", "b")).errors
    assert (copies.reason, copies.table) == (Reason.SPEC_INVALID, "")
    assert "INVALID_REPLICATION_FACTOR" in copies.found
    sink.topics = replace(sink.topics, replication=1, config=(("retention.ms", "soon"),))
    (setting,) = check(sink).errors
    assert "INVALID_CONFIG" in setting.found
    assert set(sink.session.topics.admin.list_topics(timeout=300).topics) == before


def test_a_topic_of_ours_is_known_by_the_state(kafka: KafkaBroker, sink_for: SinkMaker) -> None:
    read_snapshot(sink_for("snapshot"), EventSource(random.Random(5)).snapshot())
    found = check(sink_for(""))
    assert (found.errors, [t.exists for t in found.topics]) == ((), [True])
    admin, topic = kafka.admin(), topic_of(sink_for(""))
    admin.delete_topics([topic], operation_timeout=120)[topic].result(120)
    (gone,) = check(sink_for("")).errors
    assert gone.reason is Reason.SINK_CONFLICT
    assert "is gone" in gone.found


def test_brokers_that_are_not_there(sink_for: SinkMaker) -> None:
    away = replace(sink_for(""), settings=KafkaSettings("127.0.0.1:9", timeout=2.0))
    (error,) = check(away).errors
    assert error.reason is Reason.SINK_UNREACHABLE


def test_transactions_that_are_too_short(strict: KafkaBroker, tmp_path: Path) -> None:
    (short,) = check(kafka_sink(strict.bootstrap, tmp_path, "")).errors
    assert short.reason is Reason.SPEC_INVALID
    assert "transactions of 30 s" in short.found


def test_the_commands_show_topics(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    database, name = fresh_database(mariadb1011), new_name()
    mariadb1011.run("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))", db=database)
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=kafka_spec(kafka)) as sync:
        checked = command(sync, "check", "-o", "json")
        assert checked.returncode == ExitCode.DONE, checked.stderr
        data = json.loads(checked.stdout)
        (table,) = data["tables"]
        assert table["topic"] == {"name": f"{name}.{database}.a", "partitions": 1, "exists": False}
        assert [c["name"] for c in table["columns"]] == ["id", "v"]
        assert {"brokers", "sink"} <= {c["name"] for c in data["sink"]["checks"]}
        assert "will be made" in command(sync, "check").stdout
        (planned,) = json.loads(command(sync, "plan", "-o", "json").stdout)["tables"]
        assert (planned["topic"], planned["columns"]) == (f"{name}.{database}.a", ["id", "v"])
        assert f"{name}.{database}.a" in command(sync, "plan").stdout
        sync.write_manifest(sink={"kafka": {"bootstrapServers": "127.0.0.1:9"}})
        away = command(sync, "check", "-o", "json")
        assert away.returncode == ExitCode.RETRY, away.stderr
        assert "SinkUnreachable" in away.stderr
