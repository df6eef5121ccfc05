"""The driver receives the batches of the source's process in order, exactly once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.engine.base import Ending
from cdcsync_spark.engine.handover import BatchChannel, BatchSource, SourceEnded

SECONDS = 600.0


def batch(end: int) -> BinlogBatch:
    start = FilePosition(LogOffset("binlog.000001", 100 + end))
    return BinlogBatch(start, FilePosition(LogOffset("binlog.000001", 101 + end)), 1.5, "", ())


NEVER = Ending()


def batches() -> Iterator[BinlogBatch | None]:
    """A silent binlog before every third one."""
    for n in itertools.count(1):
        yield batch(n)
        if n % 2 == 0:
            yield None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its path is longer than that of a socket may be."""
    found = tmp_path / ("long" * 30)
    found.mkdir()
    return found


def test_a_batch_that_was_read_for_spark_is_the_first_that_the_driver_gets(folder: Path) -> None:
    source, driver = BatchSource(folder, batches().__next__), BatchChannel(folder)
    assert [source.read(), source.read()] == [1, 1], "the batch is kept until the driver has received it"
    assert [driver.next(NEVER) for _ in range(4)] == [batch(1), batch(2), None, batch(3)]
    assert source.read() == 2
    assert driver.next(NEVER) == batch(4)
    assert source.read() == 2, "the binlog has not moved"
    assert source.read() == 3
    assert driver.next(NEVER) == batch(5)


def test_a_large_batch_is_given_whole(folder: Path) -> None:
    large = BinlogBatch(batch(1).start, batch(1).end, None, "x" * (3 << 20), ())
    BatchSource(folder, lambda: large)
    driver = BatchChannel(folder)
    assert [driver.next(NEVER), driver.next(NEVER)] == [large, large]


def test_a_driver_that_ends_waits_for_no_answer(folder: Path) -> None:
    silent, ending = threading.Event(), Ending()

    def next_batch() -> BinlogBatch | None:
        ending.set()
        silent.wait(SECONDS)
        return batch(1)

    BatchSource(folder, next_batch)
    driver, begun = BatchChannel(folder), time.monotonic()
    assert driver.next(ending) is None
    assert time.monotonic() - begun < SECONDS / 2
    silent.set()
    assert driver.next(NEVER) == batch(1), "the answer to what was asked before"


def test_a_source_that_fails_ends_both_calls(folder: Path) -> None:
    def fails() -> BinlogBatch | None:
        raise ConnectionError("lost")

    source, driver = BatchSource(folder, fails), BatchChannel(folder)
    for _ in range(2):
        with pytest.raises(SourceEnded):
            driver.next(NEVER)
    with pytest.raises(ConnectionError, match="lost"):
        source.read()


def test_a_source_that_is_not_there_has_ended(folder: Path) -> None:
    driver = BatchChannel(folder)
    for _ in range(2):
        with pytest.raises(SourceEnded):
            driver.next(NEVER)
