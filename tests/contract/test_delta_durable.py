"""What a later entry builds on is on the disk before it, whichever program wrote it: a machine may
lose its power at any moment."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable, write_deltalake

from cdcsync_spark.sinks.contract.changes import Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.replica import maintenance as delta_maintenance
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta.table.view import actions_of
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import ORDERS, SYNC, batch, keys_of, rows_of, stage, whole_snapshot


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(open_store(str(tmp_path / "lake")), SYNC)


@pytest.fixture
def orders(sink: DeltaSink) -> DeltaTarget:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, [(1, "a"), (2, "b")])
    return target


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Files and folders that were made durable; the links of `/proc` say which file a descriptor
    is."""
    synced: set[Path] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return synced


def log_of(target: DeltaTarget) -> Path:
    return Path(target.uri, "_delta_log")


def named(entry: Path) -> set[Path]:
    """The entry, the files that it adds, and the folders with their names."""
    table = entry.parent.parent
    adds = (a["add"] for a in actions_of(entry.read_text()) if "add" in a)
    files = {entry, *(table / unquote(add["path"]) for add in adds)}
    return files | {file.parent for file in files} | {table}


def test_what_delta_rs_commits_is_durable(sink: DeltaSink, orders: DeltaTarget, durable: set[Path]) -> None:
    DeltaTable(orders.uri).alter.add_constraint({"positive": "id > 0"})
    known = set(log_of(orders).iterdir())
    orders.commit(1, batch(1, Upsert(rows_of(ORDERS, [(1, "z")]), keys_of(ORDERS, []))))
    orders.commit(1, batch(2, Upsert(rows_of(ORDERS, []), keys_of(ORDERS, [(7,)]))))
    orders.commit(1, batch(3, stage(orders, ORDERS, [(3, "c")])))
    side = sink.target(ORDERS.id, generation=1)
    fresh, files = whole_snapshot(side, [(4, "d")]), side.staged()
    orders.commit(
        1,
        lambda found: Commit(
            replace(fresh, commit_number=found.commit_number + 1, resnapshot_nonce=1, generation=1), Replace(files)
        ),
    )
    entries = set(log_of(orders).iterdir()) - known
    assert len(entries) == 4
    assert all("delta-rs" in entry.read_text() for entry in entries)
    assert set().union(*map(named, entries)) <= durable


def test_so_are_the_folders_of_partitions(orders: DeltaTarget, durable: set[Path]) -> None:
    new = {"mode": "overwrite", "schema_mode": "overwrite", "partition_by": ["note"]}
    write_deltalake(orders.uri, rows_of(ORDERS, [(1, "a")]), **new)  # type: ignore[call-overload]
    orders.commit(1, batch(1, Upsert(rows_of(ORDERS, [(2, "new folder")]), keys_of(ORDERS, []))))
    newest = max(log_of(orders).glob("*.json"))
    assert any("new%20folder" in str(path) for path in named(newest))
    assert named(newest) <= durable


def test_so_is_a_checkpoint(orders: DeltaTarget, durable: set[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Made in this process, whose calls are noted."""
    monkeypatch.setattr(delta_maintenance, "in_own_process", lambda function, *arguments: function(*arguments))
    view = orders.path.view()
    assert view is not None
    durable.clear()
    delta_maintenance.checkpoint(orders.path, view)
    written = {*log_of(orders).glob("*.checkpoint.parquet"), log_of(orders) / "_last_checkpoint"}
    assert len(written) == 2
    assert {*written, log_of(orders)} <= durable
