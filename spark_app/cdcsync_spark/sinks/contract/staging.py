"""Staged copies that belong to another kind of sink: a target that cannot hold rows before they are
published, such as a topic, keeps them as tables of a lake, and reads them back from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot


@dataclass(frozen=True)
class StagedVersion:
    """Version `number` of a staged copy, or what this version has added; a scan of `snapshot` has
    the rows in an order that never changes. `rows` are how many, None where that is not known."""

    number: int
    snapshot: TargetSnapshot
    rows: int | None


class StagingTable(Target, Protocol):
    """A staged copy: a keyed target whose versions can be read one by one."""

    def newest(self) -> StagedVersion | None:
        """All rows of the newest version; None where the copy is gone, or is not ours."""
        ...

    def wave(self, number: int) -> StagedVersion | None:
        """The rows that version `number` has added; None where it is gone, is not ours, or takes
        rows away."""
        ...

    def remove(self) -> None:
        """Nothing there is no error."""
        ...


class Staging(Protocol):
    """The place of the staged copies of a sync. Picklable."""

    def copy(self, table: TableId, generation: int, *, early: bool = True) -> StagingTable:
        """The table's copy of a generation; without `early` it is prepared as one of a table
        without early delivery, whatever the state says."""
        ...

    def remove_copies(self, table: TableId, generation: int) -> bool:
        """Removes those of generations up to this one; whether there were any."""
        ...
