"""What the processes of a stream at rest have not loaded: libraries of many MiB that other work
needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
#: a part of the path of each library's code
_ABSENT = {
    "driver": ("/deltalake/", "/arro3/", "/obstore/", "/pandas/", "libarrow_s3"),
    "controller": ("/obstore/", "/pyarrow/", "/numpy/"),
}


def test_a_stream_of_existing_tables_loads_neither_delta_rs_nor_pandas(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Through a batch that changes and deletes rows, too."""
    database = fresh_database(mariadb1011)
    mariadb1011.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)", db=database
    )
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync") as sync:
        sync.run_to_completion("caught-up")
        sync.start()
        sync.wait_for(_streaming)
        mariadb1011.run("UPDATE t SET v = 20 WHERE id = 2", "DELETE FROM t WHERE id = 3", db=database)
        table = f"{database}.t"
        sync.wait_until(lambda: sync.target(table).sort_by("id").to_pylist() == _AFTER, "the change is in the target")
        for part, libraries in _ABSENT.items():
            (process,) = sync.processes(part)  # type: ignore[arg-type]
            assert [path for path in _loaded(process) if any(name in path for name in libraries)] == [], part


_AFTER = [{"id": 1, "v": 1}, {"id": 2, "v": 20}]


def _streaming(status: dict[str, Any]) -> bool:
    return bool(status.get("tables", {}).get("streaming") == 1)


def _loaded(process: psutil.Process) -> list[str]:
    return [mapped.path for mapped in process.memory_maps() if ".so" in mapped.path]
