"""Reports from a pod: what hangs on them is written at once, progress seldom, and nothing is lost by a write that fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_kube.client import ApiError
from cdcsync_operator.kube_runs import FoundRun
from cdcsync_spark.podreport import PROGRESS_SECONDS, REFUSED_SECONDS, PodReporter
from cdcsync_spark.progress import ControllerGone


class Server:
    """Keeps the merged ConfigMaps."""

    def __init__(self) -> None:
        self.maps: dict[str, dict[str, str]] = {}
        self.writes = 0
        self.error: ApiError | None = None

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.error:
            raise self.error
        self.writes += 1
        self.maps.setdefault(path.rpartition("/")[2], {}).update(body["data"])
        return {}

    def found(self) -> FoundRun:
        shards = [{"metadata": {"name": n, "labels": {}}, "data": d} for n, d in sorted(self.maps.items())]
        return FoundRun("r", None, tuple(shards))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(tables: int = 3, per_shard: int = 2) -> tuple[PodReporter, Server, Clock]:
    server, clock = Server(), Clock()
    names = [f"s.t{i}" for i in range(tables)]
    reporter = PodReporter(server, "ns", "r", names, per_shard, clock)  # type: ignore[arg-type]
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


def test_what_is_new_since_a_number_is_found_and_nothing_else() -> None:
    reporter, server, _ = made()
    reporter.report(epoch=4, tables=[entry("s.t0"), entry("s.t2")])
    first = server.found().news(0)
    assert first is not None
    assert (first.epoch, [t["name"] for t in first.tables]) == (4, ["s.t0", "s.t2"])
    number = server.found().head["number"]
    assert server.found().news(number) is None
    reporter.report(tables=[entry("s.t2", "Failed")])
    second = server.found().news(number)
    assert second is not None
    assert [(t["name"], t["phase"]) for t in second.tables] == [("s.t2", "Failed")]


def test_a_write_that_fails_is_made_good_by_the_next_one() -> None:
    reporter, server, clock = made()
    server.error = ApiError(500, "InternalError", "away")
    reporter.report(tables=[entry("s.t0"), entry("s.t2")])
    server.error = None
    clock.now += PROGRESS_SECONDS
    reporter.report(tables=[entry("s.t1")])
    news = server.found().news(0)
    assert news is not None
    assert [t["name"] for t in news.tables] == ["s.t0", "s.t1", "s.t2"]


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
