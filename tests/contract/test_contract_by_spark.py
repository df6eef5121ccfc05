"""The contract of sinks once more, where Spark makes the commits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contract.by_spark import SparkSink, sink_by_spark
from contract.test_sink_contract import (  # noqa: F401 (collected here, too)
    test_a_merge_that_meets_no_row_commits_the_state,
    test_a_replayed_merge_is_a_no_op_by_the_state,
    test_merge_updates_inserts_and_deletes_in_one_commit,
    test_waves_append_and_the_state_comes_with_them,
)

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def sink(delta_spark: SparkSession, tmp_path: Path) -> SparkSink:
    return sink_by_spark(delta_spark, tmp_path)


def test_what_jobs_leave_in_spark_is_removed(delta_spark: SparkSession) -> None:
    """Spark's context of a stream begins without what does it."""
    jvm = delta_spark._jvm
    assert jvm is not None
    delta_spark.range(1000).groupBy("id").count().collect()
    assert _blocks(delta_spark) > 0
    deadline = time.monotonic() + 60
    while _blocks(delta_spark) and time.monotonic() < deadline:
        jvm.java.lang.System.gc()
        time.sleep(0.2)
    assert _blocks(delta_spark) == 0


def _blocks(spark: SparkSession) -> int:
    """Bytes of broadcasts in the store of blocks."""
    return int(spark._jvm.org.apache.spark.SparkEnv.get().blockManager().memoryStore().memoryUsed())  # type: ignore[union-attr]
