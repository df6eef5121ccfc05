"""The page that Prometheus reads."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase, Status, with_condition
from cdcsync_core.runs.table_status import TableCounts, TableStatus
from cdcsync_kube.pages import serve
from cdcsync_operator.cluster.metrics import OF_SYNC, Metrics
from cdcsync_operator.cluster.table_metrics import OF_TABLE
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
    assert 'cdcsync_condition{condition="Ready",name="shop",namespace="ns",reason="Streaming"} 1.0' in lines
    assert 'condition="Consistent"' not in page(), "it is Unknown"
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
    """The names of the metrics of the operator and of drivers."""
    names = re.findall(r"^# TYPE (\S+)", served(), re.M)
    assert {m.name for m in (*OF_SYNC, *OF_TABLE, *OF_RUN)} <= set(names)
    return names


def test_a_page_has_no_more_samples_than_prometheus_takes() -> None:
    """Syncs that need attention stay, and a metric says how many do not."""
    well = with_condition(Status(phase=Phase.STREAMING), "Ready", True, "Streaming", "", 0.0)
    syncs = {("ns", f"s{n:04d}"): well for n in range(2000)}
    syncs["ns", "s1999"] = with_condition(Status(phase=Phase.FAILED), "Stalled", True, "TableGone", "", 0.0)
    lines = Metrics(most=1000).text(syncs, calls=7, leading=True).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert 700 < len(samples) <= 1000
    assert "cdcsync_syncs 2000.0" in lines
    assert "cdcsync_syncs_left_out 1962.0" in lines
    assert 'cdcsync_stalled{name="s1999",namespace="ns"} 1.0' in lines
    assert 'cdcsync_ready{name="s0000",namespace="ns"} 1.0' in lines
    assert "cdcsync_syncs_left_out 0.0" in Metrics().text({}, calls=7, leading=True).splitlines()


def tables(*phases: TablePhase) -> Status:
    entries = [TableStatus(name=f"shop.t{n}", phase=phase, reason="TableGone") for n, phase in enumerate(phases)]
    return Status(table_status=tuple(entries))


def table_lines(metrics: Metrics, **syncs: Status) -> list[str]:
    page = metrics.text({("ns", name): status for name, status in syncs.items()}, calls=0, leading=True)
    return [line for line in page.splitlines() if line.startswith("cdcsync_table")]


def test_tables_are_served_where_they_are_asked_for() -> None:
    status = tables(TablePhase.STREAMING, TablePhase.FAILED, TablePhase.UNASSIGNED)
    assert not [line for line in table_lines(Metrics(), shop=status) if "table=" in line]
    lines = table_lines(Metrics(tables_of_sync=5), shop=status)
    assert 'cdcsync_table_failed{name="shop",namespace="ns",reason="TableGone",table="shop.t1"} 1.0' in lines
    assert 'cdcsync_table_failed{name="shop",namespace="ns",reason="",table="shop.t0"} 0.0' in lines
    assert 'cdcsync_table_consistent{name="shop",namespace="ns",table="shop.t0"} 1.0' in lines
    assert "cdcsync_tables_left_out 0.0" in lines
    assert not [line for line in lines if "shop.t2" in line], "it is not captured"


def test_tables_that_need_attention_are_served_first() -> None:
    """They come first within each sync, and where the page has no room; what is left out is
    counted."""
    well, bad = [TablePhase.STREAMING] * 3, [TablePhase.PENDING, TablePhase.FAILED]
    lines = table_lines(Metrics(tables_of_sync=2), shop=tables(*well, *bad))
    assert {part for line in lines for part in re.findall(r'table="([^"]+)', line)} == {"shop.t3", "shop.t4"}
    assert "cdcsync_tables_left_out 3.0" in lines
    lines = table_lines(Metrics(most=75, tables_of_sync=5), a=tables(*well), b=tables(*well, *bad))
    served = {part for line in lines for part in re.findall(r'name="(.)".*table="([^"]+)', line)}
    assert served == {("b", "shop.t3"), ("b", "shop.t4")}
    assert "cdcsync_tables_left_out 6.0" in lines
