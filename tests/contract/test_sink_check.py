"""The check of a sink before any pod is made: each thing that a commit needs, on a disk and on a
store with rights."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest

from cdcsync_core.errors import Reason
from cdcsync_lake.check import check_lake
from cdcsync_lake.location import Location
from cdcsync_lake.probe import PROBES
from contract.stores import ACCESS_KEY, REGION, SECRET_KEY, GuardedServer, S3Server, guarded_server

ALL = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject")


def objects(store: Location) -> list[str]:
    client = obstore.store.S3Store(store.bucket, config=store.store_config())
    return [o["path"] for part in obstore.list(client) for o in part]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    with guarded_server(tmp_path_factory.mktemp("guarded")) as server:
        yield server


def test_a_bucket_that_takes_commits_is_ready_and_keeps_nothing_of_the_check(s3: S3Server, tmp_path: Path) -> None:
    s3.make_bucket("ready")
    store = s3.store("ready", tmp_path).location
    assert check_lake(store).errors == ()
    assert objects(store) == []


def test_a_missing_bucket_is_no_store_that_does_not_answer(s3: S3Server, tmp_path: Path) -> None:
    (error,) = check_lake(s3.store("nowhere", tmp_path).location).errors
    assert error.reason is Reason.NO_SUCH_BUCKET
    assert not error.reason.retried
    assert error.found == ('listing in s3://nowhere/cdc failed: "NoSuchBucket"')
    assert "create the bucket" in error.remedy


def test_a_store_that_is_gone_is_retried_and_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        for name, value in (("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)):
            (tmp_path / name).write_text(value)
        (error,) = check_lake(Location.parse("s3://lake/cdc", endpoint, REGION, str(tmp_path))).errors
    assert error.reason is Reason.SINK_UNREACHABLE
    assert "Connection refused" in error.found
    assert "Debug" not in error.message
    assert "\n" not in error.message
    assert len(error.message) < 600


@pytest.mark.parametrize(
    ("missing", "doing"),
    [
        ("s3:ListBucket", "listing"),
        ("s3:PutObject", "writing"),
        ("s3:GetObject", "reading"),
        ("s3:DeleteObject", "deleting"),
    ],
)
def test_each_right_that_is_missing_is_named(missing: str, doing: str, guarded: GuardedServer, tmp_path: Path) -> None:
    store = guarded.place_with("rights", tmp_path, *(right for right in ALL if right != missing)).location
    (error,) = check_lake(store).errors
    assert error.reason is Reason.PRIVILEGE_MISSING
    assert error.found.startswith(f"{doing} in s3://rights/cdc failed")
    assert "credentialsSecretRef" in error.remedy
    assert SECRET_KEY not in error.message


def test_all_rights_that_are_missing_are_named_at_once(guarded: GuardedServer, tmp_path: Path) -> None:
    errors = check_lake(guarded.place_with("none", tmp_path).location).errors
    assert [e.found.split()[0] for e in errors] == ["listing", "writing"]


def test_what_a_check_that_died_left_is_removed_later(s3: S3Server, tmp_path: Path) -> None:
    s3.make_bucket("leftover")
    store = s3.store("leftover", tmp_path).location
    client = obstore.store.S3Store("leftover", config=store.store_config())
    left, other = f"cdc/{PROBES}/{'a' * 32}", f"cdc/{PROBES}/a-file-of-others"
    obstore.put(client, left, b"")
    obstore.put(client, other, b"")
    assert check_lake(store).errors == ()
    assert sorted(objects(store)) == sorted([left, other])  # it may be another check's
    assert check_lake(store, leftover_seconds=-1e9).errors == ()
    assert objects(store) == [other]


@pytest.mark.parametrize("table", ["cdc/_delta_log/0.json", "_delta_log/0.json"])
def test_a_lake_inside_a_table_is_refused(table: str, s3: S3Server, tmp_path: Path) -> None:
    """The VACUUM of that table would remove the lake's files."""
    bucket = f"nested-{table.count('/')}"
    s3.make_bucket(bucket)
    store = s3.store(bucket, tmp_path).location
    obstore.put(obstore.store.S3Store(bucket, config=store.store_config()), table, b"{}")
    (error,) = check_lake(store).errors
    assert error.reason is Reason.SINK_CONFLICT
    assert "VACUUM" in error.needed
    local = tmp_path / "disk"
    (local / table).parent.mkdir(parents=True)
    (error,) = check_lake(Location.parse(str(local / "cdc"))).errors
    assert error.reason is Reason.SINK_CONFLICT


def test_a_folder_is_ready_there_or_not_yet(tmp_path: Path) -> None:
    assert check_lake(Location.parse(str(tmp_path))).errors == ()
    assert check_lake(Location.parse(str(tmp_path / "not/yet"))).errors == ()
    assert list(tmp_path.iterdir()) == []


def test_checks_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The first to end removes the folder of the probes, which another one has just found."""
    lake = Location.parse(str(tmp_path / "lake"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: check_lake(lake).errors, range(400)))
    assert set(found) == {()}
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_must_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("file", "file/lake"):
        (error,) = check_lake(Location.parse(str(tmp_path / path))).errors
        assert (error.reason, error.remedy) == (
            Reason.SINK_CONFLICT,
            "create the sync again with another path in spec.sink",
        )
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (error,) = check_lake(Location.parse(str(tmp_path / "dangling/lake"))).errors
    assert error.reason is Reason.SINK_CONFLICT


def test_a_folder_that_may_not_be_written() -> None:
    """One in which not even root may."""
    (error,) = check_lake(Location.parse("/sys/lake")).errors
    assert error.reason is Reason.PRIVILEGE_MISSING
