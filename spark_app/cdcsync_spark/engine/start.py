"""The Spark session: the one place that knows the Spark version and its settings.

The settings are the measured ones: Python workers over Unix sockets, and a checkpoint file manager
that does not fork a shell for each of the two log writes of a micro-batch. Checkpoints live in the
run's scratch folder and are never read by another run.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from py4j import clientserver
from pyspark.sql import SparkSession

from cdcsync_spark.engine.jvm_options import JVM, SMALL_HEAP, Use, chosen, java

_MANAGER = "FileSystemBasedCheckpointFileManager"
#: the class moved with 4.1
_STREAMING = "org.apache.spark.sql.execution.streaming"

_SETTINGS = {
    "spark.ui.enabled": "false",
    # plans of a few rows, most of them run once: compiled code would cost more than it saves
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": "cdcsync_spark.engine.worker_preload",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
}
#: of a streaming query whose checkpoint is never read. Spark writes it before and after each
#: micro-batch, by Hadoop's local file system, which forks a chmod for each file; with progress that
#: is tracked asynchronously it writes every few seconds. Rarely is no good: the source's process
#: keeps what it has handed over until then, and walks through it for each micro-batch. Spark offers
#: this for sinks that deliver at least once, because it forgets what was applied since; here only
#: the targets know that.
QUERY_OPTIONS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "5000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
#: in `jars` of Spark's home: the one jar there, which names the others
CLASS_PATH_JAR = "class-path.jar"
#: beside it: the others. `jars/*`, Spark's class path, does not stand for what is in a folder
LINKED_JARS = "linked"
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: the format of the archive below; another number replaces that of an environment
_ARCHIVE = 3
#: of a session without tasks in Python. The two processes that its JVM starts, to make the source,
#: end when they have answered; without this each kind of them has a daemon that stays. No executor
#: is elsewhere, so a heartbeat every thirty seconds, of the JVM to itself, will do. There are no
#: jobs, and what cleans up after them looks for work ten times a second: a quarter of what a stream
#: at rest costs.
_WITHOUT_TASKS = {
    "spark.python.use.daemon": "false",
    "spark.executor.heartbeatInterval": "30s",
    "spark.cleaner.referenceTracking": "false",
    "spark.shuffle.mapOutput.dispatcher.numThreads": "1",
}
#: a thread of Py4J looks so often for objects of Java's that Python has no more use for
_RELEASE_SECONDS = 30
#: of a folder of Unix sockets at most: Spark refuses a longer one
#: (`spark.python.unix.domain.socket.dir`), whose sockets could have paths of more than 107 bytes
_SOCKET_DIR_BYTES = 61


def checkpoint_manager() -> str:
    """The class name of the file-system based checkpoint manager in the installed Spark."""
    major, minor = (int(n) for n in pyspark.__version__.split(".")[:2])
    return f"{_STREAMING}.{'checkpointing.' if (major, minor) >= (4, 1) else ''}{_MANAGER}"


def _socket_dir(scratch_dir: str) -> str:
    """The run's scratch folder, or a short one where that is too long."""
    if len(os.fsencode(scratch_dir)) <= _SOCKET_DIR_BYTES:
        return scratch_dir
    folder = tempfile.mkdtemp(prefix="cdcsync-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def archive_path() -> Path | None:
    """Where the class archive of this Spark and this Java lies, made by
    `cdcsync_spark.engine.class_archive`. None without a Java."""
    installed = java()
    if installed is None:
        return None
    binary, class_path = Path(installed).resolve(), spark_home() / "jars" / CLASS_PATH_JAR
    made_with = f"{_ARCHIVE} {binary} {binary.stat().st_mtime_ns} {JVM} ".encode()
    version = hashlib.sha256(made_with + (class_path.read_bytes() if class_path.exists() else b"")).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "cdcsync" / f"spark-{pyspark.__version__}-{version}.jsa"


def spark_home() -> Path:
    """Where Spark is started from if `cdcsync_spark.engine.class_archive` made it. The zip of
    PySpark's Python part is not there: it comes first on the path of Python's processes otherwise,
    and each compiles again what it imports from it."""
    return Path(sys.prefix) / "share" / "cdcsync" / "spark"


def _set_environment(*, tasks: bool) -> None:
    """What Spark's launcher and its JVM read there."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # there is none to be asked for data sources that are installed: ours are registered
    os.environ["PYSPARK_DRIVER_PYTHON"] = "none"
    os.environ["SPARK_LAUNCHER_OPTS"] = JVM
    if not tasks:  # the C library keeps what is free for one thread apart from what is for another
        os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    # a home may be of a PySpark that is gone
    if (spark_home() / "bin" / "spark-submit").exists() and (spark_home() / "jars" / CLASS_PATH_JAR).exists():
        os.environ.setdefault("SPARK_HOME", str(spark_home()))


def _java_options(tasks: bool, scratch_dir: str) -> str:
    """The archive is mapped where its addresses are right: else the JVM writes to all of its 130
    MiB, which it then shares with no other."""
    path = archive_path()
    archive = path is not None and path.exists()
    diagnostic = chosen(*([Use.ARCHIVE] if archive else []), *([] if tasks else [Use.AT_REST]))
    heap = "" if tasks else SMALL_HEAP
    options = (JVM, heap, f"-Djava.io.tmpdir={scratch_dir}", f"-XX:SharedArchiveFile={path}" if archive else "")
    return " ".join(filter(None, (*options, diagnostic)))


def start_session(
    name: str,
    *,
    cores: int,
    memory: str,
    scratch_dir: str,
    extra: Mapping[str, str],
    cluster: Mapping[str, str] | None = None,
    jvm_options: str = "",
    tasks: bool = True,
) -> SparkSession:
    """A `local[cores]` session, or one with executors where `cluster` has their settings.

    `memory` is in Spark's form (`1g`), `extra` the manifest's sparkConf, which never replaces what
    makes the cluster. `tasks`: Python workers are used.
    """
    _set_environment(tasks=tasks)
    settings = {
        **_SETTINGS,
        **({} if cluster else _LOCAL),
        **({} if tasks else _WITHOUT_TASKS),
        "spark.driver.memory": memory,
        "spark.local.dir": scratch_dir,
        "spark.python.unix.domain.socket.dir": _socket_dir(scratch_dir),
        "spark.sql.streaming.checkpointFileManagerClass": checkpoint_manager(),
        "spark.driver.extraJavaOptions": f"{_java_options(tasks, scratch_dir)} {jvm_options}".strip(),
        **extra,
        **(cluster or {}),
    }
    if not tasks:
        clientserver.DEFAULT_WORKER_SLEEP_TIME = _RELEASE_SECONDS
    builder = SparkSession.builder.master(settings.pop("spark.master", f"local[{cores}]")).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
