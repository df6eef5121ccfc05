"""Batches go from the source's process to the driver in order, each once, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.position import FilePosition, LogOffset
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.stream.handover import Handover


def batch(end: int) -> BinlogBatch:
    start = FilePosition(LogOffset.parse(f"binlog.000001:{100 + end}"))
    return BinlogBatch(start, FilePosition(LogOffset.parse(f"binlog.000001:{101 + end}")), 1.5, "", ())


def test_batches_arrive_once_and_in_order(tmp_path: Path) -> None:
    source, driver = Handover(tmp_path), Handover(tmp_path)
    assert driver.take() == []
    assert [source.put(batch(n)) for n in range(1, 13)] == list(range(1, 13))
    assert driver.take() == [batch(n) for n in range(1, 13)]
    assert driver.take() == []
    source.put(batch(13))
    assert driver.take() == [batch(13)]
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "1.new").write_text('{"start":')
    assert Handover(tmp_path).take() == []


@pytest.mark.parametrize("lost", [1, 2])
def test_a_missing_batch_is_never_passed_over(tmp_path: Path, lost: int) -> None:
    source = Handover(tmp_path)
    for n in range(1, 4):
        source.put(batch(n))
    (tmp_path / f"{lost}.json").unlink()
    with pytest.raises(CdcError) as found:
        Handover(tmp_path).take()
    assert found.value.reason is Reason.INTERNAL_ERROR
