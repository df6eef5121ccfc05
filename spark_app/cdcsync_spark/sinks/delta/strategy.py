"""How a commit is made: natively, by delta-rs or by Spark. Pure.

A native commit, an entry of our own, costs what the batch costs and is made wherever it is right
(`sinks.delta.features.unsupported_reason`). Of the others delta-rs starts at once and rewrites each
file that it touches; Spark writes deletion vectors but takes seconds however small the batch is,
and knows features that delta-rs does not write [measured: row tracking, in-commit timestamps,
clustering, type widening, Iceberg compatibility]. So Spark is for what delta-rs cannot write, and
for a MERGE that would rewrite much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_spark.sinks.base import Change, Upsert
from cdcsync_spark.sinks.delta.features import VECTORS_ENABLED, writer_features
from cdcsync_spark.sinks.delta.log import parsing
from cdcsync_spark.sinks.delta.view import LiveFile, TableView

#: features of writers that delta-rs commits to
_DELTA_RS = frozenset(
    (
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
        *("deletionVectors", "timestampNtz", "v2Checkpoint", "variantType", "vacuumProtocolCheck"),
    )
)
#: a commit to such a table is not a file in its log
_ELSEWHERE = ("catalog", "coordinatedCommits", "managedCommits")


class CommitStrategy(Enum):
    """How a commit is made; `NONE`: by none of the three."""

    NATIVE = "native"
    DELTA_RS = "delta-rs"
    SPARK = "Spark"
    NONE = "none"


def choose(unsupported_reason: str, *, writable: bool, spark: bool, rewritten: int, limit: int) -> CommitStrategy:
    """`unsupported_reason` of a native commit; `writable` by delta-rs; `spark` is there and can;
    `rewritten` bytes by delta-rs that Spark would not rewrite: from `limit` on they are
    Spark's."""
    if not unsupported_reason:
        return CommitStrategy.NATIVE
    if spark and (not writable or rewritten >= limit):
        return CommitStrategy.SPARK
    return CommitStrategy.DELTA_RS if writable else CommitStrategy.NONE


def delta_rs_writes(view: TableView) -> bool:
    return not set(writer_features(view.protocol)) - _DELTA_RS


def spark_may(view: TableView) -> bool:
    """Whether an entry made on a copy of the Delta log is one of the table; other formats' metadata
    would not follow it."""
    elsewhere = any(name.startswith(_ELSEWHERE) for name in writer_features(view.protocol))
    return not elsewhere and not view.properties.get("delta.universalFormat.enabledFormats")


def rewritten(view: TableView, change: Change, key: str) -> int:
    """Bytes of files that delta-rs would rewrite and Spark leaves where they are; `key` is the
    key's first column."""
    if not isinstance(change, Upsert) or view.properties.get(VECTORS_ENABLED, "false").lower() != "true":
        return 0
    keys = pa.chunked_array([*change.upserts[key].chunks, *change.deletes[key].chunks], change.upserts[key].type)
    return touched_bytes(view.files.values(), keys, key)


def touched_bytes(files: Iterable[LiveFile], keys: pa.ChunkedArray, name: str) -> int:
    """Bytes of the files that may hold one of `keys`, values of the key's first column `name`; at
    most too many."""
    if not pa.types.is_integer(keys.type):
        return sum(f.size for f in files)
    found = pc.unique(keys).sort()
    return sum(f.size for f in files if _may_hold(f, found, name))


def _may_hold(file: LiveFile, keys: pa.Array, name: str) -> bool:
    with parsing(file.log_path):
        stats = json.loads(file.add.get("stats") or "{}")
        low, high = ((stats.get(bound) or {}).get(name) for bound in ("minValues", "maxValues"))
    if not isinstance(low, int) or not isinstance(high, int):
        return True
    values = keys.to_numpy()
    return bool(values.searchsorted(low, "left") < values.searchsorted(high, "right"))
