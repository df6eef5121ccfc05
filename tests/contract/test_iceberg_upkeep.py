"""What a stream's commits leave of an Iceberg table: bounded metadata, files that go, and that what
others hold stays."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.table import StaticTable
from structlog.testing import capture_logs

from cdcsync_core.errors import PermanentError, TransientError
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition, Place
from cdcsync_core.state import TableState
from cdcsync_core.tables.schema_change import Converted, Filled, Kept
from cdcsync_spark.sinks.contract.changes import Commit, Evolve
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, LoadedTable, NewTable
from cdcsync_spark.sinks.iceberg.replica import commit, maintenance, unnamed_files
from cdcsync_spark.sinks.iceberg.replica.commit import EXPIRED_TOGETHER
from cdcsync_spark.sinks.iceberg.replica.folder_mark import MARKS
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.iceberg.table import expiry
from cdcsync_spark.sinks.iceberg.table.expiry import MOST_AGE, NEWEST
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import (
    ORDERS,
    SYNC,
    WATERMARK,
    Model,
    batch,
    content,
    first_state,
    in_order,
    make_table,
    stage,
    step,
    whole_snapshot,
)
from contract.stepcase import ROWS, STEPS, TABLE
from support.folder_catalog import FolderCatalog, iceberg_sink

NAME = CatalogTableName(("shop",), "orders")
OTHER = make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], name="others")
POLICY = MaintenancePolicy(gathered_files=4, smallest_class_bytes=4000, peeled_bytes=1)


@pytest.fixture
def sink(tmp_path: Path) -> IcebergSink:
    """Files may go at once."""
    store = open_store(str(tmp_path / "lake"))
    return iceberg_sink(store, SYNC, policy=POLICY, properties=((MOST_AGE, "0"),))


def catalog_of(sink: IcebergSink) -> FolderCatalog:
    assert isinstance(sink.catalog, FolderCatalog)
    return sink.catalog


def metadata_of(sink: IcebergSink) -> Any:
    loaded = sink.catalog.load(NAME)
    assert loaded is not None
    return loaded.metadata


def files_of(sink: IcebergSink) -> set[str]:
    """But for those that the catalog writes."""
    location = Path(metadata_of(sink)["location"])
    return {str(p.relative_to(location)) for p in location.rglob("*") if p.is_file() and p.suffix != ".json"}


def tag(sink: IcebergSink, kind: str) -> int:
    """Another program's reference to the newest snapshot."""
    number = int(metadata_of(sink)["current-snapshot-id"])
    update = {"action": "set-snapshot-ref", "ref-name": "theirs", "type": kind, "snapshot-id": number}
    catalog_of(sink).commit(NAME, [], [update])
    return number


def rows_at(sink: IcebergSink, snapshot: int) -> list[Any]:
    table = StaticTable.from_metadata(catalog_of(sink).metadata_file(NAME))
    return in_order(zip(*table.scan(snapshot_id=snapshot).to_arrow().to_pydict().values(), strict=True))


def test_a_long_stream_leaves_few_files_and_what_a_tag_holds(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 batches with all steps of upkeep; the process restarts now and then."""
    monkeypatch.setattr(maintenance, "_LEAST_AGE", 0.0)
    target, model, random = sink.target(ORDERS.id), Model(ORDERS), Random(3)
    model.rows = {(n,): (n, "first") for n in range(300)}
    whole_snapshot(target, model.rows.values())
    writer, steps = target.writer(tmp_path), Counter[str]()
    tagged, then = 0, list[Any]()
    for number in range(1, 101):
        keys = random.sample(range(400), 12)
        writer.commit(1, batch(number, model.apply([(k, f"by {number}") for k in keys[:9]], [(k,) for k in keys[9:]])))
        steps.update(iter(writer.maintain, ""))
        if number == 20:
            tagged, then = tag(sink, "tag"), model.content
        if number % 40 == 0:
            assert content(target) == model.content
            writer = target.writer(tmp_path)
    assert content(target) == model.content
    assert rows_at(sink, tagged) == then
    assert rows_at(sink, metadata_of(sink)["current-snapshot-id"]) == model.content
    assert len(metadata_of(sink)["snapshots"]) <= NEWEST + EXPIRED_TOGETHER + 1
    assert steps.keys() >= {"compact", "remove files", "remove orphans"}
    assert len(files_of(sink)) < 400


def test_a_rewrite_that_another_program_began_sees_rows_that_compaction_moved(tmp_path: Path) -> None:
    """Iceberg's library refuses a rewrite of a file of which rows were deleted since it began, and
    asks snapshots of `overwrite` and `delete` for that alone: without it, rows were there twice."""
    policy = MaintenancePolicy(gathered_files=99, peeled_bytes=1, most_rows=20)
    sink = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC, policy=policy)
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(n,): (n, "first") for n in range(100)})
    whole_snapshot(target, model.rows.values())
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, model.apply([], [(n,) for n in range(0, 100, 2)])))
    operations = []
    while step := writer.maintain():
        if step == "compact":
            operations.append(metadata_of(sink)["snapshots"][-1]["summary"]["operation"])
    assert operations == ["overwrite", "overwrite", "replace"], "the last one takes the file away"
    assert content(target) == model.content


def test_nothing_goes_while_another_program_has_a_branch(sink: IcebergSink, tmp_path: Path) -> None:
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(n,): (n, "first") for n in range(9)})
    whole_snapshot(target, model.rows.values())
    then, held = model.content, tag(sink, "branch")
    before, writer = files_of(sink), target.writer(tmp_path)
    for number in range(1, NEWEST + 10):
        writer.commit(1, batch(number, model.apply([(number % 9, f"by {number}")], [])))
        while writer.maintain():
            pass
    assert before <= files_of(sink)
    assert rows_at(sink, held) == then
    assert content(target) == model.content


def test_a_snapshot_of_another_program_whose_files_lie_elsewhere_expires(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its branch was dropped before. Its files are left to that program."""
    monkeypatch.setattr(expiry, "NEWEST", 1)
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(1,): (1, "first")})
    whole_snapshot(target, model.rows.values())
    metadata = metadata_of(sink)
    number = metadata["last-sequence-number"] + 1
    foreign_snapshot = {
        **metadata["snapshots"][0],
        "snapshot-id": number,
        "sequence-number": number,
        "manifest-list": "s3://theirs/metadata/snap-1.avro",
        "summary": {"operation": "append"},
        "first-row-id": metadata["next-row-id"],
        "added-rows": 0,
    }
    catalog_of(sink).commit(NAME, [], [{"action": "add-snapshot", "snapshot": foreign_snapshot}])
    writer = target.writer(tmp_path)
    for n in range(1, EXPIRED_TOGETHER + 1):
        writer.commit(1, batch(n, model.apply([(n, f"by {n}")], [])))
    assert number not in {snapshot["snapshot-id"] for snapshot in metadata_of(sink)["snapshots"]}
    assert content(target) == model.content


@pytest.mark.parametrize("commits", [1, 2])
@pytest.mark.parametrize("version", [2, 3])
def test_a_copy_that_begins_while_snapshots_expire_takes_no_number_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, commits: int
) -> None:
    """Its first snapshot has no parent by which a catalog could see that others came before it."""
    store = open_store(str(tmp_path / "lake"))
    sink = iceberg_sink(store, SYNC, format_version=version, properties=((MOST_AGE, "0"),))
    monkeypatch.setattr(expiry, "NEWEST", 1)
    monkeypatch.setattr(commit, "EXPIRED_TOGETHER", 1000)
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(n,): (n, "first") for n in range(9)})
    whole_snapshot(target, model.rows.values())
    writer, numbers = target.writer(tmp_path), iter(range(1, 10))

    def delete_row() -> None:
        n = next(numbers)
        writer.commit(1, batch(n, model.apply([], [(n,)])))

    for _ in range(4):
        delete_row()
    monkeypatch.setattr(commit, "EXPIRED_TOGETHER", 1)
    expired, raced = expiry.expired, list[bool]()

    def late(*of: Any) -> list[int]:
        gone = expired(*of)
        if not raced:
            raced.append(True)
            for _ in range(commits):
                delete_row()
        return gone

    monkeypatch.setattr(commit, "expired", late)
    state = target.last_commit()
    assert state is not None
    sink.target(ORDERS.id, generation=1).prepare(replace(state, generation=1))
    assert raced
    delete_row()
    used = [snapshot["sequence-number"] for snapshot in metadata_of(sink)["snapshots"]]
    assert len(used) == len(set(used))
    assert max(used) == metadata_of(sink)["last-sequence-number"]
    assert content(target) == model.content


def test_files_of_a_run_that_died_go_when_they_are_old(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(1,): (1, "first")})
    whole_snapshot(target, model.rows.values())
    location = Path(metadata_of(sink)["location"])
    left = [f"data/stream-{'a' * 32}.zstd.parquet", f"data/dv-{'b' * 32}.puffin", f"metadata/{'c' * 32}-m0.avro"]
    others = ["data/theirs.parquet", "metadata/theirs-m0.avro"]
    for name in (*left, *others):
        (location / name).touch()
        os.utime(location / name, (1, 1))
    young = location / f"data/stream-{'d' * 32}.zstd.parquet"
    young.touch()
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, model.apply([(2, "new")], [])))
    steps = list(iter(writer.maintain, ""))
    assert "remove orphans" in steps
    assert files_of(sink).isdisjoint(left)
    assert files_of(sink) >= {*others, f"data/{young.name}"}
    assert content(target) == model.content


def test_orphans_of_many_snapshots_are_looked_for_in_parts(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of maintenance, in which all tables of a run wait, reads a part of the lists and
    manifests, and all of them are read one time; other tables and batches come between."""
    monkeypatch.setattr(expiry, "NEWEST", 1000)
    monkeypatch.setattr(unnamed_files, "FILES_AT_A_TIME", 10)
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(1,): (1, "first")})
    whole_snapshot(target, model.rows.values())
    left = Path(metadata_of(sink)["location"]) / "data" / f"stream-{'a' * 32}.zstd.parquet"
    left.touch()
    for file in left.parent.parent.rglob("*"):
        os.utime(file, (1, 1))
    writer, reads, turns = target.writer(tmp_path), list[str](), list[list[str]]()
    read = LocalStore.read

    def noted(store: LocalStore, relative: str) -> bytes | None:
        reads.append(relative)
        return read(store, relative)

    for number in range(1, 31):
        writer.commit(1, batch(number, model.apply([(number, f"by {number}")], [])))
    monkeypatch.setattr(LocalStore, "read", noted)
    while step := writer.maintain():
        if step == "remove orphans":
            turns.append(list(reads))
            if len(turns) == 3:
                writer.commit(1, batch(31, model.apply([(31, "between")], [])))
        reads.clear()
    counts = [len(turn) for turn in turns]
    assert max(counts) == 10
    assert sum(counts) == len(set().union(*turns)) >= 2 * len(metadata_of(sink)["snapshots"]) - 5
    assert not left.exists()
    assert content(target) == model.content
    assert rows_at(sink, metadata_of(sink)["snapshots"][0]["snapshot-id"]) == [(1, "first")]


def test_orphans_are_looked_for_again_after_another_program_expired_what_was_being_read(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "NEWEST", 1000)
    monkeypatch.setattr(unnamed_files, "FILES_AT_A_TIME", 5)
    sink = replace(sink, policy=replace(POLICY, retry_seconds=0.0))
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(1,): (1, "first")})
    whole_snapshot(target, model.rows.values())
    left = Path(metadata_of(sink)["location"]) / "data" / f"stream-{'a' * 32}.zstd.parquet"
    left.touch()
    os.utime(left, (1, 1))
    writer = target.writer(tmp_path)
    for number in range(1, 11):
        writer.commit(1, batch(number, model.apply([(number, f"by {number}")], [])))
    while writer.maintain() != "remove orphans":
        pass
    expire_all_but_newest(sink)
    writer.commit(1, batch(11, model.apply([(11, "between")], [])))
    before, after = list(iter(writer.maintain, "")), list(iter(writer.maintain, ""))
    assert ("remove orphans" in before, "remove orphans" in after) == (False, True)
    assert not left.exists()
    assert content(target) == model.content


def expire_all_but_newest(sink: IcebergSink) -> None:
    """As another program does it, which removes the lists and manifests at once."""
    table = StaticTable.from_metadata(catalog_of(sink).metadata_file(NAME))
    newest = table.current_snapshot()
    assert newest is not None
    named = {newest.manifest_list, *(m.manifest_path for m in newest.manifests(table.io))}
    gone = [s.snapshot_id for s in table.snapshots() if s is not newest]
    catalog_of(sink).commit(NAME, [], [{"action": "remove-snapshots", "snapshot-ids": gone}])
    names = {Path(path).name for path in named}
    for file in (Path(metadata_of(sink)["location"]) / "metadata").glob("*.avro"):
        if file.name not in names:
            file.unlink()


@dataclass(frozen=True)
class OneFolder(FolderCatalog):
    """Has the metadata of its tables in a folder, and says of each that it lies at `location`."""

    location: str = ""

    def create(self, table: CatalogTableName, new: NewTable) -> LoadedTable:
        super().create(table, new)
        return self.commit(table, [], [{"action": "set-location", "location": self.location}])


def test_nothing_of_another_table_goes_that_the_catalog_has_in_the_same_folder(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have names like ours, and no snapshot of this table names them. It marks the folder
    before it has one there: this table's maintenance is the first to run, and has its list of old
    files by then."""
    monkeypatch.setattr(maintenance, "_LEAST_AGE", 0.0)
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(1,): (1, "first")})
    whole_snapshot(target, model.rows.values())
    location = metadata_of(sink)["location"]
    others = replace(sink, catalog=OneFolder(str(tmp_path / "others"), location))
    other, copy = others.target(OTHER.id), others.target(OTHER.id, generation=1)
    writer, aged = target.writer(tmp_path), maintenance.aged
    writer.commit(1, batch(1, model.apply([(2, "new")], [])))

    def aged_while_another_comes(*args: Any) -> list[str]:
        whole_snapshot(other, [(7, "other"), (8, "other")], OTHER)
        copy.prepare(first_state(OTHER, nonce=1))
        stage(copy, OTHER, [(9, "staged")])
        return list(aged(*args))

    monkeypatch.setattr(maintenance, "aged", aged_while_another_comes)
    with capture_logs() as logs:
        steps = list(iter(writer.maintain, ""))
    assert "remove orphans" not in steps
    (warning,) = (line for line in logs if line["log_level"] == "warning")
    assert (warning["table"], warning["marks"]) == (str(ORDERS.id), MARKS)
    sink.discard(ORDERS.id, 1)
    assert content(other) == [(7, "other"), (8, "other")]
    assert content(target) == model.content
    assert [f for f in files_of(sink) if f.startswith("data/_resnapshot-1/")]
    assert len([f for f in files_of(sink) if f.startswith("metadata/_cdcsync/")]) == 2


@pytest.mark.parametrize("opened_by", ["prepare", "commit"])
def test_a_table_marks_its_folder_before_it_has_files_there(sink: IcebergSink, tmp_path: Path, opened_by: str) -> None:
    """The mark of a table of before, too, which is opened by a stream."""
    target = sink.target(ORDERS.id)
    if opened_by == "prepare":
        target.prepare(first_state())
    else:
        whole_snapshot(target, [(1, "first")])
        shutil.rmtree(Path(metadata_of(sink)["location"]) / MARKS)
        writer = target.writer(tmp_path)
        writer.last_commit()
        assert not any(f.startswith(MARKS) for f in files_of(sink)), "who only reads leaves none"
        writer.commit(1, batch(1, Model(ORDERS).apply([(2, "new")], [])))
    (mark,) = Path(metadata_of(sink)["location"]).glob(f"{MARKS}/*")
    assert mark.read_text() == f"{SYNC}/{ORDERS.id}\n"


def test_a_foreign_table_gets_no_mark(sink: IcebergSink) -> None:
    """It would keep the other sync's files from being removed."""
    whole_snapshot(sink.target(ORDERS.id), [(1, "first")])
    before = files_of(sink)
    with pytest.raises(PermanentError, match="was written for another copy"):
        replace(sink, sync="lake/other").target(ORDERS.id).prepare(first_state(sync="lake/other"))
    assert files_of(sink) == before


@pytest.mark.parametrize("done", [False, True])
def test_waves_that_no_commit_took_go_when_the_snapshot_is_done(sink: IcebergSink, tmp_path: Path, done: bool) -> None:
    """And so do those of staged copies up to the published one. What a resnapshot is staging
    stays."""
    target, model, high = (
        sink.target(ORDERS.id),
        Model(ORDERS, {(1,): (1, "first")}),
        Place("binlog.000009", 4, "mysql:uuid"),
    )
    target.prepare(replace(first_state(), generation=2))
    append = stage(target, ORDERS, model.rows.values())

    def wave_of(found: TableState) -> Commit:
        low, watermark = FilePosition(WATERMARK), WATERMARK if done else high
        return Commit(found.after_wave([Split()], low, watermark, 0, 0), append)

    target.commit(1, wave_of)
    location = Path(metadata_of(sink)["location"])
    wave = f"s0-wave-{'a' * 32}.zstd.parquet"
    lost, staging = [f"data/{wave}", f"data/_resnapshot-2/{wave}"], f"data/_resnapshot-3/{wave}"
    for name in (*lost, staging):
        (location / name).parent.mkdir(exist_ok=True)
        (location / name).touch()
        os.utime(location / name, (1, 1))
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, model.apply([(2, "new")], [])))
    assert "remove orphans" in list(iter(writer.maintain, ""))
    assert files_of(sink).isdisjoint(lost) == done
    assert staging in files_of(sink)
    assert content(target) == model.content


@pytest.mark.parametrize("content_of_file", [b"", b"Obj\1" + b"\xff" * 50])
def test_a_manifest_that_is_broken_stops_its_table_by_name(sink: IcebergSink, content_of_file: bytes) -> None:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, [(1, "a")])
    (manifest,) = Path(metadata_of(sink)["location"]).glob("metadata/*-m0.avro")
    manifest.write_bytes(content_of_file)
    with pytest.raises(PermanentError, match=f"{manifest.name}.* cannot be read"):
        target.last_commit()


@pytest.mark.parametrize("name", STEPS)
def test_a_change_of_columns_writes_no_file_again_unless_values_change(sink: IcebergSink, name: str) -> None:
    table, origins, rows = STEPS[name]
    target = sink.target(ORDERS.id)
    whole_snapshot(target, ROWS, TABLE)
    before = {f for f in files_of(sink) if f.startswith("data/")}
    target.commit(1, step(1, table, origins))
    after = {f for f in files_of(sink) if f.startswith("data/")}
    assert (after != before) == any(isinstance(origin, Converted) for origin in origins)
    assert content(target) == in_order(rows)


def test_nothing_is_committed_to_a_table_whose_location_another_program_changed(
    sink: IcebergSink, tmp_path: Path
) -> None:
    """Its new files would lie elsewhere than its metadata say, and those that it has do."""
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(1,): (1, "first")})
    whole_snapshot(target, model.rows.values())
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, model.apply([(2, "new")], [])))
    location = metadata_of(sink)["location"]
    catalog_of(sink).commit(NAME, [], [{"action": "set-location", "location": f"{location}/inside"}])
    before = metadata_of(sink)
    change = Model(ORDERS).apply([(1, "after")], [])
    with pytest.raises(TransientError, match=r"has moved to .*/inside"):
        writer.commit(1, batch(2, change))
    with pytest.raises(PermanentError, match="the table names the file"):
        writer.commit(1, batch(2, change))
    assert metadata_of(sink) == before
    catalog_of(sink).commit(NAME, [], [{"action": "set-location", "location": location}])
    with pytest.raises(TransientError, match="has moved to "):
        writer.commit(1, batch(2, change))
    writer.commit(1, batch(2, change))
    assert content(target) == [(1, "after"), (2, "new")]


def test_rows_that_were_staged_for_other_columns_are_refused(sink: IcebergSink) -> None:
    """A column of the same name and type was dropped and added meanwhile: its old values are not
    the new one's."""
    target = sink.target(ORDERS.id)
    whole_snapshot(target, [(1, "a")])
    early = stage(target, ORDERS, [(2, "b")])
    state = target.commit(1, batch(1, Evolve((Kept("id"), Filled("new")))))
    with pytest.raises(PermanentError, match="were staged for other columns"):
        target.commit(1, batch(2, early))
    assert (target.last_commit(), content(target)) == (state, [(1, "new")])
    target.commit(1, batch(2, stage(target, ORDERS, [(2, "b")])))
    assert content(target) == [(1, "new"), (2, "b")]


def test_a_column_that_no_file_has_is_read_alone(sink: IcebergSink) -> None:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, [(1, "a"), (2, "b")])
    target.commit(1, batch(1, Evolve((Kept("id"), Filled("new")))))
    snapshot = target.open_snapshot()
    assert snapshot.scan(["note"]).read_all().to_pydict() == {"note": ["new", "new"]}
    assert snapshot.scan(["note"], pc.field("id") == 2).read_all().to_pydict() == {"note": ["new"]}


def test_rows_of_a_copy_that_is_gone_are_not_staged_by_the_tables_columns(sink: IcebergSink) -> None:
    whole_snapshot(sink.target(ORDERS.id), [(1, "a")])
    copy = sink.target(ORDERS.id, generation=3)
    copy.prepare(first_state(TABLE, nonce=3))
    assert stage(copy, TABLE, ROWS).staged
    sink.discard(ORDERS.id, 3)
    with pytest.raises(PermanentError, match="the staged copy of the snapshot is gone"):
        stage(copy, TABLE, ROWS)
