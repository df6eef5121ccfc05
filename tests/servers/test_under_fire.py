"""Many tables broken in every way that is known, beside good ones: the good ones are equal, and the
status names each broken one with the server's words (R5)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import broken_tables
from support.broken_tables import Broken
from support.fixtures import FreshServer, variants
from support.locks import locked, locked_for_ddl
from support.servers import Server
from support.sync_process import Sync
from support.table_status import entry

#: the table that breaks while it streams
_LATE = 4
#: tables that other sessions lock, each half of them in its way
_LOCKED = 20

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


def _fill(server: Server, count: int) -> None:
    """Tables that are copied, one with a default that is no text."""
    for number in range(1, count + 1):
        server.run(
            f"CREATE TABLE ok_{number:03d} (id INT PRIMARY KEY, flags BINARY(4) NOT NULL DEFAULT x'00ff00ff')",
            f"INSERT INTO ok_{number:03d} (id) VALUES (1), (2), (3)",
            db="fire",
        )


def _burn(server: Server, folder: Path, good: int, *, whole: bool) -> None:
    """`whole`: also damaged files, forty tables, locked ones beside them, and one that breaks while
    it streams."""
    server.run("CREATE DATABASE fire")
    _fill(server, good)
    held = _held(server) if whole else []
    broken = broken_tables.of(server, files=whole, count=40 if whole else 0)
    broken_tables.make(server, "fire", broken)
    if whole:
        server.stop()
        broken_tables.damage_files(server, "fire", broken)
        server.start()
    spec = {"snapshot": {"chunkSize": 50}}
    with Sync(server, [r"fire\..*"], folder, spec=spec) as sync, ExitStack() as locks:
        for lock, some in ((locked, held[::2]), (locked_for_ddl, held[1::2])) if whole else ():
            locks.enter_context(lock(server, "fire", [b.name for b in some]))
        sync.start()
        status = sync.wait_for(lambda s: _counts(s) == (good, len(broken) + len(held)), timeout=1200)
        assert not _wrongly_named(status, [*broken, *held])
        if whole:
            locks.close()
            good += len(held)
            sync.wait_for(lambda s: _counts(s) == (good, len(broken)), timeout=1200)
            _break_one_more(sync)
            sync.wait_for(lambda s: _counts(s) == (good - 1, len(broken) + 1), timeout=1200)
        server.run("UPDATE fire.ok_001 SET flags = x'ffffffff' WHERE id = 2")
        filled = [f"ok_{number:03d}" for number in range(1, good - len(held) + 1) if not whole or number != _LATE]
        _assert_equal(sync, [*filled, *(b.name for b in held)])


def _held(server: Server) -> list[Broken]:
    """Tables that are good but for a lock."""
    held = [Broken(f"held_{number:02d}", (), "TableBusy", "exceeded") for number in range(_LOCKED)]
    for table in held:
        server.run(
            f"CREATE TABLE {table.name} (id INT PRIMARY KEY)", f"INSERT INTO {table.name} VALUES (1), (2)", db="fire"
        )
    return held


def _counts(status: dict[str, Any]) -> tuple[int, int]:
    """Tables that stream, and that failed."""
    tables = status.get("tables", {})
    return int(tables.get("streaming", 0)), int(tables.get("failed", 0))


def _wrongly_named(status: dict[str, Any], broken: list[Broken]) -> dict[str, tuple[str, ...]]:
    found = {b.name: entry(status, f"fire.{b.name}") for b in broken}
    return {
        b.name: (e["phase"], e.get("reason", ""), e.get("message", ""))
        for b in broken
        if (e := found[b.name])["phase"] != "Failed" or e["reason"] != b.reason or b.words not in e["message"]
    }


def _break_one_more(sync: Sync) -> None:
    """While the others stream; a resnapshot that waits beside it gets through."""
    late, again = f"fire.ok_{_LATE:03d}", "fire.ok_003"
    sync.server.run(
        f"ALTER TABLE {late} DISCARD TABLESPACE",
        "ALTER TABLE fire.ok_002 ADD b BINARY(2) NOT NULL DEFAULT x'ff00'",
        "INSERT INTO fire.ok_002 (id) VALUES (9)",
    )
    sync.write_manifest(resnapshot=[{"table": late, "nonce": 1}, {"table": again, "nonce": 1}])
    seen = sync.wait_for(
        lambda s: (
            entry(s, again).get("nonce") == 1
            and entry(s, again)["phase"] == "Streaming"
            and entry(s, late).get("reason") == "TableUnreadable"
        ),
        timeout=1200,
    )
    assert "1814" in entry(seen, late)["message"]


def _assert_equal(sync: Sync, names: list[str]) -> None:
    for name in names:
        columns = [str(c[0]) for c in sync.server.query(f"SHOW COLUMNS FROM fire.{name}")]
        rows = sync.server.query(f"SELECT * FROM fire.{name} ORDER BY id")

        def equal(name: str = name, columns: list[str] = columns, rows: list[tuple[Any, ...]] = rows) -> bool:
            target = sync.target(f"fire.{name}")
            if not set(columns) <= set(target.column_names):
                return False
            return sorted(zip(*target.select(columns).to_pydict().values(), strict=True)) == rows

        sync.wait_until(equal, f"{name} as it is on the source")


@pytest.mark.long
@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_broken_tables_stop_no_other(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    _burn(fresh_server(variant), tmp_path / "sync", 5, whole=False)


@pytest.mark.long
@variants("mariadb1011", "mysql97_gtid")
def test_forty_broken_tables_stop_none_of_160(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    _burn(fresh_server(variant), tmp_path / "sync", 160 - _LOCKED, whole=True)
