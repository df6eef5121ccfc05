"""Reports from a pod: what hangs on them is written at once, progress seldom, and nothing is lost
by a write that fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_kube.client import ApiError
from cdcsync_operator.cluster.objects.run_objects import REPORT_TABLES, report_names
from cdcsync_operator.cluster.runs.run_ports import FoundRun
from cdcsync_spark.run.pod_report import PROGRESS_SECONDS, REFUSED_SECONDS, SHARD_BYTES, PodReporter
from cdcsync_spark.run.progress import ControllerGone


class ConfigMapServer:
    """Keeps the merged ConfigMaps, none of them larger than `most`; `after` so many writes it is
    away."""

    def __init__(self) -> None:
        self.maps: dict[str, dict[str, str]] = {}
        self.writes = 0
        self.error: ApiError | None = None
        self.most = 2**20
        self.after: int | None = None

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.error:
            raise self.error
        if self.writes == self.after:
            raise ApiError(500, "InternalError", "away")
        name = path.rpartition("/")[2]
        data = self.maps.get(name, {}) | body["data"]
        if sum(len(text.encode()) for text in data.values()) > self.most:
            raise ApiError(422, "Invalid", f"Too long: must have at most {self.most} bytes")
        self.writes += 1
        self.maps[name] = data
        return {}

    def found(self) -> FoundRun:
        names = sorted(self.maps, key=lambda n: int(n.rpartition("-")[2]))
        shards = [{"metadata": {"name": n, "labels": {}}, "data": self.maps[n]} for n in names]
        return FoundRun("r", None, tuple(shards))


WALL = 1_763_748_000.5


class ReportClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(tables: int = 3, per_shard: int = 2) -> tuple[PodReporter, ConfigMapServer, ReportClock]:
    server, clock = ConfigMapServer(), ReportClock()
    names = [f"s.t{i}" for i in range(tables)]
    reporter = PodReporter(server, "ns", "r", names, per_shard, clock, lambda: WALL)  # type: ignore[arg-type]
    return reporter, server, clock


def entry(name: str, phase: str = "Streaming", **more: Any) -> dict[str, Any]:
    return {"name": name, "phase": phase, "reason": "", "message": ""} | more


def test_progress_is_written_every_few_seconds_and_phases_at_once() -> None:
    reporter, server, clock = made()
    reporter.report(tables=[entry("s.t0")])
    assert server.writes == 1
    reporter.report(tables=[entry("s.t0", rows=5)])
    assert server.writes == 1
    reporter.report(tables=[entry("s.t0", "Failed")])
    assert server.writes == 2
    clock.now += PROGRESS_SECONDS
    reporter.report(tables=[entry("s.t0", "Failed", rows=6)])
    assert server.writes == 3
    assert server.found().head.at == WALL, "the time of a report is no measure of a pause"


def test_what_is_new_since_a_number_is_found_and_nothing_else() -> None:
    reporter, server, _ = made()
    reporter.report(epoch=4, tables=[entry("s.t0"), entry("s.t2")])
    first = server.found().report_since(0)
    assert first is not None
    assert (first.epoch, [t["name"] for t in first.tables]) == (4, ["s.t0", "s.t2"])
    number = server.found().head.number
    assert server.found().report_since(number) is None
    reporter.report(tables=[entry("s.t2", "Failed")])
    second = server.found().report_since(number)
    assert second is not None
    assert [(t["name"], t["phase"]) for t in second.tables] == [("s.t2", "Failed")]


def test_a_log_that_fell_silent_leaves_no_lag() -> None:
    reporter, server, _ = made()
    reporter.report(epoch=1, position={"file": "b.000001"}, lag_seconds=10800.0)
    reporter.report(epoch=1, position={"file": "b.000001"}, lag_seconds=None)
    report = server.found().report_since(0)
    assert report is not None
    assert report.lag_seconds is None
    reporter.report(epoch=1, position={"file": "b.000001"}, lag_seconds=0.5)
    reporter.report(epoch=1, tables=[entry("s.t0")])
    report = server.found().report_since(0)
    assert report is not None
    assert report.lag_seconds == 0.5, "a report without a place leaves it"


def test_a_write_that_fails_is_made_good_by_the_next_one() -> None:
    reporter, server, clock = made()
    server.error = ApiError(500, "InternalError", "away")
    reporter.report(tables=[entry("s.t0"), entry("s.t2")])
    server.error = None
    clock.now += PROGRESS_SECONDS
    reporter.report(tables=[entry("s.t1")])
    report = server.found().report_since(0)
    assert report is not None
    assert [t["name"] for t in report.tables] == ["s.t0", "s.t1", "s.t2"]


def test_a_run_that_was_cleared_away_has_no_controller() -> None:
    reporter, server, _ = made()
    server.error = ApiError(404, "NotFound", "")
    with pytest.raises(ControllerGone):
        reporter.report(tables=[entry("s.t0")])


def test_a_lack_of_rights_must_last() -> None:
    """An API server that has just been started refuses everybody for a moment."""
    reporter, server, clock = made()
    server.error = ApiError(403, "Forbidden", "")
    reporter.report(epoch=1)
    clock.now += REFUSED_SECONDS - 1
    reporter.report(epoch=2)
    server.error = None
    reporter.report(epoch=3)
    server.error = ApiError(403, "Forbidden", "")
    clock.now += REFUSED_SECONDS
    reporter.report(epoch=4)
    clock.now += REFUSED_SECONDS
    with pytest.raises(ControllerGone):
        reporter.report(epoch=5)


def test_tables_are_in_their_shards() -> None:
    reporter, server, _ = made()
    reporter.report(tables=[entry(f"s.t{i}") for i in range(3)])
    names = [[e["name"] for e in json.loads(server.maps[f"r-report-{n}"]["tables"])["entries"]] for n in (0, 1)]
    assert names == [["s.t0", "s.t1"], ["s.t2"]]


# ---- a source whose GTID set names many servers


def wide(name: str, servers: int, **more: Any) -> dict[str, Any]:
    place = {"gtidSet": ",".join(f"{i:08x}-71ab-11ee-9ab2-0242ac120002:1-{123456789 + i}" for i in range(servers))}
    return entry(name, low=place, position=place, **more)


@pytest.mark.parametrize(("tables", "servers"), [(500, 5), (500, 16), (500, 60), (2000, 60), (100, 150)])
def test_a_report_is_cut_so_that_the_api_server_takes_it(tables: int, servers: int) -> None:
    reporter, server, clock = made(tables, REPORT_TABLES)
    names = [f"s.t{i}" for i in range(tables)]
    reporter.report(tables=[wide(n, 1) for n in names])
    number = server.found().head.number
    clock.now += PROGRESS_SECONDS
    reporter.report(tables=[wide(n, servers) for n in names])
    report = server.found().report_since(number)
    assert report is not None
    assert {t["name"]: t["position"] for t in report.tables} == {n: wide(n, servers)["position"] for n in names}
    assert server.maps.keys() <= set(report_names("r", tables)), "it may write into no other ones"


def test_an_ordinary_report_lies_in_few_maps() -> None:
    reporter, server, _ = made(1000, REPORT_TABLES)
    reporter.report(tables=[wide(f"s.t{i}", 1) for i in range(1000)])
    assert server.maps.keys() == {"r-report-0", "r-report-1"}
    assert all(len(d["tables"]) <= SHARD_BYTES for d in server.maps.values())


def test_no_news_are_missing_while_shards_are_cut_anew() -> None:
    """Whatever a reader finds in between, it knows of a table what it knew before, or more."""
    wanted = {f"s.t{i}": 1 for i in range(1000)}
    for after in range(12):
        reporter, server, clock = made(1000, REPORT_TABLES)
        reporter.report(tables=[wide(n, 1, rows=1) for n in wanted])
        clock.now += PROGRESS_SECONDS
        server.after = server.writes + after
        reporter.report(tables=[wide(n, 30, rows=2) for n in wanted])
        report = server.found().report_since(0)
        assert report is not None
        rows = {t["name"]: t["rows"] for t in report.tables}
        assert rows.keys() == wanted.keys()
        server.after = None
        clock.now += PROGRESS_SECONDS
        reporter.report(tables=[wide("s.t0", 30, rows=3)])
        after_all = server.found().report_since(0)
        assert after_all is not None
        rows = {t["name"]: t["rows"] for t in after_all.tables}
        assert rows == dict.fromkeys(wanted, 2) | {"s.t0": 3}


def test_a_report_that_is_too_large_ends_the_run_with_a_reason_which_is_told() -> None:
    reporter, server, clock = made(100, REPORT_TABLES)
    reporter.report(tables=[wide("s.t0", 1)])
    clock.now += PROGRESS_SECONDS
    with pytest.raises(PermanentError, match="capture fewer tables by one CdcSync") as caught:
        reporter.report(tables=[wide(f"s.t{i}", 400) for i in range(100)])
    assert caught.value.reason == "SpecInvalid"
    reporter.report(exit={"code": 3, "reason": "SpecInvalid", "message": "m", "remedy": ""})
    assert server.found().head.exit.message == "m"


@pytest.mark.parametrize(("code", "reason"), [(0, "SpecInvalid"), (1, "SourceUnreachable")])
def test_a_last_report_that_is_too_large_still_has_how_the_run_ended(code: int, reason: str) -> None:
    reporter, server, _ = made(100, REPORT_TABLES)
    reporter._take({"tables": [wide(f"s.t{i}", 400) for i in range(100)]})
    reporter.report(exit={"code": code, "reason": "SourceUnreachable" if code else "", "message": "", "remedy": ""})
    assert server.found().head.exit.reason == reason
