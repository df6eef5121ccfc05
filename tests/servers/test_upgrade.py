"""A lake and a state folder of an earlier release go on where they were (R4): no rows are
copied a second time, and the rows are the source's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import earlier_release
from support.fixtures import FreshServer
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]
COLUMNS = {
    "shop.orders": ["id", "word", "at", "amount", "note"],
    "shop.items": ["word", "number", "kind"],
    "shop.idle": ["id", "doc", "code"],
}
NUMBERS = "half.numbers"
SHOP = {"tables": {"overrides": [{"table": "shop.items", "columns": {"exclude": ["secret"]}}]}}


def assert_equal(sync: Sync, table: str, names: list[str]) -> None:
    target = sync.target(table).select(names)
    source = sync.server.query(f"SELECT {', '.join(names)} FROM {table}")
    rows = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in source]).cast(target.schema)
    keys = [(name, "ascending") for name in names[:2]]
    assert target.sort_by(keys).equals(rows.sort_by(keys))


def states(sync: Sync, table: str) -> list[dict[str, Any]]:
    """The state of each own commit, oldest first."""
    entries = sorted((sync.path(table) / "_delta_log").glob("*.json"))
    lines = [json.loads(entry.read_text(encoding="utf-8").splitlines()[0]) for entry in entries]
    return [json.loads(line["commitInfo"]["cdcsync"]) for line in lines if "cdcsync" in line.get("commitInfo", {})]


@pytest.fixture
def source(fresh_server: FreshServer) -> Server:
    server = fresh_server("mariadb1011", server_id=earlier_release.SERVER_ID)
    earlier_release.become_the_source(server)
    return server


def test_a_sync_that_streamed_goes_on(source: Server, tmp_path: Path) -> None:
    earlier_release.extract("shop", tmp_path / "shop")
    with Sync(source, [r"shop\..*"], tmp_path / "shop", "shop", SHOP) as sync:
        before = {table: states(sync, table)[-1] for table in COLUMNS}
        source.run(*earlier_release.statements("changes for the next release"))
        sync.run_to_completion()
        for table, recorded in before.items():
            assert_equal(sync, table, COLUMNS[table])
            newest = states(sync, table)[-1]
            assert [newest[k] for k in ("splits", "rows", "nonce", "generation", "finished")] == [
                recorded[k] for k in ("splits", "rows", "nonce", "generation", "finished")
            ], "the snapshot is the one of then"
            assert newest["epoch"] > recorded["epoch"]


def test_a_snapshot_that_was_killed_goes_on(source: Server, tmp_path: Path) -> None:
    """Its first split was committed by the earlier release, and its rows have changed since."""
    earlier_release.extract("half", tmp_path / "half")
    with Sync(source, [r"half\..*"], tmp_path / "half", "half") as sync:
        (recorded,) = states(sync, NUMBERS)[-1:]
        assert (recorded["position"], recorded["finished"]) == (None, [{"start": None, "end": [121]}])
        source.run(*earlier_release.statements("changes for the next release"))
        sync.run_to_completion(timeout=1200)
        assert_equal(sync, NUMBERS, ["id", "word"])
        newest = states(sync, NUMBERS)[-1]
        begun = [[state[k] for k in ("low", "nonce", "generation")] for state in (recorded, newest)]
        assert begun[0] == begun[1], "the snapshot is the one of then"
        assert newest["rows"] == recorded["rows"] + len(source.query(f"SELECT 1 FROM {NUMBERS} WHERE id > 121"))
