"""The lake's writer under its formats, Delta, Iceberg and the tests' catalog: what becomes of a
commit whose race or answer is lost, that dies between two of its steps, or that meets a compaction.

Each test ends in the rows that a table with the same changes would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Build, Commit, Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from cdcsync_spark.sinks.iceberg.replica.writer import IcebergWriter
from cdcsync_spark.sinks.lake import writer as lake_writer
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.sinks.lake.table_folder import TableFolder
from cdcsync_spark.sinks.lake.writer import LakeWriter
from contract.sinkcase import ORDERS, SYNC, Model, Row, batch, content, keys_of, rows_of, whole_snapshot
from support.catalog_sink import CatalogSink, CatalogTarget
from support.deaths import Died, at_gate, dying_at
from support.folder_catalog import FolderCatalog, iceberg_sink

#: files are gathered by twos, and one with any deleted row is written again
EAGER = MaintenancePolicy(gathered_files=2, smallest_class_bytes=2**20, deleted_share=0.01, peeled_bytes=1)
FIRST: list[Row] = [(n, "first") for n in range(8)]
#: deletes a row of a file, updates one, inserts one
CHANGE = Upsert(rows_of(ORDERS, [(1, "changed"), (90, "new")]), keys_of(ORDERS, [(2,)]))
CHANGED: list[Row] = sorted([*((n, "first") for n in (0, 3, 4, 5, 6, 7)), (1, "changed"), (90, "new")], key=repr)


@dataclass(frozen=True)
class FilledTable:
    """A table that is filled with `FIRST`, in one of the formats."""

    sink: DeltaSink | CatalogSink | IcebergSink
    target: DeltaTarget | CatalogTarget | IcebergTarget
    scratch: Path

    def writer(self) -> LakeWriter[Any] | IcebergWriter:
        return self.target.writer(self.scratch)

    @property
    def asks_again(self) -> bool:
        """Whether a commit without an answer is looked for in the table at once."""
        return isinstance(self.sink, IcebergSink)

    def lose_answer(self, patch: pytest.MonkeyPatch, *, landed: bool) -> None:
        """The next commit gets no answer."""
        if isinstance(self.sink, CatalogSink):
            self.sink.catalog.answers = "lost after" if landed else "lost before"
            return
        if isinstance(self.sink, IcebergSink):
            assert isinstance(self.sink.catalog, FolderCatalog)
            self.sink.catalog.lose_answer(landed=landed)
            return
        put_new, waiting = LocalStore.put_new, ["once"]

        def lost(store: LocalStore, relative: str, text: bytes) -> bool:
            if not waiting:
                return put_new(store, relative, text)
            waiting.clear()
            if landed:
                put_new(store, relative, text)
            raise OSError("connection reset by peer")

        patch.setattr(LocalStore, "put_new", lost)

    @property
    def folder(self) -> TableFolder:
        if isinstance(self.target, IcebergTarget):
            loaded = self.target.place.load()
            assert loaded is not None
            return self.target.place.folder(loaded)
        return self.target.path if isinstance(self.target, DeltaTarget) else self.target.folder

    @property
    def named(self) -> set[str]:
        """The files of the newest version, data and vectors."""
        version = self.writer().newest()
        assert version is not None
        files = version.files.values()
        return {f.path for f in files} | {f.deleted.path for f in files if f.deleted}

    @property
    def there(self) -> set[str]:
        """All files of the table but for its metadata."""
        folder = Path(self.folder.store.uri)
        paths = (str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
        return {path for path in paths if not path.startswith("_delta_log")}


FORMATS: dict[str, Callable[..., Any]] = {
    "delta": DeltaSink,
    "catalog": CatalogSink,
    "iceberg": iceberg_sink,
    "iceberg-v2": partial(iceberg_sink, format_version=2),
}


@pytest.fixture(params=[*list(FORMATS)[:-1], pytest.param("iceberg-v2", marks=pytest.mark.long)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> FilledTable:
    sink = FORMATS[request.param](open_store(str(tmp_path / "lake")), SYNC, policy=EAGER)
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    return FilledTable(sink, target, tmp_path)


@pytest.mark.parametrize("what", ["data", "deletions"])
def test_a_file_that_is_gone_stops_its_table_and_is_named(what: str, lake: FilledTable) -> None:
    """A bucket's rule, or another program, removes it. It was retried for ever, and with it stood
    all tables of the sync."""
    state = lake.writer().commit(1, batch(1, CHANGE))
    lost = next(name for name in sorted(lake.named) if (name in _data_of(lake)) == (what == "data"))
    Path(lake.folder.store.uri, lost).unlink()
    for _ in range(2):
        with pytest.raises(
            PermanentError, match=f"{Path(lost).name}.* is not there, and the table names it"
        ) as stopped:
            lake.writer().commit(1, batch(2, CHANGE))
        assert stopped.value.reason is Reason.SINK_CONFLICT
    assert lake.writer().last_commit() == state
    with pytest.raises(PermanentError, match="deletedFileRetentionDuration"):
        content(lake.target)


def test_a_file_that_is_gone_with_its_version_is_a_lost_race(
    lake: FilledTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run's compaction took its rows elsewhere while it was to be read."""
    lake.writer().commit(1, batch(1, CHANGE))
    names, real = lake.named, lake_writer.LakeWriter._publish
    writer, calls = lake.writer(), list[int]()

    def overtaken(self: LakeWriter[Any], version: Any, commit: Commit) -> None:
        if not calls:
            calls.append(version.number)
            other = lake.writer()
            other.commit(1, batch(2, Upsert(rows_of(ORDERS, [(95, "other")]), keys_of(ORDERS, []))))
            while other.maintain():
                pass
            for name in names - lake.named:
                Path(lake.folder.store.uri, name).unlink(missing_ok=True)
        real(self, version, commit)

    monkeypatch.setattr(lake_writer.LakeWriter, "_publish", overtaken)
    writer.commit(1, batch(3, Upsert(rows_of(ORDERS, [(1, "last")]), keys_of(ORDERS, []))))
    assert calls
    unchanged = [row for row in CHANGED if row[0] != 1]
    assert content(lake.target) == sorted([*unchanged, (1, "last"), (95, "other")], key=repr)


def _data_of(lake: FilledTable) -> set[str]:
    version = lake.writer().newest()
    assert version is not None
    return {f.path for f in version.files.values()}


def other_change(lake: FilledTable, number: int) -> None:
    """Another writer of the same run takes a row."""
    lake.writer().commit(1, batch(number, Upsert(rows_of(ORDERS, []), keys_of(ORDERS, [(7,)]))))


@pytest.mark.parametrize("landed", [False, True])
def test_a_lost_answer_is_decided_by_the_table(
    landed: bool, lake: FilledTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = lake.writer()
    before = writer.last_commit()
    assert before is not None
    lake.lose_answer(monkeypatch, landed=landed)
    if landed and lake.asks_again:
        writer.commit(1, batch(1, CHANGE))
    else:
        with pytest.raises(CdcError) as lost:
            writer.commit(1, batch(1, CHANGE))
        assert lost.value.reason is Reason.SINK_UNREACHABLE
    asked: list[int] = []

    def again(found: TableState) -> Commit | None:
        asked.append(found.commit_number)
        return batch(1, CHANGE)(found)

    assert writer.commit(1, again).commit_number == before.commit_number + 1
    assert asked == [before.commit_number + landed]
    assert content(lake.target) == CHANGED


def test_a_commit_that_conflicts_with_itself_keeps_its_files(tmp_path: Path) -> None:
    sink = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC, policy=EAGER)
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    sink.catalog.conflict_with_itself()
    lake = FilledTable(sink, target, tmp_path)
    lake.writer().commit(1, batch(1, CHANGE))
    assert lake.named <= lake.there
    assert content(target) == CHANGED


def test_a_commit_that_conflicts_with_itself_and_lands_later_keeps_its_files(tmp_path: Path) -> None:
    sink = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC, policy=EAGER)
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    sink.catalog.conflict_with_itself(landed=False)
    lake = FilledTable(sink, target, tmp_path)
    with pytest.raises(CdcError) as lost:
        lake.writer().commit(1, batch(1, CHANGE))
    assert lost.value.reason is Reason.SINK_UNREACHABLE
    assert lake.named <= lake.there
    assert content(target) == CHANGED


def test_a_table_that_is_forgotten_at_a_commit_comes_back_whole(tmp_path: Path) -> None:
    sink = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC, policy=EAGER)
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    lake = FilledTable(sink, target, tmp_path)
    folder = Path(lake.folder.lake.uri)
    sink.catalog.forget_at_commit()
    with pytest.raises(CdcError) as missing:
        lake.writer().commit(1, batch(1, CHANGE))
    assert missing.value.reason is Reason.SINK_CONFLICT
    (folder / "forgotten").rename(folder / "metadata")
    assert content(target) == CHANGED


def test_a_lost_race_leaves_no_file_and_is_decided_again(lake: FilledTable) -> None:
    writer, seen = lake.writer(), list[int]()
    writer.last_commit()

    def beaten(found: TableState) -> Commit | None:
        seen.append(found.commit_number)
        if len(seen) == 1:
            other_change(lake, 1)
        return batch(2, CHANGE)(found)

    state = writer.commit(1, beaten)
    assert seen == [state.commit_number - 2, state.commit_number - 1]
    assert content(lake.target) == [row for row in CHANGED if row[0] != 7]
    assert writer.has_news() is False
    newest = lake.named
    assert newest <= lake.there
    # a replaced vector is kept for readers of the version before
    assert len(lake.there - newest) == 1


@pytest.mark.parametrize("point", ["before-commit", "data-written", "vectors-written", "entry-written", "committed"])
def test_a_run_that_dies_between_two_steps_is_followed_by_one_that_ends_right(point: str, lake: FilledTable) -> None:
    with pytest.raises(Died), dying_at(point):
        lake.writer().commit(1, batch(1, CHANGE))
    landed = point in ("entry-written", "committed")
    assert (content(lake.target) == CHANGED) == landed
    writer = lake.writer()
    writer.commit(2, batch(1, CHANGE, epoch=2))
    assert content(lake.target) == CHANGED
    writer.commit(2, batch(2, Upsert(rows_of(ORDERS, []), keys_of(ORDERS, [(1,), (90,)])), epoch=2))
    assert content(lake.target) == [row for row in CHANGED if row[0] not in (1, 90)]


def compacted(writer: LakeWriter[Any] | IcebergWriter) -> bool:
    """Whether the maintenance that is due compacts; of one step or more."""
    steps = list(iter(writer.maintain, ""))
    return "compact" in steps


def test_a_compaction_that_dies_after_its_commit_has_changed_no_row(lake: FilledTable) -> None:
    writer = lake.writer()
    writer.commit(1, batch(1, CHANGE))
    with pytest.raises(Died), dying_at("entry-written"):
        list(iter(writer.maintain, ""))
    assert content(lake.target) == CHANGED
    assert any("compacted-" in path for path in lake.named)
    lake.writer().commit(2, batch(2, Upsert(rows_of(ORDERS, [(0, "x")]), keys_of(ORDERS, [])), epoch=2))
    assert content(lake.target) == sorted([(0, "x"), *(r for r in CHANGED if r[0])], key=repr)


def test_a_compaction_that_meets_a_commit_loses_and_leaves_no_file(
    lake: FilledTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, write = lake.writer(), lake_writer.write_compaction
    writer.commit(1, batch(1, CHANGE))

    def beaten(*args: Any) -> Any:
        commit = write(*args)
        assert {new.path for new in commit.adding()} <= lake.there
        other_change(lake, 2)
        return commit

    with monkeypatch.context() as patch:
        patch.setattr(lake_writer, "write_compaction", beaten)
        assert not compacted(writer)
    assert not any("compacted-" in path for path in lake.there)
    assert writer.has_news()
    writer.commit(1, batch(3, Upsert(rows_of(ORDERS, [(3, "after")]), keys_of(ORDERS, []))))
    assert compacted(writer)
    left = [row for row in CHANGED if row[0] not in (3, 7)]
    assert content(lake.target) == sorted([*left, (3, "after")], key=repr)


def test_a_commit_that_meets_a_compaction_finds_the_rows_where_they_are_now(lake: FilledTable) -> None:
    """The other run's compaction comes between the deletions that were looked up and the commit."""
    writer, other = lake.writer(), lake.writer()
    other.commit(1, batch(1, CHANGE))
    writer.last_commit()
    change = Upsert(rows_of(ORDERS, [(4, "late")]), keys_of(ORDERS, [(1,), (0,)]))
    with at_gate("vectors-written", lambda: list(iter(other.maintain, ""))):
        writer.commit(1, batch(2, change))
    assert content(lake.target) == sorted([*(row for row in CHANGED if row[0] not in (0, 1, 4)), (4, "late")], key=repr)
    assert any("compacted-" in path for path in lake.named)


def test_two_writers_that_take_turns_and_compact_hold_what_the_model_holds(lake: FilledTable) -> None:
    random, model = Random(7), Model(ORDERS)
    model.apply(FIRST, [])
    writers, steps = (lake.writer(), lake.writer()), list[str]()
    for number in range(1, 21):
        writer = random.choice(writers)
        keys = random.sample(range(14), 5)
        change = model.apply([(k, f"by {number}") for k in keys[:3]], [(k,) for k in keys[3:]])
        build: Build = batch(number, change)
        writer.commit(1, build)
        if random.random() < 0.7:
            steps += iter(writer.maintain, "")
        if number % 6 == 0:
            assert content(lake.target) == model.content
    assert steps.count("compact") >= 4
    assert content(lake.target) == model.content


@pytest.mark.parametrize("given", ["upserts", "deletes"])
def test_a_declared_key_that_is_there_is_not_given_to_a_second_row(given: str, lake: FilledTable) -> None:
    """Keys that the batch takes away first may be there; of one that it gives first nothing is
    changed. A deleted row is there no more."""
    declared = replace(ORDERS, declared=True)

    def change(number: int, new: dict[int, bool]) -> Build:
        upserts, deletes = [(1, "changed"), (90, "new")], [(2,), (91,)]
        keys = [row[0] for row in (*upserts, *deletes)]
        asked = np.array([new.get(key, False) for key in keys])
        plain = batch(number, Upsert(rows_of(ORDERS, upserts), keys_of(ORDERS, deletes), asked))

        def build(found: TableState) -> Commit | None:
            commit = plain(found)
            return commit and replace(commit, state=replace(commit.state, capture=declared))

        return build

    writer = lake.writer()
    with pytest.raises(CdcError) as refused:
        writer.commit(1, change(1, {90: True, 91: True, 1 if given == "upserts" else 2: True}))
    assert refused.value.reason is Reason.KEY_NOT_UNIQUE
    assert f"id={1 if given == 'upserts' else 2}," in refused.value.found
    assert content(lake.target) == FIRST
    writer.commit(1, change(1, {90: True, 91: True}))
    assert content(lake.target) == CHANGED
    with pytest.raises(CdcError) as again:
        writer.commit(1, change(2, {90: True}))
    assert again.value.reason is Reason.KEY_NOT_UNIQUE
    writer.commit(1, change(2, {2: True, 91: True}))
    assert content(lake.target) == CHANGED
