"""Debezium's engine as a contender (`DebeziumEngineRun.java`), reading from MySQL."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.measured import Figures, measure
from support.debezium import HOME, BinlogPlace
from support.servers import Server

_FOLDER = Path(__file__).parent


def debezium(
    server: Server, folder: Path, table: str, start: BinlogPlace, changes: int, *sink: str, name: str = "debezium"
) -> Figures:
    """Until it has delivered so many changes of `table`: into `sink`, brokers and a topic, where it
    is given, else nowhere. `folder` holds the account's `username` and `password`."""
    if not HOME.is_dir():
        subprocess.run(
            [str(_FOLDER.parent / "support" / "debezium-jars.sh"), str(HOME), "mysql", "3.3.1.Final"], check=True
        )
    java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{HOME / 'jars'}/*"]
    words = (server.port, table, start.file, start.offset, start.gtids, changes, folder, *sink)
    return measure(name, [*java, str(_FOLDER / "DebeziumEngineRun.java"), *map(str, words)])
