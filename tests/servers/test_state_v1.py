"""A lake and a state folder of the version with state 1 go on where they were (R4): nothing is
reread, and the rows are the source's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import state_v1
from support.fixtures import FreshServer
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
COLUMNS = {
    "shop.orders": ["id", "word", "at", "amount"],
    "shop.items": ["word", "number", "kind"],
    "shop.idle": ["id", "doc", "code"],
    "half.numbers": ["id", "word"],
}


def assert_equal(sync: Sync, table: str) -> None:
    names = COLUMNS[table]
    target = sync.target(table).select(names)
    assert target.column_names == names
    source = sync.server.query(f"SELECT {', '.join(names)} FROM {table}")
    found = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in source]).cast(target.schema)
    keys = [(name, "ascending") for name in names[:2]]
    assert target.sort_by(keys).equals(found.sort_by(keys))


def states(sync: Sync, table: str) -> list[dict[str, Any]]:
    """The state of each own commit, oldest first."""
    entries = sorted((sync.path(table) / "_delta_log").glob("*.json"))
    lines = [json.loads(entry.read_text(encoding="utf-8").splitlines()[0]) for entry in entries]
    return [json.loads(line["commitInfo"]["cdcsync"]) for line in lines if "cdcsync" in line.get("commitInfo", {})]


@pytest.fixture
def source(fresh_server: FreshServer) -> Server:
    server = fresh_server("mariadb1011", server_id=state_v1.SERVER_ID)
    state_v1.become_the_source(server)
    return server


def resumed(source: Server, name: str, folder: Path, spec: dict[str, Any]) -> Sync:
    state_v1.extract(name, folder)
    return Sync(source, [rf"{name}\..*"], folder, name, spec)


@pytest.mark.parametrize(
    "with_status", [True, pytest.param(False, marks=pytest.mark.long)], ids=["with-status", "lake-only"]
)
def test_a_sync_that_streamed_goes_on(source: Server, tmp_path: Path, with_status: bool) -> None:
    exclude = {"overrides": [{"table": "shop.items", "columns": {"exclude": ["secret"]}}]}
    with resumed(source, "shop", tmp_path / "shop", {"tables": exclude}) as sync:
        if not with_status:
            sync.state_file.unlink()
        source.run(*state_v1.statements("changes for the next version"))
        sync.run_to_completion()
        for table in ("shop.orders", "shop.items", "shop.idle"):
            assert_equal(sync, table)
            recorded, *_, newest = states(sync, table)[2:]
            assert recorded["v"] == 1
            assert [newest[k] for k in ("splits", "rows", "nonce", "finished")] == [
                recorded[k] for k in ("splits", "rows", "nonce", "finished")
            ], "the snapshot is the previous one"
            assert newest["epoch"] > recorded["epoch"]


def test_a_snapshot_that_was_killed_goes_on(source: Server, tmp_path: Path) -> None:
    spec = {"snapshot": {"chunkSize": 20, "parallelism": 1}}
    with resumed(source, "half", tmp_path / "half", spec) as sync:
        source.run(*state_v1.statements("changes for the next version"))
        sync.run_to_completion()
        assert_equal(sync, "half.numbers")
        _, recorded, *_, newest = states(sync, "half.numbers")
        assert (recorded["v"], recorded["splits"], recorded["rows"]) == (1, 2, 40)
        assert newest["splits"] > 2
        assert newest["low"] == recorded["low"], "the LOW of the splits that were read before counts"
