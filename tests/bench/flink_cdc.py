"""Flink CDC's snapshot of a table to Parquet files, as a process of its own; its jars are fetched
by Maven (`flink-cdc-jars.sh`) when they are needed first.

It is set for speed. Chunks are as long as ours. The poll interval is short, because at the default
a reader mostly waits. A heap of 2 GiB is ample. The program is compiled before it is measured. Of
the JVM's garbage collectors the parallel one needed the least CPU time in trials, or as little as
the serial one; Flink's own scripts choose none, so that the JVM takes G1.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow.dataset as ds

from bench.measured import Figures, measure
from support.flink import OPENS
from support.servers import Server

Mode = Literal["streaming", "batch"]
Collector = Literal["Parallel", "G1"]
FLINK_CDC = Path(__file__).parents[2] / ".cache" / "flink-cdc-3.5.0"
_CHUNK = 50_000
_PROGRAM = Path(__file__).parent / "FlinkInsert.java"


def snapshot_to_parquet(
    server: Server, folder: Path, table: str, mode: Mode, collector: Collector = "Parallel"
) -> Figures:
    """`table` (database.table, of numbers and text, with one key column) into a new folder inside
    `folder`, which holds `username` and `password`; the rows are those in the files.

    A stream takes checkpoints, each of which ends the files of both tasks; a batch takes none.
    """
    target = folder / f"flink-{mode}-{collector}"
    database, table_name = table.split(".")
    columns, key = _columns(server, database, table_name)
    source = {
        "connector": "mysql-cdc",
        "hostname": server.host,
        "port": server.port,
        "username": (folder / "username").read_text(),
        "password": (folder / "password").read_text(),
        "database-name": database,
        "table-name": table_name,
        "server-id": "4000000-4000003",
        "server-time-zone": "UTC",
        "scan.startup.mode": "snapshot",
        "scan.incremental.snapshot.chunk.size": _CHUNK,
        # files take inserts only, and a snapshot has no other changes
        "scan.read-changelog-as-append-only.enabled": "true",
        "debezium.poll.interval.ms": 10,
        "jdbc.properties.useSSL": "false",
    }
    sink = {"connector": "filesystem", "format": "parquet", "path": target.as_uri()}
    statements = (
        f"CREATE TABLE source ({columns}, PRIMARY KEY (`{key}`) NOT ENFORCED) WITH ({_options(source)})",
        f"CREATE TABLE sink ({columns}) WITH ({_options(sink)})",
        "INSERT INTO sink SELECT * FROM source",
    )
    name = f"Flink CDC to Parquet, {mode}, {collector}"
    figures = measure(name, [*_java(folder, collector), mode, *statements], 0)
    return replace(figures, rows=ds.dataset(target, format="parquet").count_rows())


def _columns(server: Server, database: str, name: str) -> tuple[str, str]:
    """The columns as Flink SQL has them, and the key."""
    found = server.query(
        "SELECT column_name, IF(data_type = 'int', 'INT', 'STRING'), column_key FROM information_schema.columns"
        f" WHERE table_schema = '{database}' AND table_name = '{name}' ORDER BY ordinal_position"
    )
    key = next(column for column, _, kind in found if kind == "PRI")
    return ", ".join(f"`{column}` {kind}" for column, kind, _ in found), key


def _options(options: Mapping[str, object]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def _java(folder: Path, collector: Collector) -> list[str]:
    """The command up to the program's arguments; the program's class goes into `folder`."""
    if not FLINK_CDC.is_dir():
        subprocess.run([str(Path(__file__).parent / "flink-cdc-jars.sh"), str(FLINK_CDC)], check=True)
    jars = f"{FLINK_CDC / 'jars'}/*"
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(_PROGRAM)], check=True)
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx2g", f"-XX:+Use{collector}GC", *OPENS, logging, "-cp", f"{jars}:{folder}", _PROGRAM.stem]
