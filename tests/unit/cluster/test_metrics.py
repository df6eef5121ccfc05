"""The page that Prometheus reads."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from cdcsync_core.runs.status import Phase, Status, TableCounts, with_condition
from cdcsync_kube.pages import serve
from cdcsync_operator.cluster.metrics import OF_SYNC, Metrics
from cdcsync_spark.run.metrics import OF_RUN
from support.served_metrics import served

ROOT = Path(__file__).resolve().parents[3]


def page() -> str:
    status = with_condition(Status(phase=Phase.STREAMING), "Ready", True, "Streaming", "", 0.0)
    status = status.with_(lag_seconds=0.8, tables=TableCounts(total=3, streaming=2, unassigned=1))
    metrics = Metrics()
    metrics.reconciled(0.5, failed=True)
    return metrics.text({("ns", "shop"): status}, calls=7, leading=True)


def test_values_carry_the_name_of_their_sync() -> None:
    lines = page().splitlines()
    assert 'cdcsync_ready{name="shop",namespace="ns"} 1.0' in lines
    assert 'cdcsync_lag_seconds{name="shop",namespace="ns"} 0.8' in lines
    assert 'cdcsync_tables_consistent{name="shop",namespace="ns"} 2.0' in lines
    assert 'cdcsync_tables_unassigned{name="shop",namespace="ns"} 1.0' in lines
    assert 'cdcsync_phase{name="shop",namespace="ns",phase="Streaming"} 1.0' in lines
    assert 'cdcsync_phase{name="shop",namespace="ns",phase="Paused"} 0.0' in lines
    assert "cdcsync_reconcile_errors_total 1.0" in lines
    assert "cdcsync_api_calls_total 7.0" in lines


def test_what_is_not_known_is_left_out() -> None:
    assert "cdcsync_position_timestamp_seconds" not in page()


def test_every_metric_has_its_type_and_help() -> None:
    for metric in OF_SYNC:
        assert metric.help
        assert metric.name.startswith("cdcsync_")


def test_pages_are_served() -> None:
    server = serve(0, {"/metrics": lambda: (200, page())})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            assert answer.read().decode() == page()
    finally:
        server.shutdown()
        server.server_close()


def test_a_time_is_shown_to_the_second() -> None:
    """Six digits, as `%g` has them, are hours off."""
    assert 'cdcsync_position_timestamp_seconds{name="s",namespace="n"} 1.76722560025e+09' in served().splitlines()


def test_the_documentation_names_every_metric() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert [name for name in shown_names() if f"`{name}" not in text] == []


def shown_names() -> list[str]:
    """Of the operator and of drivers."""
    names = re.findall(r"^# TYPE (\S+)", served(), re.M)
    assert {m.name for m in (*OF_SYNC, *OF_RUN)} <= set(names)
    return names


def test_a_page_has_no_more_samples_than_prometheus_takes() -> None:
    """Those that need attention stay, and a metric says how many do not."""
    well = with_condition(Status(phase=Phase.STREAMING), "Ready", True, "Streaming", "", 0.0)
    syncs = {("ns", f"s{n:04d}"): well for n in range(2000)}
    syncs["ns", "s1999"] = with_condition(Status(phase=Phase.FAILED), "Stalled", True, "TableGone", "", 0.0)
    lines = Metrics(most=1000).text(syncs, calls=7, leading=True).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert 800 < len(samples) <= 1000
    assert "cdcsync_syncs 2000.0" in lines
    assert "cdcsync_syncs_left_out 1955.0" in lines
    assert 'cdcsync_stalled{name="s1999",namespace="ns"} 1.0' in lines
    assert 'cdcsync_ready{name="s0000",namespace="ns"} 1.0' in lines
    assert "cdcsync_syncs_left_out 0.0" in Metrics().text({}, calls=7, leading=True).splitlines()
