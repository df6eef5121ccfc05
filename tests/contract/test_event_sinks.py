"""Sinks that take events: what they publish of a snapshot that was read while the source changed,
and of the changes after it, has no false row.

The source here is a random history of transactions; its snapshot is as fuzzy as real ones: each key
was read at another place between LOW and HIGH. The applier is the stream's own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.position import Place, TransactionId
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.schema.steps import FollowPolicy, SchemaStep
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.sinks.contract.changes import Append, Commit, Emit, Evolve, Upsert
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.history.target import HistorySink, HistoryTarget
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistory, IcebergHistorySink
from cdcsync_spark.sinks.iceberg.replica.sink import discard_copy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.stream.apply.schema_commit import step_commit
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session, Started
from contract.sinkcase import ORDERS, SYNC, content, first_state
from support.deaths import Died, dying_at
from support.event_consumer import CheckingConsumer, Event
from support.event_source import (
    END,
    FILE,
    HIGH,
    LOW,
    NAME,
    SMALL,
    EventSource,
    applier,
    apply_while_completed_by,
    error_of_a_crash,
    follow,
    place,
    published,
    read_early,
    read_snapshot,
)
from support.folder_catalog import iceberg_sink
from support.memory_target import MemorySink, MemoryTarget

STRICT = Session(1 << 21, "utf8mb4", True, 101100, Started(1_700_000_000, None, "+00:00"))


SINKS: dict[str, Callable[[Path], Sink]] = {
    "memory": lambda folder: MemorySink(sync=SYNC, events=True),
    "delta-history": lambda folder: HistorySink(open_store(str(folder / "lake")), SYNC, policy=SMALL),
    "iceberg-history": lambda folder: IcebergHistorySink(iceberg_sink(open_store(str(folder)), SYNC, policy=SMALL)),
    "iceberg-v2-history": lambda folder: IcebergHistorySink(
        iceberg_sink(open_store(str(folder)), SYNC, policy=SMALL, format_version=2)
    ),
}


#: kinds that are `long`
SELDOM = ("iceberg-v2-history",)
#: tables of a lake
HISTORIES = [kind for kind in SINKS if kind.endswith("history")]


def seeds(count: int, kinds: Iterable[str] = SINKS) -> Iterator[ParameterSet]:
    """Each kind of sink with random sources, most of which are `long` for the lakes."""
    for kind, seed in itertools.product(kinds, range(count)):
        rare = kind != "memory" and (seed >= 4 or kind in SELDOM)
        yield pytest.param(kind, seed, marks=[pytest.mark.long] if rare else [])


def marked(kinds: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(kind, marks=[pytest.mark.long] if kind in SELDOM else []) for kind in kinds]


@pytest.fixture(params=marked(SINKS))
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    return SINKS[request.param](tmp_path)


def begin(sink: Sink) -> None:
    """As the snapshot's run does for a table that is not read."""
    target = sink.target(ORDERS.id)
    target.prepare(first_state(epoch=1))
    target.commit(1, lambda found: Commit(found.begun_at(place(LOW)), Append(())))


@pytest.mark.parametrize("seed", range(3))
def test_a_target_that_begins_without_a_snapshot_has_every_change_since(sink: Sink, tmp_path: Path, seed: int) -> None:
    source = EventSource(random.Random(seed))
    begin(sink)
    follow(sink, source, tmp_path)
    events = published(sink.target(ORDERS.id))
    changes = [image for end in source.log for image in source.log[end]]
    assert [(e.row["id"], e.row["note"]) for e in events] == [(key, value) for _, key, value in changes]
    state = sink.target(ORDERS.id).last_commit()
    assert state is not None
    assert (state.without_snapshot, state.events) == (True, len(changes))


@pytest.mark.parametrize(("sink", "seed"), [*seeds(20)], indirect=["sink"])
def test_a_snapshot_that_was_read_while_the_source_changed_has_no_false_row(
    sink: Sink, tmp_path: Path, seed: int
) -> None:
    source = EventSource(random.Random(seed))
    read_snapshot(sink, source.snapshot())
    target = sink.target(ORDERS.id)
    assert published(target) == []
    follow(sink, source, tmp_path)
    events = published(target)
    consumer = CheckingConsumer(("id",)).take(events)
    assert consumer.faults == []
    assert {k: r["note"] for (k,), r in consumer.rows.items()} == source.at[END]
    inserted = {e.row["id"]: e.row["note"] for e in events if not e.ordinal}
    assert inserted in [rows for at, rows in source.at.items() if at >= HIGH]
    state = target.last_commit()
    assert state is not None
    assert state.events == sum(e.ordinal > 0 for e in events)
    if not isinstance(target, MemoryTarget):
        assert content(target) == sorted(source.at[END].items(), key=repr), "folded"


def folded(events: list[Event]) -> dict[int, str]:
    """The rows that an independent consumer gets: rows first, then the changes in their order."""
    rows: dict[int, str] = {}
    for event in sorted(events, key=lambda e: e.ordinal):
        if event.operation in ("+I", "+U"):
            rows[event.row["id"]] = event.row["note"]
        else:
            rows.pop(event.row["id"], None)
    return rows


@pytest.mark.parametrize(("kind", "seed"), [*seeds(20, HISTORIES)])
def test_rows_that_are_delivered_early_end_right(tmp_path: Path, kind: str, seed: int) -> None:
    sink, source = SINKS[kind](tmp_path), EventSource(random.Random(seed))
    target, rows = sink.target(ORDERS.id), source.snapshot()
    state = read_early(sink, rows)
    assert (state.consistent, state.published) == (False, True)
    assert sorted((e.row["id"], e.row["note"]) for e in published(target)) == sorted(rows)
    assert {(e.operation, e.ordinal) for e in published(target)} == {("+I", 0)}
    for end in (HIGH, END):
        follow(sink, source, tmp_path, end=end)
        assert folded(published(target)) == source.at[end]
        assert content(target) == sorted(source.at[end].items(), key=repr)
    found = target.last_commit()
    assert found is not None
    assert found.consistent
    assert [e.ordinal for e in published(target) if e.ordinal] == list(range(1, found.events + 1))
    assert found.events == sum(len(images) for images in source.log.values()), "each change since LOW, once"


@pytest.mark.parametrize("kind", marked(HISTORIES))
@pytest.mark.parametrize("point", ["table-created", "staged", "before-commit", "entry-written", "committed"])
@pytest.mark.parametrize("passed", [1, 2])
def test_a_wave_that_is_delivered_early_is_there_once(tmp_path: Path, kind: str, point: str, passed: int) -> None:
    sink, source = SINKS[kind](tmp_path), EventSource(random.Random(6))
    rows, died = source.snapshot(), False
    try:
        with dying_at(point, passed):
            read_early(sink, rows)
    except Died:
        died = True
    assert died or (point, passed) == ("table-created", 2), "passed once only"
    read_early(sink, rows)
    assert sorted((e.row["id"], e.row["note"]) for e in published(sink.target(ORDERS.id))) == sorted(rows)
    follow(sink, source, tmp_path)
    assert content(sink.target(ORDERS.id)) == sorted(source.at[END].items(), key=repr)


@pytest.mark.parametrize("kind", marked(HISTORIES))
def test_an_early_resnapshot_replaces_the_history_by_one_commit(tmp_path: Path, kind: str) -> None:
    sink, source = SINKS[kind](tmp_path), EventSource(random.Random(7))
    read_early(sink, source.snapshot())
    follow(sink, source, tmp_path)
    rows = source.snapshot()
    read_snapshot(sink, rows, nonce=1, early=True)
    target = sink.target(ORDERS.id)
    assert sorted((e.row["id"], e.row["note"]) for e in published(target)) == sorted(rows)
    state = target.last_commit()
    assert state is not None
    assert (state.resnapshot_nonce, state.consistent, state.published) == (1, False, True)
    follow(sink, source, tmp_path)
    assert content(target) == sorted(source.at[END].items(), key=repr)


@pytest.mark.parametrize("kind", marked(HISTORIES))
def test_an_early_table_stops_where_the_source_crashed_before_it_is_consistent(tmp_path: Path, kind: str) -> None:
    sink, source = SINKS[kind](tmp_path), EventSource(random.Random(8))
    state, rows = read_early(sink, source.snapshot()), published(sink.target(ORDERS.id))
    assert not state.consistent
    error = error_of_a_crash(sink, tmp_path)
    assert error is not None
    assert error.reason is Reason.POSITION_LOST
    assert published(sink.target(ORDERS.id)) == rows


@pytest.mark.parametrize("early", [False, True])
def test_rows_that_are_delivered_early_keep_their_values_when_the_definition_changes(early: bool) -> None:
    """Before the table is consistent. A staged copy takes the same change, because no reader has
    read it."""
    begun = replace(
        first_state(), early=early, position=place(LOW), low=place(LOW), high=Place(FILE, HIGH, "mysql:uuid")
    )
    change = Statement("shop", "ALTER TABLE orders ADD COLUMN x INT NOT NULL DEFAULT 7", STRICT)
    step = SchemaStep(change, TransactionId(Place(FILE, 1500, "mysql:uuid")))
    made = partial(step_commit, begun, step, place(1500), FollowPolicy(follow=True, append_only=True), consistent=False)
    if not early:
        commit = made()
        assert commit is not None
        assert isinstance(commit.change, Evolve)
        return
    with pytest.raises(CdcError, match="rows that are published"):
        made()


@pytest.mark.parametrize("kind", marked(HISTORIES))
@pytest.mark.parametrize("before", [False, True])
def test_a_snapshot_ends_in_the_way_that_it_began(tmp_path: Path, kind: str, before: bool) -> None:
    """`snapshot.delivery` is changed between two runs."""
    sink = SINKS[kind](tmp_path)
    target = sink.target(ORDERS.id)
    first = replace(first_state(epoch=1, nonce=0), early=before)
    assert target.prepare(first).early is before
    assert target.prepare(replace(first, early=not before)).early is before


def test_a_table_is_silent_until_its_snapshot_is_consistent_and_then_emits(sink: Sink, tmp_path: Path) -> None:
    source = EventSource(random.Random(1))
    read_snapshot(sink, source.snapshot())
    run = applier(sink, tmp_path)
    run.apply(source.batch(LOW, HIGH - 100, tmp_path))
    run.checkpoint_idle(older_than=float("inf"))
    assert published(sink.target(ORDERS.id)) == []
    assert not run.consistent(run.tables[NAME])
    # nothing of the table: the position alone makes it consistent
    run.apply(BinlogBatch(place(HIGH - 100), place(HIGH), None, "", ()))
    run.checkpoint_idle(older_than=float("-inf"))
    assert run.consistent(run.tables[NAME])
    assert {e.operation for e in published(sink.target(ORDERS.id))} == {"+I"}


def test_a_batch_of_which_a_part_is_there_already_is_emitted_without_that_part(sink: Sink, tmp_path: Path) -> None:
    source = EventSource(random.Random(2))
    read_snapshot(sink, source.snapshot())
    follow(sink, source, tmp_path, end=HIGH + 500)
    run = applier(sink, tmp_path)
    run.reader = place(HIGH)
    run.apply(source.batch(HIGH, END, tmp_path))
    assert run.tables[NAME].error is None
    assert CheckingConsumer(("id",)).take(published(sink.target(ORDERS.id))).faults == []


def test_a_resnapshot_begins_again_and_is_silent_until_it_is_consistent(sink: Sink, tmp_path: Path) -> None:
    source = EventSource(random.Random(3))
    read_snapshot(sink, source.snapshot())
    follow(sink, source, tmp_path)
    before = list(published(sink.target(ORDERS.id)))
    read_snapshot(sink, source.snapshot(), nonce=1)
    assert published(sink.target(ORDERS.id)) == before
    state = sink.target(ORDERS.id).last_commit()
    assert state is not None
    assert (state.resnapshot_nonce, state.consistent) == (1, False)
    follow(sink, source, tmp_path)
    consumer = CheckingConsumer(("id",)).take(published(sink.target(ORDERS.id)))
    assert consumer.faults == []
    assert {k: r["note"] for (k,), r in consumer.rows.items()} == source.at[END]


@pytest.mark.parametrize("kind", marked(HISTORIES))
def test_a_resnapshot_whose_copy_is_gone_is_helped_by_another_one(tmp_path: Path, kind: str) -> None:
    """As the error says; the same one again does not begin an empty copy, and a batch of a stream
    that had it does not go on from its state."""
    sink, source = SINKS[kind](tmp_path), EventSource(random.Random(3))
    read_snapshot(sink, source.snapshot())
    follow(sink, source, tmp_path, end=HIGH)
    before = list(published(sink.target(ORDERS.id)))
    read_snapshot(sink, source.snapshot(), nonce=1)
    stream = applier(sink, tmp_path)
    target = sink.target(ORDERS.id)
    lose_copy(sink, 1)
    stream.apply(source.batch(LOW, END, tmp_path))
    stream.checkpoint_idle(older_than=float("inf"))
    raised = [stream.tables[NAME].error]
    for use in (target.writer(tmp_path).last_commit, target.open_snapshot):
        with pytest.raises(CdcError) as error:
            use()
        raised.append(error.value)
    with pytest.raises(CdcError) as again:
        read_snapshot(sink, source.snapshot(), nonce=1)
    assert {e and (e.reason, str(e)) for e in raised} == {(Reason.SINK_CONFLICT, str(again.value))}
    assert "resnapshot-1 of the snapshot is gone" in str(again.value)
    read_snapshot(sink, source.snapshot(), nonce=2)
    assert published(target) == before
    follow(sink, source, tmp_path)
    assert content(target) == sorted(source.at[END].items(), key=repr)
    consumer = CheckingConsumer(("id",)).take(published(target))
    assert consumer.faults == []
    assert {k: r["note"] for (k,), r in consumer.rows.items()} == source.at[END]


def lose_copy(sink: Sink, generation: int) -> None:
    """Removes the staged copy as another program would."""
    target = sink.target(ORDERS.id)
    if isinstance(target, IcebergHistory):
        discard_copy(target.copy(generation).place, target.table.limits)
        return
    assert isinstance(target, HistoryTarget)
    path = target.copy(generation).path
    path.lake.delete_folder(path.folder)


@pytest.mark.parametrize("kind", marked(HISTORIES))
def test_a_copy_that_another_run_completes_meanwhile_loses_no_change(tmp_path: Path, kind: str) -> None:
    """Between what a run has found of the staged copy and its commit, its predecessor makes it
    consistent, at a position before the end of the run's batch."""
    sink, source = SINKS[kind](tmp_path), EventSource(random.Random(5))
    read_snapshot(sink, source.snapshot())
    before = applier(sink, tmp_path)
    run = applier(sink, tmp_path, epoch=before.epoch + 1)
    apply_while_completed_by(before, run, source, tmp_path)
    assert content(sink.target(ORDERS.id)) == sorted(source.at[END].items(), key=repr)
    assert CheckingConsumer(("id",)).take(published(sink.target(ORDERS.id))).faults == []


def test_a_key_that_is_null_stops_the_table(sink: Sink, tmp_path: Path) -> None:
    source = EventSource(random.Random(4))
    read_snapshot(sink, source.snapshot())
    run = follow(sink, source, tmp_path, end=HIGH)
    source.log[HIGH + 100] = [(ChangeKind.INSERT, None, "zero date")]  # type: ignore[list-item]
    run.apply(source.batch(HIGH, HIGH + 100, tmp_path))
    error = run.tables[NAME].error
    assert error is not None
    assert error.reason is Reason.TYPE_UNSUPPORTED


def test_a_sink_says_whether_it_takes_events(sink: Sink) -> None:
    assert Emit in sink.capabilities.changes
    assert Upsert in sink.capabilities.changes, "keyed until it is published"
    assert Emit not in MemorySink().capabilities.changes
