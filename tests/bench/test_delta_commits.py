"""What a commit costs in a table of N rows: our own entry beside the MERGE of delta-rs and of
Spark, in one run, on the same batches.

    DELTA_ROWS=1000000,10000000,50000000 make bench ARGS='-k delta_'

By default a million rows, and all ways (DELTA_WAYS="own entry,delta-rs MERGE,Spark MERGE"). Keys
are uniform, of the newest hundredth, or nine tenths of them so; eight in ten are updated, one is
deleted, one inserted. After each of our commits comes a step of maintenance, as in the stream,
which is timed for itself. CPU stands beside the wall's time, because a machine is never alone.
Every table ends in a count and sums that must be the model's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench import spark_reader
from bench.commit_times import HEAD, Show, measured
from bench.delta_contenders import DeltaContender, DeltaRs, DeltaSparkMerge, OwnEntry
from bench.delta_tables import KeyBatches, filled, linked, target_in
from cdcsync_spark.engine.start import start_session
from support import delta_jars
from support.lake import query

pytestmark = [pytest.mark.bench, pytest.mark.spark, pytest.mark.timeout(3600)]

SIZES = [int(n) for n in os.environ.get("DELTA_ROWS", "1000000").split(",")]
WAYS = os.environ.get("DELTA_WAYS", "own entry,delta-rs MERGE,Spark MERGE").split(",")
#: what takes minutes for one batch is left out
MOST_ROWS = {"delta-rs MERGE": 10_000_000, "Spark MERGE": 50_000_000}
OURS, THEIRS, SMALL = 30, 2, 100
READ_HEAD = "rows | read | before, s | after, s | ratio"


def check(folder: Path, stream: KeyBatches) -> None:
    found = query(DeltaTable(target_in(folder).uri), "SELECT count(*), sum(id), sum(v) FROM t")
    assert tuple(c[0].as_py() for c in found.columns) == stream.expected


@pytest.fixture(scope="module", params=SIZES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """The rows of a table, and its lake."""
    folder = tmp_path_factory.mktemp(f"base-{request.param}")
    filled(folder, request.param)
    os.sync()  # or the first commits wait for the disk to take what came before them
    return request.param, folder


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    extra = {
        **delta_jars.settings(),
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.shuffle.partitions": "32",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.autoCompact.enabled": "false",
    }
    scratch = str(tmp_path_factory.mktemp("spark"))
    compilers = "-XX:TieredStopAtLevel=4"  # as Spark is by itself
    with start_session(
        "bench", cores=2, memory="4g", scratch_dir=scratch, extra=extra, jvm_options=compilers
    ) as session:
        yield session


@pytest.mark.parametrize("kind", ["uniform", "newest", "mixed"])
@pytest.mark.parametrize("way", WAYS)
def test_delta_commits(
    base: tuple[int, Path], way: str, kind: str, tmp_path: Path, show: Show, request: pytest.FixtureRequest
) -> None:
    rows, changes = base[0], 10_000
    if rows > MOST_ROWS.get(way, rows):
        show(HEAD, f"| {rows:,} | {kind} | {changes:,} | {way} | left out |" + " |" * 7)
        return
    folder, stream = linked(base[1], tmp_path / "lake"), KeyBatches(rows, kind, changes)
    times = measured(
        _contender(way, folder, tmp_path, request), stream, folder, OURS if way == "own entry" else THEIRS, warm_up=1
    )
    show(HEAD, times.row(rows, kind, changes, way))
    check(folder, stream)


def _contender(way: str, folder: Path, scratch: Path, request: pytest.FixtureRequest) -> DeltaContender:
    if way == "Spark MERGE":
        return DeltaSparkMerge(request.getfixturevalue("spark"), folder)
    return DeltaRs(folder) if way == "delta-rs MERGE" else OwnEntry(folder, scratch)


def test_delta_small_commits(base: tuple[int, Path], tmp_path: Path, show: Show) -> None:
    rows, changes = base[0], 1_000
    folder = linked(base[1], tmp_path / "own")
    own, stream = OwnEntry(folder, tmp_path), KeyBatches(rows, "uniform", changes)
    times = measured(own, stream, folder, SMALL, warm_up=1)
    show(HEAD, times.row(rows, "uniform", changes, "own entry"))
    check(folder, stream)


def test_delta_reads(base: tuple[int, Path], tmp_path: Path, show: Show) -> None:
    """What the batches cost readers: Spark's scan of all columns and its read of one key, in the
    table before and after them."""
    rows, folders = base[0], [linked(base[1], tmp_path / name) for name in ("before", "after")]
    own, stream = OwnEntry(folders[1], tmp_path), KeyBatches(rows, "uniform", 10_000)
    measured(own, stream, folders[1], OURS, warm_up=0)
    scan = "SELECT count(*), sum(id), sum(v), max(a), sum(d), max(ts), max(s) FROM {}"
    point = f"SELECT * FROM {{}} WHERE id = {rows // 3}"
    with _reader(tmp_path) as seconds:
        for kind, sql, warm_up, counted in (("scan", scan, 2, 5), ("point", point, 10, 25)):
            queries = [sql.format(f"delta.`{target_in(folder).uri}`") for folder in folders]
            before, after = seconds(queries, warm_up, counted)
            show(READ_HEAD, f"| {rows:,} | {kind} | {before:.2f} | {after:.2f} | {after / before:.2f} |")
    check(folders[1], stream)


@contextmanager
def _reader(scratch: Path) -> Iterator[Callable[[list[str], int, int], list[float]]]:
    """Median seconds of queries, by `spark_reader`."""
    command = [sys.executable, str(Path(spark_reader.__file__)), str(scratch)]
    environment = os.environ | {"PYTHONPATH": str(Path(spark_reader.__file__).parents[1])}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=scratch, env=environment, **pipes) as process:
        assert process.stdin
        assert process.stdout
        asked, answers = process.stdin, process.stdout

        def seconds(queries: list[str], warm_up: int, counted: int) -> list[float]:
            asked.write(json.dumps({"queries": queries, "warm_up": warm_up, "counted": counted}) + "\n")
            asked.flush()
            return [float(s) for s in json.loads(answers.readline())]

        yield seconds
