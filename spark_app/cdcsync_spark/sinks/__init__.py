"""Sinks: the code that writes targets. One folder each, unaware of each other; a new one is one row
in `_SINKS`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdcsync_core.sink_spec import Delta, SinkKind
from cdcsync_core.sink_spec import Sink as SinkSpec
from cdcsync_lake.check import check_lake
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.base import Sink
from cdcsync_spark.sinks.delta.history_target import HistorySink
from cdcsync_spark.sinks.delta.sink import DeltaSink
from cdcsync_spark.sinks.lake.store_errors import of_the_run
from cdcsync_spark.sinks.lake.stores import store_at


def sink_from_spec(sink: SinkSpec, secrets_dir: Path, sync: str) -> Sink:
    """The sink of a manifest's `spec.sink` for the sync `namespace/name`;
    `<secrets_dir>/<secret>/<key>` hold its credentials.

    Opens nothing; raises `SpecInvalid` for a store that is not supported.
    """
    return _SINKS[type(sink.kind)](sink.kind, secrets_dir, sync)


def refuse_unready(sink: SinkSpec, secrets_dir: Path) -> None:
    """The check that the operator cannot always make: the identity, or the folder, may be the
    driver's own. Raises CdcError."""
    for error in check_lake(Location.of(sink.kind.location(), secrets_dir)).errors:
        raise of_the_run(error)


def _delta(sink: Delta, secrets_dir: Path, sync: str) -> Sink:
    store, columns = store_at(Location.of(sink.location(), secrets_dir)), sink.event_columns()
    return HistorySink(store, sync, columns) if columns else DeltaSink(store, sync, sink.options.deletion_vectors)


_SINKS: dict[type[SinkKind], Callable[[Any, Path, str], Sink]] = {Delta: _delta}
