"""The small files that a snapshot leaves in a Delta table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.fixtures import FreshDatabase, usually_on
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_SPLITS = {"snapshot": {"chunkSize": 100, "parallelism": 2}}


def _sync(server: Server, database: str, folder: Path, **snapshot: Any) -> Sync:
    server.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v CHAR(20))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, 1)' for n in range(2000))}",
        db=database,
    )
    return Sync(server, [rf"{database}\..*"], folder, spec={"snapshot": _SPLITS["snapshot"] | snapshot})


def _files(sync: Sync, database: str) -> int:
    return len(DeltaTable(str(sync.lake / database / "t")).file_uris())


@pytest.mark.long
@usually_on("mariadb1011")
def test_the_stream_gathers_the_files_of_the_snapshot(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Also of a table without a change, once something is written anywhere."""
    database = fresh_database(any_server)
    with _sync(any_server, database, tmp_path) as sync:
        sync.run_to_completion("snapshot")
        assert _files(sync, database) >= 20
        sync.start("forever")
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 1)
        any_server.run("CREATE TABLE other (id INT)", db=database)
        sync.wait_until(lambda: _files(sync, database) < 5, "the files are gathered")
        assert sync.target(f"{database}.t").num_rows == 2000


@usually_on()
def test_a_snapshot_that_no_stream_follows_gathers_its_own_files(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(any_server)
    with _sync(any_server, database, tmp_path, only=True) as sync:
        sync.run_to_completion("snapshot")
        assert _files(sync, database) < 10
