"""What belongs to Delta's history tables alone: staged copies and what is left of them, runs that
come too late, other modes and names, features that native commits do not support."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake import Field as DeltaField

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import Place
from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.schema_change import Filled, Kept
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Append, Commit, Evolve, Replace
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.history.target import HistorySink, HistoryTarget
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.sinks.lake.writer import LOSS_QUESTIONS
from cdcsync_spark.stream.apply.applier import Applier
from contract.sinkcase import ORDERS, SYNC, content, first_state, in_order, make_table, rows_of, whole_snapshot
from support.deaths import Died, dying_at
from support.event_consumer import CheckingConsumer
from support.event_source import END, HIGH, LOW, NAME, SMALL, EventSource, applier, follow, place, read_snapshot
from support.history import history_events


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(lake: Path) -> HistorySink:
    return HistorySink(open_store(str(lake)), SYNC, policy=SMALL)


def main_of(sink: Sink) -> HistoryTarget:
    target = sink.target(ORDERS.id)
    assert isinstance(target, HistoryTarget)
    return target


def caught_up(sink: Sink, source: EventSource, folder: Path, end: int) -> Applier:
    run = applier(sink, folder)
    at = run.reader.at.offset  # type: ignore[union-attr]
    run.apply(source.batch(at, end, folder))
    run.checkpoint_idle(older_than=float("inf"))
    return run


@pytest.mark.parametrize(
    ("gate", "count"),
    [("committed", 1), ("before-publish", 1), ("entry-written", 2), ("committed", 2), ("published", 1)],
)
def test_a_run_that_dies_around_the_publication_is_gone_on_from(
    sink: HistorySink, tmp_path: Path, lake: Path, gate: str, count: int
) -> None:
    """The first commit is the copy's, the second one the history's."""
    source = EventSource(random.Random(5))
    read_snapshot(sink, source.snapshot())
    with dying_at(gate, count), pytest.raises(Died):
        caught_up(sink, source, tmp_path, HIGH)
    follow(sink, source, tmp_path)
    consumer = CheckingConsumer(("id",)).take(history_events(main_of(sink).path))
    assert consumer.faults == []
    assert content(main_of(sink)) == in_order(source.at[END].items())
    assert not (lake / "shop/orders/_resnapshot-0/_delta_log").exists(), "the copy's Delta log is removed"


def test_the_publication_copies_no_file(sink: HistorySink, tmp_path: Path, lake: Path) -> None:
    source = EventSource(random.Random(6))
    read_snapshot(sink, source.snapshot())
    run = caught_up(sink, source, tmp_path, HIGH - 100)
    before = {path: path.stat().st_ino for path in lake.rglob("*.parquet")}
    run.apply(source.batch(HIGH - 100, HIGH, tmp_path))
    run.checkpoint_idle(older_than=float("inf"))
    view = main_of(sink).path.view()
    assert view is not None
    named = {lake / "shop/orders" / file.path for file in view.files.values()}
    assert {path for path in named if path in before} >= {path for path in before if path in named} != set()
    assert all(path.parent.name == "_resnapshot-0" for path in named)
    assert all(path.stat().st_ino == inode for path, inode in before.items() if path in named)


def test_a_copy_that_is_removed_after_its_publication_is_no_news(sink: HistorySink, tmp_path: Path, lake: Path) -> None:
    source = EventSource(random.Random(9))
    read_snapshot(sink, source.snapshot())
    run = caught_up(sink, source, tmp_path, END)
    writer = run.tables[NAME].target
    while writer.maintain():
        pass
    assert not (lake / "shop/orders/_resnapshot-0/_delta_log").exists()
    writer.last_commit()
    assert not any(writer.has_news() for _ in range(LOSS_QUESTIONS))


def test_a_run_that_was_overtaken_neither_publishes_nor_emits(sink: HistorySink, tmp_path: Path) -> None:
    source = EventSource(random.Random(7))
    read_snapshot(sink, source.snapshot())
    zombie = applier(sink, tmp_path)
    zombie.apply(source.batch(LOW, HIGH - 100, tmp_path))
    successor = applier(sink, tmp_path, epoch=zombie.epoch + 1)
    successor.apply(source.batch(HIGH - 100, HIGH, tmp_path))
    successor.checkpoint_idle(older_than=float("inf"))
    events = history_events(main_of(sink).path)
    assert events
    zombie.apply(source.batch(HIGH - 100, HIGH + 500, tmp_path))
    zombie.checkpoint_idle(older_than=float("inf"))
    error = zombie.tables[NAME].error
    assert error is not None
    assert (error.reason, "superseded" in error.found) == (Reason.SINK_CONFLICT, True)
    assert history_events(main_of(sink).path) == events


def test_a_resnapshot_of_a_source_at_rest_is_published_by_its_claim(sink: HistorySink, tmp_path: Path) -> None:
    """HIGH is LOW: the copy is consistent as soon as it is complete."""
    source = EventSource(random.Random(8))
    read_snapshot(sink, source.snapshot())
    follow(sink, source, tmp_path)
    _read_at_rest(sink, [(1, "a"), (30, "b")])
    assert [(e.operation, e.row["id"], e.ordinal) for e in history_events(main_of(sink).path)] == [
        ("+I", 1, 0),
        ("+I", 30, 0),
    ]
    assert content(main_of(sink)) == [(1, "a"), (30, "b")]


def _read_at_rest(sink: HistorySink, rows: list[tuple[int, str]]) -> None:
    main, copy = sink.target(ORDERS.id), sink.target(ORDERS.id, generation=1)
    epoch = 50
    copy.prepare(first_state(epoch=epoch, nonce=1))
    append = Append(copy.stage(ORDERS, rows_of(ORDERS, rows).to_batches(), "wave"))
    at = Place("binlog.000001", END, "mysql:uuid")
    state = copy.commit(
        epoch,
        lambda found: Commit(replace(found.after_wave([Split()], place(END), at, 2, 0), epoch=epoch), append),
    )
    staged = copy.staged()
    main.commit(epoch, lambda found: Commit(replace(state, commit_number=found.commit_number + 1), Replace(staged)))
    sink.discard(ORDERS.id, 1)


def test_a_table_of_another_mode_or_of_other_names_is_refused_and_stays(sink: HistorySink, lake: Path) -> None:
    read_snapshot(sink, [(1, "a"), (30, "b")])
    replica = DeltaSink(sink.store, SYNC)
    renamed = replace(sink, columns=EventColumns(op="change"))
    version = DeltaTable(str(lake / "shop/orders")).version()
    for other in (replica, renamed):
        with pytest.raises(PermanentError, match="holds a history") as refused:
            other.target(ORDERS.id).prepare(first_state())
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert "the sink's mode" in refused.value.remedy
    assert DeltaTable(str(lake / "shop/orders")).version() == version
    table = make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], name="replica")
    whole_snapshot(replica.target(table.id), [(1, "a")], table)
    with pytest.raises(PermanentError, match="holds a replica"):
        sink.target(table.id).last_commit()


def test_a_column_with_a_metadata_columns_name_is_refused_before_anything_is_made(
    sink: HistorySink, lake: Path
) -> None:
    table = make_table({"id": "int(11)", "_CDC_SEQ": "int(11)"}, ["id"])
    with pytest.raises(CdcError, match="_CDC_SEQ has the name") as refused:
        sink.target(table.id).prepare(first_state(table))
    assert refused.value.reason is Reason.SPEC_INVALID
    assert not lake.exists() or not list(lake.rglob("*.json"))


def test_a_feature_that_native_commits_do_not_support_stops_the_table(
    sink: HistorySink, tmp_path: Path, lake: Path
) -> None:
    source = EventSource(random.Random(9))
    read_snapshot(sink, source.snapshot())
    run = follow(sink, source, tmp_path, end=HIGH)
    events = history_events(main_of(sink).path)
    DeltaTable(str(lake / "shop/orders")).alter.set_table_properties({"delta.appendOnly": "true"})
    run.apply(source.batch(HIGH, END, tmp_path))
    error = run.tables[NAME].error
    assert error is not None
    assert (error.reason, "native commits only" in error.found) == (Reason.SINK_CONFLICT, True)
    assert history_events(main_of(sink).path) == events


@pytest.mark.parametrize("rows", [[], [(1, "a")]])
def test_a_name_that_another_program_has_taken_stops_the_table_and_its_columns_stay(
    sink: HistorySink, lake: Path, rows: list[tuple[int, str]]
) -> None:
    """Also where there is no file that would have to be written again."""
    target = main_of(sink)
    state = whole_snapshot(target, rows)
    table = DeltaTable(f"{lake}/shop/orders")
    table.alter.add_columns([DeltaField("x", "integer")])
    before = DeltaTable(f"{lake}/shop/orders").schema()
    wider = make_table({"id": "bigint(20)", "note": "varchar(20)", "x": "int(11)"}, ["id"])

    def step(found: TableState) -> Commit:
        after = replace(found, capture=wider, schema=TargetSchema.of(wider), commit_number=found.commit_number + 1)
        return Commit(after, Evolve((Kept("id"), Kept("note"), Filled())))

    with pytest.raises(PermanentError) as error:
        target.commit(state.epoch, step)
    assert error.value.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert DeltaTable(f"{lake}/shop/orders").schema() == before


def test_gathering_moves_no_row_and_is_no_change_of_data(sink: HistorySink, tmp_path: Path) -> None:
    source = EventSource(random.Random(10))
    read_snapshot(sink, source.snapshot())
    run = caught_up(sink, source, tmp_path, HIGH)
    for end in range(HIGH + 100, END + 1, 100):
        run.apply(source.batch(end - 100, end, tmp_path))
    path = main_of(sink).path
    before, view = history_events(path), path.view()
    assert view is not None
    files = len(view.files)
    run.maintain(until=float("inf"))
    view = path.view()
    assert view is not None
    assert len(view.files) < files / 2
    assert history_events(path) == before, "of changes of data"
    assert content(main_of(sink)) == in_order(source.at[END].items())
    gathered = [json.loads(f.add["stats"]) for f in view.files.values() if "compacted" in f.path]
    assert all("_cdc_seq" in stats["minValues"] for stats in gathered)
