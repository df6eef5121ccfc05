"""The sink is checked before anything is started: by `cdcsync check`, and by `cdcsync run`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdcsync_core.runs.run import ExitCode
from contract.stores import ACCESS_KEY, REGION, SECRET_KEY, S3Server, s3_server
from support.fixtures import FreshDatabase
from support.lake import rows_of
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with s3_server(tmp_path) as server:
        yield server


@pytest.mark.long
def test_a_missing_bucket_is_named_before_a_driver_starts_and_made_good(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path, store: S3Server
) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    server.run("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1), (2)", db=database)
    sink = {"path": "s3://late/cdc", "options": {"endpoint": store.endpoint, "region": REGION}}
    with Sync(server, [rf"{database}\.a"], tmp_path / "sync", spec={"sink": {"delta": sink}}) as sync:
        checked = _check(sync)
        assert checked.returncode == ExitCode.USER_MUST_ACT
        (found,) = json.loads(checked.stdout)["sink"]["checks"]
        assert (found["level"], found["reason"]) == ("fail", "NoSuchBucket")
        ran = sync.command("run", "--until", "snapshot")
        assert ran.returncode == ExitCode.USER_MUST_ACT, ran.stderr
        assert "NoSuchBucket" in ran.stderr
        assert "create the bucket" in ran.stderr
        assert "Debug" not in ran.stderr
        conditions = {c["type"]: (c["status"], c["reason"]) for c in sync.status()["conditions"]}
        assert conditions["SinkReady"] == ("False", "NoSuchBucket")
        assert conditions["SourceReady"] == ("True", "PreflightPassed")
        assert not list(sync.state_dir.glob("*/logs/*")), "a driver was started"
        store.make_bucket("late")
        sync.run_to_completion()
        assert _check(sync).returncode == ExitCode.DONE
        assert _ids(sink["path"] + f"/{database}/a", store) == [1, 2]


def _check(sync: Sync) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cdcsync_operator", "check", "-f", str(sync.manifest), "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _ids(uri: str, store: S3Server) -> list[Any]:
    options = {
        "AWS_ENDPOINT_URL": store.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
    }
    return sorted(rows_of(DeltaTable(uri, storage_options=options)).column("id").to_pylist())
