"""The state in a Delta table's log: found past other programs' commits, and never cleaned away
(R4).

Other programs are played by delta-rs with its defaults, which checkpoint every 100 commits and
clean up after that.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta.table.log import own_state
from cdcsync_spark.sinks.delta.table.view import actions_of, entry_text
from cdcsync_spark.sinks.lake.policy import POLICY, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
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
from support.delta_tables import opened


def entries(target: DeltaTarget) -> list[str]:
    return sorted(p.name for p in Path(target.uri, "_delta_log").glob("*.json"))


@pytest.fixture
def local(tmp_path: Path) -> DeltaTarget:
    return DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(ORDERS.id)


def test_optimize_between_commits_is_looked_past(target: DeltaTarget) -> None:
    whole_snapshot(target, [(n, "a") for n in range(3)])
    state = target.commit(1, batch(1, stage(target, ORDERS, [(7, "b")])))
    assert opened(target).optimize.compact()["numFilesRemoved"] == 2
    assert target.last_commit() == state
    assert target.open_snapshot().state == state
    state = target.commit(1, batch(2, Upsert(rows_of(ORDERS, [(7, "c")]), keys_of(ORDERS, [(0,)]))))
    assert (target.last_commit(), content(target)) == (state, [(1, "a"), (2, "a"), (7, "c")])


def test_upkeep_after_an_optimize_that_only_a_stamp_has_seen(local: DeltaTarget, tmp_path: Path) -> None:
    """The index learns of the other program's files before rows are moved out of them."""
    whole_snapshot(local, [(n, "a") for n in range(3)])
    policy = MaintenancePolicy(peeled_bytes=1, deleted_share=0.0, most_rows=2)
    writer = replace(local, policy=policy).writer(tmp_path)
    for n in range(1, 4):
        writer.commit(1, batch(n, Upsert(rows_of(ORDERS, [(n, "b")]), keys_of(ORDERS, []))))
    opened(local).optimize.compact()
    writer.commit(1, stamp())
    assert [writer.maintain(), writer.maintain()] == ["remove orphans", "compact"]
    writer.commit(1, batch(10, Upsert(rows_of(ORDERS, [(0, "c")]), keys_of(ORDERS, [(1,)]))))
    assert content(local) == [(0, "c"), (2, "b"), (3, "b")]


def test_staged_copies_that_a_dead_run_left_are_removed(local: DeltaTarget, tmp_path: Path) -> None:
    """It died after the publication: of the published generation only the Delta log goes, a later
    one is still being filled."""
    whole_snapshot(local, [(1, "a")])
    for generation in (1, 2, 3):
        copy = DeltaTarget(replace(local.path, staged=f"_resnapshot-{generation}"))
        whole_snapshot(copy, [(generation, "staged")])
        if generation == 2:
            files = copy.staged()
    local.commit(
        1, lambda found: Commit(replace(found, commit_number=found.commit_number + 1, generation=2), Replace(files))
    )
    writer = local.writer(tmp_path)
    writer.commit(1, batch(10, Upsert(rows_of(ORDERS, [(7, "later")]), keys_of(ORDERS, []))))
    while writer.maintain():
        pass
    left = {p.name: (p / "_delta_log").exists() for p in Path(local.uri).glob("_resnapshot-*")}
    assert left == {"_resnapshot-2": False, "_resnapshot-3": True}
    assert content(local) == [(2, "staged"), (7, "later")]


@pytest.mark.parametrize("done", [False, True])
def test_waves_that_no_commit_took_go_when_the_snapshot_is_done(local: DeltaTarget, tmp_path: Path, done: bool) -> None:
    """Once they are older than files that left the table are kept."""
    local.prepare(first_state())
    stage(local, ORDERS, [(1, "of a run that died"), (2, "with it")])
    lost = set(Path(local.uri).glob("*.parquet"))
    for file in lost:
        os.utime(file, (1, 1))
    stage(local, ORDERS, [(1, "of a run that lives")])
    young = set(Path(local.uri).glob("*.parquet")) - lost
    append, high = stage(local, ORDERS, [(1, "a")]), WATERMARK if done else replace(WATERMARK, offset=1 << 40)
    local.commit(1, lambda found: Commit(found.after_wave([Split()], FilePosition(WATERMARK), high, 1, 0), append))
    writer = local.writer(tmp_path)
    writer.commit(1, batch(10, Upsert(rows_of(ORDERS, [(7, "later")]), keys_of(ORDERS, []))))
    while writer.maintain():
        pass
    left = set(Path(local.uri).glob("*.parquet"))
    assert (lost.isdisjoint(left) if done else lost <= left, len(lost)) == (True, 1)
    assert young <= left
    assert content(local) == [(1, "a"), (7, "later")]


def test_an_entry_may_be_read_by_whom_the_umask_lets(local: DeltaTarget) -> None:
    whole_snapshot(local, [(1, "a")])
    modes = {p.stat().st_mode for p in Path(local.uri, "_delta_log").iterdir()}
    (tmp := Path(local.uri, "made-now")).touch()
    assert modes == {tmp.stat().st_mode}


@pytest.mark.parametrize("kind", ["append", "merge"])
def test_optimize_in_mid_commit_only_delays_it(target: DeltaTarget, kind: str) -> None:
    """A MERGE whose files another program has compacted meanwhile starts again at "open"."""
    whole_snapshot(target, [(n, "a") for n in range(2)])
    target.commit(1, batch(1, stage(target, ORDERS, [(2, "a")])))
    change = (
        Upsert(rows_of(ORDERS, [(0, "b")]), keys_of(ORDERS, []))
        if kind == "merge"
        else stage(target, ORDERS, [(9, "b")])
    )
    calls = 0

    def build(found: TableState) -> Commit:
        nonlocal calls
        calls += 1
        if calls == 1:
            opened(target).optimize.compact()
        return Commit(replace(found, commit_number=found.commit_number + 1), change)

    state = target.commit(1, build)
    assert target.last_commit() == state
    expected = [(0, "b"), (1, "a"), (2, "a")] if kind == "merge" else [(0, "a"), (1, "a"), (2, "a"), (9, "b")]
    assert content(target) == expected
    assert calls == 2


def test_a_long_history_with_checkpoints_and_clean_up_keeps_the_newest_state(local: DeltaTarget) -> None:
    """50 own commits with the log retention at zero: old entries go, the newest own one stays, and
    so does the content."""
    local = replace(local, policy=MaintenancePolicy(checkpoint_entries=20))
    whole_snapshot(local, [(n, "a") for n in range(5)])
    opened(local).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 seconds", "delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    model = Model(ORDERS, {(n,): (n, "a") for n in range(5)})
    for number in range(1, 51):
        state = local.commit(1, batch(number, model.apply([(number % 7, f"by {number}")], [(number % 3,)])))
        assert local.last_commit() == state
    assert content(local) == model.content
    assert len(entries(local)) < 2 * POLICY.checkpoint_entries + 10
    data = {p.name for p in Path(local.uri).glob("*.parquet")}
    assert len(data) < 2 * POLICY.checkpoint_entries + 10


def test_other_programs_commits_and_their_clean_up_leave_the_state(local: DeltaTarget) -> None:
    """A paused sync: 50 foreign commits, two automatic checkpoints with clean-up at a retention of
    zero."""
    state = whole_snapshot(local, [(1, "a")])
    opened(local).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "20"}
    )
    for _ in range(50):
        opened(local).create_write_transaction([], "append", opened(local).schema())
    assert any(Path(local.uri, "_delta_log").glob("*.checkpoint.parquet"))
    assert local.last_commit() == state
    assert local.prepare(first_state()) == state


def test_a_log_that_was_cleaned_by_hand_is_refused_and_not_taken_for_empty(local: DeltaTarget) -> None:
    """A table that has lost its state may hold anything: stop, never start over on top of it."""
    whole_snapshot(local, [(1, "a")])
    opened(local).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    opened(local).create_checkpoint()
    opened(local).cleanup_metadata()
    for act in (
        local.last_commit,
        lambda: local.prepare(first_state()),
        lambda: local.commit(1, stamp()),
        local.open_snapshot,
    ):
        with pytest.raises(PermanentError, match="no state of shop/orders") as stopped:
            act()
        assert stopped.value.reason is Reason.SINK_CONFLICT


def test_a_delta_table_of_somebody_else_is_refused(local: DeltaTarget) -> None:
    write_deltalake(local.uri, pa.table({"theirs": [1, 2]}))
    with pytest.raises(PermanentError, match="another program's table"):
        local.prepare(first_state())
    assert opened(local).to_pyarrow_table().num_rows == 2


def test_a_folder_with_other_files_is_not_taken_over(local: DeltaTarget) -> None:
    """A later VACUUM of ours, or of the user's, would remove them."""
    Path(local.uri).mkdir(parents=True)
    Path(local.uri, "theirs.parquet").write_text("precious")
    with pytest.raises(PermanentError, match=r"theirs\.parquet"):
        local.prepare(first_state())
    assert Path(local.uri, "theirs.parquet").read_text() == "precious"


def test_a_state_of_a_newer_program_is_refused() -> None:
    entry = '{"commitInfo":{"cdcsync":"{\\"v\\":99,\\"identity\\":{\\"table\\":\\"a.b\\"}}"}}\n'
    with pytest.raises(PermanentError, match="version 99"):
        own_state(entry)


def test_a_column_that_somebody_changed_stops_the_table(local: DeltaTarget) -> None:
    whole_snapshot(local, [(1, "a")])
    narrower = pa.schema([("id", pa.int64())])
    write_deltalake(local.uri, pa.table({"id": [1]}, schema=narrower), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(PermanentError, match="'note' is missing"):
        local.commit(1, batch(1, stage(local, ORDERS, [(2, "b")])))


def test_a_key_that_somebody_doubled_stops_the_table(local: DeltaTarget) -> None:
    """The counts of a MERGE must add up."""
    whole_snapshot(local, [(1, "a")])
    write_deltalake(local.uri, rows_of(ORDERS, [(1, "theirs")]), mode="append")
    with pytest.raises(PermanentError, match="each key once") as stopped:
        local.commit(1, batch(1, Upsert(rows_of(ORDERS, [(1, "b")]), keys_of(ORDERS, []))))
    assert stopped.value.reason is Reason.SINK_CONFLICT


def test_a_side_targets_many_waves_are_all_published(sink: DeltaSink) -> None:
    """More waves than a checkpoint holds apart: the files come from the side's whole log."""
    sink = replace(sink, policy=MaintenancePolicy(checkpoint_entries=10))
    main, side = sink.target(ORDERS.id), sink.target(ORDERS.id, generation=1)
    whole_snapshot(main, [(1, "old")])
    side.prepare(first_state(nonce=1))
    waves = 2 * sink.policy.checkpoint_entries + 3
    for n in range(waves):
        append = stage(side, ORDERS, [(n, "new")])
        side.commit(
            1, lambda found, append=append: Commit(replace(found, commit_number=found.commit_number + 1), append)
        )
    parts = side.staged()
    assert len(parts) == waves
    assert sum(part.rows for part in parts) == waves


def test_small_files_of_a_stream_of_inserts_are_compacted(local: DeltaTarget) -> None:
    whole_snapshot(local, [])
    for n in range(1, 62):
        local.commit(1, batch(n, stage(local, ORDERS, [(n, "a")])))
    assert len(opened(local).file_uris()) < POLICY.gathered_files + 5
    assert content(local) == sorted(((n, "a") for n in range(1, 62)), key=repr)


def test_upkeep_that_fails_does_not_fail_the_commit(local: DeltaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("no space left on device")

    whole_snapshot(local, [])
    monkeypatch.setattr(DeltaTable, "create_checkpoint", broken)
    for n in range(1, POLICY.checkpoint_entries + 1):
        state = local.commit(1, batch(n, stage(local, ORDERS, [(n, "a")])))
    assert local.last_commit() == state


def test_statistics_leave_out_what_delta_rs_writes_wrongly(local: DeltaTarget) -> None:
    """A BIGINT UNSIGNED above 2^63 would get 2^63-1 as its bound, and no reader would find it."""
    from decimal import Decimal

    table = make_table({"id": "bigint(20) unsigned", "n": "int(11)", "note": "text"}, ["id"])
    table = table.named(ORDERS.id)
    whole_snapshot(local, [], table)
    top = Decimal(2**64 - 1)
    local.commit(1, batch(1, Upsert(rows_of(table, [(top, 1, "x")]), keys_of(table, []))))
    opened(local).optimize.compact()
    actions = pa.table(opened(local).get_add_actions(flatten=True))
    assert actions["min.n"].to_pylist() == [1]
    assert "min.id" not in actions.schema.names or actions["min.id"].to_pylist() == [None]


REWRITTEN = {
    "delta.enableDeletionVectors": ("false", "delta.enableDeletionVectors=false"),
    "delta.appendOnly": ("false", ""),
    "delta.constraints.positive": ("id > 0", "CHECK constraints"),
}


@pytest.mark.parametrize("name", sorted(REWRITTEN))
def test_a_table_whose_rules_are_not_ours_is_left_to_delta_rs_and_the_reason_is_told(
    local: DeltaTarget, tmp_path: Path, name: str
) -> None:
    """Native commits are right only while all that the protocol asks of a writer is known; the
    rows are right both ways."""
    value, reason = REWRITTEN[name]
    whole_snapshot(local, [(1, "a"), (2, "b")])
    entry = local.path.log().entry(0)
    assert entry is not None
    actions = list(actions_of(entry))
    metadata = next(a["metaData"] for a in actions if "metaData" in a)
    metadata["configuration"][name] = value
    version = opened(local).version() + 1
    log = Path(local.uri, "_delta_log", f"{version:020d}.json")
    log.write_text(entry_text([{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": metadata}]))
    writer = local.writer(tmp_path)
    change = Upsert(rows_of(ORDERS, [(2, "B"), (3, "c")]), keys_of(ORDERS, [(1,)]))
    writer.commit(1, batch(1, change))
    assert content(local) == [(2, "B"), (3, "c")]
    assert reason in writer.status.fallback
    assert bool(reason) == bool(writer.status.fallback)


def test_a_table_of_before_is_given_deletion_vectors_with_its_first_batch(local: DeltaTarget, tmp_path: Path) -> None:
    plain = DeltaSink(local.path.lake, SYNC, vectors=False).target(ORDERS.id)
    whole_snapshot(plain, [(1, "a"), (2, "b")])
    assert opened(plain).protocol().min_writer_version == 2
    writer = local.writer(tmp_path)
    writer.commit(1, batch(1, Upsert(rows_of(ORDERS, [(2, "B")]), keys_of(ORDERS, []))))
    assert writer.status.fallback == ""
    assert opened(local).protocol().writer_features == ["appendOnly", "deletionVectors", "invariants"]
    assert content(local) == [(1, "a"), (2, "B")]
