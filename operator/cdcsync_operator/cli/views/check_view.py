"""A preflight as `cdcsync check` shows it: the checks of server and sink, then each table with its
types and what they lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from cdcsync_core.errors import Reason
from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.resource.sinks.kind import Nouns
from cdcsync_core.resource.spec import SchemaChange, Spec
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_lake.check import SinkCheck
from cdcsync_mysql.checks import Check, Level, passed, refused, warned
from cdcsync_mysql.readiness.expected_failover import ExpectedFailover
from cdcsync_mysql.readiness.preflight import Preflight
from cdcsync_mysql.readiness.tablecheck import TableCheck
from cdcsync_operator.cli.views.output import shown
from cdcsync_operator.decision.tables.resnapshots import resnapshot_fixes

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@dataclass(frozen=True)
class Outlook:
    """What becomes of a table under the policies of `spec`: after a change of its definition that
    cannot be followed, and after a failover, for which `failovers` has what is expected."""

    spec: Spec
    failovers: Mapping[TableId, ExpectedFailover]

    def after_change(self, table: TableCheck) -> str:
        policy = self.spec.schema_change_of(str(table.id))
        return if_not_followed(policy, table.rows, history=self.spec.sink.kind.keeps_events)

    def after_failover(self, table: TableCheck) -> str:
        """Empty for a table that is not copied."""
        expected = self.failovers.get(table.id)
        if expected is None:
            return ""
        if expected.reason is None:
            return f"goes on by a proof; {self._if_stopped(table, Reason.HISTORY_DIVERGED)} if a lost tail changed it"
        return f"{self._if_stopped(table, expected.reason)} ({expected.reason.value}): {expected.why}"

    def _if_stopped(self, table: TableCheck, reason: Reason) -> str:
        return "resnapshot" if resnapshot_fixes(self.spec, str(table.id), reason.value) else "stops"


def if_not_followed(policy: SchemaChange, rows: int, *, history: bool) -> str:
    """What becomes of a table of so many rows after a change that cannot be followed."""
    if policy.behavior == "fail":
        return "stops"
    if policy.resnapshot == "ask" or history:
        return "asks"
    large = rows > policy.resnapshot_max_rows
    return f"asks: more than {policy.resnapshot_max_rows:,} rows" if large else "resnapshot"


def as_data(preflight: Preflight, sink: SinkCheck, outlook: Outlook) -> dict[str, Any]:
    """The preflight for programs."""
    return {
        "source": preflight.facts.to_dict() if preflight.facts else None,
        "checks": [_check_data(c) for c in preflight.checks],
        "sink": {"uri": sink.uri, "checks": [_check_data(c) for c in _sink_checks(sink)]},
        "tables": [_table_data(t, outlook) | _topic_data(sink, str(t.id)) for t in preflight.tables],
        "estimatedSeconds": round(preflight.estimated_seconds, 1),
    }


def _sink_checks(sink: SinkCheck) -> list[Check]:
    stores = [refused("sink", e) for e in sink.errors]
    if sink.uri and not stores:
        stores = [passed("sink", f"{sink.uri} can be listed, written and read")]
    return [*stores, *_server_checks(sink.servers, sink.nouns)]


def _server_checks(checks: Checks | None, nouns: Nouns) -> list[Check]:
    if checks is None:
        return []
    servers = [passed(nouns.servers, checks.servers)] if checks.servers else []
    return [
        *servers,
        *(warned(nouns.servers, text) for text in checks.warnings),
        *(refused(nouns.targets, e) for e in checks.errors),
    ]


def _topic_data(sink: SinkCheck, table: str) -> dict[str, Any]:
    target = sink.servers.of(table) if sink.servers else None
    if target is None:
        return {}
    return {"topic": {"name": target.topic, "partitions": target.partitions, "exists": target.exists}}


def _check_data(check: Check) -> dict[str, Any]:
    data = {"name": check.name, "level": check.level.value, "found": check.found}
    if check.level is Level.OK:
        return data
    reason = {"reason": check.reason.value} if check.level is Level.FAIL else {}
    return data | reason | {"needed": check.needed, "remedy": check.remedy}


def _table_data(table: TableCheck, outlook: Outlook) -> dict[str, Any]:
    return {
        "name": str(table.id),
        "key": list(table.table.key) if table.table else [],
        "rows": table.rows,
        "splits": table.splits,
        "schemaChangeNotFollowed": outlook.after_change(table),
        "failover": outlook.after_failover(table),
        "columns": [
            {"name": c.name, "source": c.source_type, "target": c.target_type, "lossy": c.lossy} for c in table.columns
        ],
        "checks": [_check_data(c) for c in table.checks],
    }


def render(console: Console, preflight: Preflight, sink: SinkCheck, outlook: Outlook) -> None:
    """The preflight for people; failures in full follow on stderr."""
    if preflight.facts:
        console.print(
            f"[bold]{preflight.facts.flavor} {preflight.facts.version}[/], server id {preflight.facts.server_id}"
        )
    console.print(_checks((*preflight.checks, *_sink_checks(sink))))
    if preflight.tables:
        console.print(_tables(preflight.tables, outlook))
        if sink.servers and sink.servers.topics:
            console.print(_topics(sink.servers))
        console.print(_columns(preflight.tables))
        splits = sum(t.splits for t in preflight.tables if t.error is None)
        console.print(f"about {splits} splits, {show_seconds(preflight.estimated_seconds)} by a careful estimate")


def _checks(checks: Iterable[Check]) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("CHECK", "", "FOUND", "NEEDED"):
        grid.add_column(title)
    for c in checks:
        level = f"[{_STYLES[c.level]}]{c.level.value}[/]"
        grid.add_row(shown(c.name), level, shown(c.found), shown(c.needed) if c.level is not Level.OK else "")
    return grid


def _tables(tables: Iterable[TableCheck], outlook: Outlook) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "", "KEY", "ROWS", "SPLITS", "CHANGE NOT FOLLOWED", "FAILOVER"):
        grid.add_column(title)
    for t in tables:
        level = Level.FAIL if t.error else Level.WARN if t.warnings else Level.OK
        key = shown(", ".join(t.table.key)) if t.table else ""
        about = (f"~{t.rows:,}", f"~{t.splits:,}") if t.table else ("", "")
        outcomes = outlook.after_change(t), shown(outlook.after_failover(t))
        grid.add_row(shown(str(t.id)), f"[{_STYLES[level]}]{level.value}[/]", key, *about, *outcomes)
    return grid


def _topics(checks: Checks) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "TOPIC", "PARTITIONS", ""):
        grid.add_column(title)
    for t in checks.topics:
        grid.add_row(shown(t.table), t.topic, f"{t.partitions}", "" if t.exists else "will be made")
    return grid


def _columns(tables: Iterable[TableCheck]) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for title in ("TABLE", "COLUMN", "SOURCE TYPE", "TARGET TYPE", "LOSES"):
        grid.add_column(title)
    for t in tables:
        for c in t.columns:
            grid.add_row(shown(str(t.id)), shown(c.name), shown(c.source_type), c.target_type, shown(c.lossy))
    return grid
