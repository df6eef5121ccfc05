"""Spark with Iceberg, as another program that reads and changes tables of a catalog: a process
of its own, because a process has one session, and other tests' sessions know Delta.

Run as a program it answers each line of JSON (a statement, or what a stream reads) with the rows,
pickled in a line, or with what it raised.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "lake"


class IcebergSpark:
    """A session whose catalog `lake` is the one at `uri`, by REST or in a Hive metastore; its log
    is in `folder`."""

    def __init__(self, uri: str, jars: Path, folder: Path) -> None:
        self._log = (folder / "spark.log").open("wb")
        arguments = [uri, ",".join(map(str, jars.glob("iceberg-spark-runtime-*.jar"))), str(folder)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self._answer(statement)

    def stream(self, table: str, folder: Path, **options: str) -> list[tuple[Any, ...]]:
        """What a structured stream has read of a table since it began, to its newest snapshot; in
        `folder` it keeps its place and its rows."""
        return self._answer({"table": table, "folder": str(folder), "options": options})

    def _answer(self, asked: str | dict[str, Any]) -> list[tuple[Any, ...]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("rows "):
                return list(pickle.loads(base64.b64decode(line[5:])))
            raise RuntimeError(json.loads(line.removeprefix("error ")))
        raise RuntimeError(f"Spark ended; see {self._log.name}")

    @property
    def pid(self) -> int:
        """The process from which the session's JVM comes."""
        return self._process.pid

    def __enter__(self) -> IcebergSpark:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(600)
        self._process.stdout.close()
        self._log.close()


def serve(uri: str, jars: str, folder: str) -> None:
    from cdcsync_spark.engine.start import start_session

    answers, sys.stdout = sys.stdout, sys.stderr
    extra = {
        "spark.jars": jars,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hive" if uri.startswith("thrift:") else "rest",
        f"spark.sql.catalog.{CATALOG}.uri": uri,
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
    }
    with start_session("iceberg", cores=2, memory="1g", scratch_dir=folder, extra=extra) as spark:
        for line in sys.stdin:
            try:
                asked = json.loads(line)
                frame = spark.sql(asked) if isinstance(asked, str) else streamed(spark, **asked)
                rows = [tuple(row) for row in frame.collect()]
                answers.write(f"rows {base64.b64encode(pickle.dumps(rows)).decode()}\n")
            except Exception as error:  # noqa: BLE001 (the test shows it)
                answers.write(f"error {json.dumps(str(error))}\n")
            answers.flush()


def streamed(spark: SparkSession, table: str, folder: str, options: dict[str, str]) -> DataFrame:
    """One run of the stream."""
    rows = f"{folder}/rows"
    reader = spark.readStream.format("iceberg").options(**options).load(f"{CATALOG}.{table}")
    writer = reader.writeStream.format("parquet").option("checkpointLocation", f"{folder}/place")
    writer.trigger(availableNow=True).start(rows).awaitTermination()
    return spark.read.parquet(rows)


if __name__ == "__main__":
    serve(*sys.argv[1:])
