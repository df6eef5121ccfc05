"""Avro records with a real schema registry: a consumer that knows only the registry decodes every
value; what the registry refuses stops the table, and one that is away is tried again."""

from __future__ import annotations

import io
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.kafka.registry import Registry
from servers.test_verify import verify
from support.fixtures import FreshDatabase
from support.kafka import KafkaBroker, Record
from support.registry import SchemaRegistry
from support.servers import Server
from support.small_sync import SmallSync

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
    """By the schema whose id is in the record."""
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
