"""JSON columns that the binlog has as differences (`binlog_row_value_options=PARTIAL_JSON`): the
value is the server's, text for text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.positions.position import Position
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.wire.binlog.facts import RowsEvent
from cdcsync_spark.wire.binlog.json.json_diff import apply_diffs
from support.dump import changes, definition, log_end, raw_events, read_log
from support.fixtures import FreshDatabase
from support.servers import Connection, Server
from support.snapshots import assert_same

pytestmark = pytest.mark.server

_PARTIAL = 39
_NAMES = [
    "a",
    "b",
    "cc",
    "with blank",
    'quo"te',
    "ünïcode",
    "$",
    "",
    "a.b",
    "x[1]",
    "back\\slash",
    "line\nend",
    "é😀",
    "1st",
]
_SQL_VALUES = [
    "1", "-70000", "18446744073709551615", "1.5e300", "1.10", "'short'", "REPEAT('long ', 500)", "NULL", "TRUE",
    "CAST('2024-01-02' AS DATE)", "CAST('2024-01-02 03:04:05.678' AS DATETIME(3))", "CAST('-838:59:59' AS TIME)",
    "CAST(-99999999.125 AS DECIMAL(20,3))", "x'00ff'", "ST_GeomFromText('POINT(1 2)')", "JSON_OBJECT()", "JSON_ARRAY()",
    """CAST('{"n": {"m": [1, {"o": null}]}, "bb": 2, "a": 1}' AS JSON)""", """CAST('[1, [2, 3], "x"]' AS JSON)""",
]  # fmt: skip


def _document(rnd: random.Random, depth: int = 0) -> Any:
    kinds = ["leaf"] if depth > 3 else ["leaf", "list", "dict", "dict"]
    match "dict" if depth == 0 else rnd.choice(kinds):
        case "dict":
            return {name: _document(rnd, depth + 1) for name in rnd.sample(_NAMES, rnd.randint(1, 7))}
        case "list":
            return [_document(rnd, depth + 1) for _ in range(rnd.randint(0, 5))]
    return rnd.choice([None, True, False, 0, 7, -1, 70_000, 2**40, 1.25, "", "text", "long " * 300])


def _path(rnd: random.Random, document: Any) -> str:
    """A path of what is there, mostly; else of what is one step beyond, counted from the end, or
    wrapped into an array that is none."""
    path, at = "$", document
    while True:
        if isinstance(at, dict) and at and rnd.random() < 0.9:
            name = rnd.choice([*at, *at, *at, rnd.choice(_NAMES)])
            path += "." + json.dumps(name, ensure_ascii=False)
            at = at.get(name)
        elif isinstance(at, list) and rnd.random() < 0.8:
            number = rnd.randint(0, len(at) + 1)
            from_end = rnd.random() < 0.4
            place = len(at) - 1 - number if from_end else number
            path += (f"[last-{number}]" if number else "[last]") if from_end else f"[{number}]"
            at = at[place] if 0 <= place < len(at) else None
        else:
            wrapped = path != "$" and rnd.random() < 0.15
            return path + rnd.choice(["[0]", "[last]", "[1]"]) if wrapped else path
        if rnd.random() < 0.25:
            return path


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


def _expression(rnd: random.Random, column: str, document: Any) -> str:
    """A change that MySQL logs as differences where they are shorter."""
    found = column
    for _ in range(rnd.randint(1, 2)):
        function = rnd.choice(["JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"])
        paths = [p for p in (_path(rnd, document) for _ in range(rnd.randint(1, 3))) if p != "$"] or ["$.a"]
        values = [] if function == "JSON_REMOVE" else [rnd.choice(_SQL_VALUES) for _ in paths]
        arguments = (
            [_quoted(p) for p in paths]
            if not values
            else [f"{_quoted(p)}, {v}" for p, v in zip(paths, values, strict=True)]
        )
        found = f"{function}({found}, {', '.join(arguments)})"
    return found


def _after_images(server: Server, database: str, start: Position) -> list[tuple[Any, ...]]:
    batch = changes(server, definition(server, database, "t"), start).batch
    rows = zip(*(c.to_pylist() for c in batch.columns), strict=True)
    return [row[2:] for row in rows if row[0] in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)]


def _differences(server: Server, start: Position) -> int:
    """Events that hold some."""
    return sum(event[4] == _PARTIAL for event in raw_events(server, start))


@pytest.fixture
def partial(mysql97_gtid: Server, fresh_database: FreshDatabase) -> Iterator[tuple[Server, str, Connection]]:
    database = fresh_database(mysql97_gtid)
    mysql97_gtid.run(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON, filler VARCHAR(20), k JSON, big TEXT, l JSON NOT NULL)",
        db=database,
    )
    with mysql97_gtid.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON, SESSION sql_mode = ''")
        yield mysql97_gtid, database, connection


@pytest.mark.parametrize("seed", range(3))
def test_any_change_of_any_document(partial: tuple[Server, str, Connection], seed: int) -> None:
    server, database, connection = partial
    rnd = random.Random(seed)
    start = log_end(server)
    expected: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:

        def run(sql: str, *values: object) -> None:
            if cursor.execute(sql, values or None):
                cursor.execute("SELECT * FROM t WHERE id = %s", (number,))
                expected.append(cursor.fetchall()[0])

        for number in range(40):
            documents = {name: _document(rnd) for name in "jkl"}
            texts = [json.dumps(documents[name], ensure_ascii=False) for name in "jkl"]
            run("INSERT INTO t VALUES (%s, %s, 'x', %s, REPEAT('y', 300), %s)", number, *texts)
            for _ in range(12):
                names = rnd.sample("jkl", rnd.randint(1, 3))
                sets = [f"{n} = {_expression(rnd, n, documents[n])}" for n in names]
                if rnd.random() < 0.2:
                    sets.append(
                        rnd.choice(["filler = NULL", "filler = 'other'", "k = NULL", "big = NULL", "k = '[1, 2]'"])
                    )
                run(f"UPDATE t SET {', '.join(_once(sets))} WHERE id = {number}")
                cursor.execute("SELECT j, k, l FROM t WHERE id = %s", (number,))
                documents = {
                    n: json.loads(text) if text else None for n, text in zip("jkl", cursor.fetchall()[0], strict=True)
                }
    assert len(expected) > 300
    assert _differences(server, start) > 150
    assert _after_images(server, database, start) == expected
    assert_same(server, definition(server, database, "t"))


def _once(sets: list[str]) -> list[str]:
    """The last assignment of each column."""
    return [f"{name} = {value}" for name, value in dict(s.split(" = ", 1) for s in sets).items()]


def test_compressed_and_with_its_key_changed(partial: tuple[Server, str, Connection]) -> None:
    server, database, connection = partial
    start = log_end(server)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_transaction_compression = ON")
        document = json.dumps({"a": 1, "text": "words " * 1000})
        cursor.execute("INSERT INTO t SELECT 1, %s, NULL, NULL, '', '[]'", (document,))
        cursor.execute("INSERT INTO t SELECT id + 1, j, NULL, j, '', '[]' FROM t")
        cursor.execute("UPDATE t SET id = id + 100, j = JSON_SET(j, '$.a', id), l = JSON_SET(l, '$[3]', 'x')")
        cursor.execute("SELECT * FROM t ORDER BY id")
        expected = list(cursor.fetchall())
    assert _after_images(server, database, start)[-2:] == expected


def test_an_image_that_is_not_whole_stops_the_table(partial: tuple[Server, str, Connection]) -> None:
    """R10: with NOBLOB a before image may lack the document that the differences apply to."""
    server, _, connection = partial
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = NOBLOB")
        cursor.execute("INSERT INTO t VALUES (1, %s, NULL, NULL, NULL, '[]')", (json.dumps({"a": "x" * 500}),))
        start = log_end(server)
        cursor.execute("UPDATE t SET j = JSON_SET(j, '$.b', 1)")
    defects = [f.defect for f in read_log(server, start) if isinstance(f, RowsEvent)]
    assert [d and d.reason for d in defects] == [Reason.ROW_IMAGE_NOT_FULL]


def test_an_empty_document_has_no_differences() -> None:
    """A JSON null that the server stores as no byte at all."""
    assert apply_diffs(b"", b"") == b"\x04\x00"
