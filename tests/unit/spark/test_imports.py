"""What the processes import, and what of it most of them do not need."""

from __future__ import annotations

import subprocess
import sys

_EVERYTHING = """
import importlib, pkgutil, sys
import cdcsync_spark
for module in pkgutil.walk_packages(cdcsync_spark.__path__, "cdcsync_spark."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import numpy as np, pyarrow as pa
found = pa.table({"a": pa.array(np.array([1, 2])), "b": pa.array(["x", None])})
print("pandas" in sys.modules, found.to_pandas()["a"].sum())
"""
#: what the source of a stream imports
_READER = """
import sys
import cdcsync_spark.engine.collector, cdcsync_spark.binlog.reader, cdcsync_spark.engine.handover
print(*(name for name in ("deltalake", "obstore", "pandas", "pydantic") if name in sys.modules))
"""
#: the drivers of a stream and of a snapshot, until something is done that few of them do
_DRIVER = """
import sys
import cdcsync_spark.app.program, cdcsync_spark.app.driver, cdcsync_spark.stream.run, cdcsync_spark.snapshot.run
from pyspark.sql.types import NumpyArrayConverter
NumpyArrayConverter().can_convert("what each call of the JVM asks")
few = ("deltalake", "obstore", "pandas", "cdcsync_spark.sinks.iceberg", "fastavro", "hive_metastore", "confluent_kafka")
print(*(name for name in few if name in sys.modules))
"""
_HIDDEN = """
import cdcsync_spark.app.program
import pandas
"""
_CONTROLLER = """
import sys
import cdcsync_operator.cli.main, cdcsync_operator.reconcile.source_calls
print(*(name for name in ("obstore", "pyarrow", "pyspark") if name in sys.modules))
"""
_TRACEBACK = """
from cdcsync_spark.logs import get_logger
def log_in(text):
    raise ValueError("no")
try:
    log_in("se" + "cret")
except ValueError:
    get_logger().exception("it failed")
"""
#: threads of numpy have the name of the process, others have their own
_THREADS = """
import os
import cdcsync_spark, numpy
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
print(names.count(open("/proc/self/comm").read()))
"""


def test_arrow_does_without_pandas() -> None:
    assert _output(_EVERYTHING) == ["False", "3"]


def test_a_reader_does_without_the_models_of_the_specification() -> None:
    assert _output(_READER) == []


def test_a_driver_does_without_delta_rs_other_sinks_and_the_clients_of_object_stores() -> None:
    assert _output(_DRIVER) == []


def test_what_is_kept_out_can_be_imported_by_name() -> None:
    assert _output(_HIDDEN) == []


def test_a_local_controller_does_without_the_client_of_object_stores() -> None:
    assert _output(_CONTROLLER) == []


def test_a_traceback_in_the_log_has_no_values_of_variables() -> None:
    printed = " ".join(_output(_TRACEBACK))
    assert "ValueError: no" in printed
    assert "secret" not in printed


def test_numpy_starts_no_thread() -> None:
    assert _output(_THREADS) == ["1"]


def _output(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
