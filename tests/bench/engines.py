"""A run of the stream to the binlog's end, as a driver does it, with Spark or without: the same
reader, applier and commits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from cdcsync_core.runs.run import RunConfig
from cdcsync_spark.app.driver import complete, run_application
from cdcsync_spark.engine import prestart
from cdcsync_spark.engine.process_engine import ProcessEngine
from cdcsync_spark.run.context import open_context
from cdcsync_spark.stream.run import run_stream


class Done:
    """The last count of rows that the run has reported."""

    def __init__(self) -> None:
        self.rows = 0

    def report(self, **parts: Any) -> None:
        self.rows = (parts.get("done") or {}).get("rows", self.rows)


def stream_in_spark(config: Path) -> int:
    run, done, stopping = RunConfig.from_json(config.read_text()), Done(), threading.Event()
    error = run_application(run, done, stopping, prestart.begin(run))
    if error is not None:
        raise error
    return done.rows


def stream_in_process(config: Path) -> int:
    run, done = RunConfig.from_json(config.read_text()), Done()
    context = open_context(run, done, threading.Event(), Future())
    error = complete(context, partial(run_stream, open_engine=lambda: nullcontext(ProcessEngine())))
    if error is not None:
        raise error
    return done.rows
