"""Numbers of single tables for Prometheus, where the chart asks for them.

Why it is right: their number is the user's, so it is bounded twice: tables of a sync, and samples
of the page. Those that need attention come first, and a metric counts those that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import Metric

from cdcsync_core.quoting import visible
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import CONSISTENT, TableStatus
from cdcsync_kube.pages import family

Labels = dict[str, str]


@dataclass(frozen=True)
class TableMetric:
    name: str
    help: str
    value: Callable[[Status, TableStatus], float | None]


def _applied(status: Status, table: TableStatus) -> float | None:
    """The later one of what the table's commits and the stream's reader have passed."""
    seconds = [p.seconds for p in status.covered_positions(table) if p.seconds is not None]
    return max(seconds, default=None)


#: a row is a metric of each table, beside `cdcsync_table_failed`, which has its reason
OF_TABLE = (
    TableMetric("cdcsync_table_consistent", "1 while a table is consistent", lambda _, t: float(t.phase in CONSISTENT)),
    TableMetric("cdcsync_table_rows", "rows of a table that the snapshot has read", lambda _, t: float(t.rows)),
    TableMetric("cdcsync_table_splits", "splits of a table's snapshot", lambda _, t: float(t.splits_total)),
    TableMetric("cdcsync_table_splits_finished", "splits of a table read", lambda _, t: float(t.splits_finished)),
    TableMetric(
        "cdcsync_table_position_timestamp_seconds",
        "what was committed up to then is applied to a table",
        _applied,
    ),
)
_SAMPLES = len(OF_TABLE) + 1


def table_families(syncs: Sequence[tuple[Labels, Status]], of_sync: int, room: int) -> list[Metric]:
    """At most `of_sync` tables of each sync, and at most `room` samples of them all."""
    of_all = [(labels, status, _by_attention(status)) for labels, status in syncs]
    shown = [(labels, status, table) for labels, status, tables in of_all for table in tables[:of_sync]]
    shown.sort(key=lambda entry: _attention(entry[2]))
    served = shown[: max(0, room) // _SAMPLES]
    left = sum(len(tables) for _, _, tables in of_all) - len(served)
    named = [(labels | {"table": visible(table.name)}, status, table) for labels, status, table in served]
    failed = [(labels | {"reason": t.reason if t.failed else ""}, float(t.failed)) for labels, _, t in named]
    families = [
        family("cdcsync_tables_left_out", "gauge", "tables that this page has no room for", [({}, left)]),
        family("cdcsync_table_failed", "gauge", "1 while a table is stopped, with its reason", failed),
    ]
    for metric in OF_TABLE:
        values = [(labels, metric.value(status, table)) for labels, status, table in named]
        families.append(family(metric.name, "gauge", metric.help, [(la, v) for la, v in values if v is not None]))
    return families


def _by_attention(status: Status) -> list[TableStatus]:
    captured = [t for t in status.table_status if t.phase is not TablePhase.UNASSIGNED]
    return sorted(captured, key=_attention)


def _attention(table: TableStatus) -> tuple[bool, bool, str]:
    return (not table.failed, table.phase in CONSISTENT, table.name)
