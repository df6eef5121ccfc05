"""What the processes of a stream at rest have not loaded: libraries of many MiB that other work
needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from contract.stores import ACCESS_KEY, REGION, SECRET_KEY, s3_server
from support.fixtures import FreshDatabase
from support.lake import rows_of
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
#: a part of the path of each library's code
_ABSENT = {
    "driver": ("/deltalake/", "/arro3/", "/obstore/", "/pandas/"),
    "controller": ("/obstore/", "/pyarrow/", "/numpy/"),
}


@pytest.mark.long
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


@pytest.mark.long
def test_a_checkpoint_is_made_in_a_process_that_ends(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", spec={"stream": {"interval": "0.1s"}}) as sync:
        sync.start()
        sync.wait_for(_streaming)
        count = _insert_until(
            mariadb1011,
            database,
            lambda: sync.path(f"{database}.t").joinpath("_delta_log", "_last_checkpoint").exists(),
        )
        sync.wait_until(lambda: sync.target(f"{database}.t").num_rows == count, "all rows are in the target")
        sync.wait_until(lambda: not sync.processes("calls"), "the process of the checkpoint has ended")
        (driver,) = sync.processes("driver")
        assert [path for path in _loaded(driver) if "/deltalake/" in path] == []


@pytest.mark.long
def test_so_is_one_in_a_bucket(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with s3_server(tmp_path) as store:
        store.make_bucket("lake")
        sink = {"path": "s3://lake/cdc", "options": {"endpoint": store.endpoint, "region": REGION}}
        spec = {"sink": {"delta": sink}, "stream": {"interval": "0.1s"}}
        options = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION}
        with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync", spec=spec) as sync:
            sync.start()
            sync.wait_for(_streaming)
            made = ("PUT", f"/cdc/{database}/t/_delta_log/_last_checkpoint")
            count = _insert_until(mariadb1011, database, lambda: made in store.requests("lake"))
            uri = f"{sink['path']}/{database}/t"
            sync.wait_until(
                lambda: rows_of(DeltaTable(uri, storage_options=options)).num_rows == count,
                "all rows are in the target",
            )


def _insert_until(server: Server, database: str, done: Callable[[], bool]) -> int:
    """A transaction for each row, slower than the interval; how many there were."""
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        for number in range(1, 600):
            cursor.execute("INSERT INTO t VALUES (%s)", (number,))
            time.sleep(0.12)
            if number % 10 == 0 and done():
                return number
    raise AssertionError("no checkpoint")


_AFTER = [{"id": 1, "v": 1}, {"id": 2, "v": 20}]


def _streaming(status: dict[str, Any]) -> bool:
    return bool(status.get("tables", {}).get("streaming") == 1)


def _loaded(process: psutil.Process) -> list[str]:
    return [mapped.path for mapped in process.memory_maps() if ".so" in mapped.path]
