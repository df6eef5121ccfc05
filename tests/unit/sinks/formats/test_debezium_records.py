"""Records in Debezium's form: what surrounds the rows, and the headers of changed keys."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

from cdcsync_core.positions.position import LogOffset
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.debezium_records import debezium_exact_json
from cdcsync_spark.sinks.formats.json_records import Header, Records, slices
from support.json_changes import AFTER, BEFORE, CHANGES, DELETE, GTID, INSERT, ORIGIN, changelog

ONE, TWO = b'{"id":1}', b'{"id":2}'


def test_a_record_has_debeziums_members_in_their_order() -> None:
    first = debezium_exact_json(CHANGES, ORIGIN).values[0].as_py().decode()
    assert first == (
        '{"before":null,"after":{"id":1,"v":"a"},"source":{'
        f'"version":"{version("cdcsync")}","connector":"mysql","name":"cdc","ts_ms":1500,"snapshot":"false",'
        '"db":"shop","sequence":null,"ts_us":1500123,"ts_ns":1500123000,"table":"orders","server_id":7,'
        f'"gtid":"{GTID}","file":"binlog.000001","pos":200,"row":0,"thread":null,"query":null}},'
        '"transaction":null,"op":"c","ts_ms":5000,"ts_us":5000000,"ts_ns":5000000000}'
    )


@pytest.mark.parametrize(
    ("place", "expected"), [(LogOffset("b.000002", 70), ("b.000002", 70)), (None, ("", 0))], ids=["known", "unknown"]
)
def test_a_row_of_a_snapshot_has_the_place_of_the_snapshot(place: LogOffset | None, expected: tuple[str, int]) -> None:
    rows = Events(changelog((INSERT, 0, (1, "a")), (INSERT, 0, (2, "b"))).images, (), (), 0)
    records = debezium_exact_json(rows, replace(ORIGIN, snapshot=True, place=place))
    found = [json.loads(v) for v in records.values.to_pylist()]
    assert [v["op"] for v in found] == ["r", "r"]
    for source in (v["source"] for v in found):
        assert (source["file"], source["pos"]) == expected
        assert (source["snapshot"], source["gtid"], source["row"], source["server_id"]) == ("true", None, 0, 0)


def test_a_changed_key_names_the_other_one_in_headers() -> None:
    """The delete and its tombstone name the key that follows, the create the one before."""
    new, old = ("__debezium.newkey", TWO), ("__debezium.oldkey", ONE)
    assert with_headers(debezium_exact_json(CHANGES, ORIGIN)) == [
        (ONE, "c", None),
        (ONE, "u", None),
        (ONE, "d", new),
        (ONE, None, new),
        (TWO, "c", old),
        (TWO, "d", None),
        (TWO, None, None),
    ]


@pytest.mark.parametrize("size", [1, 40, 80, 1 << 20])
def test_the_changes_of_a_transaction_are_numbered_whatever_the_slices(size: int) -> None:
    changes = changelog(
        *((INSERT, 0, (n, "a")) for n in range(3)),
        *((kind, 0, (n, "a")) for n in range(2) for kind in (BEFORE, AFTER)),
        (INSERT, 1, (7, "a")),
        (BEFORE, 1, (7, "a")),
        (AFTER, 1, (8, "a")),
        (DELETE, 1, (8, "a")),
    )
    values = [v for piece in slices(changes, size) for v in debezium_exact_json(piece, ORIGIN).values.to_pylist()]
    assert [(s["pos"], s["row"]) for s in (json.loads(v)["source"] for v in values if v is not None)] == [
        *((200, n) for n in range(5)),
        *((300, n) for n in (0, 1, 1, 2)),
    ]


def with_headers(records: Records) -> list[tuple[bytes, str | None, Header | None]]:
    return [
        (key, None if value is None else operation(json.loads(value)), records.headers.get(n))
        for n, (key, value) in enumerate(records.pairs())
    ]


def operation(record: dict[str, Any]) -> str:
    return str(record["op"])
