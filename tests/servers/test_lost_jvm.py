"""A JVM that runs out of memory ends, and the run with it, with a message of what the user can
raise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RUN = """
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from cdcsync_core.errors import CdcError
from cdcsync_core.runs.run import RunKind
from cdcsync_spark.app import driver
from cdcsync_spark.engine.start import start_session

spark = start_session("hungry", cores=1, memory="600m", scratch_dir=sys.argv[1], extra={})
gateway = spark.sparkContext._gateway
starting = Future()
starting.set_result(spark)
driver.open_context = lambda *_: SimpleNamespace(failed={}, starting=starting)
driver.APPLICATIONS[RunKind.STREAM] = lambda _: gateway.new_array(gateway.jvm.long, 200_000_000)
try:
    driver.run_application(SimpleNamespace(kind=RunKind.STREAM), None, None, starting)
except CdcError as error:
    print("ended:", error.reason.value, error.message)
"""


@pytest.mark.spark
def test_a_jvm_without_memory_ends_the_run(tmp_path: Path) -> None:
    """A thread of it that dies would leave a run that reports, and copies nothing, without end."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, tmp_path], capture_output=True, text=True, timeout=300, check=False
    )
    assert "ended: OutOfMemory Spark's JVM ran out of memory; remedy: raise spec.driver.memory" in done.stdout, (
        done.stderr
    )
