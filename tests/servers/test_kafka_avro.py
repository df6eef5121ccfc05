"""Avro records with a real schema registry: a consumer that knows only the registry decodes every
value; what the registry refuses stops the table, and one that is away is tried again."""

from __future__ import annotations

import io
import json
import re
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.formats.avro_records import key_schema, value_schema
from cdcsync_spark.sinks.formats.json_records import Origin
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from support.fixtures import FreshDatabase
from support.kafka import KafkaBroker, Record
from support.kafka_syncs import kafka_spec, new_name
from support.registry import SchemaRegistry
from support.servers import Server
from support.small_sync import SmallSync
from support.sync_process import Sync
from support.verified import verify

pytestmark = pytest.mark.timeout(600)


def sync_of(server: Server, database: str, folder: Path, kafka: KafkaBroker, url: str) -> SmallSync:
    section = {
        "bootstrapServers": kafka.bootstrap,
        "replicationFactor": 1,
        "format": "debezium-avro",
        "schemaRegistry": {"url": url},
    }
    return SmallSync(server, database, folder, name=f"s{uuid.uuid4().hex[:12]}", kafka=section)


def decoded(registry: SchemaRegistry, text: bytes | None) -> Any:
    """Decodes by the schema whose id is in the record."""
    if text is None:
        return None
    assert text[0] == 0
    schema = fastavro.parse_schema(registry.schema(int.from_bytes(text[1:5], "big")))
    body = io.BytesIO(text[5:])
    found = fastavro.schemaless_reader(body, schema, None)
    assert not body.read(), "bytes are left"
    return found


def read(registry: SchemaRegistry, records: list[Record]) -> list[tuple[Any, Any]]:
    return [(decoded(registry, r.key), decoded(registry, r.value)) for r in records]


COLUMNS = """
CREATE TABLE t (
  id INT PRIMARY KEY, large BIGINT UNSIGNED, number DECIMAL(20,3), real_ DOUBLE, small FLOAT, note VARCHAR(40),
  moment DATETIME(6), stamp TIMESTAMP(6) NULL, day_ DATE, bytes_ VARBINARY(20), flag BIT(1), `odd name` ENUM('a','b')
) CHARACTER SET utf8mb4"""
ROW = (
    "18446744073709551615, -1.5, 5e-324, 0.1, 'größe 😀', '2024-02-29 23:59:59.999999', "
    "'2024-02-29 23:59:59.999999', '9999-12-31', x'00ff', b'1', 'b'"
)

FIRST = {
    "id": 1,
    "large": Decimal(2**64 - 1),
    "number": Decimal("-1.500"),
    "real_": 5e-324,
    "small": 0.10000000149011612,
    "note": "größe 😀",
    "moment": datetime(2024, 2, 29, 23, 59, 59, 999999),
    "stamp": datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
    "day_": date(9999, 12, 31),
    "bytes_": b"\0\xff",
    "flag": True,
    "odd_name": "b",
}


def test_a_consumer_decodes_every_value(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    """Rows of the snapshot, and changes of each kind."""
    database = fresh_database(any_server)
    any_server.run(
        "SET time_zone = '+00:00'",
        COLUMNS,
        f"INSERT INTO t VALUES (1, {ROW})",
        "INSERT INTO t (id) VALUES (2)",
        db=database,
    )
    sync = sync_of(any_server, database, tmp_path, kafka, registry.url)
    sync.copy()
    sync.catch_up()
    any_server.run(
        "UPDATE t SET note = NULL WHERE id = 1",
        "UPDATE t SET id = 3 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        db=database,
    )
    sync.catch_up()
    topic = f"{sync.name}.{database}.t"
    found = read(registry, kafka.read(topic))
    wanted = {1: FIRST, 2: dict.fromkeys(FIRST) | {"id": 2}}
    assert {k["id"]: v["after"] for k, v in found[:2]} == wanted
    changed = wanted[1] | {"note": None}
    assert [(k["id"], v and (v["op"], v["before"], v["after"])) for k, v in found[2:]] == [
        (1, ("u", wanted[1], changed)),
        (1, ("d", changed, None)),
        (1, None),
        (3, ("c", None, changed | {"id": 3})),
        (2, ("d", wanted[2], None)),
        (2, None),
    ]
    assert (registry.versions(f"{topic}-key"), registry.versions(f"{topic}-value")) == ([1], [1])
    assert verify(sync)["t"].equal


def test_a_schema_has_one_id_and_one_that_is_not_compatible_is_refused(registry: SchemaRegistry) -> None:
    subject = f"t{uuid.uuid4().hex[:8]}-value"
    client = Registry(registry.url)
    client.check()
    one = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    number = client.register(subject, one)
    assert Registry(registry.url).register(subject, one) == number, "registered again, it is the same"
    registry.demand(subject, "BACKWARD")
    added = {"name": "b", "type": ["null", "int"], "default": None}
    assert client.register(subject, {**one, "fields": [*one["fields"], added]}) != number  # type: ignore[misc]
    with pytest.raises(CdcError) as refused:
        client.register(subject, {**one, "fields": [{"name": "c", "type": "int"}]})
    assert refused.value.reason is Reason.SINK_CONFLICT
    assert "Incompatible" in refused.value.found, "the registry's own words"
    assert "compatibility" in refused.value.remedy


def test_topics_from_before_the_names_of_kafka_connect_go_on(registry: SchemaRegistry) -> None:
    """The strictest rule takes the schema with names as a version of the one without; a key's
    schema is what it was, so it keeps its id."""
    columns = pa.schema([pa.field("day", pa.date32()), pa.field("moment", pa.timestamp("us"))])
    origin = Origin(TableId("shop", "orders"), ("day", "moment"), "mysql", 7, "cdc", sent=5000)
    client, topic = Registry(registry.url), f"t{uuid.uuid4().hex[:8]}"
    key, value = key_schema(columns, origin), value_schema(columns, origin)
    before = json.loads(re.sub(r', "connect[.](name|version)": [^,}]+', "", json.dumps(value)))
    assert '"connect.' not in json.dumps([key, before])
    ids = [client.register(f"{topic}-key", key), client.register(f"{topic}-value", before)]
    registry.demand(f"{topic}-value", "FULL_TRANSITIVE")
    after = Registry(registry.url)
    assert after.register(f"{topic}-key", key) == ids[0]
    assert after.register(f"{topic}-value", value) != ids[1]


def test_a_registry_that_is_away_is_tried_again(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Nothing is sent without its schema; the next run goes on."""
    registry = SchemaRegistry(tmp_path).start()
    try:
        database = fresh_database(mariadb1011)
        mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", db=database)
        sync = sync_of(mariadb1011, database, tmp_path, kafka, registry.url)
        registry.kill()
        with pytest.raises(CdcError) as away:
            sync.copy()
        assert away.value.reason is Reason.SINK_UNREACHABLE
        assert "schema registry" in away.value.found
        assert kafka.read(f"{sync.name}.{database}.t") == []
        registry.start()
        sync.restart()
        sync.targets = {f"{database}.t": sync.target("t")}
        sync.catch_up()
        assert [v["op"] for _, v in read(registry, kafka.read(f"{sync.name}.{database}.t"))] == ["r"]
    finally:
        registry.kill()


def test_a_registry_that_has_lost_its_schemas_moves_no_key(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Its next ids are others, so a key's bytes would be others, and its partition. Nothing is sent
    by them until a snapshot begins anew."""
    registry = SchemaRegistry(tmp_path).start()
    try:
        database = fresh_database(mariadb1011)
        mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", db=database)
        sync = sync_of(mariadb1011, database, tmp_path, kafka, registry.url)
        sync.copy()
        sync.catch_up()
        mariadb1011.run("UPDATE t SET v = 2", db=database)
        sync.restart()
        sync.catch_up()
        topic = f"{sync.name}.{database}.t"
        before = kafka.read(topic)
        (head,) = {r.key[:5] for r in before if r.key}
        registry.kill()
        registry.start()
        for number in range(3):
            other = {"type": "record", "name": f"R{number}", "fields": []}
            Registry(registry.url).register("others", other)
        mariadb1011.run("UPDATE t SET v = 3", db=database)
        sync.restart()
        with pytest.raises(CdcError) as refused:
            sync.catch_up()
        assert (refused.value.reason, refused.value.table) == (Reason.SINK_CONFLICT, f"{database}.t")
        assert f"and the keys there have {int.from_bytes(head[1:], 'big')}" in refused.value.found
        assert "spec.resnapshot" in refused.value.remedy
        assert kafka.read(topic) == before
        sync.copy(again=1)
        sync.restart()
        sync.catch_up()
        mariadb1011.run("INSERT INTO t VALUES (2, 2)", db=database)
        sync.catch_up()
        after = kafka.read(topic)[len(before) :]
        assert [(v["op"], v["after"]["v"]) for _, v in read(registry, after)] == [("r", 3), ("c", 2)]
        assert head not in {r.key[:5] for r in after if r.key}
        assert verify(sync)["t"].equal
    finally:
        registry.kill()


FOREIGN = {"type": "record", "name": "Foreign", "fields": [{"name": "more", "type": "string"}]}


def forbid(registry: SchemaRegistry, topic: str) -> None:
    """Every further schema of the topic's values: the newest one is of others, and of another
    name."""
    subject = f"{topic}-value"
    registry.demand(subject, "NONE")
    Registry(registry.url).register(subject, FOREIGN)
    registry.demand(subject, "BACKWARD")


def refused_change(server: Server, database: str) -> None:
    """A column, and a transaction of both tables; `b` has one before and one after it."""
    server.run(
        "INSERT INTO b VALUES (2)",
        "ALTER TABLE a ADD more INT",
        "BEGIN",
        "INSERT INTO a VALUES (2, 2)",
        "INSERT INTO b VALUES (3)",
        "COMMIT",
        "INSERT INTO b VALUES (4)",
        "UPDATE a SET more = 1",
        db=database,
    )


def two_tables(server: Server, database: str) -> None:
    server.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (1)",
        db=database,
    )


def keys_of(registry: SchemaRegistry, records: list[Record]) -> list[int]:
    return [key["id"] for key, _ in read(registry, records)]


@pytest.mark.parametrize("remedy", ["relaxed", "resnapshot"])
def test_a_schema_that_is_refused_stops_its_table_alone(
    mariadb1011: Server,
    fresh_database: FreshDatabase,
    tmp_path: Path,
    kafka: KafkaBroker,
    registry: SchemaRegistry,
    remedy: str,
) -> None:
    """Nothing of its transaction is in its topic, and the other table has the rest. It goes on
    where it stopped when the rule is relaxed, or by a resnapshot with the definition before."""
    database = fresh_database(mariadb1011)
    two_tables(mariadb1011, database)
    sync = sync_of(mariadb1011, database, tmp_path, kafka, registry.url)
    sync.follow = True
    sync.copy()
    sync.catch_up()
    a, b = (f"{sync.name}.{database}.{table}" for table in "ab")
    before = kafka.read(a)
    forbid(registry, a)
    refused_change(mariadb1011, database)
    with pytest.raises(CdcError) as refused:
        sync.catch_up()
    error = refused.value
    assert (error.reason, error.table) == (Reason.SINK_CONFLICT, f"{database}.a")
    assert f"did not register a schema of {a}-value: it answered 409" in error.found
    assert "Incompatible" in error.found, "the registry's own words"
    assert "compatibility" in error.remedy
    assert kafka.read(a) == before
    stopped = sync.targets.pop(f"{database}.a")
    sync.catch_up()
    assert keys_of(registry, kafka.read(b)) == [1, 2, 3, 4], "each once, and in their order"
    assert kafka.read(a) == before

    sync.targets[f"{database}.a"] = stopped
    if remedy == "relaxed":
        registry.demand(f"{a}-value", "NONE")
        sync.restart()
        sync.catch_up()
        after = read(registry, kafka.read(a)[len(before) :])
        assert [(v["op"], v["after"]) for _, v in after] == [
            ("c", {"id": 2, "more": 2}),
            ("u", {"id": 1, "more": 1}),
            ("u", {"id": 2, "more": 1}),
        ]
    else:
        mariadb1011.run("ALTER TABLE a DROP COLUMN more", db=database)
        sync.copy(again=1)
        sync.restart()
        sync.catch_up()
        after = read(registry, kafka.read(a)[len(before) :])
        assert [(v["op"], v["after"]) for _, v in after] == [("r", {"id": 1}), ("r", {"id": 2})]
    assert keys_of(registry, kafka.read(b)[:4]) == [1, 2, 3, 4]
    assert {t: r.counts for t, r in verify(sync).items()} == {"a": {}, "b": {}}


def test_a_resnapshot_with_a_type_that_the_rule_refuses_is_not_there(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    """Consumers keep what they had until the rule is relaxed; then the snapshot is sent once."""
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10)", db=database)
    sync = sync_of(mariadb1011, database, tmp_path, kafka, registry.url)
    sync.copy()
    sync.catch_up()
    topic = f"{sync.name}.{database}.t"
    before = kafka.read(topic)
    registry.demand(f"{topic}-value", "BACKWARD")
    mariadb1011.run("ALTER TABLE t MODIFY v VARCHAR(20)", "UPDATE t SET v = 'ten'", db=database)
    for attempt in (partial(sync.copy, again=1), sync.catch_up):
        with pytest.raises(CdcError) as refused:
            attempt()
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert "it answered 409" in refused.value.found
        assert kafka.read(topic) == before
    registry.demand(f"{topic}-value", "NONE")
    sync.restart()
    sync.catch_up()
    after = read(registry, kafka.read(topic)[len(before) :])
    assert [(v["op"], v["after"]) for _, v in after] == [("r", {"id": 1, "v": "ten"})]
    assert verify(sync)["t"].equal


@pytest.mark.long
@pytest.mark.spark
def test_a_schema_that_is_refused_is_in_the_status(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    """As a user sees it: the run goes on for the other table, and the next one for both."""
    database = fresh_database(mariadb1011)
    two_tables(mariadb1011, database)
    name = new_name()
    avro = {"format": "debezium-avro", "schemaRegistry": {"url": registry.url}}
    spec = kafka_spec(kafka, **avro)
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", name=name, spec=spec) as sync:
        sync.run_to_completion()
        a, b = f"{name}.{database}.a", f"{name}.{database}.b"
        forbid(registry, a)
        refused_change(mariadb1011, database)
        sync.start("caught-up")
        assert sync.wait() == ExitCode.USER_MUST_ACT
        status = {t["name"]: t for t in sync.status()["tableStatus"]}
        assert status[f"{database}.a"]["reason"] == "SinkConflict"
        assert "Incompatible" in status[f"{database}.a"]["message"]
        assert not status[f"{database}.b"].get("reason")
        assert keys_of(registry, kafka.read(b)) == [1, 2, 3, 4]
        assert keys_of(registry, kafka.read(a)) == [1]
        registry.demand(f"{a}-value", "NONE")
        sync.run_to_completion()
        assert keys_of(registry, kafka.read(a)) == [1, 2, 1, 2]
        assert keys_of(registry, kafka.read(b)) == [1, 2, 3, 4]
