"""What the end of the driver's JVM means."""

from __future__ import annotations

import signal
import subprocess

from pyspark.sql import SparkSession

from cdcsync_core.errors import CdcError, Reason, fail

#: the exit code of a JVM that ends by an OutOfMemoryError (`report_java_out_of_memory` in HotSpot's
#: debug.cpp)
_OUT_OF_MEMORY = 3
_MORE_MEMORY = "raise spec.driver.memory, or spec.stream.driver.memory for a stream"
#: a JVM's connections end a moment before it does, a long one on a busy machine
END_SECONDS = 15.0


def jvm_error(spark: SparkSession, seconds: float = END_SECONDS) -> CdcError | None:
    """Why nothing of Spark answers any more: how its JVM ended; None if that still lives after so
    many seconds."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    try:
        code = gateway.proc.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    if code == _OUT_OF_MEMORY:
        return fail(Reason.OUT_OF_MEMORY, "Spark's JVM ran out of memory", remedy=_MORE_MEMORY)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return fail(Reason.INTERNAL_ERROR, f"Spark's JVM {how}", remedy="see the driver's log")
