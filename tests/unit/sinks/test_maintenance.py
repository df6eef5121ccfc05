"""Maintenance of a table: what it costs is added up, as reports carry it; a step that fails rests
and holds up no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cdcsync_core.errors import Reason, fail
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.writer import Maintenance, MaintenanceStep
from cdcsync_spark.sinks.delta.replica import maintenance as delta_maintenance
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import TableView
from cdcsync_spark.sinks.lake.maintenance import Failures
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.stores import open_store


def test_the_cost_of_steps_adds_up() -> None:
    cost = (
        Maintenance()
        .after(MaintenanceStep("compact", bytes_written=100), 0.25)
        .after(MaintenanceStep("remove files", files_removed=3), 0.5)
    )
    assert cost == Maintenance(steps=2, seconds=0.75, bytes_written=100, files_removed=3)
    assert cost.to_dict() == {"steps": 2, "seconds": 0.75, "bytes": 100, "filesRemoved": 3}
    assert Maintenance.total([cost, cost, Maintenance()]) == Maintenance(4, 1.5, 200, 6)
    assert Maintenance.total([]) == Maintenance()


def test_a_step_that_failed_rests_and_each_kind_of_failure_is_told_once() -> None:
    now = [0.0]
    failures = Failures("shop.orders", 300.0, lambda: now[0])
    denied = fail(Reason.PRIVILEGE_MISSING, "no right to delete", remedy="grant it")
    with capture_logs() as logs:
        for _ in range(3):
            assert not failures.resting("remove files")
            failures.add("remove files", denied)
            assert (failures.resting("remove files"), failures.resting("compact")) == (True, False)
            now[0] += 300.0
        failures.add("remove files", fail(Reason.SINK_UNREACHABLE, "no answer", remedy="wait"))
        failures.end("remove files")
        failures.add("remove files", denied)
    assert [(log["step"], log["error"].split(";")[0]) for log in logs] == [
        ("remove files", "no right to delete"),
        ("remove files", "no answer"),
        ("remove files", "no right to delete"),
    ]


def test_a_file_that_cannot_be_removed_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store keeps one file whatever we ask: the others go, a few more with each attempt."""
    path = TablePath(open_store(str(tmp_path)), "shop/orders", TableId("shop", "orders"))
    folder = tmp_path / path.folder
    folder.mkdir(parents=True)
    names = [f"{n:02}" for n in range(40)]
    for name in names:
        (folder / name).touch()
    view = TableView(gone=dict.fromkeys(names, 1))
    delete = LocalStore.delete

    def locked(self: LocalStore, relative: str) -> None:
        if relative.endswith(f"/{names[0]}"):
            raise PermissionError(13, "object locked")
        delete(self, relative)

    monkeypatch.setattr(LocalStore, "delete", locked)
    for _ in range(2):
        with pytest.raises(PermissionError):
            delta_maintenance.remove(path, view, view.dead(2))
    assert [f.name for f in folder.iterdir()] == names[:1] == list(view.gone)


def test_no_file_outside_of_the_tables_folder_is_removed(tmp_path: Path) -> None:
    """A clone that another program made names the files of its origin, by URL or from the folder
    upwards; one that means harm names what is behind a link, or the Delta log itself."""
    path = TablePath(open_store(str(tmp_path)), "shop/orders", TableId("shop", "orders"))
    for name in ("shop/other/f", "shop/orders/f"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    entry = tmp_path / "shop/orders/_delta_log/0.json"
    entry.parent.mkdir()
    entry.touch()
    (tmp_path / "shop/orders/link").symlink_to(tmp_path / "shop/other")
    outside = ["../other/f", str(tmp_path / "shop/other/f"), "s3://lake/f", "link/f", "%2E%2E/other/f"]
    view = TableView(gone=dict.fromkeys([*outside, "_delta_log/0.json", "f"], 1))
    delta_maintenance.remove(path, view, view.dead(2))
    assert [f.parent.name for f in tmp_path.rglob("f")] == ["other"]
    assert entry.exists()
