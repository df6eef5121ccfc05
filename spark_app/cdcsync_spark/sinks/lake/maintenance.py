"""The steps that keep a table quick to open and small, between commits and never instead of one.

Each is bounded in time and memory by a `MaintenancePolicy`. A failure is a warning: the commits
before it stand. The step then rests, so that one that cannot succeed, such as a removal without the
right to delete, stops no other. A step that fails has committed nothing, so what is known of the
table stays: to reread it may take minutes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Generic

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.writer import Maintenance, MaintenanceStep
from cdcsync_spark.sinks.lake.format import LostRace, V
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: what may go wrong where nothing is lost by it: the store, a race, a file that cannot be read
HARMLESS = (CdcError, LostRace, ValueError, KeyError, pa.ArrowException)

_log = get_logger()


class Failures:
    """Which steps of one table's maintenance failed and rest; a kind of failure is logged once, not
    each time."""

    def __init__(self, table: str, retry_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._until: dict[str, float] = {}
        self._kinds: dict[str, str] = {}

    def resting(self, step: str) -> bool:
        return self._clock() < self._until.get(step, -math.inf)

    def add(self, step: str, error: Exception) -> None:
        kind = error.reason if isinstance(error, CdcError) else type(error).__name__
        if self._kinds.get(step) != kind:
            _log.warning("maintenance failed; it will be tried again", table=self._table, step=step, error=str(error))
        self._kinds[step] = kind
        self._until[step] = self._clock() + self._retry_seconds

    def end(self, step: str) -> None:
        """It was done."""
        self._kinds.pop(step, None)


class TableMaintenance(Generic[V]):
    """The steps for one table, the first ones first; `cost` is what they have cost so far. Not
    thread safe."""

    def __init__(
        self, folder: TableFolder, steps: Mapping[str, Callable[[V], MaintenanceStep | None]], retry_seconds: float
    ) -> None:
        self._folder = folder
        self._steps = steps
        self._failures = Failures(str(folder.table), retry_seconds)
        self.cost = Maintenance()

    def step(self, version: V) -> str:
        """The first step that is due for `version`, which is this run's: its name; empty where none
        is."""
        for name, step in self._steps.items():
            if self._failures.resting(name):
                continue
            try:
                done = self._timed(step, version)
            except LostRace:
                return ""
            except HARMLESS as error:
                self._failures.add(name, error)
                return ""
            if done:
                self._failures.end(name)
                return name
        return ""

    def _timed(self, step: Callable[[V], MaintenanceStep | None], version: V) -> MaintenanceStep | None:
        begun = time.monotonic()
        with self._folder.translating_errors("maintenance"):
            done = step(version)
        if done:
            self.cost = self.cost.after(done, time.monotonic() - begun)
        return done
