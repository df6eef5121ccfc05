"""Reports cost the namespace of their sync, in etcd and in the operator's memory."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.runs.report import table_report
from cdcsync_core.runs.status_part import StatusAnchor, StatusPosition
from cdcsync_kube.client import ApiError, Object
from cdcsync_operator.cluster.quota.report_bounds import MOST_BYTES, ReportBounds
from cdcsync_operator.cluster.quota.room import READ_REPORTS, REPORTS, Room, RoomBounds, Rooms
from support.traced import traced

MIB = 2**20
WIDE = RoomBounds(2**40, 0, 1)


def report(size: int) -> Object:
    return {"metadata": {"name": "r-report-0"}, "data": {"tables": "x" * size}}


def bounds(rooms: Rooms, namespace: str = "lake") -> ReportBounds:
    return ReportBounds(rooms, namespace)


def test_a_namespace_with_many_runs_reports_is_refused_and_others_are_not() -> None:
    rooms = Rooms(reports=Room(RoomBounds(total=10 * MIB, own=1 * MIB, namespaces=5)))
    mine = bounds(rooms)
    for n in range(6):
        mine.read(f"run-{n}", [report(MIB)])
        mine.merged()
    with pytest.raises(CdcError) as caught:
        mine.read("run-6", [report(MIB)])
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    for words in ("at most 6.0 MiB for a namespace, of which this one has 6.0 MiB", "spec.tables", "run-6"):
        assert words in caught.value.message
    with pytest.raises(CdcError, match=r"spec\.tables"):
        bounds(rooms).start("run-7", [report(0)] * 300)
    bounds(rooms, "other").read("run-0", [report(MIB // 2)] * 2)
    assert mine.read("run-0", [report(MIB)]), "what is counted already stays"
    mine.removed("run-1")
    mine.removed("run-2")
    mine.read("run-6", [report(MIB)])


def test_no_more_is_read_of_a_run_than_its_bound() -> None:
    read = []

    def endless() -> object:
        while True:
            read.append(1)
            yield report(MIB)

    with pytest.raises(CdcError, match="reports of the run r with more than"):
        bounds(Rooms(reports=Room(WIDE), read_reports=Room(WIDE))).read("r", endless())  # type: ignore[arg-type]
    assert len(read) == MOST_BYTES // MIB + 1


def test_what_finds_no_room_in_memory_waits_until_others_are_merged() -> None:
    rooms = Rooms(read_reports=Room(RoomBounds(total=4 * MIB, own=0, namespaces=1)))
    first, second = bounds(rooms), bounds(rooms, "other")
    first.read("a", [report(MIB)] * 2)
    first.read("b", [report(MIB)])
    with pytest.raises(ApiError, match="wait") as caught:
        second.read("c", [report(MIB)] * 2)
    assert caught.value.transient
    second.merged()
    first.merged()
    assert len(second.read("c", [report(MIB)] * 4)) == 4


def test_the_largest_sync_has_room() -> None:
    """Alone in its namespace, whatever others have taken of what is theirs."""
    for room in (READ_REPORTS, REPORTS):
        assert room.most >= MOST_BYTES


def test_an_entry_is_as_small_as_its_parts() -> None:
    """Whatever a tenant writes beside them and in them."""
    deep: object = {}
    for _ in range(200):
        deep = {"anchor": deep}
    position = {"file": "b.1", "offset": 4, "anchor": {"file": "b.1", "offset": 4, "created": 1}}
    hostile = {"x": deep, "many": [[]] * 10_000}
    entry = {"name": "shop.a", "position": position | hostile, "low": deep, "rows": [1] * 1000, "x": deep}
    ranges = [{"start": None, "end": [5, "ff"], "more": deep}]
    kept = table_report(json.loads(json.dumps(entry | {"finished": ranges, "schema": {"at": "t"} | hostile})))
    assert kept == {
        "name": "shop.a", "position": position, "low": {"anchor": {}}, "rows": None, "schema": {"at": "t"},
        "finished": [{"start": None, "end": [5, "ff"]}],
    }  # fmt: skip


def test_an_entry_has_all_parts_of_a_position() -> None:
    """A sync of several hosts knows by the binlog which of them it follows."""
    position = StatusPosition(
        binlog="mysql:a",
        file="b.1",
        offset=4,
        gtid_set="a:1",
        exact=True,
        anchor=StatusAnchor(file="b.1", offset=4, created=1),
        created=1,
        timestamp="2026-01-01T00:00:00+00:00",
    )
    assert position.model_fields_set == StatusPosition.model_fields.keys()
    data = position.model_dump(by_alias=True, mode="json")
    assert table_report({"name": "shop.a", "position": data}) == {"name": "shop.a", "position": data}


@pytest.mark.parametrize(
    "finished", ["x", {}, [None], [[]], [{"start": [[]]}], [{"end": [1.5]}], [{"end": [1] * 33}], [{}] * 5]
)
def test_key_ranges_of_another_form_are_refused(finished: object) -> None:
    with pytest.raises(ValueError, match="finished key ranges"):
        table_report({"name": "shop.a", "finished": finished})


def test_hostile_shards_take_eight_times_their_text_at_most() -> None:
    values = [-(10**5)] * 32
    ranges = [{"start": values, "end": values}] * 4
    entry = {"name": "a.b", "finished": ranges, "position": {"file": "f", "offset": 10**9}}
    texts = [json.dumps({"entries": [entry] * 500}, separators=(",", ":")) for _ in range(3)]
    texts += ['{"entries":[{"name":"a","finished":[],"low":{"a":' + "[" * 900 + "]" * 900 + "}}]}"] * 50

    def read() -> int:
        reports = [table_report(e) for text in texts for e in json.loads(text)["entries"]]
        assert len(reports) == 1550
        return tracemalloc.get_traced_memory()[0]

    assert traced(read) < 8 * sum(map(len, texts))
