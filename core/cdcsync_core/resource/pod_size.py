"""What the pods of a sync ask of their nodes: CPU, the JVM's heap, and memory for Python beside it.

Why it exists: a snapshot works for minutes and a stream without end, so they have defaults of their
own, and a small snapshot needs no executors. Why it is right: a field that is given always counts;
`driver` is for all runs, `stream.driver` for the stream and for catch-up runs, before it. The
defaults are measured (`tests/bench/test_stream_memory.py`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from cdcsync_core.resource.spec_part import Cpu, Part, Size, Text, Whole

_MI = 2**20
#: beside the heap: the JVM's own memory, the Python driver, and its source process or the workers.
#: Spark starts with no heap of less than 450 MiB; what a stream uses of it is less.
_BESIDE_STREAM, _BESIDE = 512 * _MI, 1024 * _MI
#: rows for which a snapshot takes one executor; fewer are read sooner than executors have started
ROWS_PER_EXECUTOR = 1_000_000
#: splits that a driver without executors reads at once: one worker process and its buffers for each
SPLITS_IN_DRIVER = 2

_Cores = Annotated[Whole, Field(ge=1, le=256)]
_Cpu = Annotated[Cpu, Field(ge=10, le=256_000)]
_Heap = Annotated[Size, Field(ge=512 * _MI, le=2**44)]


@dataclass(frozen=True)
class DriverSize:
    """`cpu` in thousandths; `heap` and `pod` in bytes, where the pod's is for everything in it."""

    cpu: int
    heap: int
    pod: int


class StreamDriver(Part):
    """The driver of the stream and of catch-up runs; None: as `driver` says, or the default."""

    cpu: _Cpu | None = None
    memory: _Heap | None = None


class Driver(Part):
    """None: the default."""

    cpu: _Cpu | None = None
    memory: _Heap | None = None
    service_account_name: Text = ""
    pod_template: dict[str, Any] = Field(default_factory=dict)

    def of_snapshot(self, *, executors: bool) -> DriverSize:
        """One without executors plans no more than a million rows."""
        heap = self.memory or (2048 if executors else 1024) * _MI
        return DriverSize(self.cpu or 1000, heap, heap + max(_BESIDE, heap // 2))

    def of_stream(self, own: StreamDriver) -> DriverSize:
        cpu = own.cpu or self.cpu or 250
        if own.memory is None and self.memory is not None:
            return DriverSize(cpu, self.memory, self.memory + max(_BESIDE, self.memory // 2))
        heap = own.memory or 512 * _MI
        return DriverSize(cpu, heap, heap + max(_BESIDE_STREAM, heap // 2))


class Executors(Part):
    """`instances` auto: by the number of rows, at most `max`."""

    instances: Annotated[Whole, Field(ge=1, le=10_000)] | Literal["auto"] = "auto"
    max: Annotated[Whole, Field(ge=1, le=10_000)] = 4
    cores: _Cores = 1
    memory: _Heap = 2048 * _MI
    pod_template: dict[str, Any] = Field(default_factory=dict)

    def wanted(self, rows: int | None) -> int:
        """For a snapshot of so many rows; None: of any number."""
        if self.instances != "auto":
            return self.instances
        return self.max if rows is None else min(self.max, rows // ROWS_PER_EXECUTOR)
