"""The engine in Spark: a query that Spark ends or starts late, and calls of the driver that last as
long as batches are taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.engine import spark_engine
from cdcsync_spark.engine.base import Ending
from cdcsync_spark.engine.handover import SourceEnded
from cdcsync_spark.engine.spark_engine import Begun, SparkEngine

SECONDS = 120.0
NOT_CONNECTED = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."
PLACE = FilePosition(LogOffset("binlog.000001", 100))
BATCH = BinlogBatch(PLACE, FilePosition(LogOffset("binlog.000001", 200)), 1.5, "", ())


@dataclass
class Spark:
    """Queries that end with `errors`, one after the other; then one that lives. It calls the driver
    in a thread of its own for each of `answers`, lists of what the source gives in one call."""

    errors: list[str] = field(default_factory=list)
    answers: Iterator[BinlogBatch | type[Exception] | None] = field(default_factory=lambda: iter(()))
    starts: int = 0
    calls: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self, on_call: Callable[[], None], settings: Any, number: int) -> Begun:
        self.starts += 1
        assert number == self.starts
        if not self.errors:
            self.thread = threading.Thread(target=self._call, args=(on_call,), daemon=True)
            self.thread.start()
        return Begun(self, self)  # type: ignore[arg-type]

    def _call(self, on_call: Callable[[], None]) -> None:
        while not self.stopped.is_set():
            self.calls += 1
            on_call()

    @property
    def isActive(self) -> bool:
        return not self.errors

    def exception(self) -> str:
        return self.errors.pop(0)

    def stop(self) -> None:
        self.stopped.set()

    def next(self, _: Ending) -> BinlogBatch | None:
        answer = next(self.answers)
        if isinstance(answer, type):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_engine, "_ASKED_SECONDS", 0.01)


def started(spark: Spark) -> SparkEngine:
    engine = SparkEngine(spark.begin)
    engine.start(cast(Any, object()))
    return engine


@pytest.mark.parametrize(
    ("errors", "starts"),
    [(["failed"], 1), ([NOT_CONNECTED] * 3 + ["failed"], 4), ([NOT_CONNECTED] * 9, 5)],
)
def test_a_source_whose_process_came_too_late_is_started_again(errors: list[str], starts: int) -> None:
    """Spark waits for ten seconds, which a busy machine takes; then nothing has been read yet."""
    spark = Spark(errors)
    engine = started(spark)
    with pytest.raises(CdcError, match="Spark ended the stream: "):
        engine.next_batch(Ending())
    assert spark.starts == starts


def test_a_query_that_has_read_is_not_started_again() -> None:
    """What it has read and not given would be missing."""
    spark = Spark(answers=iter([BATCH, SourceEnded]))
    engine = started(spark)
    assert engine.next_batch(Ending()) == BATCH
    spark.stopped.set()
    assert engine.next_batch(Ending()) is None, "Spark asks the source next, and gets the reason"
    spark.thread.join(SECONDS)
    spark.errors = [NOT_CONNECTED]
    with pytest.raises(CdcError, match="Spark ended the stream: "):
        engine.next_batch(Ending())
    assert spark.starts == 1


def test_a_call_lasts_for_the_batches_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(answers=iter([BATCH, None, BATCH, BATCH]))
    engine = started(spark)
    assert [engine.next_batch(Ending()) for _ in range(3)] == [BATCH, None, BATCH]
    assert spark.calls == 1
    monkeypatch.setattr(spark_engine, "_MICRO_BATCH_SECONDS", 0.0)
    assert engine.next_batch(Ending()) == BATCH
    assert spark.calls == 2
    engine.stop()


def test_a_query_is_stopped_when_its_call_has_returned() -> None:
    """Spark would interrupt the call."""
    spark = Spark(answers=iter([BATCH]))
    engine = started(spark)
    assert engine.next_batch(Ending()) == BATCH
    stop, returned = spark.stop, list[bool]()
    spark.stop = lambda: (returned.append(not spark_engine_lasts(engine)), stop())  # type: ignore[method-assign,assignment]
    engine.stop()
    assert returned == [True]
    spark.thread.join(SECONDS)
    assert not spark.thread.is_alive(), "a call that comes later returns at once"


def spark_engine_lasts(engine: SparkEngine) -> bool:
    return engine._call._lasts


def test_a_wait_for_a_call_ends_with_the_stream() -> None:
    engine = SparkEngine(lambda *_: Begun(Spark(), None))  # type: ignore[arg-type]
    engine.start(cast(Any, object()))
    ending, given = Ending(), list[BinlogBatch | None]()
    waiting = threading.Thread(target=lambda: given.append(engine.next_batch(ending)))
    waiting.start()
    ending.set()
    waiting.join(SECONDS)
    assert given == [None]
    engine.stop()
