"""Opening a Delta table by its log: the newest checkpoint, then every entry after it.

Only checkpoints in one file or in numbered parts are read (the Delta protocol, "Classic Checkpoint"); tables with
others name the feature `v2Checkpoint`, which is not one of ours. An entry that is missing between the checkpoint and
the newest one stops the table: without it nobody knows what the table holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.parquet as pq

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.sinks.delta_log import Log
from cdcsync_spark.sinks.delta_view import Action, TableView

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.)?parquet")
_ACTIONS = ("protocol", "metaData", "add", "remove", "sidecar")
#: what Spark's checkpoints say twice, with values that an entry cannot hold
_PARSED = ("stats_parsed", "partitionValues_parsed")


def open_view(log: Log) -> TableView | None:
    """The newest version; None where there is no table. Raises `SinkConflict` for a log with gaps."""
    names = log.names()
    versions = sorted(int(m[1]) for m in map(_ENTRY.fullmatch, names) if m)
    view = TableView()
    checkpoint = _newest_checkpoint(names)
    if checkpoint is not None:
        view.version = view.checkpoint = checkpoint[0]
        for name in checkpoint[1]:
            for action in _checkpointed(log, name):
                if "sidecar" in action:
                    raise _elsewhere(log, name)
                view.take(action)
                if "remove" in action:
                    view.left(action["remove"])
    elif not versions:
        return None
    catch_up(log, view)
    if view.state is None and checkpoint is not None:
        view.state = log.state_at(checkpoint[0])
    if view.version < max([view.version, *versions]) or not view.metadata:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the log of {log.folder} has no entry {view.version + 1} and goes to {versions[-1]}",
            needed="every entry since the newest checkpoint",
            remedy="restore the log, or remove the target table and read it again",
        )
    return view


def catch_up(log: Log, view: TableView) -> int:
    """Brings `view` to the newest version; the number of entries that were read."""
    count = 0
    while (text := log.entry(view.version + 1)) is not None:
        view.entry(view.version + 1, text)
        count += 1
    return count


def _newest_checkpoint(names: Iterable[str]) -> tuple[int, list[str]] | None:
    """Its version and its files, all of them there."""
    parts: dict[tuple[int, int], list[str]] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(match[0])
    whole = [(version, sorted(files)) for (version, count), files in parts.items() if len(files) == count]
    return max(whole, default=None)


def _checkpointed(log: Log, name: str) -> Iterator[Action]:
    with log.files.open_input_file(f"{log.folder}/_delta_log/{name}") as file:
        parquet = pq.ParquetFile(file)
        wanted = [c for c in _ACTIONS if c in parquet.schema_arrow.names]
        for batch in parquet.iter_batches(columns=wanted):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield {k: _plain(v) for k, v in row.items() if v is not None}


def _plain(value: Any) -> Any:
    """Parquet's empty fields left out, as JSON leaves them out."""
    if not isinstance(value, dict):
        return value
    return {k: _plain(v) for k, v in value.items() if v is not None and k not in _PARSED}


def _elsewhere(log: Log, name: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the checkpoint {log.folder}/_delta_log/{name} has its files in sidecars",
        needed="a checkpoint that is whole",
        remedy="take the feature v2Checkpoint from the target table, or remove the table there and read it again",
    )
