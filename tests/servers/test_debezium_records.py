"""Whole records of a topic with `compatible: exact`, with their headers, beside those that
Debezium's own engine makes of the same source: equal byte by byte but for the members that the
manual lists."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from support.debezium import SETTINGS, BinlogPlace, DebeziumRecord, debezium_changes, debezium_snapshot
from support.fixtures import FreshDatabase
from support.kafka import KafkaBroker
from support.servers import Server
from support.small_sync import SmallSync
from support.verified import verify

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

#: what is not equal in the stream: the program's version, where the row's event is and who made it,
#: when the record was made
IN_STREAM = (
    rb'(?<="version":)"[^"]+"',
    rb'(?<="pos":)\d+,"row":\d+,"thread":(?:\d+|null)',
    rb'(?<=,)"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+(?=}$)',
)
#: and in a snapshot, of which Debezium marks the first and last rows
IN_SNAPSHOT = (
    *IN_STREAM,
    rb'(?<="snapshot":)"[a-z_]+"',
    rb'(?<=,)"ts_ms":\d+(?=,"snapshot")|"ts_us":\d+,"ts_ns":\d+(?=,"table")',
)
NAME = 'x\x1f\x7fy"\\é'
TABLES = {
    "plain": "id INT PRIMARY KEY, v VARCHAR(20)",
    "named": f"`{NAME}` INT PRIMARY KEY, `größe` INT",
    "pairs": "a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b)",
    "others": "id INT PRIMARY KEY, j JSON",
    "documents": "id INT PRIMARY KEY, j JSON",
    #: of MySQL alone
    "vectors": "id INT PRIMARY KEY, v VECTOR(3)",
}
DOCUMENTS = (
    """'{"b": [1, 2.5, -3, true, null, {}], "a": {"x": ", : ", "\\\\"y": ": "}}'""",
    """'["ü/😀", "\\\\u0001\\\\u001f\\\\b\\\\f\\\\n\\\\t", "\\\\\\\\", "", []]'""",
    "'\"a, b: c\"'",
    "'null'",
    "'18446744073709551615'",
    "NULL",
)
#: of which Debezium's text in the stream is another one of the same values
OTHER_DOCUMENTS = ("'[1e30, 12345678.9, 1e-7]'",)
ROWS = (
    "INSERT INTO plain VALUES (1, 'a'), (2, 'b\"'), (3, NULL), (4, '😀')",
    "INSERT INTO named VALUES (1, 1), (2, 2)",
    "INSERT INTO pairs VALUES (1, 'x', 1), (1, 'y', 2), (2, 'ü', 3)",
    *(f"INSERT INTO documents VALUES ({n}, {document})" for n, document in enumerate(DOCUMENTS)),
    "INSERT INTO vectors VALUES (1, STRING_TO_VECTOR('[1,2.5,1e-7]')), (2, NULL)",
)
CHANGES = (
    "INSERT INTO plain VALUES (11, 'a'), (12, 'b')",
    "UPDATE plain SET v = 'c' WHERE id < 3",
    "UPDATE plain SET id = id + 100 WHERE id < 3",
    "REPLACE INTO plain VALUES (3, 'new')",
    "DELETE FROM plain WHERE id IN (4, 11)",
    f"UPDATE named SET `{NAME}` = 9 WHERE `{NAME}` = 1",
    f"DELETE FROM named WHERE `{NAME}` = 2",
    "UPDATE pairs SET b = 'z', v = 7 WHERE a = 1 AND b = 'x'",
    "UPDATE pairs SET v = 8 WHERE a = 2",
    "DELETE FROM pairs WHERE b = 'y'",
    *(f"INSERT INTO documents SELECT id + 100, j FROM documents WHERE id = {n}" for n in range(len(DOCUMENTS))),
    "UPDATE documents SET j = JSON_SET(j, '$.b', 'p, q') WHERE id = 0",
    "DELETE FROM documents WHERE id = 100",
    "UPDATE vectors SET v = STRING_TO_VECTOR('[-0.1,16777216,3e38]')",
    *(f"INSERT INTO others VALUES ({n}, {document})" for n, document in enumerate(OTHER_DOCUMENTS)),
)
#: of one second, because Debezium has on MariaDB that of each event
TRANSACTION = (
    "SET timestamp = UNIX_TIMESTAMP()",
    "BEGIN",
    "INSERT INTO plain VALUES (21, 'a'), (22, 'b')",
    "UPDATE plain SET v = 'c' WHERE id IN (21, 22)",
    "DELETE FROM plain WHERE id = 21",
    "COMMIT",
)


class Sent(NamedTuple):
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@pytest.mark.long
@pytest.mark.parametrize("name", ["mysql97_gtid", "mariadb114"])
def test_the_records_of_a_topic_are_debeziums(
    name: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, kafka: KafkaBroker, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    database, on_mysql = fresh_database(server), server.flavor == "mysql"
    tables = TABLES.keys() - (set() if on_mysql else {"vectors"})
    made = (f"CREATE TABLE {table} ({TABLES[table]}) CHARACTER SET utf8mb4" for table in sorted(tables))
    server.run(*made, *of_server(ROWS, server), db=database)
    section = {"bootstrapServers": kafka.bootstrap, "partitions": 1, "replicationFactor": 1, "compatible": "exact"}
    sync = SmallSync(server, database, tmp_path, name=f"s{uuid.uuid4().hex[:12]}", kafka=section)
    assert isinstance(sync.sink, KafkaSink)
    ((sync.sink.server_id,),) = server.query("SELECT @@server_id")
    settings = {**SETTINGS, "topic.prefix": sync.name}
    snapshot = debezium_snapshot(server, database, tmp_path, settings)
    server.run("DROP TABLE zz_last", db=database)
    sync.copy()
    sync.catch_up()
    begins = {table: len(sent(kafka, sync, table)) for table in tables}
    start = BinlogPlace.end_of(server)
    server.run(*of_server(CHANGES, server), *TRANSACTION, db=database)
    sync.catch_up()
    assert {t: r.equal for t, r in verify(sync).items()} == dict.fromkeys(tables, True)
    changes = debezium_changes(server, database, start, tmp_path, settings)
    if on_mysql:
        assert_other_documents(sent(kafka, sync, "others"), of_table(changes, "others"))
    for table in tables - ({"others"} if on_mysql else set()):
        ours = sent(kafka, sync, table)
        of_snapshot, of_stream = ours[: begins[table]], ours[begins[table] :]
        assert masked(of_stream, IN_STREAM) == masked(of_table(changes, table), IN_STREAM)
        assert sorted(masked(of_snapshot, IN_SNAPSHOT)) == sorted(masked(of_table(snapshot, table), IN_SNAPSHOT))
        assert_alike(of_stream, of_table(changes, table))
        assert_alike(of_snapshot, of_table(snapshot, table))
        assert_placed(of_stream, of_table(changes, table))


def of_server(statements: Iterable[str], server: Server) -> list[str]:
    return [s for s in statements if server.flavor == "mysql" or "vectors" not in s]


def assert_other_documents(ours: list[Sent], theirs: list[Sent]) -> None:
    """The same numbers, of which Debezium writes all digits of the binary fraction."""
    for own, other in zip(values(ours), values(theirs), strict=True):
        found, expected = own["after"]["j"], other["after"]["j"]
        assert found != expected
        assert json.loads(found) == json.loads(expected)


def sent(kafka: KafkaBroker, sync: SmallSync, table: str) -> list[Sent]:
    topic = f"{sync.name}.{sync.database}.{table}"
    return [Sent(r.key or b"", r.value, tuple(r.headers)) for r in kafka.read(topic)]


def of_table(records: list[DebeziumRecord], table: str) -> list[Sent]:
    return [Sent(r.key, r.value, r.headers) for r in records if r.table == table]


def masked(records: list[Sent], patterns: tuple[bytes, ...]) -> list[Sent]:
    """The records without what differs."""
    return [r._replace(value=_masked(r.value, patterns)) for r in records]


def _masked(value: bytes | None, patterns: tuple[bytes, ...]) -> bytes | None:
    if value is None:
        return None
    for pattern in patterns:
        value, count = re.subn(pattern, b"", value)
        assert count, (pattern, value)
    return value


def values(records: list[Sent]) -> list[dict[str, Any]]:
    return [json.loads(r.value) for r in records if r.value is not None]


def assert_alike(ours: list[Sent], theirs: list[Sent]) -> None:
    """What differs has a value of the same type; there is no thread."""
    for own, other in zip(values(ours), values(theirs), strict=True):
        assert [type(own[m]) for m in own] == [type(other[m]) for m in other]
        assert [type(v) for m, v in own["source"].items() if m != "thread"] == [
            type(v) for m, v in other["source"].items() if m != "thread"
        ]
        assert own["source"]["thread"] is None


def assert_placed(ours: list[Sent], theirs: list[Sent]) -> None:
    """Each change has a place of its own, they ascend, and none is before its event; what is one
    event of a transaction has Debezium's number of the row."""
    found, events = (
        [(s["pos"], s["row"]) for s in (v["source"] for v in values(records))] for records in (ours, theirs)
    )
    assert found == sorted(found)
    assert [a == b for a, b in pairwise(found)] == [a == b for a, b in pairwise(events)]
    assert all(own[0] > other[0] for own, other in zip(found, events, strict=True))
