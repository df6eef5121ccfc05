"""What upkeep costs is added up per table, as reports carry it."""

from __future__ import annotations

from cdcsync_spark.sinks.base import Maintenance, Step


def test_the_cost_of_steps_adds_up() -> None:
    cost = Maintenance().after(Step("move", bytes_written=100), 0.25).after(Step("remove", files_removed=3), 0.5)
    assert cost == Maintenance(steps=2, seconds=0.75, bytes_written=100, files_removed=3)
    assert cost.to_dict() == {"steps": 2, "seconds": 0.75, "bytes": 100, "filesRemoved": 3}
    assert Maintenance.total([cost, cost, Maintenance()]) == Maintenance(4, 1.5, 200, 6)
    assert Maintenance.total([]) == Maintenance()
