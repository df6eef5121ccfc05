"""The Spark session: the one place that knows the Spark version and its settings.

The settings are the measured ones: Python workers over Unix sockets, and a checkpoint file manager that does not fork a shell for
each of the two log writes of a micro-batch. Checkpoints live in the run's scratch folder and are never read by another run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

_MANAGER = "FileSystemBasedCheckpointFileManager"
#: the class moved with 4.1
_STREAMING = "org.apache.spark.sql.execution.streaming"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: a driver that only streams lives on short jobs: the first compiler suffices and starts faster
_STREAM_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_SNAPSHOT_JVM = "-XX:+UseSerialGC"


def checkpoint_manager() -> str:
    """The class name of the file-system based checkpoint manager in the installed Spark."""
    major, minor = (int(n) for n in pyspark.__version__.split(".")[:2])
    return f"{_STREAMING}.{'checkpointing.' if (major, minor) >= (4, 1) else ''}{_MANAGER}"


def start_session(
    name: str, *, cores: int, memory: str, scratch_dir: str, streaming: bool, extra: Mapping[str, str]
) -> SparkSession:
    """A `local[cores]` session; `memory` in Spark's form (`1g`), `extra` the manifest's sparkConf."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        **_SETTINGS,
        **_LOCAL,
        "spark.driver.memory": memory,
        "spark.local.dir": scratch_dir,
        "spark.sql.streaming.checkpointFileManagerClass": checkpoint_manager(),
        "spark.driver.extraJavaOptions": f"{_STREAM_JVM if streaming else _SNAPSHOT_JVM} -Djava.io.tmpdir={scratch_dir}",
        **extra,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
