"""Stores that are full, closed or gone: a clear error, nothing half written, and the same work goes
through afterwards."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cdcsync_core.errors import CdcError, Reason, TransientError
from cdcsync_spark.sinks.contract.changes import Build, Upsert
from cdcsync_spark.sinks.delta.replica import maintenance as delta_maintenance
from cdcsync_spark.sinks.delta.replica.commit import DeltaWriter
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake.keys.key_index import KeyIndex
from cdcsync_spark.sinks.lake.policy import POLICY, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import (
    ORDERS,
    SYNC,
    batch,
    content,
    first_state,
    in_order,
    keys_of,
    rows_of,
    stage,
    whole_snapshot,
)


@pytest.fixture
def local(tmp_path: Path) -> DeltaTarget:
    return DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(ORDERS.id)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk on which no file grows beyond `size` bytes: writing more fails as on a full one (EFBIG
    for ENOSPC)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def incompressible(count: int) -> list[tuple[int, str]]:
    return [(n, f"{n * 2654435761 % 2**64:x}") for n in range(count)]


def test_a_full_disk_while_staging_leaves_no_file(local: DeltaTarget) -> None:
    before = whole_snapshot(local, [(1, "a")])
    files = sorted(Path(local.uri).rglob("*"))
    with files_of_at_most(8192), pytest.raises(TransientError, match="too large") as failed:
        stage(local, ORDERS, incompressible(20_000))
    assert failed.value.reason is Reason.SINK_UNREACHABLE
    assert "free space" in failed.value.remedy
    assert sorted(Path(local.uri).rglob("*")) == files
    assert local.last_commit() == before


def test_a_full_disk_in_a_merge_leaves_the_table_as_it_was(local: DeltaTarget) -> None:
    before = whole_snapshot(local, incompressible(20_000))
    changed = [(n, f"new {text}") for n, text in incompressible(2000)]
    merge = batch(1, Upsert(rows_of(ORDERS, changed), keys_of(ORDERS, [(2007,)])))
    with files_of_at_most(8192), pytest.raises(TransientError) as failed:
        local.commit(1, merge)
    assert failed.value.reason is Reason.SINK_UNREACHABLE
    assert local.last_commit() == before
    assert len(content(local)) == 20_000
    local.commit(1, merge)
    assert len(content(local)) == 19_999


def test_a_folder_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("not a folder")
    target = DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(ORDERS.id)
    with pytest.raises(CdcError) as failed:
        target.prepare(first_state())
    assert failed.value.reason is Reason.SINK_UNREACHABLE


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    """Port 9 of the loopback refuses connections; the client gives up after its own retries, and
    shows no key."""
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("AKIAEXAMPLE")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("lake-secret-value")
    store = open_store("s3://lake/cdc", "http://127.0.0.1:9", "us-east-1", str(tmp_path))
    with pytest.raises(TransientError) as failed:
        DeltaSink(store, SYNC).target(ORDERS.id).last_commit()
    assert failed.value.reason is Reason.SINK_UNREACHABLE
    assert "\x1b" not in failed.value.message
    assert "AKIAEXAMPLE" not in failed.value.message
    assert "lake-secret-value" not in failed.value.message


def test_a_commit_whose_answer_was_lost_is_found_by_the_retry(
    local: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store did it and the connection broke: the run fails, the next one finds the work
    done."""
    whole_snapshot(local, [(1, "a")])
    merge = batch(1, Upsert(rows_of(ORDERS, [(2, "b")]), keys_of(ORDERS, [(1,)])))
    put_new = LocalStore.put_new

    def written_but_unanswered(self: LocalStore, relative: str, content: bytes) -> bool:
        put_new(self, relative, content)
        raise OSError("connection reset by peer")

    monkeypatch.setattr(LocalStore, "put_new", written_but_unanswered)
    with pytest.raises(TransientError):
        local.commit(1, merge)
    monkeypatch.undo()
    found = local.last_commit()
    assert local.commit(1, merge) == found
    assert content(local) == [(2, "b")]


@pytest.fixture
def keys_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts, for each time that the index is synchronized, of how many files the keys were
    read."""
    counts: list[int] = []
    sync = KeyIndex.sync

    def counted(self: KeyIndex, *args: object) -> int:
        counts.append(sync(self, *args))  # type: ignore[arg-type]
        return counts[-1]

    monkeypatch.setattr(KeyIndex, "sync", counted)
    return counts


def one_row(number: int) -> Build:
    return batch(number, Upsert(rows_of(ORDERS, [(number, "b")]), keys_of(ORDERS, [])))


def streamed(writer: DeltaWriter, batches: range) -> set[str]:
    """Batches of one row each, and all the maintenance that is due after each."""
    steps = set()
    for n in batches:
        writer.commit(1, one_row(n))
        while step := writer.maintain():
            steps.add(step)
    return steps


def test_an_account_that_may_not_delete_costs_neither_the_index_nor_other_upkeep(
    local: DeltaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_read: list[int]
) -> None:
    """Removing fails and rests, compaction goes on, no file's keys are read twice, and the Delta
    log says it once."""

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    whole_snapshot(local, [(n, "a") for n in range(2 * POLICY.gathered_files)])
    monkeypatch.setattr(delta_maintenance, "retention", lambda _: -1)
    monkeypatch.setattr(LocalStore, "delete", denied)
    with capture_logs() as logs:
        steps = streamed(local.writer(tmp_path), range(1, 3 * POLICY.gathered_files))
    assert sum(keys_read) == 1
    assert "compact" in steps
    assert "remove files" not in steps
    assert [log["step"] for log in logs if log["log_level"] == "warning"] == ["remove files"]
    assert len(content(local)) == 3 * POLICY.gathered_files


def test_a_lost_race_whose_files_cannot_be_deleted_is_only_a_lost_race(
    local: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit names them, and a later run removes them; the batch is committed on top of what
    won."""
    whole_snapshot(local, [(1, "a")])
    put_new, lost = LocalStore.put_new, ["once"]

    def beaten(self: LocalStore, relative: str, content: bytes) -> bool:
        return False if lost and lost.pop() else put_new(self, relative, content)

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalStore, "put_new", beaten)
    monkeypatch.setattr(LocalStore, "delete", denied)
    local.commit(1, one_row(1))
    assert content(local) == [(1, "b")]


@pytest.mark.parametrize("answer_lost", [False, True])
def test_a_move_that_fails_is_made_later(
    answer_lost: bool, local: DeltaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_read: list[int]
) -> None:
    """After a lost race nothing is reread; where the answer was lost the Delta log decides."""
    whole_snapshot(local, [(n, "a") for n in range(20)])
    writer = replace(local, policy=MaintenancePolicy(retry_seconds=0.0)).writer(tmp_path)
    put_new = LocalStore.put_new
    for n in range(1, POLICY.gathered_files):
        writer.commit(1, one_row(n))

    def lost(self: LocalStore, relative: str, content: bytes) -> bool:
        if not answer_lost:
            return False
        put_new(self, relative, content)
        raise OSError("connection reset by peer")

    with monkeypatch.context() as broken:
        broken.setattr(LocalStore, "put_new", lost)
        while writer.maintain():
            pass
    assert "compact" in streamed(writer, range(POLICY.gathered_files, 3 * POLICY.gathered_files))
    assert (sum(keys_read) > 1) == answer_lost
    assert content(local) == in_order((n, "b" if 0 < n < 3 * POLICY.gathered_files else "a") for n in range(20))
