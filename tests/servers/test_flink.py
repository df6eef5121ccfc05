"""Flink SQL reads the topics and ends with the source's table, value for value."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from support.fixtures import FreshDatabase
from support.flink import Values, changelog, final_rows
from support.kafka import KafkaBroker
from support.servers import Server
from support.small_sync import SmallSync

pytestmark = pytest.mark.timeout(900)

#: a column of the source, its type in Flink, and how the server writes what Flink writes
COLUMNS = {
    "id": ("INT NOT NULL", "INT", "id"),
    "total": ("DECIMAL(20,3)", "DECIMAL(20,3)", "total"),
    "large": ("BIGINT UNSIGNED", "DECIMAL(20,0)", "large"),
    "price": ("DOUBLE", "DOUBLE", "price"),
    "note": ("VARCHAR(40) CHARACTER SET utf8mb4", "STRING", "note"),
    "bytes_": ("VARBINARY(20)", "BYTES", "LOWER(HEX(bytes_))"),
    "day_": ("DATE", "DATE", "day_"),
    "moment": ("DATETIME(6)", "TIMESTAMP(6)", "DATE_FORMAT(moment, '%Y-%m-%d %H:%i:%s.%f')"),
    "stamp": ("TIMESTAMP(6) NULL", "TIMESTAMP_LTZ(6)", "DATE_FORMAT(stamp, '%Y-%m-%d %H:%i:%s.%f')"),
    "flag": ("BIT(1)", "BOOLEAN", "ELT(flag + 1, 'false', 'true')"),
}
#: as text in one form, whatever Flink's default is
_TEXT = {"moment": "CAST(moment AS STRING)", "stamp": "CAST(stamp AS STRING)", "price": "CAST(price AS DECIMAL(20,6))"}
_SOURCE_TEXT = {"price": "CAST(price AS DECIMAL(20,6))"}
ROW = "'1.500', 18446744073709551615, 0.125, 'größe \"x\" \\\\ 😀', x'00ff', '2024-02-29', "
ROW += "'2024-02-29 23:59:59.123456', '2024-03-01 00:00:00.000001', b'1'"
#: the options of each format, as the manual has them
FORMATS = {
    "debezium-json": "'format'='debezium-json', 'debezium-json.timestamp-format.standard'='ISO-8601'",
    "changelog-json": "'format'='json', 'json.timestamp-format.standard'='SQL'",
    "canal-json": "'format'='canal-json', 'canal-json.timestamp-format.standard'='ISO-8601'",
    "upsert-json": "'key.format'='json', 'value.format'='json', 'value.json.timestamp-format.standard'='ISO-8601'",
}


@pytest.mark.parametrize(
    "form",
    ["debezium-json", "changelog-json", "canal-json", "upsert-json"],
)
@pytest.mark.long
def test_flink_ends_with_the_sources_table(
    form: str, mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Rows of the snapshot, then changes of each kind, of a key as well."""
    database = fresh_database(mariadb1011)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    values = ", ".join(f"({n}, {ROW})" for n in range(20))
    mariadb1011.run(
        f"CREATE TABLE t ({columns}, PRIMARY KEY (id))",
        "SET time_zone = '+00:00'",
        f"INSERT INTO t VALUES {values}",
        db=database,
    )
    section = {"bootstrapServers": kafka.bootstrap, "partitions": 3, "replicationFactor": 1, "format": form}
    sync = SmallSync(mariadb1011, database, tmp_path, name=f"s{uuid.uuid4().hex[:12]}", kafka=section)
    sync.copy()
    sync.catch_up()
    mariadb1011.run(
        "UPDATE t SET total = -0.001, note = NULL, bytes_ = NULL, flag = b'0' WHERE id IN (2, 3)",
        "UPDATE t SET moment = '0900-02-28 00:00:00', note = 'x' WHERE id = 3",
        "UPDATE t SET id = 1000 WHERE id = 4",
        "DELETE FROM t WHERE id = 5",
        "INSERT INTO t (id) VALUES (5), (1001)",
        "DELETE FROM t WHERE id = 6",
        db=database,
    )
    sync.catch_up()
    topic = f"{sync.name}.{database}.t"
    assert final_rows(changelog(*statements(form, topic, kafka))) == source_rows(mariadb1011, database)


def statements(form: str, topic: str, kafka: KafkaBroker) -> list[str]:
    members = ", ".join(f"`{name}` {kind}" for name, (_, kind, _) in COLUMNS.items())
    shown = ", ".join(_TEXT.get(name, f"`{name}`") for name in COLUMNS)
    place = (
        f"'topic'='{topic}', 'properties.bootstrap.servers'='{kafka.bootstrap}', "
        "'properties.isolation.level'='read_committed', 'scan.bounded.mode'='latest-offset'"
    )
    reading = f"'connector'='kafka', {place}, 'scan.startup.mode'='earliest-offset', {FORMATS[form]}"
    if form == "upsert-json":
        key = ", PRIMARY KEY (id) NOT ENFORCED"
        upserts = f"'connector'='upsert-kafka', {place}, {FORMATS[form]}"
        return [f"CREATE TABLE t ({members}{key}) WITH ({upserts})", f"SELECT {shown} FROM t"]
    if form == "changelog-json":
        record = f"`data` ROW<{members}>, op STRING, place BIGINT METADATA FROM 'offset'"
        flat = ", ".join(f"`data`.`{name}` AS `{name}`" for name in COLUMNS)
        newest = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY place DESC) AS n FROM (SELECT {flat}, op, place FROM t)"
        return [
            f"CREATE TABLE t ({record}) WITH ({reading})",
            f"SELECT {shown} FROM ({newest}) WHERE n = 1 AND op IN ('+I', '+U')",
        ]
    return [f"CREATE TABLE t ({members}) WITH ({reading})", f"SELECT {shown} FROM t"]


def source_rows(server: Server, database: str) -> list[Values]:
    shown = ", ".join(_SOURCE_TEXT.get(name, text) for name, (_, _, text) in COLUMNS.items())
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {shown} FROM t")
        rows = [tuple(None if v is None else str(v) for v in row) for row in cursor.fetchall()]
    return sorted(rows, key=repr)
