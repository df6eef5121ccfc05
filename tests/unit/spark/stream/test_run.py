"""What a stream reports to its controller: how far behind it is; and its replica ids at the
server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.resource.spec import replica_id
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.timestamps import unix_time
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.dump.reader_health import Received
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.run import StreamRun, replica_ids_of
from support.memory_target import MemoryTarget
from support.stream_tables import at, resource, stream_table


def test_syncs_that_are_numbered_one_after_the_other_do_not_end_each_others_dumps() -> None:
    """Rule R8: an id ends the dump of the same id, which must be the same reader's own before; the
    spare ones, too."""
    syncs = [resource(f"shop-{n}", serverId=n) for n in (1, 2, 100, 101, 2**32 - 1)]
    ranges = [replica_ids_of(s, kind) for s in syncs for kind in (RunKind.STREAM, RunKind.CATCH_UP)]
    ids = [i for several in ranges for i in several]
    assert len(set(ids)) == len(ids)
    assert [several[0] for several in ranges[::2]] == [1, 2, 100, 101, 2**32 - 1]
    assert all(1 <= i < 2**32 for i in ids)


def test_a_sync_without_a_number_has_the_same_ids_in_every_run() -> None:
    """The preflight searches for the stream's."""
    stream, again, second = (
        replica_ids_of(resource("shop"), kind) for kind in (RunKind.STREAM, RunKind.STREAM, RunKind.CATCH_UP)
    )
    assert stream == again
    assert stream[0] == replica_id("shops", "shop")
    assert not {*second} & {*stream}


# ---- what a run reports


@dataclass
class Reported:
    """A run over tables in memory, and its reports; no Spark."""

    tables: list[StreamTable]
    kind: RunKind = RunKind.STREAM
    now: float = 0.0
    wall: float = 1000.0
    reports: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        reporter = SimpleNamespace(report=lambda **parts: self.reports.append(parts))
        config = SimpleNamespace(kind=self.kind)
        context: Any = SimpleNamespace(resource=resource("shop"), reporter=reporter, config=config)
        engine: Any = None
        self.run = StreamRun(context, self.tables, 1, engine, 3600.0, lambda: self.now, lambda: self.wall)

    def apply(self, start: int, end: int, timestamp: float | None, changes: int = 0) -> None:
        self.run.apply(BinlogBatch(at(start), at(end), timestamp, "", (), changes=changes))

    def receive(self, **parts: Any) -> None:
        """What the reader has noted."""
        received = Received(since=0.0, **parts)
        self.run.reports.received = SimpleNamespace(read=lambda: received)  # type: ignore[assignment]

    def report(self, *, everything: bool = False) -> dict[str, Any]:
        self.run.reports.report(everything=everything)
        return self.reports[-1]


def test_a_silent_binlog_is_known_as_of_its_last_heartbeat() -> None:
    """It is a time, whose age grows visibly."""
    stream = Reported([stream_table("a")])
    report = stream.report(everything=True)
    assert (report["position"]["timestamp"], report["lag_seconds"]) == ("", None), (
        "not known before anything was applied"
    )
    stream.apply(100, 200, 998.0)
    report = stream.report()
    assert (unix_time(report["position"]["timestamp"]), report["lag_seconds"]) == (998.0, 2.0)
    stream.wall, stream.now = 1060.0, 60.0
    assert stream.report()["lag_seconds"] == 62.0, "what was committed since is not known"
    stream.receive(last=58.0, end=58.0)
    report = stream.report()
    assert (unix_time(report["position"]["timestamp"]), report["lag_seconds"]) == (1058.0, 0.0)
    stream.wall, stream.now = 1119.0, 119.0
    report = stream.report()
    assert (unix_time(report["position"]["timestamp"]), report["lag_seconds"]) == (1058.0, 61.0), (
        "two heartbeats are missing"
    )


def test_a_driver_whose_sink_hangs_reports_since_when() -> None:
    stream = Reported([stream_table("a")])
    stream.receive(last=0.0, changes=3)
    stream.apply(100, 200, 999.0, changes=3)
    assert stream.report()["flow"] == {"connected": True, "seconds_since_event": 0.0, "waiting": 0.0, "commit": None}
    stream.now = 10.0
    stream.receive(last=10.0, end=10.0, changes=5)
    stream.run.reports.observe()
    stream.now, stream.wall = 95.0, 1095.0
    stream.receive(last=94.0, end=94.0, changes=5)
    report = stream.report()
    assert (report["flow"]["seconds_since_event"], report["flow"]["waiting"], report["lag_seconds"]) == (
        1.0,
        85.0,
        96.0,
    )
    stream.apply(200, 300, 1010.0, changes=5)
    report = stream.report()
    assert (report["flow"]["waiting"], report["lag_seconds"]) == (0.0, 0.0)


def test_a_table_flows_in_a_stream_and_not_where_it_is_brought_there() -> None:
    report = {kind: Reported([stream_table("a")], kind).report(everything=True)["tables"] for kind in RunKind}
    assert report[RunKind.STREAM][0]["phase"] == "Streaming"
    assert report[RunKind.CATCH_UP][0]["phase"] == "CatchingUp"


def test_a_source_whose_clock_is_ahead_is_not_ahead() -> None:
    stream = Reported([stream_table("a")])
    stream.apply(100, 200, 1003.0)
    assert stream.report()["lag_seconds"] == 0.0


def test_changes_of_another_table_do_not_report_an_idle_one() -> None:
    """Thousands of idle tables would be reported repeatedly, for a position that is the
    reader's."""
    stream = Reported([stream_table("a"), stream_table("b")])
    assert [t["name"] for t in stream.report(everything=True)["tables"]] == ["shop.a", "shop.b"]
    stream.apply(100, 200, 999.0)
    report = stream.report()
    assert (report["tables"], report["position"]["offset"]) == ([], 200)
    stream.tables[1].committed = -3601.0
    stream.apply(200, 300, 999.0)
    assert [(t["name"], t["position"]["offset"]) for t in stream.report()["tables"]] == [("shop.b", 300)]
    stream.tables[0].error = fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE a", table="shop.a")
    stream.apply(300, 400, 999.0)
    assert [(t["name"], t["position"]["offset"]) for t in stream.report()["tables"]] == [("shop.a", 100)]
    assert [t["position"]["offset"] for t in stream.report(everything=True)["tables"]] == [100, 400]


def test_a_table_that_stops_while_a_report_is_made_is_not_reported_beyond_its_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches are applied in another thread: the position that is reported with a flowing table
    must be one that it has."""
    stream = Reported([stream_table("a")])
    phase = stream.run.reports._phase

    def stopping(table: StreamTable) -> TablePhase:
        found = phase(table)
        if table.error is None:
            table.error = fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE a", table="shop.a")
            stream.apply(100, 200, 999.0)
        return found

    monkeypatch.setattr(stream.run.reports, "_phase", stopping)
    assert stream.report()["position"]["offset"] == 100
    report = stream.report()
    assert (report["tables"][0]["phase"], report["position"]["offset"]) == ("Failed", 200)


def test_the_first_batch_checkpoints_idle_tables_also_on_a_machine_that_has_just_started() -> None:
    """Rule R4: the age of their last commits is not known."""
    table = stream_table("a")
    stream = Reported([StreamTable(table.name, table.target, table.state)])
    stream.apply(100, 200, 1000.0)
    assert stream.tables[0].state.position == at(200)


def test_a_quiet_stream_reports_every_ten_seconds() -> None:
    stream = Reported([stream_table("a")])

    def reported(seconds: int) -> int:
        before = len(stream.reports)
        for _ in range(seconds):
            stream.now += 1
            stream.run.reports.report_if_due()
        return len(stream.reports) - before

    stream.report(everything=True)
    assert reported(4) == 2
    assert reported(40) == 4, "nothing was applied"
    stream.apply(100, 200, 998.0)
    assert reported(4) == 2


def test_a_clock_that_is_set_back_stops_no_report_and_no_checkpoint() -> None:
    """A node's clock was an hour ahead: what is due is due after the seconds that passed."""
    stream = Reported([stream_table("a")])
    stream.report(everything=True)
    stream.apply(100, 200, 1000.0)
    stream.wall -= 3600
    stream.now += 1.9
    stream.run.reports.report_if_due()
    assert len(stream.reports) == 1
    stream.now += 0.1
    stream.run.reports.report_if_due()
    assert len(stream.reports) == 2
    stream.now += 3600
    stream.apply(200, 300, 1000.0)
    assert stream.tables[0].state.position == at(300)


def test_a_run_with_a_goal_ends_there_and_no_sooner_than_its_tables_are_consistent() -> None:
    """R2: passing the end of the binlog is not enough for a table whose high watermark is beyond
    it."""
    late = stream_table("b")
    state = replace(late.state, high=at(400).at)
    stream = Reported([stream_table("a"), StreamTable(late.name, MemoryTarget(state), state)])  # type: ignore[arg-type]
    stream.run.context.stopping = threading.Event()
    stream.run.batches = SimpleNamespace(ended=False)  # type: ignore[assignment]
    stream.apply(100, 300, 1000.0)
    assert not stream.run._finished(), "a run without a goal has no end"
    stream.run.goal = at(300).at
    assert not stream.run._finished()
    stream.apply(300, 400, 1000.0)
    assert stream.run._finished()
