"""Stores that are full, closed or gone: a clear error, nothing half written, and the same work goes through afterwards."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason, TransientError
from cdcsync_spark.sinks.base import Merge
from cdcsync_spark.sinks.delta import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.place import Place
from contract.sinkcase import ORDERS, SYNC, batch, content, first_state, keys_of, rows_of, stage, whole_snapshot


@pytest.fixture
def local(tmp_path: Path) -> DeltaTarget:
    return DeltaSink(Place.parse(str(tmp_path / "lake")), SYNC).target(ORDERS.id)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk on which no file grows beyond `size` bytes: writing more fails as on a full one (EFBIG for ENOSPC)."""
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
    merge = batch(1, Merge(rows_of(ORDERS, changed), keys_of(ORDERS, [(2007,)])))
    with files_of_at_most(8192), pytest.raises(TransientError) as failed:
        local.commit(1, merge)
    assert failed.value.reason is Reason.SINK_UNREACHABLE
    assert local.last_commit() == before
    assert len(content(local)) == 20_000
    local.commit(1, merge)
    assert len(content(local)) == 19_999


def test_a_folder_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("not a folder")
    target = DeltaSink(Place.parse(str(tmp_path / "lake")), SYNC).target(ORDERS.id)
    with pytest.raises(CdcError) as failed:
        target.prepare(first_state())
    assert failed.value.reason is Reason.SINK_UNREACHABLE


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    """Port 9 of the loopback refuses connections; the client gives up after its own retries, and shows no key."""
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("AKIAEXAMPLE")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("lake-secret-value")
    place = Place.parse("s3://lake/cdc", "http://127.0.0.1:9", "us-east-1", str(tmp_path))
    with pytest.raises(TransientError) as failed:
        DeltaSink(place, SYNC).target(ORDERS.id).last_commit()
    assert failed.value.reason is Reason.SINK_UNREACHABLE
    assert "\x1b" not in failed.value.message
    assert "AKIAEXAMPLE" not in failed.value.message
    assert "lake-secret-value" not in failed.value.message


def test_a_commit_whose_answer_was_lost_is_found_by_the_retry(
    local: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store did it and the connection broke: the run fails, the next one finds the work done."""
    whole_snapshot(local, [(1, "a")])
    merge = batch(1, Merge(rows_of(ORDERS, [(2, "b")]), keys_of(ORDERS, [(1,)])))
    put_new = Place.put_new

    def written_but_unanswered(self: Place, relative: str, content: bytes) -> bool:
        put_new(self, relative, content)
        raise OSError("connection reset by peer")

    monkeypatch.setattr(Place, "put_new", written_but_unanswered)
    with pytest.raises(TransientError):
        local.commit(1, merge)
    monkeypatch.undo()
    found = local.last_commit()
    assert local.commit(1, merge) == found
    assert content(local) == [(2, "b")]
