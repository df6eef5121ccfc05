"""A run that waits for its plan is ended by a stop, by a controller that is
gone, and by a plan that cannot come."""

from __future__ import annotations

import base64
import gzip
import json
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from cdcsync_core.errors import Reason, TransientError
from cdcsync_core.positions.chunk import Split
from cdcsync_core.runs.run import PlanShard
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_kube.client import Api, ApiError
from cdcsync_spark.app.pod import PodReports
from cdcsync_spark.run.context import Draining, RunContext
from cdcsync_spark.run.pod_report import PodReporter
from cdcsync_spark.run.progress import ControllerGone, Reporter, Reports
from cdcsync_spark.snapshot.plan_mirror import PlanMirror
from cdcsync_spark.snapshot.plan_reader import PlanFeed

TABLE = Capture(SourceTable(TableId("shop", "orders"), (Column("id", SourceType.parse("int"), False),)), ("id",))
UNUSED = cast(Any, None)
SECONDS = 120.0


def run_with(reporter: Reports, stopping: threading.Event | None = None) -> RunContext:
    stopping = stopping or threading.Event()
    return RunContext(UNUSED, UNUSED, UNUSED, UNUSED, UNUSED, reporter, stopping, Future(), silent_seconds=0.1)


def feed(folder: Path, run: RunContext) -> PlanFeed:
    return PlanFeed(UNUSED, folder, 0, TABLE, 10, run.wait)


class Counting:
    """Counts reports; the end of the run is asked for with the third."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.stopping = threading.Event()

    def report(self, **parts: Any) -> None:
        self.reports.append(parts)
        if len(self.reports) == 3:
            self.stopping.set()


def test_a_run_that_waits_reports_that_it_lives_until_it_is_stopped(tmp_path: Path) -> None:
    reporter = Counting()
    with pytest.raises(Draining):
        feed(tmp_path, run_with(reporter, reporter.stopping)).splits(None)
    assert reporter.reports == [{}, {}, {}]


def test_a_run_that_waits_notices_that_its_controller_is_gone(tmp_path: Path) -> None:
    """Else a controller that was killed before it had made the plan would leave a driver and its
    JVM forever."""
    read, write = os.pipe()
    os.close(read)
    try:
        with pytest.raises(ControllerGone):
            feed(tmp_path, run_with(Reporter("run-1", write))).splits(None)
    finally:
        os.close(write)


# -- in a pod


class PlanServer:
    """An API server with a plan: the ConfigMap is asked for `missing` times before it is there. It
    takes reports."""

    def __init__(self, binary: dict[str, str], missing: int = 2) -> None:
        self.binary, self.missing = binary, missing

    def get(self, path: str) -> dict[str, Any]:
        assert path.endswith("/configmaps/run-1-plan-0")
        if self.missing:
            self.missing -= 1
            raise ApiError(404, "NotFound", "not yet")
        return {"binaryData": self.binary}

    def merge(self, _: str, __: dict[str, Any]) -> None:
        """It is not read again."""


def packed(content: bytes) -> dict[str, str]:
    return {"plan.json.gz": base64.b64encode(content).decode()}


def compressed(plan: dict[str, Any]) -> dict[str, str]:
    return packed(gzip.compress(json.dumps(plan).encode()))


SHARD = PlanShard("shop.orders", 0, None, (Split(),), last=True)
WHOLE = {"shards": [{"index": 0, "shard": json.loads(SHARD.to_json())}], "last": True}


def in_pod(server: PlanServer, folder: Path) -> tuple[RunContext, PlanMirror]:
    api = cast(Api, server)
    mirror = PlanMirror(api, "default", "run-1", folder, poll=0.01)
    mirror.start()
    reporter = PodReporter(api, "default", "run-1", ["shop.orders"], 500)
    return run_with(PodReports(reporter, mirror, folder / "termination-log")), mirror


def test_a_plan_comes_as_soon_as_it_is_made(tmp_path: Path) -> None:
    run, mirror = in_pod(PlanServer(compressed(WHOLE)), tmp_path)
    assert list(feed(tmp_path, run).splits(None)) == [Split()]
    mirror.join(SECONDS)
    assert not mirror.is_alive()
    mirror.check()


@pytest.mark.parametrize(
    "binary",
    [
        {},
        packed(b"no gzip"),
        packed(gzip.compress(json.dumps(WHOLE).encode())[:-12]),
        packed(gzip.compress(b"no JSON")),
        {"plan.json.gz": "?"},
        compressed({"last": True}),
        compressed({"shards": [{"index": 0, "shard": {"unknown": 1}}], "last": True}),
    ],
)
def test_a_plan_that_cannot_be_read_ends_the_run_that_waits_for_it(tmp_path: Path, binary: dict[str, str]) -> None:
    run, mirror = in_pod(PlanServer(binary), tmp_path)
    with pytest.raises(TransientError) as caught:
        feed(tmp_path, run).splits(None)
    assert caught.value.reason is Reason.INTERNAL_ERROR
    assert "the plan of this run cannot be read" in caught.value.message
    run.reporter.report(exit={"code": 1})
    mirror.join(SECONDS)
    assert not mirror.is_alive()
