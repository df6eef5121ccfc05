"""How a stream ends: at once, also while an index is built."""

from __future__ import annotations

import select
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.chunk import WHOLE, Intervals
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.runs.run import RunKind
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch
from cdcsync_spark.engine.base import Ending
from cdcsync_spark.sinks.contract.changes import Build
from cdcsync_spark.sinks.contract.writer import Closed
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.run import StreamRun, follow
from support.facts import at
from support.memory_target import MemoryTarget
from support.stream_tables import resource, stream_table

SECONDS = 120.0


@dataclass
class Warming(MemoryTarget):
    """A target whose index is being built: a commit of rows waits for it, and so does who warms
    it."""

    waits: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        self.closed.set()

    def warm(self) -> None:
        self.waits.set()
        self.closed.wait(SECONDS)

    def commit(self, epoch: int, build: Build) -> TableState:
        self.warm()
        raise Closed


@pytest.fixture
def warming() -> StreamTable:
    table = Capture(SourceTable(TableId("shop", "orders"), (Column("id", SourceType.parse("int"), False),)), ("id",))
    start = FilePosition(at(100))
    whole = {"finished": Intervals().add(WHOLE), "low": start, "high": start.at, "position": start}
    state = TableState(
        Identity("default/shop", Lineage.of("log"), "shop.orders"), table, TargetSchema.of(table), 1, **cast(Any, whole)
    )
    return StreamTable("shop.orders", cast(Any, Warming(state)), state, committed=0.0)


@dataclass
class Engine:
    """Gives what it has, then raises `failure` or waits for the end."""

    batches: list[BinlogBatch] = field(default_factory=list)
    failure: Exception | None = None
    stopped: bool = False

    def start(self, settings: Any) -> None:
        """Nothing to read."""

    def next_batch(self, ending: Ending) -> BinlogBatch | None:
        if self.batches:
            return self.batches.pop(0)
        if self.failure is not None:
            raise self.failure
        select.select([ending], [], [], SECONDS)
        return None

    def stop(self) -> None:
        self.stopped = True


def context(*, stopping: bool = False) -> Any:
    return SimpleNamespace(
        resource=resource("shop"),
        config=SimpleNamespace(kind=RunKind.STREAM),
        reporter=SimpleNamespace(report=lambda **_: None),
        stopping=SimpleNamespace(is_set=lambda: stopping, wait=lambda _: None),
        failed={},
    )


def test_an_engine_that_has_ended_ends_the_run_with_its_reason(warming: StreamTable) -> None:
    engine = Engine(failure=fail(Reason.INTERNAL_ERROR, "Spark ended the stream"))
    run = StreamRun(context(), [warming], 1, engine, 3600.0)
    with pytest.raises(CdcError, match="Spark ended the stream"):
        run.run(cast(Any, None))
    assert engine.stopped


def test_an_engine_that_ends_with_a_drain_is_no_failure() -> None:
    run = StreamRun(context(stopping=True), [stream_table("a")], 1, Engine(failure=OSError("gone")), 3600.0)
    run.run(cast(Any, None))


def test_an_error_of_a_batch_ends_the_run_as_it_is(warming: StreamTable) -> None:
    """Also while it drains: what it means is not the engine's to say."""
    fatal = fail(Reason.SOURCE_UNREACHABLE, "the binlog is gone")
    batch = BinlogBatch(FilePosition(at(100)), FilePosition(at(100)), None, "", (), fatal)
    with pytest.raises(CdcError, match="the binlog is gone"):
        StreamRun(context(), [warming], 1, Engine([batch]), 3600.0).run(cast(Any, None))


def test_a_run_that_ends_early_builds_no_index_to_its_end(warming: StreamTable) -> None:
    """Its process would live on for as long as that takes."""
    started = SimpleNamespace(config=SimpleNamespace(epoch=1))

    def no_engine() -> Any:
        raise fail(Reason.INTERNAL_ERROR, "no Spark")

    with pytest.raises(CdcError, match="no Spark"):
        follow(cast(Any, started), [warming], None, no_engine)
    assert cast(Warming, warming.target).closed.is_set()


def test_a_drain_gives_up_a_batch_that_waits_for_an_index(warming: StreamTable) -> None:
    """It has half a minute, an index may take longer; the next run reads the batch again (R5)."""
    stop = fail(Reason.SCHEMA_CHANGE_REFUSED, "a statement")
    after = FilePosition(at(200))
    batch = BinlogBatch(FilePosition(at(100)), after, None, "", (TableBatch("shop.orders", "", 0, 0, after, stop),))
    run = StreamRun(context(), [warming], 1, Engine([batch]), 3600.0)
    run.batches.start(cast(Any, None))
    assert cast(Warming, warming.target).waits.wait(SECONDS)
    run.close()
    assert run.batches.ended
    assert (run.batches.error, warming.error, run.applier.reader) == (None, None, FilePosition(at(100)))
