"""How a stream ends: at once, also while an index is built."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdcsync_core.capture import Capture
from cdcsync_core.chunk import WHOLE, Intervals
from cdcsync_core.errors import Reason, fail
from cdcsync_core.lineage import Lineage
from cdcsync_core.position import FilePosition
from cdcsync_core.run import RunKind
from cdcsync_core.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.state import Identity, TableState
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch
from cdcsync_spark.sinks.contract.changes import Build
from cdcsync_spark.sinks.contract.writer import Closed
from cdcsync_spark.stream.applier import StreamTable
from cdcsync_spark.stream.run import StreamRun, follow
from support.facts import at
from support.memory_target import MemoryTarget
from unit.spark.stream.test_run import resource

SECONDS = 120.0
NOT_CONNECTED = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


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
class Query:
    """Of Spark, which has ended with `error`, or is live."""

    error: str = ""

    @property
    def isActive(self) -> bool:
        return not self.error

    def exception(self) -> str | None:
        return self.error or None

    def stop(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize(
    ("errors", "starts"),
    [(["failed"], 1), ([NOT_CONNECTED] * 3 + ["failed"], 4), ([NOT_CONNECTED] * 9, 5)],
)
def test_a_source_whose_process_came_too_late_is_started_again(
    warming: StreamTable, errors: list[str], starts: int
) -> None:
    """Spark waits for ten seconds, which a busy machine takes; then nothing has been read yet."""
    context = SimpleNamespace(
        resource=resource("shop"),
        config=SimpleNamespace(kind=RunKind.STREAM),
        reporter=SimpleNamespace(report=lambda **_: None),
        stopping=SimpleNamespace(is_set=lambda: False, wait=lambda _: None),
        failed={},
    )
    begun: list[int] = []

    def begin(_: object, number: int) -> Query:
        begun.append(number)
        return Query(errors[len(begun) - 1])

    run = StreamRun(cast(Any, context), [warming], 1, cast(Any, begin), 3600.0)
    with pytest.raises(Exception, match="Spark ended the stream"):
        run.run()
    assert begun == list(range(1, starts + 1))


def test_a_run_that_ends_early_builds_no_index_to_its_end(warming: StreamTable) -> None:
    """Its process would live on for as long as that takes."""
    starting: Future[Any] = Future()
    starting.set_exception(fail(Reason.INTERNAL_ERROR, "no Spark"))
    context = SimpleNamespace(config=SimpleNamespace(epoch=1), starting=starting)
    with pytest.raises(Exception, match="no Spark"):
        follow(cast(Any, context), [warming], None)
    assert cast(Warming, warming.target).closed.is_set()


def test_a_drain_gives_up_a_batch_that_waits_for_an_index(warming: StreamTable) -> None:
    """It has half a minute, an index may take longer; the next run reads the batch again (R5)."""
    config = SimpleNamespace(kind=RunKind.STREAM)
    context = SimpleNamespace(resource=resource("shop"), config=config, reporter=None, failed={})
    handed: list[Any] = []

    def begin(on_batch: Any, _: int) -> Any:
        handed.append(on_batch)
        return Query()

    run = StreamRun(cast(Any, context), [warming], 1, begin, 3600.0)
    run.query.start()
    stop = fail(Reason.SCHEMA_CHANGE_REFUSED, "a statement")
    after = FilePosition(at(200))
    batch = BinlogBatch(FilePosition(at(100)), after, None, "", (TableBatch("shop.orders", "", 0, 0, after, stop),))
    applying = threading.Thread(target=handed[0], args=(lambda _: batch,))
    applying.start()
    assert cast(Warming, warming.target).waits.wait(SECONDS)
    run.close()
    applying.join(SECONDS)
    assert not applying.is_alive()
    assert (run.query.error, warming.error, run.applier.reader) == (None, None, FilePosition(at(100)))
