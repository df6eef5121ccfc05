"""`verify` folds a topic to the table that it ends with, and finds every difference to the
source."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from cdcsync_core.errors import Reason
from cdcsync_core.runs.verification import DifferenceKind
from support.fixtures import FreshDatabase, usually_on
from support.kafka import KafkaBroker
from support.key_tables import KEYS, create_key_tables, table_of_rows
from support.servers import Server
from support.small_sync import SmallSync
from support.verified import equal_while_written, verify

FORMS = ("debezium-json", "changelog-json", "canal-json", "upsert-json")
MakeSync = Callable[..., SmallSync]


@pytest.fixture
def sync_of(tmp_path: Path, kafka: KafkaBroker) -> MakeSync:
    def make(server: Server, database: str, **more: Any) -> SmallSync:
        section = {"bootstrapServers": kafka.bootstrap, "partitions": 3, "replicationFactor": 1, **more}
        return SmallSync(server, database, tmp_path, name=f"s{uuid.uuid4().hex[:12]}", kafka=section)

    return make


def send(kafka: KafkaBroker, topic: str, *records: tuple[Any, Any]) -> None:
    """Sends records behind the product's back; None is a tombstone."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key, value in records:
        text = json.dumps(key, separators=(",", ":"))
        producer.produce(topic, None if value is None else json.dumps(value), text)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(("form", "compatible"), [*((f, "envelope") for f in FORMS), ("debezium-json", "exact")])
def test_a_topic_of_each_form_equals_its_source(
    form: str, compatible: str, mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """Rows of the snapshot, then changes of each kind."""
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 50)
    sync = sync_of(mariadb1011, database, format=form, compatible=compatible)
    sync.copy()
    sync.catch_up()
    assert verify(sync)["t"].equal
    mariadb1011.run(
        "UPDATE t SET text_ = 'changed', real_ = -0.0, bytes_ = NULL WHERE id IN (2, 3)",
        "UPDATE t SET id = 1000 WHERE id = 4",
        "DELETE FROM t WHERE id = 5",
        "INSERT INTO t (id) VALUES (5), (1001)",
        "DELETE FROM t WHERE id = 6",
        db=database,
    )
    sync.catch_up()
    result = verify(sync)["t"]
    assert (result.source_rows, result.target_rows, result.equal) == (50, 50, True)


@usually_on("mariadb1011")
def test_every_type_of_key_is_folded(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    fold_keys(any_server, fresh_database, sync_of, "envelope")


@pytest.mark.long
def test_every_type_of_exact_key_is_folded(
    mysql97_gtid: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    """They are the same on every server."""
    fold_keys(mysql97_gtid, fresh_database, sync_of, "exact")


def fold_keys(server: Server, fresh_database: FreshDatabase, sync_of: MakeSync, compatible: str) -> None:
    database = fresh_database(server)
    tables = create_key_tables(server, database)
    sync = sync_of(server, database, compatible=compatible)
    sync.copy()
    sync.catch_up()
    for table in KEYS:
        server.run(f"UPDATE {table} SET v = 'new' WHERE second = 3", db=database)
        server.run(f"DELETE FROM {table} WHERE second = 4", db=database)
    sync.catch_up()
    results = verify(sync)
    assert {t for t, r in results.items() if not r.equal} == set()
    assert {r.target_rows for t, r in results.items() if t != "seed"} == {119}
    assert len(results) == len(tables)


def test_what_differs_in_a_topic_is_found(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 20)
    sync = sync_of(mariadb1011, database, format="upsert-json")
    sync.copy()
    sync.catch_up()
    topic = f"{sync.name}.{database}.t"
    row = json.loads(next(r.value for r in kafka.read(topic) if r.key == b'{"id":3}') or b"")
    send(kafka, topic, ({"id": 3}, row | {"text_": "b"}), ({"id": 4}, None), ({"id": 1000}, row | {"id": 1000}))
    result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {
        "3": DifferenceKind.DIFFERENT,
        "4": DifferenceKind.MISSING,
        "1000": DifferenceKind.EXTRA,
    }
    assert next(d.columns for d in result.keys if d.key["id"] == "3") == {"text_": ("'a'", "'b'")}


def test_a_record_of_another_form_is_named(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 5)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    send(kafka, f"{sync.name}.{database}.t", ({"id": 3}, {"id": 3, "text_": "b"}))
    error = verify(sync)["t"].error
    assert error is not None
    assert error["reason"] == Reason.SINK_CONFLICT
    assert "none of debezium-json" in error["found"]


@usually_on("mariadb1011")
def test_a_topic_is_compared_while_writers_write(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    """The cut is exact: a record beyond the state's position would be a false difference."""
    database = fresh_database(any_server)
    sync = sync_of(any_server, database)
    equal_while_written(sync, any_server)
    send(kafka, f"{sync.name}.{database}.t", ({"id": 2900}, None))
    with sync.running():
        result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {"2900": DifferenceKind.MISSING}


def test_a_topic_begins_again_with_the_newest_snapshot(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """A key that was deleted between two snapshots has no record in the second one."""
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 20)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    mariadb1011.run("SET sql_log_bin = 0", "DELETE FROM t WHERE id < 5", db=database)
    assert verify(sync)["t"].counts == {DifferenceKind.EXTRA.value: 5}
    sync.copy(again=1)
    sync.catch_up()
    result = verify(sync)["t"]
    assert (result.target_rows, result.equal) == (15, True)


def test_a_snapshot_whose_records_have_expired_is_not_compared(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 20)
    sync = sync_of(mariadb1011, database, partitions=1)
    sync.copy()
    sync.catch_up()
    place = TopicPartition(f"{sync.name}.{database}.t", 0, 10)
    admin = kafka.admin()
    admin.delete_records([place])[place].result(120)
    error = verify(sync)["t"].error
    assert error is not None
    assert error["reason"] == Reason.SPEC_INVALID
    assert "have expired" in error["found"]
