"""`verify` reads Avro records back by the schemas that a real registry has, and finds every
difference to the source."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from cdcsync_core.errors import Reason
from cdcsync_core.runs.verification import DifferenceKind
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.kafka.encoding import snapshot_records
from cdcsync_spark.sinks.kafka.forms import AVRO, form_of
from cdcsync_spark.sinks.kafka.topic.target import KafkaTarget
from support.fixtures import FreshDatabase, usually_on
from support.kafka import KafkaBroker
from support.key_tables import KEYS, NEARLY, create_key_tables, table_of_rows
from support.registry import SchemaRegistry
from support.servers import Server
from support.small_sync import SmallSync
from support.verified import equal_while_written, verify

pytestmark = pytest.mark.timeout(300)
MakeSync = Callable[..., SmallSync]


@pytest.fixture
def sync_of(tmp_path: Path, kafka: KafkaBroker, registry: SchemaRegistry) -> MakeSync:
    def make(server: Server, database: str, url: str = registry.url, **more: Any) -> SmallSync:
        section = {"bootstrapServers": kafka.bootstrap, "partitions": 3, "replicationFactor": 1, **more}
        avro = {"format": AVRO, "schemaRegistry": {"url": url}}
        name = f"s{uuid.uuid4().hex[:12]}"
        return SmallSync(server, database, tmp_path, name=name, kafka=section | avro, follow=True)

    return make


def send(sync: SmallSync, kafka: KafkaBroker, rows: list[dict[str, Any]], ended: list[bytes] | None = None) -> None:
    """Rows, and tombstones of keys, of the table `t` behind the product's back."""
    target = sync.target("t")
    assert isinstance(target, KafkaTarget)
    state = target.last_commit()
    assert state is not None
    table = pa.Table.from_pylist(rows, target.open_snapshot().schema)
    form = form_of(AVRO, target.sink.registry, target.topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for records in snapshot_records(form, target.sink.label, state, table):
        for key, value in zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True):
            producer.produce(target.topic, None if key in (ended or ()) else value, key)
    assert producer.flush(30) == 0


def rows_of(sync: SmallSync) -> dict[int, dict[str, Any]]:
    rows = sync.target("t").open_snapshot().scan().read_all().to_pylist()
    return {row["id"]: row for row in rows}


@pytest.mark.long
@usually_on("mysql97_gtid")
def test_every_type_of_key_is_folded(any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync) -> None:
    database = fresh_database(any_server)
    tables = create_key_tables(any_server, database)
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    for table in KEYS:
        any_server.run(f"UPDATE {table} SET v = 'new' WHERE second = 3", db=database)
        any_server.run(f"DELETE FROM {table} WHERE second = 4", db=database)
    sync.catch_up()
    results = verify(sync)
    assert {t: r.counts for t, r in results.items() if not r.equal} == {}
    assert {r.target_rows for t, r in results.items() if t != "seed"} == {119}
    assert len(results) == len(tables)


TYPES = """
CREATE TABLE t (
  id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, utiny TINYINT UNSIGNED, small SMALLINT, usmall SMALLINT UNSIGNED,
  medium MEDIUMINT, umedium MEDIUMINT UNSIGNED, plain INT, uplain INT UNSIGNED, large BIGINT, ularge BIGINT UNSIGNED,
  bit1 BIT(1), bit12 BIT(12), number DECIMAL(10,2), longest DECIMAL(38,30), beyond DECIMAL(65,30), single FLOAT,
  real_ DOUBLE, day_ DATE, moment DATETIME(6), stamp TIMESTAMP(6) NULL, clock TIME(6), year_ YEAR, fixed CHAR(10),
  text_ VARCHAR(40), long_ TEXT, bin_ BINARY(16), varbin VARBINARY(16), blob_ BLOB, one ENUM('A','B'), some SET('A','B'),
  doc JSON, place GEOMETRY
) CHARACTER SET utf8mb4"""
LEAST = (
    "-128, 0, -32768, 0, -8388608, 0, -2147483648, 0, -9223372036854775808, 0, b'0', b'0', -99999999.99, "
    "-99999999.999999999999999999999999999999, -99999999999999999999999999999999999.999999999999999999999999999999, "
    "-3.40282e38, 5e-324, '1000-01-01', '1000-01-01 00:00:00', '1970-01-01 00:00:01', '-838:59:59', 1901, '', '', '', "
    "'', '', '', 'A', '', '{}', ST_GeomFromText('POINT(0 -1)')"
)
GREATEST = (
    "127, 255, 32767, 65535, 8388607, 16777215, 2147483647, 4294967295, 9223372036854775807, 18446744073709551615, "
    "b'1', b'111111111111', 99999999.99, 99999999.999999999999999999999999999999, "
    "99999999999999999999999999999999999.999999999999999999999999999999, 0.1, 1.7976931348623157e308, '9999-12-31', "
    "'9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', '838:59:59', 2155, 'größe', '😀', 'x\\0y', "
    "REPEAT(x'ff', 16), x'00ff00', x'00', 'B', 'A,B', '[1.5, null, \"é\"]', ST_GeomFromText('LINESTRING(1 2, 3 4)')"
)


def insert(number: int, values: str) -> str:
    return f"INSERT INTO t VALUES ({number}, {values})"


def test_the_extremes_of_every_type_are_equal(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """Reads them by the snapshot and by the stream."""
    database = fresh_database(any_server)
    rows = (LEAST, GREATEST)
    any_server.run("SET time_zone = '+00:00'", TYPES, *(insert(n, row) for n, row in enumerate(rows)), db=database)
    any_server.run("INSERT INTO t (id) VALUES (18446744073709551615)", db=database)
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    any_server.run("SET time_zone = '+00:00'", *(insert(n, row) for n, row in enumerate(rows, 10)), db=database)
    sync.catch_up()
    result = verify(sync)["t"]
    assert (result.source_rows, result.target_rows, result.counts) == (5, 5, {})


@pytest.mark.parametrize("variant", ["mysql97_gtid", "mariadb114"])
def test_the_types_of_one_program_are_equal(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    if variant.startswith("mysql"):
        columns, values = "v VECTOR(3)", ["TO_VECTOR('[0.5,-1e-7,3.4e38]')", "TO_VECTOR('[1,2,3]')", "NULL"]
    else:
        columns = "u UUID, i4 INET4, i6 INET6"
        values = [
            "'123e4567-e89b-12d3-a456-426655440000', '1.2.3.4', '::ffff:1.2.3.4'",
            "NULL, NULL, 'fe80::1'",
            "'00000000-0000-0000-0000-000000000000', '255.255.255.255', '::'",
        ]
    server.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", db=database)
    server.run(*(insert(n, v) for n, v in enumerate(values)), db=database)
    sync = sync_of(server, database)
    sync.copy()
    sync.catch_up()
    server.run(*(insert(n, v) for n, v in enumerate(values, 10)), db=database)
    sync.catch_up()
    result = verify(sync)["t"]
    assert (result.target_rows, result.counts) == (6, {})


@usually_on("mariadb1011")
def test_records_of_each_definition_are_read_by_their_own_schema(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync, registry: SchemaRegistry, kafka: KafkaBroker
) -> None:
    """Columns are added, moved and dropped in between, under the strictest rule; then each kind of
    difference is found, in rows of the old schema and of the new one."""
    database = fresh_database(any_server)
    table_of_rows(any_server, database, 50)
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    topic = f"{sync.name}.{database}.t"
    registry.demand(f"{topic}-value", "FULL_TRANSITIVE")
    any_server.run(
        "UPDATE t SET text_ = 'before' WHERE id = 1",
        "ALTER TABLE t ADD more VARCHAR(20) NULL FIRST, DROP COLUMN day",
        "UPDATE t SET more = 'after' WHERE id IN (2, 3)",
        "DELETE FROM t WHERE id = 4",
        "UPDATE t SET id = 1000 WHERE id = 5",
        "ALTER TABLE t ADD `last one` DECIMAL(30,3) NULL, MODIFY number DECIMAL(20,3) NULL AFTER id",
        "INSERT INTO t (id, `last one`) VALUES (5, -0.125)",
        db=database,
    )
    sync.catch_up()
    assert (registry.versions(f"{topic}-key"), registry.versions(f"{topic}-value")) == ([1], [1, 2, 3])
    result = verify(sync)["t"]
    assert (result.source_rows, result.target_rows, result.counts) == (50, 50, {})
    used = {r.value[:5] for r in kafka.read(topic) if r.value}
    assert len(used) == 3, "the topic has records of all three"

    rows = rows_of(sync)
    old, new = rows[10], rows[2]
    assert (old["more"], new["more"]) == (None, "after")
    key = next(r.key for r in kafka.read(topic) if r.key and r.key[5:] == bytes([2 * 11]))
    send(sync, kafka, [old | {"more": ""}, new | {"more": None}, rows[11], rows[12] | {"id": 2000}], ended=[key])
    result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {
        "10": DifferenceKind.DIFFERENT,
        "2": DifferenceKind.DIFFERENT,
        "11": DifferenceKind.MISSING,
        "2000": DifferenceKind.EXTRA,
    }
    assert {d.key["id"]: d.columns for d in result.keys if d.kind is DifferenceKind.DIFFERENT} == {
        "10": {"more": ("NULL", "''")},
        "2": {"more": ("'after'", "NULL")},
    }


def test_the_least_difference_of_every_type_is_found(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 60)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    row = rows_of(sync)[0]
    changes = [(column, value) for column, values in NEARLY.items() for value in values]
    send(sync, kafka, [row | {"id": i, column: value} for i, (column, value) in enumerate(changes)])
    result = verify(sync)["t"]
    assert result.counts == {DifferenceKind.DIFFERENT.value: len(changes)}
    found = {int(d.key["id"]): list(d.columns) for d in result.keys}
    assert found == {i: [column] for i, (column, _) in enumerate(changes) if i in found}
    assert found


@pytest.mark.long
def test_a_topic_is_compared_while_writers_write(
    mysql97_gtid: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    equal_while_written(sync_of(mysql97_gtid, fresh_database(mysql97_gtid)), mysql97_gtid)


def test_what_is_no_record_of_ours_is_named(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync, kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    """Bytes without a schema's id; an id that the registry does not know; a schema of others."""
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 5)
    sync = sync_of(mariadb1011, database, partitions=1)
    sync.copy()
    sync.catch_up()
    topic = f"{sync.name}.{database}.t"
    key = kafka.read(topic)[0].key
    foreign = Registry(registry.url).register(f"{topic}-other", {"type": "record", "name": "R", "fields": []})
    unknown = (2**31 - 1).to_bytes(4, "big")
    for value, words in (
        (b'{"id":3}', "none of debezium-avro"),
        (b"\0" + unknown + b"\2", "did not give the schema 2147483647"),
        (b"\0" + foreign.to_bytes(4, "big"), "none of debezium-avro"),
    ):
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(topic, value, key, partition=0)
        assert producer.flush(30) == 0
        error = verify(sync)["t"].error
        assert error is not None
        assert error["reason"] == Reason.SINK_CONFLICT
        assert words in error["found"]
