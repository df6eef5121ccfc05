"""Debezium's own engine (`DebeziumRecords.java`) on a server of the tests: the records that it
makes of a database, as JSON without schemas."""

from __future__ import annotations

import base64
import json
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.servers import Server

_CACHE = Path(__file__).parents[2] / ".cache"
HOME = _CACHE / "debezium-3.3.1"
#: what makes Avro of its records
CONVERTER = _CACHE / "avro-converter-2.6.13"
#: by the flavour of the server: the folder of the engine, and the settings of its connector
CONNECTORS = {
    "mysql": (
        HOME,
        {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.ssl.mode": "disabled",
            "driver.allowPublicKeyRetrieval": "true",
        },
    ),
    "mariadb": (
        _CACHE / "debezium-mariadb-3.4.0",
        {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "database.ssl.mode": "disable"},
    ),
}
#: the settings of Debezium that CdcSync's values are compared with
SETTINGS = {
    "time.precision.mode": "isostring",
    "decimal.handling.mode": "string",
    "bigint.unsigned.handling.mode": "precise",
    "binary.handling.mode": "base64",
    "enable.time.adjuster": "false",
    "extended.headers.enabled": "false",
}
#: and what those of `debezium-avro` are compared with
AVRO_SETTINGS = {
    "decimal.handling.mode": "precise",
    "time.precision.mode": "microseconds",
    "bigint.unsigned.handling.mode": "precise",
    "binary.handling.mode": "bytes",
    "enable.time.adjuster": "false",
    "extended.headers.enabled": "false",
}
_PROGRAM = Path(__file__).with_name("DebeziumRecords.java")
#: the table whose first record ends a run; the last one by name, so a snapshot reads it last
_LAST = "zz_last"
_SECONDS = 300


@dataclass(frozen=True)
class DebeziumRecord:
    table: str
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class BinlogPlace:
    """Where the binlog of a server is to be read from, in the form in which Debezium keeps it."""

    file: str
    offset: int
    gtids: str

    @classmethod
    def end_of(cls, server: Server) -> BinlogPlace:
        variable = "gtid_executed" if server.flavor == "mysql" else "gtid_binlog_pos"
        ((gtids,),) = server.query(f"SELECT REPLACE(@@global.{variable}, '\n', '')")
        return cls(*server.binlog_status(), str(gtids))

    @property
    def text(self) -> str:
        return json.dumps({"file": self.file, "pos": self.offset, "gtids": self.gtids}, separators=(",", ":"))


def debezium_changes(
    server: Server, database: str, start: BinlogPlace, folder: Path, more: Mapping[str, str] = SETTINGS
) -> list[DebeziumRecord]:
    """The records of all changes of the database since `start`."""
    return _records(server, database, start.text, folder, {"snapshot.mode": "recovery", **more})


def debezium_avro_changes(
    server: Server, database: str, start: BinlogPlace, folder: Path, registry: str
) -> list[DebeziumRecord]:
    """The same in Avro, whose schemas the registry has then that serves Confluent's API at the
    URL."""
    converters = {
        f"{part}.converter.{name}": value
        for part in ("key", "value")
        for name, value in {
            "apicurio.registry.url": f"{registry.partition('/apis')[0]}/apis/registry/v2",
            "apicurio.registry.auto-register": "true",
            "apicurio.registry.as-confluent": "true",
            "apicurio.registry.use-id": "contentId",
            "apicurio.registry.headers.enabled": "false",
        }.items()
    }
    settings = {"snapshot.mode": "recovery", **AVRO_SETTINGS, **converters}
    return _records(server, database, start.text, folder, settings, "avro")


def debezium_snapshot(
    server: Server, database: str, folder: Path, more: Mapping[str, str] = SETTINGS
) -> list[DebeziumRecord]:
    """The records of the rows that the database's tables have."""
    return _records(server, database, "", folder, {"snapshot.mode": "initial", **more})


def _records(
    server: Server, database: str, start: str, folder: Path, settings: Mapping[str, str], *form: str
) -> list[DebeziumRecord]:
    server.run(f"CREATE TABLE {_LAST} (id INT PRIMARY KEY)", f"INSERT INTO {_LAST} VALUES (1)", db=database)
    name, (home, connector) = uuid.uuid4().hex[:8], CONNECTORS[server.flavor]
    server.create_user(f"d{name}", "secret")
    properties = {
        "name": name,
        **connector,
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": f"d{name}",
        "database.password": "secret",
        "database.server.id": "4000078",
        "database.include.list": database,
        "topic.prefix": "cdc",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / f"{name}.offsets"),
        "offset.flush.interval.ms": "60000",
        **dict.fromkeys((f"{part}converter.schemas.enable" for part in ("", "key.", "value.", "header.")), "false"),
        **settings,
    }
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command = [*java, "-cp", f"{home / 'jars'}/*:{CONVERTER / 'jars'}/*", str(_PROGRAM), str(file), start, _LAST, *form]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    assert run.returncode == 0, run.stderr
    return [_record(*line.split()) for line in run.stdout.splitlines()]


def _record(table: str, key: str, value: str, *headers: str) -> DebeziumRecord:
    texts = [base64.b64decode(text) for text in headers]
    named = tuple(zip((name.decode() for name in texts[::2]), texts[1::2], strict=True))
    return DebeziumRecord(table, base64.b64decode(key), None if value == "-" else base64.b64decode(value), named)
