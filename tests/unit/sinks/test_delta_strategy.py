"""The choice among the three ways of a commit, as a table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from cdcsync_spark.sinks.delta.log import TornFile
from cdcsync_spark.sinks.delta.policy import LIMITS
from cdcsync_spark.sinks.delta.strategy import CommitStrategy, choose, delta_rs_writes, spark_may, touched_bytes
from cdcsync_spark.sinks.delta.view import LiveFile, TableView

WHY = "the table has the feature rowTracking"


LARGE = LIMITS.spark_merge_bytes


@pytest.mark.parametrize(
    ("unsupported_reason", "writable", "spark", "rewritten", "strategy"),
    [
        ("", True, True, LARGE, CommitStrategy.NATIVE),
        ("", False, False, 0, CommitStrategy.NATIVE),
        (WHY, True, False, LARGE, CommitStrategy.DELTA_RS),
        (WHY, True, True, LARGE - 1, CommitStrategy.DELTA_RS),
        (WHY, True, True, LARGE, CommitStrategy.SPARK),
        (WHY, False, True, 0, CommitStrategy.SPARK),
        (WHY, False, False, LARGE, CommitStrategy.NONE),
    ],
)
def test_the_strategy_of_a_commit(
    unsupported_reason: str, writable: bool, spark: bool, rewritten: int, strategy: CommitStrategy
) -> None:
    assert choose(unsupported_reason, writable=writable, spark=spark, rewritten=rewritten, limit=LARGE) is strategy


def view(*features: str, **properties: str) -> TableView:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": list(features)}
    return TableView(protocol=protocol, metadata={"configuration": properties})


@pytest.mark.parametrize(
    ("features", "rs", "spark"),
    [
        (("appendOnly", "deletionVectors", "v2Checkpoint"), True, True),
        (("rowTracking", "domainMetadata"), False, True),
        (("inCommitTimestamp",), False, True),
        (("clustering", "domainMetadata"), False, True),
        (("catalogManaged",), False, False),
        (("coordinatedCommits-preview",), False, False),
    ],
)
def test_who_writes_which_features(features: tuple[str, ...], rs: bool, spark: bool) -> None:
    assert (delta_rs_writes(view(*features)), spark_may(view(*features))) == (rs, spark)


def test_a_table_that_is_shown_as_another_format_too_is_not_sparks() -> None:
    assert not spark_may(view(**{"delta.universalFormat.enabledFormats": "iceberg"}))


def file(size: int, low: object = None, high: object = None) -> LiveFile:
    stats = {"minValues": {"id": low}, "maxValues": {"id": high}} if low is not None else {}
    return LiveFile({"path": f"{size}", "size": size, "stats": json.dumps(stats)})


@pytest.mark.parametrize(
    ("keys", "size"),
    [([5], 1), ([0, 9], 1), ([10], 2), ([15, 25], 6), ([30], 0), ([], 0), ([-1, 31], 0), ([9, 10, 29], 7)],
)
def test_touched_files_by_their_bounds(keys: list[int], size: int) -> None:
    """Files 0..9, 10..19 and 20..29 of 1, 2 and 4 bytes; one without bounds, of 8, may hold every
    key."""
    files = [file(1, 0, 9), file(2, 10, 19), file(4, 20, 29)]
    found = pa.chunked_array([pa.array(keys, pa.int64())])
    assert touched_bytes(files, found, "id") == size
    assert touched_bytes([*files, file(8)], found, "id") == size + 8


def test_keys_that_are_no_numbers_touch_all() -> None:
    assert touched_bytes([file(1, 0, 9), file(2)], pa.chunked_array([["a"]]), "id") == 3


@pytest.mark.parametrize(
    "stats", ["[" * 100_000, "[]", '{"minValues":7}', "nonsense", '{"minValues":{"id":' + "9" * 5000]
)
def test_statistics_that_cannot_be_read_stop_the_table(stats: str) -> None:
    with pytest.raises(TornFile, match=r"x\.parquet"):
        touched_bytes([LiveFile({"path": "x.parquet", "size": 7, "stats": stats})], pa.chunked_array([[1]]), "id")


def test_bounds_beyond_the_keys_type_are_compared() -> None:
    stats = json.dumps({"minValues": {"id": -(10**40)}, "maxValues": {"id": 10**40}})
    assert touched_bytes([LiveFile({"path": "x", "size": 7, "stats": stats})], pa.chunked_array([[1]]), "id") == 7
