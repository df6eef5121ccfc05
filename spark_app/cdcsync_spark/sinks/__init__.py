"""Sinks: the code that writes targets. One file each, unaware of each other; a new one is one row in `_SINKS`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdcsync_core.spec import Sink as SinkSpec
from cdcsync_spark.sinks.base import Sink
from cdcsync_spark.sinks.delta import DeltaSink
from cdcsync_spark.sinks.place import Place


def sink_from_spec(sink: SinkSpec, secrets_dir: Path, sync: str) -> Sink:
    """The sink of a manifest's `spec.sink` for the sync `namespace/name`; `<secrets_dir>/<secret>/<key>` hold its credentials.

    Opens nothing; raises `SpecInvalid` for a store that is not supported.
    """
    return _SINKS[sink.type](sink, secrets_dir, sync)


def _delta(sink: SinkSpec, secrets_dir: Path, sync: str) -> DeltaSink:
    ref, options = sink.delta.credentials_secret_ref, sink.delta.options
    secret = str(secrets_dir / ref.name) if ref else ""
    place = Place.parse(sink.delta.path, options.endpoint, options.region, secret)
    return DeltaSink(place, sync, options.deletion_vectors)


_SINKS: dict[str, Callable[[SinkSpec, Path, str], Sink]] = {"delta": _delta}
