"""Spark starts in a thread while the driver imports its other parts and opens the targets: each
takes seconds on a core of its own.

Why it is right: nothing of the session is used before `result` gave it, and an error of its start
is raised there. The thread is a daemon: a driver that ends before has no use for the session, and
the JVM ends with the pipe that its parent held. Executors cost a cluster more than a second thread
costs a driver, so a session that has some waits until the source has answered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from pyspark.sql import SparkSession

from cdcsync_core.hidden import hidden
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import RunConfig, RunKind
from cdcsync_core.runs.run_size import size_of
from cdcsync_spark.engine.start import start_session

with hidden("pandas"):
    # whether an argument for the JVM is an array of numpy's, PySpark asks its testing utilities,
    # which look for pandas by an import of it: 0.2 CPU seconds, 36 MiB
    import pyspark.testing.utils  # noqa: F401

Reach = Callable[[CdcSync, RunConfig], None]


def begin(
    config: RunConfig, reach: Reach | None = None, start: Callable[..., SparkSession] = start_session
) -> Future[SparkSession]:
    """The session of this run, with its executors if it has some, as soon as it is there. `reach`
    raises CdcError where the source cannot be reached. A run that copies nothing gets none."""
    session: Future[SparkSession] = Future()
    if not config.kind.copies:
        return session
    work = (config, session, reach or _reach, start)
    threading.Thread(target=_start, args=work, name="spark-start", daemon=True).start()
    return session


def _start(config: RunConfig, session: Future[SparkSession], reach: Reach, start: Callable[..., SparkSession]) -> None:
    try:
        session.set_result(_session(config, reach, start))
    except BaseException as e:  # noqa: BLE001 (raised again where the session is asked for)
        session.set_exception(e)


def _session(config: RunConfig, reach: Reach, start: Callable[..., SparkSession]) -> SparkSession:
    resource = CdcSync.model_validate(config.resource).following(config.followed)
    if config.spark:
        reach(resource, config)
    reads_splits = config.kind is RunKind.SNAPSHOT
    tasks = resource.spec.snapshot.parallelism if reads_splits else 2
    return start(
        f"cdcsync {resource.full_name} {config.kind}",
        cores=min(tasks, os.cpu_count() or 1),
        memory=f"{size_of(resource.spec, config.kind, executors=bool(config.spark)).heap >> 20}m",
        scratch_dir=config.scratch_dir,
        extra=resource.spec.spark_conf,
        cluster=config.spark,
        tasks=reads_splits,
    )


def _reach(resource: CdcSync, config: RunConfig) -> None:
    """A session of a cluster asks for executors as it starts: not for a source that cannot be
    reached. Raises CdcError."""
    from cdcsync_mysql.sessions.connection import connect, source_from_spec

    with connect(source_from_spec(resource.spec.source, Path(config.secrets_dir))):
        pass
