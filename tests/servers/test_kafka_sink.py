"""Kafka as a sink, as a user runs it: a real server, a real broker, and a consumer that checks
every record."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from contract.sinkcase import ORDERS
from support.event_consumer import CheckingConsumer
from support.event_source import END, LOW, NAME, EventSource, applier, read_snapshot
from support.fixtures import FreshDatabase, usually_on
from support.gtids import run_with_gtids
from support.kafka import KafkaBroker
from support.kafka_stream import kafka_sink
from support.kafka_syncs import kafka_spec, new_name, records
from support.servers import Server
from support.sync_process import Gate, Sync
from support.topic_events import debezium_events
from support.workload import Pace, Workload
from support.workload_tables import KEYS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.long
@usually_on("mariadb1011")
def test_a_topic_shows_what_happened_and_follows_what_leaves_its_rows_as_they_are(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """The definition of `parts` changes: a change that it cannot follow asks; a resnapshot sends
    the rows by the new definition."""
    database = fresh_database(any_server)
    any_server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, total DECIMAL(10,2))",
        "INSERT INTO orders VALUES (1, 10), (2, 20)",
        "CREATE TABLE parts (id INT PRIMARY KEY, total INT, note VARCHAR(20))",
        "INSERT INTO parts VALUES (1, 10, 'a'), (2, 20, 'b')",
        db=database,
    )
    name = new_name()
    orders, parts = f"{name}.{database}.orders", f"{name}.{database}.parts"
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=kafka_spec(kafka)) as sync:
        sync.run_to_completion()
        _check_snapshot(kafka, orders, any_server, name)
        gtids = _change_orders(any_server, database)
        any_server.run(
            "ALTER TABLE parts ADD city VARCHAR(20) AFTER id, DROP note",
            "UPDATE parts SET city = 'Graz' WHERE id = 1",
            db=database,
        )
        sync.run_to_completion()
        _check_orders(kafka, orders, gtids)
        table = {t["name"]: t for t in sync.status()["tableStatus"]}[f"{database}.orders"]
        assert (table["rows"], table["events"]) == (2, 6)
        assert not list((tmp_path / "sync" / "lake").rglob("*.parquet")), "the staged copy is removed"
        sent = records(kafka, parts)
        (_, update) = sent[2]
        assert update["before"] == {"id": 1, "city": None, "total": 10}
        assert update["after"] == {"id": 1, "city": "Graz", "total": 10}

        any_server.run("ALTER TABLE parts CHANGE total sum INT", "DELETE FROM parts WHERE id = 2", db=database)
        sync.start("caught-up")
        assert sync.wait() == ExitCode.USER_MUST_ACT
        status = {t["name"]: t for t in sync.status()["tableStatus"]}[f"{database}.parts"]
        assert status["reason"] == "SchemaChangePending"
        assert records(kafka, parts) == sent
        sync.write_manifest(resnapshot=[{"table": f"{database}.parts", "nonce": 1}])
        sync.run_to_completion()
        again = records(kafka, parts)[len(sent) :]
        assert [(v["op"], v["after"]) for _, v in again] == [("r", {"id": 1, "city": "Graz", "sum": 10})]


def _check_snapshot(kafka: KafkaBroker, topic: str, server: Server, name: str) -> None:
    first = records(kafka, topic)
    assert sorted((k["id"], v["op"], v["after"]["total"]) for k, v in first) == [(1, "r", "10.00"), (2, "r", "20.00")]
    ((server_id,),) = server.query("SELECT @@server_id")
    assert {(v["source"]["name"], v["source"]["server_id"]) for _, v in first} == {(name, server_id)}


def _change_orders(server: Server, database: str) -> list[str | None]:
    return run_with_gtids(
        server,
        "INSERT INTO orders VALUES (3, 30)",
        "UPDATE orders SET total = 11 WHERE id = 1",
        "UPDATE orders SET id = 4 WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
        db=database,
    )


def _check_orders(kafka: KafkaBroker, topic: str, gtids: list[str | None]) -> None:
    sent = records(kafka, topic)
    assert [(k["id"], v and v["op"]) for k, v in sent[2:]] == [
        (3, "c"),
        (1, "u"),
        (2, "d"),
        (2, None),
        (4, "c"),
        (3, "d"),
        (3, None),
    ]
    named = [v and v["source"]["gtid"] for _, v in sent[2:]]
    assert named == [gtids[0], gtids[1], gtids[2], None, gtids[2], gtids[3], None]
    consumer = CheckingConsumer(("id",)).take(debezium_events(sent))
    assert consumer.faults == []


def test_a_run_counts_the_records_that_are_acknowledged(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Counts the records of the snapshot, which a stream's run sends, and those of changes."""
    source = EventSource(random.Random(7))
    read_snapshot(kafka_sink(kafka.bootstrap, tmp_path, "snapshot"), source.snapshot())
    sink = kafka_sink(kafka.bootstrap, tmp_path, "stream")
    run = applier(sink, tmp_path)
    for start in range(LOW, END, 500):
        run.apply(source.batch(start, start + 500, tmp_path))
    found = kafka.read(sink.topics.name(sink.sync, ORDERS.id))
    assert len(found) > 50
    assert run.tables[NAME].target.status.counts == {"records": len(found)}


@pytest.mark.long
@usually_on("mariadb1011")
def test_no_record_is_false_while_the_source_is_written(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    database = fresh_database(any_server)
    name = new_name()
    workload = Workload(any_server, database, 7, Pace(rows=3000, writers=4, per_second=60))
    workload.prepare()
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=kafka_spec(kafka)) as sync:
        with workload:
            sync.start("forever")
            sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == len(workload.tables))
            topics = [f"{name}.{database}.{table}" for table in workload.tables]
            sync.wait_until(lambda: all(_changes(records(kafka, t)) for t in topics), "a change of each table")
        sync.terminate()
        sync.run_to_completion()
        for table in workload.tables:
            check_topic(kafka, name, any_server, database, table)


@usually_on()
def test_a_snapshot_is_sent_early_where_the_resource_says_so(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Its state says so, too; the snapshot's own run has sent the rows."""
    database, name, spec = fresh_database(any_server), new_name(), kafka_spec(kafka)
    spec["snapshot"] |= {"delivery": "early"}
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", db=database)
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=spec) as sync:
        sync.run_to_completion("snapshot")
        found = records(kafka, f"{name}.{database}.t")
        assert sorted((k["id"], v["op"]) for k, v in found) == [(1, "r"), (2, "r")]
        states = [json.loads(r.value or b"") for r in kafka.read(f"cdcsync.default.{name}.state")]
        assert states[-1]["state"]["early"] is True


@pytest.mark.long
@usually_on("mariadb1011")
def test_rows_that_are_sent_early_end_right_whatever_is_written_and_killed(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Rows are there before the snapshot's end; each once, before the changes of its key. The last
    record of a key is right when the table flows."""
    database = fresh_database(any_server)
    name, spec = new_name(), kafka_spec(kafka)
    spec["snapshot"] |= {"delivery": "early"}
    workload = Workload(any_server, database, 8, Pace(rows=3000, writers=4, per_second=60))
    workload.prepare()
    topics = {table: f"{name}.{database}.{table}" for table in workload.tables}
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=spec) as sync:
        with workload:
            _kill_at(sync, Gate("wave-committed", 2))
            assert any(kafka.read(topic) for topic in _made(kafka, topics.values())), "before the snapshot's end"
            for gate in (Gate("entry-written", 2), Gate("kafka-sent", 9)):
                _kill_at(sync, gate)
        sync.run_to_completion()
        followed = [_check_early(records(kafka, topics[t]), any_server, database, t) for t in topics]
        assert any(followed), "changes came after the snapshot"
        verified = sync.command("verify", "-o", "json")
        assert verified.returncode == ExitCode.DONE, verified.stdout + verified.stderr


def _kill_at(sync: Sync, gate: Gate) -> None:
    sync.start("forever", gate)
    sync.wait_fired()
    sync.kill_all()


def _made(kafka: KafkaBroker, topics: Iterable[str]) -> list[str]:
    there = kafka.admin().list_topics(timeout=300).topics
    return [topic for topic in topics if topic in there]


def _check_early(found: list[tuple[Any, Any]], server: Server, database: str, table: str) -> bool:
    """Whether there are changes."""
    ops: dict[tuple[Any, ...], list[str]] = {}
    for key, value in found:
        if value is not None:
            ops.setdefault(tuple(key.values()), []).append(value["op"])
    assert all("r" not in of_key[1:] for of_key in ops.values()), f"{table}: a row twice, or behind a change"
    assert any(of_key[0] == "r" for of_key in ops.values())
    (rows,) = server.query(f"SELECT COUNT(*) FROM `{database}`.`{table}`")
    assert sum(of_key[-1] != "d" for of_key in ops.values()) == rows[0], table
    return any(of_key[-1] != "r" for of_key in ops.values())


def _changes(found: list[tuple[Any, Any]]) -> int:
    """How many of the records are not the snapshot's rows."""
    return sum(bool(value) and value["op"] != "r" for _, value in found)


def check_topic(kafka: KafkaBroker, name: str, server: Server, database: str, table: str) -> None:
    """Every record is checked, and the keys that are left are the source's."""
    found = records(kafka, f"{name}.{database}.{table}")
    consumer = CheckingConsumer(KEYS[table]).take(debezium_events(found))
    assert consumer.faults == [], (table, consumer.faults[:3])
    assert _changes(found), "changes came after the snapshot"
    (rows,) = server.query(f"SELECT COUNT(*) FROM `{database}`.`{table}`")
    assert len(consumer.rows) == rows[0], table
