"""Commits of other programs to a Delta table: a RESTORE takes the state back with the rows, any
other change of rows is noted in it, and what changes no row is nothing (R4).

Programs are delta-rs here; Spark and DuckDB are in `test_foreign_programs`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from cdcsync_core.gates import observed
from cdcsync_core.positions.position import Position
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Change, Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.fallback import delta_rs
from cdcsync_spark.sinks.delta.replica.commit import DeltaWriter
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta.table.log import entry_name
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import actions_of, entry_text
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.sinks.lake.writer import LOSS_QUESTIONS
from contract.sinkcase import ORDERS, SYNC, batch, content, stage, stamp
from support.delta_tables import changes, opened, streamed, upsert

ROWS = pa.table({"id": pa.array([100], pa.int64()), "note": pa.array(["theirs"])})
#: another program's operation -> what it does, the name by which its commit calls it
CHANGES: dict[str, tuple[Callable[[DeltaTable], object], str]] = {
    "delete": (lambda t: t.delete("id = 1"), "DELETE"),
    "update": (lambda t: t.update({"note": "'theirs'"}, predicate="id = 1"), "UPDATE"),
    "append": (lambda t: write_deltalake(t, ROWS, mode="append"), "WRITE"),
    "overwrite": (lambda t: write_deltalake(t, ROWS, mode="overwrite"), "WRITE"),
    "merge": (
        lambda t: (
            t.merge(ROWS, "t.id = s.id", source_alias="s", target_alias="t").when_not_matched_insert_all().execute()
        ),
        "MERGE",
    ),
}
HARMLESS: dict[str, Callable[[DeltaTable], object]] = {
    "optimize": lambda t: t.optimize.compact(),
    "vacuum": lambda t: t.vacuum(0, dry_run=False, enforce_retention_duration=False),
    "checkpoint": lambda t: t.create_checkpoint(),
    "properties": lambda t: t.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
}


def version(target: DeltaTarget) -> int:
    return target.open_snapshot().version


def last(target: DeltaTarget) -> TableState:
    state = target.last_commit()
    assert state is not None
    return state


def replaced(target: DeltaTarget) -> Callable[[TableState], Commit]:
    """New content, which takes all files away."""
    staged = stage(target, ORDERS, [(7, "read again")]).staged
    return lambda found: Commit(
        replace(found, commit_number=found.commit_number + 1, generation=1, written=None), Replace(staged)
    )


def restored_but_for(target: DeltaTarget, older: int, kind: str) -> None:
    """A RESTORE by a program that leaves an action of `kind` out."""
    opened(target).restore(older)
    name = entry_name(version(target))
    actions = list(actions_of((target.path.store.read(name) or b"").decode()))
    left_out = next(a for a in actions if kind in a)
    target.path.store.delete(name)
    target.path.store.put_new(name, entry_text([a for a in actions if a is not left_out]).encode())


@pytest.fixture
def local(tmp_path: Path) -> DeltaTarget:
    return DeltaSink(open_store(str(tmp_path / "lake")), SYNC).target(ORDERS.id)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_rows_is_noted_and_our_next_commits_keep_the_note(local: DeltaTarget, change: str) -> None:
    streamed(local, 1)
    before, (change_rows, operation) = last(local), CHANGES[change]
    change_rows(opened(local))
    written = last(local).written
    assert written is not None
    assert (written.version, written.operation) == (version(local), operation)
    assert written.program.startswith("delta-rs")
    assert written.at is not None
    assert last(local) == replace(before, written=written)
    opened(local).create_checkpoint()
    local.commit(1, stamp())
    local.commit(1, batch(9, upsert((2, "ours"))))
    assert (last(local).written, local.open_snapshot().state.written) == (written, written)


def test_what_changes_no_row_is_nothing(target: DeltaTarget) -> None:
    streamed(target, 3)
    state, writer = last(target), target.writer()
    assert writer.last_commit() == state
    for change in HARMLESS.values():
        change(opened(target))
        assert (last(target), writer.last_commit()) == (state, state)
    target.commit(1, changes(4))
    assert last(target).written is None


def test_a_restore_takes_the_state_back_and_the_binlog_is_replayed(target: DeltaTarget) -> None:
    streamed(target, 2)
    older, older_version, writer = last(target), version(target), target.writer()
    older_content = content(target)
    writer.last_commit()
    for n in (3, 4):
        writer.commit(2, changes(n, 2))
    newer, newer_content = last(target), content(target)
    opened(target).restore(older_version)
    restored = replace(older, epoch=newer.epoch, commit_number=newer.commit_number, replaying=newer.position)
    assert (last(target), writer.last_commit()) == (restored, restored)
    assert content(target) == older_content
    for n in (3, 4):
        writer.commit(2, changes(n, 2))
    assert content(target) == newer_content
    assert last(target) == replace(newer, commit_number=newer.commit_number + 2)


def test_a_restore_to_a_time_names_no_version(local: DeltaTarget) -> None:
    streamed(local, 2)
    older, older_content = last(local), content(local)
    local.commit(1, changes(3))
    next_made = datetime.fromtimestamp(opened(local).history(1)[0]["timestamp"] / 1000, UTC)
    opened(local).optimize.compact()
    opened(local).restore(next_made)
    assert content(local) == older_content
    assert (last(local).position, last(local).written) == (older.position, None)


def test_a_restore_brings_back_a_note_only_with_the_rows(local: DeltaTarget) -> None:
    """To before another program's change: it is gone. To after it: it is there again."""
    streamed(local, 1)
    before = version(local)
    CHANGES["delete"][0](opened(local))
    noted, written = version(local), last(local).written
    local.commit(1, changes(2))
    opened(local).restore(before)
    assert last(local).written is None
    assert (1, "v1") in content(local)
    opened(local).restore(noted)
    assert last(local).written == written
    assert written is not None
    opened(local).restore(before)
    local.commit(1, changes(3))
    assert last(local).written is None


def test_a_restore_that_left_a_file_out_is_a_change_of_rows(local: DeltaTarget) -> None:
    streamed(local, 1)
    older, newest = version(local), local.commit(1, replaced(local))
    restored_but_for(local, older, "add")
    written = last(local).written
    assert written is not None
    assert (written.operation, last(local).position) == ("RESTORE", newest.position)


def test_a_restore_that_left_the_columns_as_they_are_is_a_change_of_rows(local: DeltaTarget) -> None:
    streamed(local, 1)
    older, newest = version(local), local.commit(1, changes(2))
    opened(local).alter.add_columns([Field("theirs", "string")])
    restored_but_for(local, older, "metaData")
    assert last(local).written is not None
    assert last(local).position == newest.position


def test_a_change_while_a_commit_is_made_is_seen_by_it(target: DeltaTarget) -> None:
    streamed(target, 1)
    calls: list[TableState] = []

    def build(found: TableState) -> Commit | None:
        if not calls:
            CHANGES["append"][0](opened(target))
        calls.append(found)
        return changes(2)(found)

    target.commit(1, build)
    assert [call.written is None for call in calls] == [True, False]
    assert last(target).written == calls[1].written


def appended(_: DeltaTarget) -> Upsert:
    return upsert((20, "batch"))


def whole_file(target: DeltaTarget) -> Change:
    return stage(target, ORDERS, [(20, "batch")])


def nothing(_: DeltaTarget) -> AdvancePosition:
    return AdvancePosition()


@pytest.mark.parametrize("kind", [appended, whole_file, nothing])
@pytest.mark.parametrize("restored", [False, True], ids=["append", "restore"])
def test_a_change_after_delta_rs_has_opened_the_table_is_seen_by_its_commit(
    local: DeltaTarget, monkeypatch: pytest.MonkeyPatch, kind: Callable[[DeltaTarget], Change], restored: bool
) -> None:
    """delta-rs would put our entry, with the state of before, on top of a change that touches none
    of its files: the state would count for rows that it does not know."""
    streamed(local, 1)
    opened(local).alter.add_constraint({"any": "id IS NOT NULL"})
    local.commit(1, changes(2))
    older = version(local)
    local.commit(1, changes(3))
    change, opening, positions, overtaken = kind(local), delta_rs.opened, list[Position | None](), list[int]()

    def opened_and_overtaken(table_path: TablePath) -> DeltaTable | None:
        handle = opening(table_path)
        if not overtaken:
            opened(local).restore(older) if restored else CHANGES["append"][0](opened(local))
            overtaken.append(version(local))
        return handle

    def build(found: TableState) -> Commit | None:
        positions.append(found.position)
        return batch(4, change)(found)

    monkeypatch.setattr(delta_rs, "opened", opened_and_overtaken)
    local.commit(1, build)
    assert len(positions) == 2
    assert (positions[1] != positions[0]) == restored
    assert (last(local).written is None) == restored
    assert ((100, "theirs") in content(local)) != restored


def test_a_writer_knows_of_commits_of_others(target: DeltaTarget) -> None:
    streamed(target, 1)
    writer = target.writer()
    writer.last_commit()
    assert not writer.has_news()
    writer.commit(1, changes(2))
    writer.last_commit()
    assert not writer.has_news()
    CHANGES["append"][0](opened(target))
    assert writer.has_news()
    writer.last_commit()
    assert not writer.has_news()


def asked(writer: DeltaWriter) -> bool:
    return any(writer.has_news() for _ in range(LOSS_QUESTIONS))


def test_a_table_that_is_gone_is_news(target: DeltaTarget) -> None:
    streamed(target, 1)
    writer = target.writer()
    writer.last_commit()
    assert not asked(writer)
    target.path.lake.delete_folder(target.path.folder)
    assert asked(writer)
    assert writer.last_commit() is None


def test_a_table_that_was_put_back_from_an_older_copy_is_news(local: DeltaTarget, tmp_path: Path) -> None:
    streamed(local, 1)
    older = last(local)
    shutil.copytree(local.uri, tmp_path / "backup")
    local.commit(1, changes(2))
    writer = local.writer()
    writer.last_commit()
    assert not asked(writer)
    shutil.rmtree(local.uri)
    shutil.copytree(tmp_path / "backup", local.uri)
    assert asked(writer)
    assert writer.last_commit() == older
    assert not asked(writer)


def write_over(target: DeltaTarget) -> None:
    """Replaces the newest entry by one that changes no row."""
    newest = version(target)
    target.path.store.delete(entry_name(newest))
    opened(target).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert version(target) == newest


@pytest.mark.parametrize("goes_on", [False, True], ids=["alone", "and-goes-on"])
def test_an_entry_that_another_program_wrote_over_ours_takes_the_state_back(target: DeltaTarget, goes_on: bool) -> None:
    """Spark does, on a disk and in S3: it asks whether the name is free and takes it later. What
    our entry brought is gone."""
    streamed(target, 2)
    writer, older = target.writer(), last(target)
    writer.commit(1, changes(3))
    write_over(target)
    if goes_on:
        CHANGES["append"][0](opened(target))
    assert asked(writer)
    state = writer.last_commit()
    assert state is not None
    assert (state.position, state.written is not None) == (older.position, goes_on)
    for n in (3, 4):
        writer.commit(1, changes(n))
    rows = content(target)
    assert {(1, "v4"), (13, "new"), (14, "new")} <= set(rows)
    assert len(rows) == 7 + goes_on


def test_a_compaction_hides_no_entry_that_another_program_wrote_over(local: DeltaTarget) -> None:
    streamed(local, 2)
    writer = local.writer()
    for n in range(3, 6):
        writer.commit(1, changes(n))
    while writer.maintain():
        pass
    for n in range(6, 11):
        writer.commit(1, changes(n))
    older = last(local)
    writer.commit(1, changes(11))
    write_over(local)
    while writer.maintain():
        pass
    assert last(local).position == older.position
    rows = content(local)
    assert len(rows) == len({key for key, _ in rows})
    for n in (11, 12):
        writer.commit(1, changes(n))
    rows = content(local)
    assert {(1, "v12"), (21, "new"), (22, "new")} <= set(rows)
    assert len(rows) == len({key for key, _ in rows})


def test_an_entry_that_is_written_over_while_a_batch_is_written_is_missed_by_no_commit(local: DeltaTarget) -> None:
    streamed(local, 2)
    writer, older = local.writer(), last(local)
    writer.commit(1, changes(3))
    seen: list[TableState] = []

    def build(state: TableState) -> Commit | None:
        seen.append(state)
        return changes(4)(state) if len(seen) == 1 else None

    def at(gate: str) -> None:
        if gate == "vectors-written":
            write_over(local)

    with observed(at):
        writer.commit(1, build)
    assert [state.position for state in seen][1:] == [older.position]
    assert last(local).position == older.position


def test_a_table_that_was_put_back_and_went_on_is_not_taken_for_ours(local: DeltaTarget, tmp_path: Path) -> None:
    """Another program has brought the older copy to our version, and beyond."""
    streamed(local, 1)
    older = last(local)
    shutil.copytree(local.uri, tmp_path / "backup")
    writer = local.writer()
    writer.commit(1, changes(2))
    shutil.rmtree(local.uri)
    shutil.copytree(tmp_path / "backup", local.uri)
    for days in (8, 9):
        opened(local).alter.set_table_properties({"delta.logRetentionDuration": f"interval {days} days"})
    seen: list[TableState] = []

    def build(found: TableState) -> Commit | None:
        seen.append(found)
        return None

    writer.commit(1, build)
    assert seen == [older]


def test_what_maintenance_met_first_is_news(local: DeltaTarget) -> None:
    streamed(local, 1)
    writer = local.writer()
    writer.commit(1, changes(2))
    CHANGES["append"][0](opened(local))
    assert writer.maintain() == "remove orphans"
    assert writer.has_news()
    state = writer.last_commit()
    assert state is not None
    assert state.written is not None
    assert not writer.has_news()


def test_new_content_ends_the_note(local: DeltaTarget) -> None:
    streamed(local, 1)
    CHANGES["append"][0](opened(local))
    local.commit(1, replaced(local))
    assert (last(local).written, content(local)) == (None, [(7, "read again")])
