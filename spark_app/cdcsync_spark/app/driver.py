"""Runs the application that a `RunConfig` names, from the state of the targets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.runs.run import RunConfig, RunKind
from cdcsync_spark.engine.jvm_exit import END_SECONDS, jvm_error
from cdcsync_spark.run.context import Draining, RunContext, open_context
from cdcsync_spark.run.progress import ControllerGone, Reports


def run_application(
    config: RunConfig, reporter: Reports, stopping: threading.Event, starting: Future[SparkSession]
) -> CdcError | None:
    """Runs to the end or until it is asked to stop; `starting` gives the Spark session.

    Returns the error of the run as a whole: that of a table if none is left without one; None
    otherwise. Raises CdcError likewise.
    """
    error = complete(open_context(config, reporter, stopping, starting), APPLICATIONS[config.kind])
    return error or _cut_short(config, stopping)


def _cut_short(config: RunConfig, stopping: threading.Event) -> CdcError | None:
    """The error of a run that ends by itself, and got a signal to drain before: with exit code
    0 it would count as done. A controller that sent the signal ignores the exit."""
    if (config.kind.copies and not config.stop_at) or not stopping.is_set():
        return None
    return fail(
        Reason.DRIVER_LOST,
        f"the driver was asked to end while it {'caught up' if config.kind.copies else 'compared'}, and drained",
        needed="a driver that ends by itself",
        remedy="none: the next run goes on from the targets' positions",
    )


def complete(
    context: RunContext, application: Callable[[RunContext], None], jvm_seconds: float = END_SECONDS
) -> CdcError | None:
    """Runs an application to its end; the error of a JVM that ended meanwhile, within so many
    seconds, goes before what that made in Python."""
    starting = context.starting
    try:
        application(context)
    except Draining:
        return None
    except (CdcError, ControllerGone):
        raise
    except Exception as e:
        ended = jvm_error(starting.result(), jvm_seconds) if starting.done() and not starting.exception() else None
        if ended is None:
            raise
        raise ended from e
    if context.failed and len(context.failed) == len(context.config.tables):
        return next(iter(context.failed.values()))
    return None


def _snapshot(context: RunContext) -> None:
    from cdcsync_spark.snapshot.run import run_snapshot

    run_snapshot(context)


def _stream(context: RunContext) -> None:
    from cdcsync_spark.engine.spark_engine import open_spark_engine
    from cdcsync_spark.stream.run import run_stream

    run_stream(context, partial(open_spark_engine, context.starting, Path(context.config.scratch_dir)))


def _verify(context: RunContext) -> None:
    from cdcsync_spark.verify.run import run_verification

    run_verification(context)


#: what a run of each kind does; each function imports only its own parts
APPLICATIONS: dict[RunKind, Callable[[RunContext], None]] = {
    RunKind.SNAPSHOT: _snapshot,
    RunKind.STREAM: _stream,
    RunKind.CATCH_UP: _stream,
    RunKind.VERIFY: _verify,
}
