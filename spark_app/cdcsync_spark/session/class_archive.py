"""Makes what Spark starts faster with: `python -m cdcsync_spark.session.class_archive`. A home of
its own (`session.start.spark_home`), and a class archive, which halves the time of its JVM.

The JVM does the snapshot's and the stream's kinds of work once and writes down the classes that it
loaded (application class data sharing). The archive lies in the Python environment, and its name
holds the versions that it is good for; a JVM that does not match starts without it. Source: Java SE
17, "Class Data Sharing".
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from cdcsync_spark.session.home import make_home
from cdcsync_spark.session.start import archive_path, spark_home, start_session


class _Ticks(DataSource):
    """One row, once."""

    def schema(self) -> str:
        return "n long"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _TickReader()


class _TickReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        return (iter([(1,)]), {"n": 1}) if start["n"] == 0 else (iter([]), start)

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to keep."""


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _work(spark: SparkSession, folder: str) -> None:
    spark.range(0, 4, 1, 2).mapInArrow(_same, "id long").collect()
    spark.dataSource.register(_Ticks)
    rows = spark.readStream.format("_Ticks").load()
    seen: list[int] = []
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: seen.extend(r["n"] for r in batch.collect()))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()


def main() -> int:
    make_home(spark_home())
    path = archive_path()
    if path is None or path.exists():
        sys.stdout.write(f"class archive: {path or 'not possible without java'}\n")
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        with start_session(
            "cdcsync warm-up",
            cores=2,
            memory="1g",
            scratch_dir=folder,
            extra={"spark.python.daemon.module": "pyspark.daemon"},  # an image is warmed up before it has our own parts
            jvm_options=f"-XX:ArchiveClassesAtExit={made} -Xlog:cds=error",
        ) as spark:
            _work(spark, folder)
        _end_jvm(spark)
        _install(made, path)
    sys.stdout.write(f"class archive: made {path}\n")
    return 0


def _end_jvm(spark: SparkSession) -> None:
    """Waits for the end of the JVM, which writes the archive."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(120)


def _install(made: Path, path: Path) -> None:
    """By a rename in the same folder: another process sees a whole archive or none. Those of other
    versions go."""
    beside = path.with_suffix(".tmp")
    beside.write_bytes(made.read_bytes())
    beside.rename(path)
    for other in path.parent.glob("spark-*.jsa"):
        if other != path:
            other.unlink()


if __name__ == "__main__":
    sys.exit(main())
