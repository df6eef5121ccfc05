"""The contract of sinks once more, where Spark makes the commits."""

from __future__ import annotations

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
