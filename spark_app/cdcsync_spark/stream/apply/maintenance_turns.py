"""Maintenance of a run's tables, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cdcsync_spark.stream.apply.stream_table import StreamTable


@dataclass
class MaintenanceTurns:
    """`clock` counts seconds and never goes back."""

    clock: Callable[[], float]
    _waiting: dict[str, StreamTable] = field(default_factory=dict)

    def add(self, table: StreamTable) -> None:
        """Gives a table that has a new commit a turn."""
        self._waiting[table.name] = table

    def take(self, until: float) -> None:
        """One step for the tables that wait, and more steps while the clock is before `until`."""
        while self._waiting:
            name = next(iter(self._waiting))
            table = self._waiting.pop(name)
            if table.flowing and table.target.maintain():
                self._waiting[name] = table
                if self.clock() >= until:
                    return
