"""The JSON forms of a changelog: their exact members, and what a reader makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.json_records import FORMS, Origin, Records, slices
from support.json_changes import AFTER, BEFORE, CHANGES, DELETE, GTID, INSERT, ORIGIN, Row, changelog


def read(records: Records) -> list[tuple[Any, Any]]:
    """Keys and values as JSON readers see them; None is a tombstone."""
    pairs = zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)
    return [(json.loads(k), None if v is None else json.loads(v)) for k, v in pairs]


A, NONE, B = {"id": 1, "v": "a"}, {"id": 1, "v": None}, {"id": 2, "v": "b"}
ONE, TWO = {"id": 1}, {"id": 2}


def test_debezium_json() -> None:
    first = {
        "connector": "mysql",
        "name": "cdc",
        "ts_ms": 1500,
        "ts_us": 1500123,
        "ts_ns": 1500123000,
        "snapshot": "false",
        "db": "shop",
        "table": "orders",
        "server_id": 7,
        "gtid": GTID,
        "file": "binlog.000001",
        "pos": 200,
    }
    second = first | {"ts_ms": 0, "ts_us": 0, "ts_ns": 0, "gtid": None, "pos": 300}

    def value(op: str, before: Any, after: Any, source: Any) -> dict[str, Any]:
        return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 5000, "transaction": None}

    assert read(FORMS["debezium-json"](CHANGES, ORIGIN)) == [
        (ONE, value("c", None, A, first)),
        (ONE, value("u", A, NONE, first)),
        (ONE, value("d", NONE, None, second)),
        (ONE, None),
        (TWO, value("c", None, B, second)),
        (TWO, value("d", B, None, second)),
        (TWO, None),
    ]


def test_debezium_json_of_a_snapshot() -> None:
    rows = Events(changelog((INSERT, 0, (1, "a"))).images, (), (), first=0)
    snapshot = Origin(ORIGIN.table, ORIGIN.key, "mariadb", 7, "cdc", sent=5000, snapshot=True)
    ((key, value),) = read(FORMS["debezium-json"](rows, snapshot))
    assert (key, value["op"], value["after"], value["before"]) == (ONE, "r", A, None)
    assert (value["source"]["snapshot"], value["source"]["file"], value["source"]["connector"]) == (
        "true",
        None,
        "mariadb",
    )


def test_changelog_json() -> None:
    assert read(FORMS["changelog-json"](CHANGES, ORIGIN)) == [
        (ONE, {"data": A, "op": "+I"}),
        (ONE, {"data": A, "op": "-U"}),
        (ONE, {"data": NONE, "op": "+U"}),
        (ONE, {"data": NONE, "op": "-U"}),
        (TWO, {"data": B, "op": "+U"}),
        (TWO, {"data": B, "op": "-D"}),
    ]


def test_upsert_json() -> None:
    """A changed key is a tombstone of the old one before the row under the new one."""
    assert read(FORMS["upsert-json"](CHANGES, ORIGIN)) == [(ONE, A), (ONE, NONE), (ONE, None), (TWO, B), (TWO, None)]


def test_canal_json() -> None:
    head = {"database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": False, "ts": 5000}
    head |= {"id": 0, "sql": "", "sqlType": None, "mysqlType": None}

    def value(kind: str, data: Any, old: Any, committed: int) -> dict[str, Any]:
        return {"data": [data], "old": old, "type": kind, "es": committed} | head

    assert read(FORMS["canal-json"](CHANGES, ORIGIN)) == [
        (ONE, value("INSERT", A, None, 1500)),
        (ONE, value("UPDATE", NONE, [A], 1500)),
        (ONE, value("DELETE", NONE, None, 0)),
        (TWO, value("INSERT", B, None, 0)),
        (TWO, value("DELETE", B, None, 0)),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_no_record(form: str) -> None:
    assert read(FORMS[form](changelog(), ORIGIN)) == []


@st.composite
def histories(draw: st.DrawFn) -> Events:
    """Inserts, updates (of the key, too) and deletes that a table of few keys can have."""
    table: dict[int, str | None] = {}
    images: list[tuple[int, int, Row]] = []
    for _ in range(draw(st.integers(0, 30))):
        key, value = draw(st.integers(0, 5)), draw(st.none() | st.text('a\\"\n😀', max_size=3))
        transaction = draw(st.integers(0, 1))
        if key not in table:
            images.append((INSERT, transaction, (key, value)))
            table[key] = value
        elif draw(st.booleans()):
            images.append((DELETE, transaction, (key, table.pop(key))))
        else:
            free = draw(st.sampled_from([key, *(k for k in range(6) if k not in table)]))
            images.append((BEFORE, transaction, (key, table.pop(key))))
            images.append((AFTER, transaction, (free, value)))
            table[free] = value
    return changelog(*images)


def table_of(changes: Events) -> dict[int, Any]:
    table: dict[int, Any] = {}
    for kind, key, value in zip(*(changes.images[c].to_pylist() for c in (0, 2, 3)), strict=True):
        if kind in (BEFORE, DELETE):
            del table[key]
        else:
            table[key] = value
    return table


def consume(form: str, records: list[tuple[Any, Any]]) -> dict[int, Any]:
    """What a consumer has at the end that applies each key's records in their order, keys in any
    order: exactly what a broker keeps. Raises KeyError for a false record of debezium-json."""
    table: dict[int, Any] = {}
    by_key: dict[int, list[Any]] = {}
    for key, value in records:
        by_key.setdefault(key["id"], []).append(value)
    for key in sorted(by_key, reverse=True):
        for value in by_key[key]:
            _apply(form, table, key, value)
    return table


def _apply(form: str, table: dict[int, Any], key: int, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    elif form == "upsert-json":
        table[key] = value["v"]
    elif form == "changelog-json":
        _image(table, key, value["data"]["v"], begins=value["op"][0] == "+")
    elif form == "canal-json":
        _image(table, key, value["data"][0]["v"], begins=value["type"] != "DELETE")
    else:
        if value["before"]:
            assert table.pop(value["before"]["id"]) == value["before"]["v"]
        if value["after"]:
            assert value["after"]["id"] not in table
            table[value["after"]["id"]] = value["after"]["v"]


def _image(table: dict[int, Any], key: int, value: Any, *, begins: bool) -> None:
    if begins:
        table[key] = value
    else:
        table.pop(key, None)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40)
@given(changes=histories(), size=st.integers(1, 400))
def test_a_consumer_ends_with_the_table(form: str, changes: Events, size: int) -> None:
    """In slices of any size, and whatever the order between keys."""
    records = [r for part in slices(changes, size) for r in read(FORMS[form](part, ORIGIN))]
    assert records == read(FORMS[form](changes, ORIGIN))
    assert consume(form, records) == table_of(changes)


@given(changes=histories(), size=st.integers(1, 400))
def test_slices_keep_an_updates_images_together(changes: Events, size: int) -> None:
    parts = [part.images for part in slices(changes, size)]
    assert all(part[0][0].as_py() != AFTER for part in parts)
    assert sum(part.num_rows for part in parts) == changes.images.num_rows
