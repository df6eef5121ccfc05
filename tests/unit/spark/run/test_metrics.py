"""A driver's page shows what the driver reports, and never costs it its run."""

from __future__ import annotations

import socket
import urllib.request
from typing import Any

import pytest

from cdcsync_core.runs.run import Flow, RunConfig, RunKind
from cdcsync_kube import pages
from cdcsync_kube.pages import serve
from cdcsync_spark.run.metrics import VARIABLE, DriverMetrics, ShownReporter, shown

LABELS = {"namespace": "ns", "name": "shop", "kind": "stream"}
ON_EACH = 'kind="stream",name="shop",namespace="ns"'
CONFIG = RunConfig(
    "r", 1, RunKind.STREAM, {"metadata": {"name": "shop", "namespace": "ns"}}, (), plan_dir="", secrets_dir="", scratch_dir=""
)  # fmt: skip


class Kept:
    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def report(self, **parts: Any) -> None:
        self.reports.append(parts)


def test_it_shows_what_was_said_last_of_each_part() -> None:
    metrics = DriverMetrics(LABELS)
    metrics.take({"epoch": 7, "lag_seconds": 2.5, "tables": [{"name": "s.a", "phase": "CatchingUp"}]}, 10.0)
    tables = [{"name": "s.a", "phase": "Streaming"}, {"name": "s.b", "phase": "Failed"}]
    metrics.take({"epoch": None, "lag_seconds": 1.5, "done": {"rows": 5, "commits": 2}, "tables": tables}, 1763748000.5)
    lines = metrics.text().splitlines()
    for line in (
        f"cdcsync_driver_epoch{{{ON_EACH}}} 7.0",
        f"cdcsync_driver_lag_seconds{{{ON_EACH}}} 1.5",
        f"cdcsync_driver_rows_total{{{ON_EACH}}} 5.0",
        f"cdcsync_driver_commits_total{{{ON_EACH}}} 2.0",
        f"cdcsync_driver_reported_timestamp_seconds{{{ON_EACH}}} 1.7637480005e+09",
        f'cdcsync_driver_tables{{{ON_EACH},phase="Streaming"}} 1.0',
        f'cdcsync_driver_tables{{{ON_EACH},phase="CatchingUp"}} 0.0',
        "# TYPE cdcsync_driver_rows_total counter",
    ):
        assert line in lines
    assert "maintenance" not in metrics.text()
    metrics.take({"lag_seconds": None}, 1763748001.0)
    assert "cdcsync_driver_lag_seconds" not in metrics.text(), "it is not known yet"


def test_a_table_that_is_reported_without_a_phase_keeps_its_last() -> None:
    """As a verification reports it."""
    metrics = DriverMetrics(LABELS)
    metrics.take({"tables": [{"name": "s.a", "phase": "Streaming"}]}, 1.0)
    metrics.take({"tables": [{"name": "s.a", "verified": {}}, {"name": "s.b", "verified": {}}]}, 2.0)
    assert f'cdcsync_driver_tables{{{ON_EACH},phase="Streaming"}} 1.0' in metrics.text().splitlines()


def test_when_data_came_and_was_committed_is_shown() -> None:
    metrics = DriverMetrics(LABELS)
    metrics.take({"flow": Flow(seconds_since_event=50.0).to_dict()}, 100.0)
    assert "cdcsync_driver_received_timestamp_seconds" not in metrics.text(), "nothing came yet"
    metrics.take({"flow": Flow(connected=True, seconds_since_event=1.5, waiting=7.0, commit=20.0).to_dict()}, 100.0)
    lines = metrics.text().splitlines()
    assert f"cdcsync_driver_received_timestamp_seconds{{{ON_EACH}}} 98.5" in lines
    assert f"cdcsync_driver_committed_timestamp_seconds{{{ON_EACH}}} 80.0" in lines
    assert f"cdcsync_driver_waiting_seconds{{{ON_EACH}}} 7.0" in lines


def test_nothing_is_served_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    kept = Kept()
    assert shown(CONFIG, kept) is kept


def test_a_report_is_served_and_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = []
    monkeypatch.setattr(pages, "serve", lambda *given: servers.append(serve(*given)))
    monkeypatch.setenv(VARIABLE, "127.0.0.1:0")
    kept = Kept()
    shown(CONFIG, kept).report(epoch=3)
    (server,) = servers
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            assert f"cdcsync_driver_epoch{{{ON_EACH}}} 3.0" in answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    assert kept.reports == [{"epoch": 3}]


@pytest.mark.parametrize("port", ["taken", "many", "70000"])
def test_a_port_that_cannot_be_had_costs_the_run_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: str
) -> None:
    kept = Kept()
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1] if port == "taken" else port
        monkeypatch.setenv(VARIABLE, f"127.0.0.1:{number}")
        reporter = shown(CONFIG, kept)
    assert isinstance(reporter, ShownReporter)
    reporter.report(epoch=3)
    assert kept.reports == [{"epoch": 3}]
    assert "no metrics are served" in capsys.readouterr().err
