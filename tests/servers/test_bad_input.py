"""Bad input by the command line: each has its exit code and its reason, says what to do, and loses
nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdcsync_core.runs.run import ExitCode
from cdcsync_spark.sinks.lake.layout import segment
from support.fixtures import FreshDatabase, FreshServer
from support.lake import rows_of
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLE = ("CREATE TABLE a (id INT PRIMARY KEY, word VARCHAR(20))", "INSERT INTO a VALUES (1, 'one'), (2, 'two')")


@pytest.fixture
def server(variant: str, request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(variant)
    return found


def refused(sync: Sync, reason: str, *words: str) -> None:
    """`run` ends with its exit code, the reason, a remedy and `words` in its message, and so does
    the status."""
    result = sync.command("run", "--until", "snapshot")
    assert result.returncode == ExitCode.USER_MUST_ACT, result.stderr
    for word in (reason, "remedy", *words):
        assert word in result.stderr
    stalled = next(c for c in sync.status()["conditions"] if c["type"] == "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", reason)


def one_table(server: Server, database: str, folder: Path, **options: Any) -> Sync:
    server.run(*TABLE, db=database)
    return Sync(server, [rf"{database}\.a"], folder, **options)


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    found = rows_of(table).select(["id", "word"]).sort_by("id").to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize(
    ("variant", "options", "reason", "setting"),
    [
        ("mariadb1011", {"skip-log-bin": True}, "BinlogDisabled", "log_bin"),
        ("mysql97_nogtid", {"binlog-row-image": "MINIMAL"}, "RowImageNotFull", "binlog_row_image = 'FULL'"),
        pytest.param(
            "mariadb1011",
            {"binlog-row-image": "MINIMAL"},
            "RowImageNotFull",
            "binlog_row_image = 'FULL'",
            marks=pytest.mark.long,
        ),
        pytest.param("mysql97_nogtid", {"skip-log-bin": True}, "BinlogDisabled", "log_bin", marks=pytest.mark.long),
    ],
)
def test_a_log_that_does_not_hold_all(
    variant: str, options: dict[str, Any], reason: str, setting: str, fresh_server: FreshServer, tmp_path: Path
) -> None:
    """R10."""
    server = fresh_server(variant, **options)
    with one_table(server, server.create_database(), tmp_path / "sync") as sync:
        refused(sync, reason, setting)


@pytest.mark.parametrize("variant", ["mariadb1011", pytest.param("mysql97_gtid", marks=pytest.mark.long)])
def test_an_unknown_table(server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    database = fresh_database(server)
    with one_table(server, database, tmp_path / "sync") as sync:
        sync.write_manifest(tables={"include": [rf"{database}\.b"]})
        refused(sync, "NoSuchTable", "spec.tables.include")


@pytest.mark.parametrize("variant", ["mariadb1011"])
def test_a_bad_pattern(server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """Refused before any connection: the manifest itself is wrong, so there is no status yet."""
    with one_table(server, fresh_database(server), tmp_path / "sync") as sync:
        for pattern in ("shop\\.(a", "shop\\.a(?=b)", ""):
            sync.write_manifest(tables={"include": [pattern]})
            result = sync.command("run")
            assert result.returncode == ExitCode.USAGE, pattern
            assert "spec.tables.include[0]" in result.stderr
            assert not sync.lake.exists()


HOSTILE = ["..", "a`b'\"c", "a/b\\c", "%2e\nx", "_delta_log", "-rf ä;*?"]


@pytest.mark.long
@pytest.mark.parametrize("variant", ["mysql97_gtid"])
def test_hostile_names(server: Server, tmp_path: Path) -> None:
    """Each is copied and followed, and nothing is written outside the lake."""
    database = "d`'\"../x"
    quoted = "`d``'\"../x`"
    server.run(f"DROP DATABASE IF EXISTS {quoted}", f"CREATE DATABASE {quoted} CHARACTER SET utf8mb4")
    tables = {name: "`" + name.replace("`", "``") + "`" for name in HOSTILE}
    for table in tables.values():
        server.run(
            f"CREATE TABLE {quoted}.{table} (`i``d'` INT PRIMARY KEY, `wo\"rd` VARCHAR(20))",
            f"INSERT INTO {quoted}.{table} VALUES (1, 'one'), (2, 'two')",
        )
    try:
        with Sync(server, [r"d`'\"\.\./x\.(?s:.*)"], tmp_path / "sync") as sync:
            sync.run_to_completion("snapshot")
            for table in tables.values():
                server.run(f"INSERT INTO {quoted}.{table} VALUES (3, 'three')", f"DELETE FROM {quoted}.{table} LIMIT 1")
            sync.run_to_completion()
            for name in tables:
                found = rows_of(DeltaTable(str(sync.lake / segment(database) / segment(name)))).to_pylist()
                ids = sorted((row["i`d'"], row['wo"rd']) for row in found)
                assert ids == [(2, "two"), (3, "three")], name
            assert {p.name for p in tmp_path.iterdir()} == {"sync"}
            assert {p.name for p in sync.lake.iterdir()} == {segment(database)}
    finally:
        server.run(f"DROP DATABASE {quoted}")


@pytest.mark.long
@pytest.mark.parametrize("variant", ["mariadb1011"])
def test_a_target_that_is_not_ours(server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """R8: another program's table, or files that are no table, stay as they are."""
    database = fresh_database(server)
    with one_table(server, database, tmp_path / "sync") as sync:
        theirs = sync.path(f"{database}.a")
        write_deltalake(str(theirs), pa.table({"id": [7], "word": ["theirs"]}))
        before = _files(theirs)
        refused(sync, "SinkConflict", f"{database}.a")
        assert _files(theirs) == before
        shutil.rmtree(theirs)
        theirs.mkdir()
        (theirs / "notes.txt").write_text("no table")
        refused(sync, "SinkConflict", f"{database}.a")
        assert _files(theirs) == ["notes.txt"]
        shutil.rmtree(theirs)
        sync.run_to_completion()
        assert rows(sync.delta(f"{database}.a")) == [(1, "one"), (2, "two")]


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.long
@pytest.mark.parametrize("variant", ["mariadb1011"])
def test_a_full_disk_at_the_target(server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """Retried with a reason, and right once there is room: in the snapshot, then in the stream."""
    database = fresh_database(server)
    lake = tmp_path / "sync" / "lake"
    lake.mkdir(parents=True)
    with one_table(server, database, tmp_path / "sync", within=_on_a_disk_of(lake, "200k")) as sync:
        server.run("ALTER TABLE a ADD noise VARBINARY(4000)", db=database)
        _noise(server, database, 100)
        sync.start("forever")
        _wait_full(sync)
        _resize(sync, lake, "2m")
        sync.wait_for(lambda s: s["phase"] == "Streaming")
        _noise(server, database, 1000)
        _wait_full(sync)
        server.run("INSERT INTO a (id, word) VALUES (100000, 'last')", db=database)
        _resize(sync, lake, "100m")
        sync.wait_until(lambda: (100000, "last") in _rows_inside(sync, f"{database}.a"), "the last row")
        wanted = list(server.query("SELECT id, word FROM a ORDER BY id", db=database))
        assert _rows_inside(sync, f"{database}.a") == wanted
        assert sync.terminate() == ExitCode.DONE


def _noise(server: Server, database: str, count: int) -> None:
    """`count` more rows of 4000 bytes that no codec shortens much."""
    blob = "CONCAT(" + ", ".join(["RANDOM_BYTES(1000)"] * 4) + ")"
    server.run(
        f"INSERT INTO a (word, id, noise) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        f" SELECT 'noise', (SELECT MAX(id) FROM a) + i, {blob} FROM n",
        db=database,
    )


def _wait_full(sync: Sync) -> None:
    """Until the program has reported it once more."""
    before = _warnings(sync)
    sync.wait_until(lambda: _warnings(sync) > before, "a warning of the full disk")


def _warnings(sync: Sync) -> int:
    lines = sync.output(1).read_text(encoding="utf-8").splitlines()
    return sum("SinkUnreachable" in line and "remedy: free space" in line for line in lines)


def _on_a_disk_of(folder: Path, size: str) -> Sequence[str]:
    """A command that runs another with a small disk at `folder`, which no other program sees."""
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    return [*alone, "sh", "-c", f'mount -t tmpfs -o size={size} disk "{folder}" && exec "$@"', "sh"]


def _rows_inside(sync: Sync, table: str) -> list[tuple[Any, ...]]:
    """The table as the processes of `sync` see it: a copy, log first, because a reader would leave
    their mount again."""
    inside = Path(f"/proc/{sync.controller.pid}/root{sync.path(table)}")
    seen = sync.folder / "seen"
    shutil.rmtree(seen, ignore_errors=True)
    shutil.copytree(inside / "_delta_log", seen / "_delta_log")
    shutil.copytree(inside, seen, dirs_exist_ok=True, ignore=shutil.ignore_patterns("_delta_log"))
    return rows(DeltaTable(str(seen)))


def _resize(sync: Sync, folder: Path, size: str) -> None:
    inside = ["nsenter", "--target", str(sync.controller.pid), "--mount", *([] if os.geteuid() == 0 else ["--user"])]
    subprocess.run([*inside, "mount", "-o", f"remount,size={size}", str(folder)], check=True)


@pytest.mark.long
@pytest.mark.parametrize("variant", ["mysql97_gtid"])
def test_a_server_that_dies_and_returns(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """In the stream: retried with a reason; what was written before and after is there."""
    server = fresh_server(variant)
    database = server.create_database()
    with one_table(server, database, tmp_path / "sync") as sync:
        sync.start("forever")
        sync.wait_for(lambda s: s.get("phase") == "Streaming")
        server.run("INSERT INTO a VALUES (3, 'three')", db=database)
        server.kill()
        sync.wait_for(lambda s: s.get("restarts", {}).get("reason") == "SourceUnreachable")
        server.start()
        server.run("INSERT INTO a VALUES (4, 'four')", db=database)
        sync.wait_until(lambda: len(rows(sync.delta(f"{database}.a"))) == 4, "the fourth row")
        assert sync.terminate() == ExitCode.DONE
