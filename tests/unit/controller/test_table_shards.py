"""A status of ten thousand tables is a small document and its shards (R7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status, only_tables
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.reconcile.table_shards import BYTES, SHOWN, SHOWN_OF_MORE, SIZE, TableShards

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
    assert len(shown.table_status) == SHOWN_OF_MORE
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


def long_lived(count: int, servers: int) -> Status:
    """As of a source whose GTID set names many servers, in the low watermark and in the position of
    each table."""
    gtids = ",".join(f"{i:08x}-71ab-11ee-9ab2-0242ac120002:1-{123456789 + i}" for i in range(servers))
    at = StatusPosition.model_validate(PLACE | {"gtidSet": gtids})
    return only_tables(Status(), [t.model_copy(update={"low": at, "position": at}) for t in status(count).table_status])


@pytest.mark.parametrize(("count", "servers"), [(2000, 16), (700, 100), (150, 60), (150, 400)])
def test_no_document_is_larger_than_an_api_server_takes(tmp_path: Path, count: int, servers: int) -> None:
    shards, many = TableShards(tmp_path / "tables"), long_lived(count, servers)
    shown = shards.write(many)
    assert len(json.dumps([t.model_dump(by_alias=True, mode="json") for t in shown.table_status])) <= BYTES
    assert 0 < len(shown.table_status) < min(count, SHOWN + 1)
    assert all(p.stat().st_size <= BYTES for p in (tmp_path / "tables").iterdir())
    assert TableShards(tmp_path / "tables").read(shown) == many


def test_shards_of_ordinary_tables_hold_so_many_of_them(tmp_path: Path) -> None:
    TableShards(tmp_path / "tables").write(status(2 * SIZE))
    assert len(list((tmp_path / "tables").iterdir())) == 2


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_shards_that_are_not_the_status_own_count_as_lost(tmp_path: Path, damage: str) -> None:
    """R4: then the targets are asked."""
    folder = tmp_path / "tables"
    shown = TableShards(folder).write(status(1200))
    path = folder / "00001.json"
    path.unlink() if damage == "missing" else path.write_text("[")
    assert TableShards(folder).read(shown).table_status == ()


def test_shards_of_as_many_tables_that_are_others_count_as_lost(tmp_path: Path) -> None:
    """One table came and one went; the program died after the first shard was written."""
    folder, before = tmp_path / "tables", status(1200)
    shown = TableShards(folder).write(before)
    second = (folder / "00001.json").read_text()
    came = TableStatus(name="shop.a", phase=TablePhase.STREAMING)
    TableShards(folder).write(only_tables(Status(), (came, *before.table_status[:-1])))
    (folder / "00001.json").write_text(second)
    assert TableShards(folder).read(shown).table_status == ()
