"""A driver whose JVM has ended says how, whatever error that made in Python."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.app.driver import complete
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.run.progress import ControllerGone


def run_with(jvm: str, error: Exception, seconds: float) -> None:
    """A run whose application fails with `error`; its JVM is played by the Python program `jvm`."""
    process = subprocess.Popen([sys.executable, "-c", jvm])
    starting: Future[Any] = Future()
    starting.set_result(SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process))))

    def fails(_: RunContext) -> None:
        raise error

    context = cast(RunContext, SimpleNamespace(failed={}, starting=starting))
    try:
        complete(context, fails, seconds)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("jvm", "reason", "words"),
    [
        (
            "raise SystemExit(3)",
            Reason.OUT_OF_MEMORY,
            "Spark's JVM ran out of memory; remedy: raise spec.driver.memory",
        ),
        ("import os; os.kill(os.getpid(), 9)", Reason.INTERNAL_ERROR, "Spark's JVM was ended by SIGKILL"),
        ("raise SystemExit(1)", Reason.INTERNAL_ERROR, "Spark's JVM ended with code 1"),
    ],
)
def test_a_run_whose_jvm_ended_says_how(jvm: str, reason: Reason, words: str) -> None:
    """Else all that is known is a connection that was refused."""
    with pytest.raises(CdcError) as caught:
        run_with(jvm, ConnectionRefusedError(111, "Connection refused"), 120.0)
    assert caught.value.reason is reason
    assert words in caught.value.message


@pytest.mark.parametrize("error", [ValueError("a bug"), ControllerGone("no reader is left")])
def test_an_error_beside_a_jvm_that_lives_stays_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        run_with("import time; time.sleep(60)", error, 0.1)
