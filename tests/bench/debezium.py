"""Debezium's engine as a contender (`DebeziumEngineRun.java`), reading from MySQL."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.measured import Figures, measure
from support.servers import Server

_FOLDER = Path(__file__).parent
_HOME = Path(__file__).parents[2] / ".cache" / "debezium-3.3.1"


@dataclass(frozen=True)
class BinlogPlace:
    """Of a server now."""

    file: str
    offset: int
    gtids: str

    @classmethod
    def of(cls, server: Server) -> BinlogPlace:
        ((gtids,),) = server.query("SELECT REPLACE(@@global.gtid_executed, '\n', '')")
        return cls(*server.binlog_status(), str(gtids))


def debezium(
    server: Server, folder: Path, table: str, start: BinlogPlace, changes: int, *sink: str, name: str = "debezium"
) -> Figures:
    """Until it has delivered so many changes of `table`: into `sink`, brokers and a topic, where it
    is given, else nowhere. `folder` holds the account's `username` and `password`."""
    if not _HOME.is_dir():
        subprocess.run([str(_FOLDER.parent / "support" / "debezium-jars.sh"), str(_HOME)], check=True)
    java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{_HOME / 'jars'}/*"]
    words = (server.port, table, start.file, start.offset, start.gtids, changes, folder, *sink)
    return measure(name, [*java, str(_FOLDER / "DebeziumEngineRun.java"), *map(str, words)])
