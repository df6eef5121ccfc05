"""A verification knows how far each table of a large sync is, and takes no table of a newer status
for one of an older position."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdcsync_core.positions.position import LogOffset
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import RunRef, Runs, Status, only_tables
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.reconcile.table_shards import SHOWN_OF_MORE, TableShards
from cdcsync_spark.verify import sync_status
from cdcsync_spark.verify.sync_status import RecentStatus, read_status

MANY = 1200
LAST = f"shop.t{MANY - 1:04d}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(sync_status, "_PAUSE", 0.0)
    folder = StateFolder(tmp_path, "default", "shop.eu")
    folder.create()
    return folder


def place(offset: int) -> StatusPosition:
    return StatusPosition(file="binlog.000001", offset=offset)


def status(offset: int, *, joined: bool = True) -> Status:
    """The stream's reader is at `offset`, and all tables have joined it, or all but the last."""
    tables = [
        TableStatus(name=f"shop.t{i:04d}", phase=TablePhase.STREAMING, run="s-1", position=place(4))
        for i in range(MANY)
    ]
    if not joined:
        tables[-1] = tables[-1].model_copy(update={"phase": TablePhase.CATCHING_UP, "run": "c-1"})
    stream = Runs().put(RunKind.STREAM, RunRef(id="s-1", epoch=1))
    return only_tables(Status(runs=stream, position=place(offset)), tables)


def write(folder: StateFolder, shown: Status) -> None:
    folder.state_file.write_text(json.dumps({"status": shown.to_dict()}))


def has_passed(read: Status, table: str, offset: int) -> bool:
    entry = read.table(table)
    return entry is not None and read.has_reached(entry, LogOffset("binlog.000001", offset))


def test_tables_beyond_those_that_a_status_shows_are_read_from_its_shards(folder: StateFolder) -> None:
    shown = TableShards(folder.table_shards).write(status(77))
    write(folder, shown)
    assert len(shown.table_status) == SHOWN_OF_MORE
    read = read_status(folder.state_file)
    assert read.table_status == status(77).table_status
    assert all(has_passed(read, t.name, 77) for t in read.table_status)


def test_shards_of_the_next_status_are_not_taken_with_this_one(folder: StateFolder) -> None:
    """The last table joins the stream at 50, below what the reader of before had reported."""
    shards = TableShards(folder.table_shards)
    write(folder, shards.write(status(77, joined=False)))
    assert not has_passed(read_status(folder.state_file), LAST, 77)
    newer = shards.write(status(50))
    between = read_status(folder.state_file)
    assert len(between.table_status) == SHOWN_OF_MORE
    assert not has_passed(between, LAST, 77)
    write(folder, newer)
    assert has_passed(read_status(folder.state_file), LAST, 50)
    assert not has_passed(read_status(folder.state_file), LAST, 77)


@pytest.mark.parametrize("damage", ["missing", "broken", "another one's"])
def test_shards_that_are_not_the_status_own_say_nothing(folder: StateFolder, damage: str) -> None:
    write(folder, TableShards(folder.table_shards).write(status(77)))
    shard = folder.table_shards / "00001.json"
    texts = {"broken": "[", "another one's": '[{"name": "shop.t0500", "phase": "Streaming", "run": "s-1"}]'}
    shard.unlink() if damage == "missing" else shard.write_text(texts[damage])
    assert len(read_status(folder.state_file).table_status) == SHOWN_OF_MORE


def test_shards_that_are_left_behind_do_no_harm(folder: StateFolder) -> None:
    write(folder, TableShards(folder.table_shards).write(status(77)))
    (folder.table_shards / "00003.json").write_text("[]")
    assert len(read_status(folder.state_file).table_status) == MANY


def test_a_large_status_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, now = [], [100.0]
    large = status(77).with_(table_digest="d")

    def load() -> Status:
        reads.append(now[0])
        return large

    monkeypatch.setattr(sync_status.time, "monotonic", lambda: now[0])
    recent = RecentStatus(load)
    for now[0] in (100.0, 101.0, 103.9, 104.0):
        assert recent.read() is large
    assert reads == [100.0, 104.0]
