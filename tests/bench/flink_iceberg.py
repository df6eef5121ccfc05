"""Flink's upserts into an Iceberg table, which are equality deletes: a process of its own with a
cluster in it; its jars are fetched by Maven (`flink-iceberg-jars.sh`) when they are needed first.

A batch is a job without checkpoints: its changes are in a file of JSON before it begins, and it
commits once, at its end. So a commit's time has the start of a job in it, which a stream pays once;
the bytes and the cost for readers are those of a stream whose checkpoints have so many changes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import psutil
import pyarrow as pa
import pyarrow.compute as pc

from bench.delta_tables import TABLE
from cdcsync_spark.sinks.contract.changes import Upsert
from support.flink import OPENS

FLINK_ICEBERG = Path(__file__).parents[2] / ".cache" / "flink-iceberg-1.11.0"
_PROGRAM = Path(__file__).parent / "FlinkChanges.java"
_COLUMNS = "id BIGINT, v INT, a BIGINT, d DECIMAL(18, 2), ts TIMESTAMP(6), s STRING"


class FlinkUpserts:
    """Writes the table `namespace`.`TABLE` of the catalog at `uri`; files of changes, and the log,
    lie in `folder`."""

    def __init__(self, uri: str, namespace: str, folder: Path) -> None:
        self._folder, self._table = folder, f"lake.{namespace}.{TABLE.id.name}"
        self._log = (folder / "flink.log").open("wb")
        self._process = subprocess.Popen(
            _java(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._execute(f"CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = '{uri}')")

    def commit(self, number: int, change: Upsert) -> None:
        file = self._folder / f"changes-{number}.json"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in _changes(change)), encoding="utf-8")
        source = f"'connector' = 'filesystem', 'path' = '{file.as_uri()}', 'format' = 'debezium-json'"
        self._execute(f"CREATE TEMPORARY TABLE changes_{number} ({_COLUMNS}) WITH ({source})")
        upserts = "/*+ OPTIONS('upsert-enabled' = 'true') */"
        self._execute(f"INSERT INTO {self._table} {upserts} SELECT * FROM changes_{number}")

    def maintain(self) -> None:
        """Nothing."""

    def cpu(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def _execute(self, statement: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"Flink ended; see {self._log.name}")

    def __enter__(self) -> FlinkUpserts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(600)
        self._process.stdout.close()
        self._log.close()


def _changes(change: Upsert) -> Iterator[dict[str, object]]:
    """Debezium's envelopes: an insert of a key that is there replaces its row."""
    texts = [pc.cast(change.upserts[name], pa.string()) for name in ("d", "ts")]
    rows = change.upserts.set_column(3, "d", texts[0]).set_column(4, "ts", texts[1])
    yield from ({"before": None, "after": row, "op": "c"} for row in rows.to_pylist())
    empty = dict.fromkeys(change.upserts.column_names)
    yield from ({"before": empty | row, "after": None, "op": "d"} for row in change.deletes.to_pylist())


def _java(folder: Path) -> list[str]:
    """The command; the program's class goes into `folder`."""
    if not FLINK_ICEBERG.is_dir():
        subprocess.run([str(Path(__file__).parent / "flink-iceberg-jars.sh"), str(FLINK_ICEBERG)], check=True)
    jars = f"{FLINK_ICEBERG / 'jars'}/*"
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(_PROGRAM)], check=True)
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx2g", "-XX:+UseParallelGC", *OPENS, logging, "-cp", f"{jars}:{folder}", _PROGRAM.stem]
