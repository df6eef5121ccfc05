"""The folder of the sockets by which Spark and its Python workers talk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_PROGRAM = """
import sys
from cdcsync_spark.engine.start import start_session
spark = start_session("sockets", cores=1, memory="512m", scratch_dir=sys.argv[1], extra={})
print(spark.range(3).mapInArrow(lambda batches: batches, "id long").count())
"""


@pytest.mark.parametrize(
    "length", [pytest.param(61, marks=pytest.mark.long), 62, pytest.param(64, marks=pytest.mark.long)]
)
def test_tasks_run_however_long_the_path_of_the_scratch_folder_is(length: int) -> None:
    """Spark 4.1 takes a folder of at most 61 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        folder = Path(base) / ("x" * (length - len(base) - 1))
        folder.mkdir()
        assert len(os.fsencode(folder)) == length
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(folder)], capture_output=True, text=True, check=False
        )
        assert ended.stdout.split() == ["3"], ended.stderr[-3000:]
