"""What other programs, and runs that slept, do to a table or its folder: it stops or goes on right,
and no live file goes."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_spark.sinks.contract.changes import Append, Commit, Replace, Upsert
from cdcsync_spark.sinks.contract.writer import Busy, Closed
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.lake import table_index
from cdcsync_spark.sinks.lake.files.staging import DataFile
from cdcsync_spark.sinks.lake.policy import POLICY, CommitLimits
from cdcsync_spark.sinks.lake.storage import checked_parquet
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import (
    ORDERS,
    SYNC,
    WATERMARK,
    batch,
    content,
    first_state,
    in_order,
    keys_of,
    make_table,
    rows_of,
    stage,
    stamp,
    whole_snapshot,
)
from support.lake import query


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(open_store(str(tmp_path / "lake")), SYNC)


@pytest.fixture
def orders(sink: DeltaSink) -> DeltaTarget:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, [(1, "a")])
    return target


def change(*rows: tuple[object, ...]) -> Upsert:
    return Upsert(rows_of(ORDERS, rows), keys_of(ORDERS, []))


def entries(target: DeltaTarget) -> list[str]:
    return sorted(p.name for p in Path(target.uri, "_delta_log").glob("*.json"))


def test_a_log_that_was_cut_behind_a_writer_stops_it(orders: DeltaTarget, tmp_path: Path) -> None:
    """The entry after the one that it knows is not there because both went: what it wrote then
    no reader would read."""
    writer = orders.writer(tmp_path)
    writer.commit(1, batch(1, change((2, "b"))))
    _cut(orders)
    left = entries(orders)
    with pytest.raises(CdcError, match="holds no state") as stopped:
        writer.commit(1, batch(2, change((3, "c"))))
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert entries(orders) == left


def _cut(target: DeltaTarget) -> None:
    """Another program's commits, its checkpoint and its clean-up of all that is older."""

    def opened() -> DeltaTable:
        return DeltaTable(target.uri)

    opened().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    for _ in range(3):
        opened().create_write_transaction([], "append", opened().schema())
    opened().create_checkpoint()
    opened().cleanup_metadata()
    opened().create_write_transaction([], "append", opened().schema())


def test_a_table_that_was_taken_away_is_not_written_into_the_void(orders: DeltaTarget, tmp_path: Path) -> None:
    writer = orders.writer(tmp_path)
    writer.commit(1, batch(1, change((2, "b"))))
    shutil.rmtree(orders.uri)
    with pytest.raises(CdcError, match="holds no state"):
        writer.commit(1, batch(2, change((3, "c"))))
    assert not Path(orders.uri, "_delta_log").exists()


class SlowLake:
    """A lake whose files' keys come when they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.reading, self.let_go = 0, threading.Event(), threading.Event()
        self._read = table_index.key_batches
        monkeypatch.setattr(table_index, "key_batches", self._slowly)

    def _slowly(self, *args: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        self.asked += 1
        self.reading.set()
        assert self.let_go.wait(120)
        yield from self._read(*args, **named)


def test_a_closed_writer_reads_no_more_of_a_table_into_its_index(
    orders: DeltaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ended kept its process until all files were read, minutes, and its successor
    waited."""
    untended = orders.writer(tmp_path)  # so that every batch stays a file
    for n in range(1, 20):
        untended.commit(1, batch(n, stage(orders, ORDERS, [(100 + n, "a")], f"{n}")))
    lake, writer = SlowLake(monkeypatch), replace(orders, limits=CommitLimits(warm_rows=1)).writer(tmp_path)
    errors: list[Exception] = []

    def merge() -> None:
        try:
            writer.commit(1, batch(20, change((1, "b"))))
        except Closed as e:
            errors.append(e)

    threads = [threading.Thread(target=writer.warm), threading.Thread(target=merge)]
    threads[0].start()
    assert lake.reading.wait(120)
    threads[1].start()
    writer.close()
    lake.let_go.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert lake.asked <= 4, "those that were being read"
    assert len(errors) == 1, "half of an index finds half of the rows"
    assert writer.commit(1, stamp()).position == FilePosition(replace(WATERMARK, offset=19_000)), (
        "what needs no index goes on"
    )
    orders.writer(tmp_path).commit(1, batch(20, change((1, "b"))))
    assert content(orders) == [(1, "b"), *((100 + n, "a") for n in range(1, 20))]


def test_who_does_not_wait_for_an_index_asks_again(
    orders: DeltaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's main thread, which must see that the run is to end."""
    lake, writer = SlowLake(monkeypatch), replace(orders, limits=CommitLimits(warm_rows=1)).writer(tmp_path)
    before = writer.last_commit()
    warming = threading.Thread(target=writer.warm)
    warming.start()
    assert lake.reading.wait(120)
    state = orders.commit(1, stamp())
    assert writer.has_news()
    with pytest.raises(Busy):
        writer.last_commit(wait=False)
    lake.let_go.set()
    warming.join(120)
    assert writer.has_news()
    assert writer.last_commit(wait=False) == state != before
    assert not writer.has_news()


def test_a_vacuum_takes_no_file_of_a_side_target(sink: DeltaSink, orders: DeltaTarget) -> None:
    side = sink.target(ORDERS.id, generation=1)
    side.prepare(first_state(nonce=1))
    (part,) = stage(side, ORDERS, [(1, "new")]).staged
    assert Path(orders.uri, DataFile.of(part).path).exists()
    table = DeltaTable(orders.uri)
    listed = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True)
    assert not [path for path in listed if "resnapshot" in path]


def test_a_doubled_key_stops_a_merge_of_delta_rs_before_it_and_for_good(tmp_path: Path) -> None:
    target = DeltaSink(open_store(str(tmp_path / "lake")), SYNC, vectors=False).target(ORDERS.id)
    whole_snapshot(target, [(1, "a"), (2, "a"), (3, "a")])
    write_deltalake(target.uri, rows_of(ORDERS, [(1, "theirs")]), mode="append")
    for _ in range(2):
        with pytest.raises(CdcError, match="each key once"):
            target.commit(1, batch(1, change((1, "b"))))
    assert content(target) == [(1, "a"), (1, "theirs"), (2, "a"), (3, "a")]
    target.commit(1, batch(1, change((2, "b"))))
    assert (2, "b") in content(target)


def test_no_move_forgets_the_values_of_a_column_that_somebody_added(orders: DeltaTarget, tmp_path: Path) -> None:
    DeltaTable(orders.uri).alter.add_columns([Field("tag", PrimitiveType("string"))])
    DeltaTable(orders.uri).update(updates={"tag": "'mine'"}, predicate="id = 1")
    writer = orders.writer(tmp_path)
    for n in range(1, 2 * POLICY.gathered_files):
        writer.commit(1, batch(n, change((100 + n, "b"))))
        while writer.maintain():
            pass
    assert "would forget the values of the target's column 'tag'" in writer.status.uncompacted
    assert query(DeltaTable(orders.uri), "SELECT tag FROM t WHERE id = 1").to_pylist() == [{"tag": "mine"}]


@pytest.mark.parametrize("claimed", [1, 1000])
def test_compaction_moves_all_rows_of_a_file_whatever_its_statistics_count(
    orders: DeltaTarget, tmp_path: Path, claimed: int
) -> None:
    """The statistics are what another program claims; the file's own footer counts its rows."""
    _append_with_count(orders, [(n, "theirs") for n in range(100, 150)], claimed)
    rows, writer = content(orders), orders.writer(tmp_path)
    for n in range(2, 2 + POLICY.gathered_files):
        writer.commit(1, batch(n, change((n, "b"))))
        rows.append((n, "b"))
    while writer.maintain():
        pass
    assert content(orders) == in_order(rows)
    assert len(DeltaTable(orders.uri).file_uris()) < POLICY.gathered_files


def _append_with_count(target: DeltaTarget, rows: list[tuple[object, ...]], count: int) -> None:
    """Another program's file whose statistics say that it has so many rows."""
    write_deltalake(target.uri, rows_of(ORDERS, rows), mode="append")
    newest = max(Path(target.uri, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    for add in (action["add"] for action in actions if "add" in action):
        add["stats"] = json.dumps(json.loads(add["stats"]) | {"numRecords": count})
    newest.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")


def test_a_run_that_slept_sweeps_nothing_of_its_successor(orders: DeltaTarget, tmp_path: Path) -> None:
    asleep, successor = orders.writer(tmp_path), orders.writer(tmp_path)
    asleep.commit(2, batch(1, change((2, "b")), 2))
    successor.commit(3, batch(2, change((3, "c")), 3))
    hours_ago = time.time() - 3 * 3600
    for file in Path(orders.uri).glob("stream-*"):
        os.utime(file, (hours_ago, hours_ago))
    while asleep.maintain():
        pass
    assert content(orders) == [(1, "a"), (2, "b"), (3, "c")]


def test_published_files_stay_for_those_who_opened_the_version_with_them(
    sink: DeltaSink, orders: DeltaTarget, tmp_path: Path
) -> None:
    """They are gathered right after the publication, and none of them is live any more when the
    side is discarded."""
    side = sink.target(ORDERS.id, generation=1)
    side.prepare(first_state(nonce=1))
    files = tuple(file for n in range(POLICY.gathered_files) for file in stage(side, ORDERS, [(n, "new")]).staged)

    def filled(found: object) -> Commit:
        state = first_state(nonce=1).after_wave([Split()], FilePosition(WATERMARK), WATERMARK, 0, 0)
        return Commit(state, Append(files))

    fresh = side.commit(1, filled)
    staged = side.staged()
    writer = orders.writer(tmp_path)
    writer.commit(
        2, lambda found: Commit(replace(fresh, epoch=2, commit_number=found.commit_number + 1), Replace(staged))
    )
    published = DeltaTable(orders.uri).version()
    while writer.maintain():
        pass
    assert len(DeltaTable(orders.uri).file_uris()) == 1, "gathered"
    sink.discard(ORDERS.id, 1)
    rows = query(DeltaTable(orders.uri, version=published), "SELECT id FROM t ORDER BY id")
    assert rows["id"].to_pylist() == list(range(POLICY.gathered_files))


def test_a_checkpoint_with_parsed_statistics_is_gone_on_from(sink: DeltaSink, tmp_path: Path) -> None:
    """As Spark writes them: dates and numbers as such, which no entry can hold."""
    table = make_table({"id": "bigint(20)", "day": "date"}, ["id"])
    target = sink.target(table.id)
    days = [(1, dt.date(2020, 1, 1)), (2, dt.date(2021, 1, 1))]
    whole_snapshot(target, days, table)
    DeltaTable(target.uri).create_checkpoint()
    (file,) = Path(target.uri, "_delta_log").glob("*.checkpoint.parquet")
    _give_parsed_statistics(file, days[0][1])
    later = (1, dt.date(2022, 1, 1))
    target.writer(tmp_path).commit(1, batch(1, Upsert(rows_of(table, [later]), keys_of(table, []))))
    assert content(target) == [later, days[1]]


def _give_parsed_statistics(checkpoint: Path, day: dt.date) -> None:
    read = pq.read_table(checkpoint)
    add = read["add"].combine_chunks()
    parsed = pa.array([{"numRecords": 2, "minValues": {"day": day}} if a["path"].is_valid else None for a in add])
    fields = [*(f.with_nullable(True) for f in add.type), pa.field("stats_parsed", parsed.type)]
    made = pa.StructArray.from_arrays([*add.flatten(), parsed], fields=fields, mask=add.is_null())
    pq.write_table(read.set_column(read.schema.get_field_index("add"), pa.field("add", made.type), made), checkpoint)


def entry_with(target: DeltaTarget, path: str) -> None:
    """Another program's commit that takes `path` into the table, with the size and statistics of a
    file of its own."""
    handle = DeltaTable(target.path.store.uri)
    log = Path(target.path.store.uri, "_delta_log")
    adds = [json.loads(line) for line in (log / f"{handle.version():020d}.json").read_text().splitlines()]
    add = next(a["add"] for a in adds if "add" in a) | {"path": path}
    (log / f"{handle.version() + 1:020d}.json").write_text(json.dumps({"add": add}) + "\n")


@pytest.mark.parametrize("path", ["../items/theirs.parquet", "%2E%2E/items/theirs.parquet", "ABSOLUTE", "LINK"])
def test_a_file_of_another_table_is_never_read(path: str, sink: DeltaSink, orders: DeltaTarget) -> None:
    """Its rows would be copied with our credentials. What takes the file out again heals the
    table."""
    folder = Path(orders.path.store.uri)
    theirs = folder.parent / "items" / "theirs.parquet"
    theirs.parent.mkdir()
    shutil.copy(next(folder.glob("*.parquet")), theirs)
    if path == "LINK":
        (folder / "link.parquet").symlink_to(theirs)
    path = {"ABSOLUTE": str(theirs), "LINK": "link.parquet"}.get(path, path)
    entry_with(orders, path)
    again = sink.target(ORDERS.id)
    for use in (again.open_snapshot, again.last_commit, lambda: again.commit(1, lambda _: None)):
        with pytest.raises(CdcError, match="the Delta log names the file") as refused:
            use()
        assert refused.value.reason is Reason.SINK_CONFLICT
    newest = DeltaTable(str(folder)).version() + 1
    removed = {"path": path, "deletionTimestamp": 0, "dataChange": True}
    (folder / "_delta_log" / f"{newest:020d}.json").write_text(json.dumps({"remove": removed}) + "\n")
    assert content(sink.target(ORDERS.id)) == [(1, "a")]
    assert theirs.exists()


def test_a_data_file_that_unpacks_to_gigabytes_ends_as_a_fault_of_its_table(
    sink: DeltaSink, orders: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_parquet, "memory_limit", lambda: 2**26)
    checked_parquet.most.cache_clear()
    try:
        data = next(Path(orders.path.store.uri).glob("*.parquet"))
        rows = pq.read_table(data)
        column = next(n for n, field in enumerate(rows.schema) if pa.types.is_string(field.type))
        rows = rows.set_column(column, rows.schema.field(column), [["x" * 2**28] * rows.num_rows])
        pq.write_table(rows, data, compression="zstd", use_dictionary=False)
        assert data.stat().st_size < 2**17
        with pytest.raises(CdcError, match="takes too much memory: a page unpacks to") as found:
            content(sink.target(ORDERS.id))
        assert found.value.reason is Reason.SINK_CONFLICT
    finally:
        checked_parquet.most.cache_clear()
