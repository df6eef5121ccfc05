"""The size of a run's driver, by the kind of run: the one rule for its pod and for its JVM's heap.
Pure."""

from __future__ import annotations

from cdcsync_core.resource.pod_size import DriverSize
from cdcsync_core.resource.spec import Spec
from cdcsync_core.runs.run import RunKind

#: the kinds that read tables of the source, with a worker process for each split
READERS = frozenset({RunKind.SNAPSHOT, RunKind.VERIFY})


def size_of(spec: Spec, kind: RunKind, *, executors: bool) -> DriverSize:
    """`executors`: the run has some."""
    if kind in READERS:
        return spec.driver.of_snapshot(executors=executors)
    return spec.driver.of_stream(spec.stream.driver)
