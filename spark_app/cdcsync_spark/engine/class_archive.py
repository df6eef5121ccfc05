"""Makes what Spark starts faster with: `python -m cdcsync_spark.engine.class_archive`. A home of
its own (`engine.home`), and a class archive, which halves the time of its JVM.

The JVM does the stream's kind of work once and writes down which classes it loaded; an archive of
just these is made of that list (class data sharing). It holds the classes of Java, too, so that
Java's own archive is not mapped beside it. Nearly all of an archive becomes memory of the JVM that
maps it, so it has no more than a stream needs; a session with tasks maps it, too, and reads the
classes of its own from their jars.

The archive lies in the Python environment, and its name holds the versions that it is good for; a
JVM that does not match starts without it. Source: Java SE 17, "Class Data Sharing".
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import LongType, StructField, StructType

from cdcsync_spark.engine.home import make_home
from cdcsync_spark.engine.jvm_options import JVM, java
from cdcsync_spark.engine.start import (
    CLASS_PATH_JAR,
    QUERY_OPTIONS,
    archive_path,
    spark_home,
    start_session,
)


class _Ticks(DataSource):
    """One row, once."""

    def schema(self) -> StructType:
        return StructType([StructField("n", LongType())])

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


def _stream(spark: SparkSession, folder: str) -> None:
    """As `engine.spark_engine` does."""
    spark.dataSource.register(_Ticks)
    rows = spark.readStream.format("_Ticks").load()
    seen: list[int] = []
    query = (
        rows.writeStream.foreachBatch(lambda _, number: seen.append(number))
        .options(**QUERY_OPTIONS)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="0 seconds")
        .start()
    )
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()


def main() -> int:
    make_home(spark_home())
    path = archive_path()
    if path is None:
        sys.stdout.write("class archive: not possible without java\n")
        return 0
    for other in path.parent.glob("spark-*.jsa"):
        if other != path:
            other.unlink()
    is_new = not path.exists()
    if is_new:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="archive-") as folder:
            _make(path, folder)
    sys.stdout.write(f"class archive: {'made ' if is_new else ''}{path}\n")
    return 0


def _make(path: Path, folder: str) -> None:
    """It is installed by a rename in the same folder: another process sees a whole archive or
    none."""
    classes, archive = Path(folder) / "classes", Path(folder) / "made"
    spark = start_session(
        "cdcsync warm-up",
        cores=2,
        memory="1g",
        scratch_dir=folder,
        extra={"spark.python.daemon.module": "pyspark.daemon"},  # an image is warmed up before it has our own parts
        jvm_options=f"-Xshare:off -XX:DumpLoadedClassList={classes}",
        tasks=False,
    )
    with spark:
        _stream(spark, folder)
    _end_jvm(spark)
    dump = f"-Xshare:dump -Xlog:cds=error -Xmx1g -XX:SharedClassListFile={classes} -XX:SharedArchiveFile={archive}"
    class_path = f"{spark_home()}/conf:{spark_home()}/jars/{CLASS_PATH_JAR}"
    subprocess.run([str(java()), *JVM.split(), *dump.split(), "-cp", class_path], check=True)
    archive.rename(path)


def _end_jvm(spark: SparkSession) -> None:
    """Waits for the end of the JVM, which writes the list then."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(120)


if __name__ == "__main__":
    sys.exit(main())
