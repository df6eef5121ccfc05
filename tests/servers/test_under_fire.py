"""Many tables broken in every way that is known, beside good ones: the good ones are equal, and the
status names each broken one with the server's words (R5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import broken_tables
from support.fixtures import FreshServer, variants
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


def _fill(server: Server, count: int) -> None:
    """Tables that are copied, one with a default that is no text."""
    for number in range(1, count + 1):
        server.run(
            f"CREATE TABLE ok_{number:03d} (id INT PRIMARY KEY, flags BINARY(4) NOT NULL DEFAULT x'00ff00ff')",
            f"INSERT INTO ok_{number:03d} (id) VALUES (1), (2), (3)",
            db="fire",
        )


def _burn(server: Server, folder: Path, good: int, *, files: bool) -> None:
    server.run("CREATE DATABASE fire")
    _fill(server, good)
    named = broken_tables.of(server, files=files)
    broken_tables.make(server, "fire", named)
    if files:
        server.stop()
        broken_tables.damage_files(server, "fire", named)
        server.start()
    spec = {"snapshot": {"chunkSize": 50}}
    with Sync(server, [r"fire\..*"], folder, spec=spec) as sync:
        sync.start()
        status = sync.wait_for(
            lambda s: s.get("tables", {}).get("streaming") == good and s["tables"].get("failed") == len(named),
            timeout=1200,
        )
        entries = {t["name"]: t for t in status["tableStatus"]}
        wrong = {
            b.name: (e["phase"], e.get("reason"), e.get("message"))
            for b in named
            if (e := entries[f"fire.{b.name}"])["phase"] != "Failed"
            or e.get("reason") != b.reason
            or b.words not in e.get("message", "")
        }
        assert not wrong
        server.run("UPDATE ok_001 SET flags = x'ffffffff' WHERE id = 2", db="fire")
        sync.wait_until(lambda: sync.target("fire.ok_001")["flags"].to_pylist().count(b"\xff" * 4) == 1, "the change")
        for number in range(1, good + 1):
            name = f"ok_{number:03d}"
            rows = sorted(zip(*sync.target(f"fire.{name}").select(["id", "flags"]).to_pydict().values(), strict=True))
            assert rows == server.query(f"SELECT id, flags FROM {name} ORDER BY id", db="fire"), name


@variants("mariadb1011", "mysql97_gtid")
def test_broken_tables_stop_no_other(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    _burn(fresh_server(variant), tmp_path / "sync", 5, files=False)


@pytest.mark.long
@variants("mariadb1011", "mysql97_gtid")
def test_broken_files_and_tables_stop_none_of_160(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    _burn(fresh_server(variant), tmp_path / "sync", 160, files=True)
