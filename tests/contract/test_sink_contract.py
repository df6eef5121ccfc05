"""What every sink promises: R4 (the newest own state is the truth), R5 (published in one commit),
R8 (compare-and-set)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, GtidPosition, Place
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Filled, Kept
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.changes import (
    AdvancePosition,
    Append,
    Change,
    Commit,
    Empty,
    Evolve,
    Replace,
    StagedPart,
    Upsert,
)
from cdcsync_spark.sinks.contract.sink import Sink, Target
from contract.sinkcase import (
    ORDERS,
    SYNC,
    WATERMARK,
    Model,
    batch,
    content,
    first_state,
    keys_of,
    make_table,
    rows_of,
    stage,
    stamp,
    whole_snapshot,
)
from support.snapshots import wave

SPLITS = (Split(None, (10,)), Split((10,), (20,)), Split((20,), None))


def test_a_target_is_made_once_with_the_state_in_its_first_commit(target: Target) -> None:
    assert target.last_commit() is None
    state = first_state()
    assert target.prepare(state) == state
    assert target.prepare(replace(state, epoch=7)) == state
    assert target.last_commit() == state
    assert content(target) == []


def test_waves_append_and_the_state_comes_with_them(target: Target) -> None:
    target.prepare(first_state())
    for n, split in enumerate(SPLITS):
        state = target.commit(1, wave(split, stage(target, ORDERS, [(10 * n, f"row {n}")])))
        assert (state.commit_number, target.last_commit()) == (n + 1, state)
    assert state.snapshot_complete
    assert state.position == FilePosition(WATERMARK)
    assert content(target) == [(0, "row 0"), (10, "row 1"), (20, "row 2")]


def test_a_replayed_wave_is_a_no_op_by_the_state(target: Target) -> None:
    target.prepare(first_state())
    first = target.commit(1, wave(SPLITS[0], stage(target, ORDERS, [(1, "a")])))
    assert target.commit(1, wave(SPLITS[0], stage(target, ORDERS, [(1, "a")]))) == first
    assert content(target) == [(1, "a")]


def test_a_wave_without_rows_is_a_commit_of_the_state(target: Target) -> None:
    target.prepare(first_state())
    append = stage(target, ORDERS, [])
    assert append == Append(())
    assert target.commit(1, wave(Split(), append)).snapshot_complete
    assert content(target) == []


def test_staged_files_are_invisible_until_a_commit_names_them(target: Target) -> None:
    whole_snapshot(target, [(1, "a")])
    append = stage(target, ORDERS, [(2, "b")])
    assert content(target) == [(1, "a")]
    assert [part.rows for part in append.staged] == [1]
    assert tuple(StagedPart.from_dict(part.to_dict()) for part in append.staged) == append.staged


def test_staged_names_differ_between_attempts(target: Target) -> None:
    target.prepare(first_state())
    names = {stage(target, ORDERS, [(1, "a")], "run 7/wave 3").staged[0] for _ in range(3)}
    assert len(names) == 3


def test_rows_that_were_staged_and_are_gone_stop_the_commit(sink: Sink, target: Target) -> None:
    """Staged on another machine's disk, or cleaned up: a table that names it could not be read."""
    whole_snapshot(target, [(1, "a")])
    missing = stage(sink.target(ORDERS.id, generation=9), ORDERS, [(2, "b")])
    sink.discard(ORDERS.id, 9)
    with pytest.raises(PermanentError, match="not whole") as stopped:
        target.commit(1, batch(1, missing))
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert content(target) == [(1, "a")]


def test_merge_updates_inserts_and_deletes_in_one_commit(target: Target) -> None:
    whole_snapshot(target, [(1, "a"), (2, "b"), (3, "c")])
    change = Upsert(rows_of(ORDERS, [(2, "B"), (4, None)]), keys_of(ORDERS, [(3,), (99,)]))
    state = target.commit(1, batch(1, change))
    assert state.position == FilePosition(Place("binlog.000001", 1000, "mysql:uuid"))
    assert content(target) == [(1, "a"), (2, "B"), (4, None)]


def test_a_target_that_begins_without_a_snapshot_has_what_changes_since(target: Target) -> None:
    """Its position is fixed by the commit that begins it; a row that it never had may go."""
    target.prepare(first_state())
    start = FilePosition(Place("binlog.000001", 500, "mysql:uuid"))
    begun = target.commit(1, lambda found: Commit(found.begun_at(start), Append(())))
    assert (begun.position, begun.consistent, begun.without_snapshot) == (start, True, True)
    assert content(target) == []
    target.commit(1, batch(1, Upsert(rows_of(ORDERS, [(2, "b")]), keys_of(ORDERS, [(1,)]))))
    assert content(target) == [(2, "b")]
    state = target.last_commit()
    assert state is not None
    assert state.without_snapshot


def test_a_replayed_merge_is_a_no_op_by_the_state(target: Target) -> None:
    whole_snapshot(target, [(1, "a")])
    change = Upsert(rows_of(ORDERS, [(2, "b")]), keys_of(ORDERS, [(1,)]))
    first = target.commit(1, batch(1, change))
    target.commit(1, batch(2, Upsert(rows_of(ORDERS, [(1, "again")]), keys_of(ORDERS, [(2,)]))))
    assert target.commit(1, batch(1, change)).commit_number == first.commit_number + 1
    assert content(target) == [(1, "again")]


def test_a_merge_without_rows_stamps(target: Target) -> None:
    whole_snapshot(target, [(1, "a")])
    state = target.commit(1, batch(1, Upsert(rows_of(ORDERS, []), keys_of(ORDERS, []))))
    assert target.last_commit() == state
    assert content(target) == [(1, "a")]


@pytest.mark.parametrize("rows", [[], [(1, "a")]])
def test_a_merge_that_meets_no_row_commits_the_state(target: Target, rows: list[tuple[object, ...]]) -> None:
    """R4: a key that is born and dies within one batch folds to a delete of a key that the target
    never had."""
    before = whole_snapshot(target, rows)
    state = target.commit(1, batch(1, Upsert(rows_of(ORDERS, []), keys_of(ORDERS, [(9,)]))))
    assert state.commit_number == before.commit_number + 1
    assert target.last_commit() == state
    assert content(target) == rows


def test_nothing_to_do_commits_nothing(target: Target) -> None:
    before = whole_snapshot(target, [(1, "a")])
    assert target.commit(1, lambda found: None) == before
    assert target.last_commit() == before


def test_a_table_moves_to_another_server_with_its_rows(target: Target) -> None:
    """R6: by one commit of the state alone; after it only the new server's binlog is accepted."""
    whole_snapshot(target, [(1, "a")])
    there = GtidPosition(GtidSet(), Place("other.000001", 4, "mysql:other"))
    state = target.commit(
        1, lambda found: Commit(replace(found.moved("mysql:other", there, GtidSet()), epoch=1), AdvancePosition())
    )
    assert state.identity.lineage.binlogs == ("mysql:uuid", "mysql:other")
    assert target.last_commit() == state
    assert content(target) == [(1, "a")]
    fresh = first_state()
    with pytest.raises(PermanentError, match="mysql:uuid"):
        target.prepare(fresh)
    elsewhere = replace(fresh.identity, lineage=Lineage.of("mysql:other"))
    assert target.prepare(replace(fresh, identity=elsewhere)) == state


@pytest.mark.parametrize(
    ("field", "value"),
    [("sync", "other/sync"), ("lineage", Lineage.of("mysql:another-uuid")), ("table", "shop.elsewhere")],
)
def test_a_table_of_another_identity_is_refused(target: Target, field: str, value: Any) -> None:
    """R4: namespace/name, source log and source table; never mixed with another copy's rows."""
    state = first_state()
    target.prepare(replace(state, identity=replace(state.identity, **{field: value})))
    with pytest.raises(PermanentError, match=str(value)) as stopped:
        target.prepare(state)
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert stopped.value.needed
    assert stopped.value.remedy


def test_a_zombie_may_commit_until_its_successor_does_and_never_after(target: Target) -> None:
    """R8: the successor builds on what the zombie did before; its first commit ends the zombie."""
    whole_snapshot(target, [(1, "a")], epoch=1)
    target.commit(1, batch(1, Upsert(rows_of(ORDERS, [(2, "zombie, in time")]), keys_of(ORDERS, []))))
    target.commit(2, stamp(epoch=2))
    with pytest.raises(PermanentError, match="superseded by epoch 2") as stopped:
        target.commit(1, batch(2, Upsert(rows_of(ORDERS, [(3, "zombie, late")]), keys_of(ORDERS, []))))
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert content(target) == [(1, "a"), (2, "zombie, in time")]
    assert target.last_commit().epoch == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "wrong", [{"commit_number": 1}, {"commit_number": 9}, {"epoch": 5}, {"identity": first_state(sync="x/y").identity}]
)
def test_a_state_that_does_not_follow_is_refused_before_anything_is_written(
    target: Target, wrong: dict[str, object]
) -> None:
    before = whole_snapshot(target, [(1, "a")])
    bad = Commit(
        replace(before, **({"commit_number": before.commit_number + 1, "epoch": 1} | wrong)), AdvancePosition()
    )  # type: ignore[arg-type]
    with pytest.raises(Exception, match="does not follow"):
        target.commit(1, lambda found: bad)
    assert target.last_commit() == before


WIDER = make_table(
    {"id": "bigint(20)", "placed": "datetime(6)", "note": "varchar(30)", "total": "decimal(10,2)"}, ["id"]
)


def read_again(sink: Sink, table: Capture, rows: list[tuple[object, ...]], nonce: int) -> TableState:
    """R5: staged beside the table in two waves, published by one commit, the side discarded."""
    main, side = sink.target(table.id), sink.target(table.id, generation=nonce)
    side.prepare(first_state(table, nonce=nonce))
    for n, split in enumerate((Split(None, (5,)), Split((5,), None))):
        side.commit(1, wave(split, stage(side, table, rows[n::2])))
    fresh, files = side.last_commit(), side.staged()
    assert fresh is not None
    state = main.commit(
        1, lambda found: Commit(replace(fresh, commit_number=found.commit_number + 1, epoch=1), Replace(files))
    )
    sink.discard(table.id, nonce)
    return state


def test_a_table_is_read_again_beside_itself_and_published_at_once(sink: Sink, target: Target) -> None:
    before = whole_snapshot(target, [(1, "old"), (2, "old")])
    side = sink.target(ORDERS.id, generation=1)
    side.prepare(first_state(nonce=1))
    side.commit(1, wave(Split(), stage(side, ORDERS, [(1, "new")])))
    assert (content(target), target.last_commit()) == ([(1, "old"), (2, "old")], before)
    state = read_again(sink, ORDERS, [(1, "new"), (7, "new")], nonce=2)
    assert (state.resnapshot_nonce, state.commit_number) == (2, before.commit_number + 1)
    assert content(target) == [(1, "new"), (7, "new")]
    assert target.last_commit() == state
    target.commit(1, batch(1, Upsert(rows_of(ORDERS, [(7, "merged")]), keys_of(ORDERS, [(1,)]))))
    assert content(target) == [(7, "merged")]


def test_reading_again_may_change_the_columns(sink: Sink, target: Target) -> None:
    """Another schema, here with the first DATETIME of the table (a feature that the old table did
    not need)."""
    from datetime import datetime
    from decimal import Decimal

    whole_snapshot(target, [(1, "old")])
    rows = [(1, datetime(2024, 2, 29, 1, 2, 3, 456789), "x", Decimal("1.50")), (9, None, None, None)]
    read_again(sink, WIDER, rows, nonce=1)  # type: ignore[arg-type]
    assert content(target) == rows
    model = Model(WIDER, {(r[0],): r for r in rows})
    target.commit(1, batch(1, model.apply([(9, rows[0][1], "y", Decimal("-0.01"))], [(1,)])))
    assert content(target) == model.content
    read_again(sink, ORDERS, [(1, "back")], nonce=2)
    assert content(target) == [(1, "back")]


def test_discarding_keeps_what_was_published_and_removes_what_was_not(sink: Sink, target: Target) -> None:
    whole_snapshot(target, [(1, "a")])
    abandoned = sink.target(ORDERS.id, generation=5)
    abandoned.prepare(first_state(nonce=5))
    abandoned.commit(1, wave(Split(), stage(abandoned, ORDERS, [(1, "never seen")])))
    sink.discard(ORDERS.id, 5)
    sink.discard(ORDERS.id, 5)
    assert abandoned.last_commit() is None
    with pytest.raises(PermanentError, match="staged copy of the snapshot is gone"):
        abandoned.staged()
    read_again(sink, ORDERS, [(2, "kept")], nonce=6)
    sink.discard(ORDERS.id, 6)
    assert content(target) == [(2, "kept")]


def test_a_snapshot_is_one_version_with_its_state(target: Target) -> None:
    """What `verify` compares must not move while the stream goes on."""
    whole_snapshot(target, [(1, "a"), (2, "b")])
    fixed = target.open_snapshot()
    target.commit(1, batch(1, Upsert(rows_of(ORDERS, [(1, "changed")]), keys_of(ORDERS, [(2,)]))))
    assert fixed.state.position == FilePosition(WATERMARK)
    assert fixed.schema.names == ["id", "note"]
    assert sorted(fixed.scan().read_all().to_pylist(), key=str) == [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]
    assert fixed.scan(["note"], pc.field("id") > 1).read_all().to_pylist() == [{"note": "b"}]
    assert target.open_snapshot().state == target.last_commit()


def test_sinks_and_targets_travel_to_tasks(sink: Sink) -> None:
    target = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(sink)).target(ORDERS.id)))
    whole_snapshot(target, [(1, "a")])
    assert content(sink.target(ORDERS.id)) == [(1, "a")]


HOSTILE = [
    "..",
    ".",
    "../../etc",
    "a b",
    "`x`",
    "it's",
    'quo"te',
    "semi;drop",
    "per%2Ecent",
    "tilde~2E",
    "ünïcødé",
    "\\back\\",
    "#?&=",
    "_x",
    "名" * 50,
]


def test_tables_with_hostile_names_lie_apart_and_inside_the_lake(sink: Sink) -> None:
    ids = [TableId(database, name) for database in ("..", "a/b") for name in HOSTILE]
    for n, table_id in enumerate(ids):
        whole_snapshot(sink.target(table_id), [(n, str(table_id)[:20])], ORDERS.named(table_id))
    for n, table_id in enumerate(ids):
        assert content(sink.target(table_id)) == [(n, str(table_id)[:20])]


COLUMNS = [
    "a.b",
    "sp ace",
    "back`tick",
    'quo"te',
    "sing'le",
    "üñ",
    "Upper",
    "semi;,{}()=",
    "new\nline\tend",
    "select",
    "t",
    "s",
    "s.x",
    "$1",
    "%s",
    "\\b",
    "cdcsync_deleted",
]


@pytest.mark.parametrize("key", COLUMNS)
def test_columns_with_hostile_names_merge(target: Target, key: str) -> None:
    table = make_table(dict.fromkeys(COLUMNS, "varchar(50)"), [key])
    model = Model(table)
    rows = [tuple(f"k{n}" if c == key else f"v{n}" for c in COLUMNS) for n in range(4)]
    whole_snapshot(target, rows[:3], table)
    model.rows = {model.key(r): r for r in rows[:3]}
    changed = tuple("k1" if c == key else None for c in COLUMNS)
    target.commit(1, batch(1, model.apply([changed, rows[3]], [("k0",)])))
    assert content(target) == model.content


def test_the_sync_of_the_error_is_named(sink: Sink) -> None:
    with pytest.raises(PermanentError, match=SYNC):
        sink.target(ORDERS.id).commit(1, stamp())


def test_every_change_that_a_sink_names_is_committed(sink: Sink, target: Target) -> None:
    whole_snapshot(target, [(1, "a")])
    changes: dict[type, Change] = {
        Append: stage(target, ORDERS, [(2, "b")]),
        Upsert: Upsert(rows_of(ORDERS, [(1, "c")]), keys_of(ORDERS, [])),
        Empty: Empty(),
        Evolve: Evolve((Kept("id"), Filled("e"))),
        Replace: Replace(stage(target, ORDERS, [(3, "d")]).staged),
        AdvancePosition: AdvancePosition(),
    }
    assert sink.capabilities.changes == changes.keys()
    for number, change in enumerate(changes.values(), 1):
        target.commit(1, batch(number, change))
    assert content(target) == [(3, "d")]


def test_rows_that_another_kind_of_sink_staged_are_refused(target: Target) -> None:
    before = whole_snapshot(target, [(1, "a")])
    with pytest.raises(CdcError, match="staged as 'another'"):
        target.commit(1, batch(1, Append((StagedPart("another", 1, "{}"),))))
    assert (target.last_commit(), content(target)) == (before, [(1, "a")])


def test_a_writer_maintains_its_table_between_commits(target: Target, tmp_path: Path) -> None:
    whole_snapshot(target, [(0, "a")])
    writer = target.writer(tmp_path)
    for number in range(1, 5):
        writer.commit(1, batch(number, Upsert(rows_of(ORDERS, [(number, "b")]), keys_of(ORDERS, []))))
        while writer.maintain():
            pass
    assert writer.last_commit() == target.last_commit()
    assert writer.status.max_idle_seconds > 0
    assert len(content(target)) == 5
