"""A status of ten thousand tables is a small document and its shards (R7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.run import TablePhase
from cdcsync_core.status import Status, TableStatus, only_tables
from cdcsync_operator.table_shards import SHOWN, TableShards

PLACE = {"file": "binlog.000042", "offset": 8123, "gtidSet": "0-1-77"}


def status(count: int, failed: frozenset[int] = frozenset()) -> Status:
    tables = [
        TableStatus(
            name=f"shop.t{i:05d}",
            phase=TablePhase.FAILED if i in failed else TablePhase.STREAMING,
            position=PLACE,
            finished=({"start": None, "end": None},),
        )
        for i in range(count)
    ]
    return only_tables(Status(), tables)


def test_few_tables_are_in_the_status_itself(tmp_path: Path) -> None:
    shards, few = TableShards(tmp_path / "tables"), status(SHOWN)
    assert shards.write(few) == few
    assert shards.read(few) == few
    assert not (tmp_path / "tables").exists()


def test_many_tables_show_the_worst_and_come_back_whole(tmp_path: Path) -> None:
    shards, many = TableShards(tmp_path / "tables"), status(10_000, failed=frozenset({9999}))
    shown = shards.write(many)
    assert len(shown.table_status) == SHOWN
    assert shown.table_status[-1].name == "shop.t09999"
    assert shown.tables == many.tables
    assert TableShards(tmp_path / "tables").read(shown) == many


def test_only_changed_shards_are_written_and_old_ones_removed(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    shards = TableShards(folder)
    shards.write(status(1200))
    before = {p.name: p.stat().st_ino for p in folder.iterdir()}
    shards.write(status(1200, failed=frozenset({3})))
    after = {p.name: p.stat().st_ino for p in folder.iterdir()}
    assert {n for n in before if before[n] != after[n]} == {"00000.json"}
    shards.write(status(600))
    assert sorted(p.name for p in folder.iterdir()) == ["00000.json", "00001.json"]
    shards.write(status(3))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_shards_that_are_not_the_status_own_count_as_lost(tmp_path: Path, damage: str) -> None:
    """R4: then the targets are asked."""
    folder = tmp_path / "tables"
    shown = TableShards(folder).write(status(1200))
    path = folder / "00001.json"
    path.unlink() if damage == "missing" else path.write_text("[")
    assert TableShards(folder).read(shown).table_status == ()
