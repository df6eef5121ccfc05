"""One wave as one Spark job: a task per split, which reads it, stages it and hands back a manifest.

Rows never pass through the driver. A `CdcError` comes back as a result, so that Spark does not
repeat what cannot succeed; any other exception is Spark's to retry, which is harmless: file names
are unique per attempt and only the manifest of the attempt that counts is committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from cdcsync_core.errors import CdcError, from_json
from cdcsync_core.positions.position import Position, position_from_dict, position_to_dict
from cdcsync_spark.sinks.contract.changes import Staged, StagedPart
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.snapshot.splits.split_read import SplitReader

#: per table of the run: (finished splits, rows) of the wave so far
Counts = dict[int, tuple[int, int]]
_PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class SplitTask:
    """What travels to a task: the number of the table in the run, what to read, where to stage it,
    a name for the files."""

    table: int
    reader: SplitReader
    target: Target
    name: str


@dataclass(frozen=True)
class SplitResult:
    """What comes back: the staged files, or the error. `rows` and `size`, in bytes, are of what the
    server sent. `position`: what the rows of a table without a key are as of."""

    staged: Staged = ()
    rows: int = 0
    nulled: int = 0
    position: Position | None = None
    error: CdcError | None = None
    size: int = 0


def run_wave(spark: SparkSession, tasks: Sequence[SplitTask], progress: Callable[[Counts], None]) -> list[SplitResult]:
    """Results in the order of `tasks`; `progress` is called about twice a second from this thread;
    if it raises, the job ends."""
    counts = spark.sparkContext.accumulator({}, _CountsSum())
    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(
        _task_function(list(tasks), counts), "number long, result string"
    )
    with ThreadPoolExecutor(1) as background:
        job = background.submit(rows.collect)
        while not wait([job], _PROGRESS_SECONDS).done:
            try:
                progress(counts.value)
            except BaseException:
                _cancel(spark, job)
                raise
    by_number = {row["number"]: _parse(row["result"]) for row in job.result()}
    return [by_number[i] for i in range(len(tasks))]


def _cancel(spark: SparkSession, job: Future[Any]) -> None:
    """Ends `job`, which else might wait for executors that never come. Again and again, because a
    job that is still being planned is not there to be cancelled; a context that has stopped
    refuses, and its job ends by itself."""
    while not job.done():
        with suppress(Exception):
            spark.sparkContext.cancelAllJobs()
        wait([job], _PROGRESS_SECONDS)


def _task_function(
    tasks: list[SplitTask], counts: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = tasks[number]
                result = _run_task(task)
                counts.add({task.table: (1, task.reader.rows)})
                yield pa.RecordBatch.from_pydict({"number": [number], "result": [json.dumps(result)]})

    return run


def _run_task(task: SplitTask) -> dict[str, Any]:
    """What was read counts where it failed, too: the source has sent it."""
    reader = task.reader
    try:
        staged = task.target.stage(reader.table, reader.batches(), task.name)
    except CdcError as e:
        return {"error": e.to_json(), "rows": reader.rows, "size": reader.size}
    result = {
        "staged": [p.to_dict() for p in staged],
        "rows": reader.rows,
        "nulled": reader.nulled,
        "size": reader.size,
    }
    return result | ({"position": position_to_dict(reader.position)} if reader.position else {})


def _parse(text: str) -> SplitResult:
    data = json.loads(text)
    if "error" in data:
        return SplitResult(rows=data["rows"], error=from_json(data["error"]), size=data["size"])
    return SplitResult(
        tuple(StagedPart.from_dict(p) for p in data["staged"]),
        data["rows"],
        data["nulled"],
        position_from_dict(data["position"]) if "position" in data else None,
        size=data["size"],
    )


class _CountsSum(AccumulatorParam):
    """Adds counts table by table."""

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        """A new sum each time: the driver reads the old one while another thread adds."""
        total = dict(value1)
        for table, (splits, rows) in value2.items():
            had = total.get(table, (0, 0))
            total[table] = (had[0] + splits, had[1] + rows)
        return total
