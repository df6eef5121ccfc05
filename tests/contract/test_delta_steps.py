"""Steps of a Delta table's schema: which files they rewrite, what every reader returns after them,
what is found of a step that died or lost a race, and what other programs did in between."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.schema_change import Filled, Kept
from cdcsync_spark.sinks.contract.changes import Empty, Upsert
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta.table.view import DeltaFile
from cdcsync_spark.sinks.lake import table_index
from cdcsync_spark.sinks.lake.files.live_file import deleted_count
from cdcsync_spark.sinks.lake.policy import CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import NOTHING_KEPT, read_by_delta_rs, read_by_duckdb
from contract.sinkcase import SYNC, Row, batch, content, in_order, keys_of, make_table, rows_of, step, whole_snapshot
from contract.stepcase import BEFORE, KEPT, ROWS, STEPS, TABLE
from support.deaths import Died, at_gate, dying_at

#: steps that leave the files as they are
METADATA_ALONE = {"nothing", "a column added", "reordered"}
FILLED = "a column added and filled"


def target_in(folder: Path, policy: MaintenancePolicy | None = None, limits: CommitLimits | None = None) -> DeltaTarget:
    """`TABLE` with `ROWS` in two files, one of them with a deletion vector."""
    sink = DeltaSink(
        open_store(str(folder / "lake")), SYNC, True, policy or MaintenancePolicy(), limits or CommitLimits()
    )
    target = sink.target(TABLE.id)
    whole_snapshot(target, [*ROWS[:2], (4, "gone", None, None, 1), (5, "old", None, None, 2)], TABLE)
    return target


def delete_and_insert(writer: Writer, number: int) -> None:
    writer.commit(1, batch(number, Upsert(rows_of(TABLE, ROWS[2:]), keys_of(TABLE, [(4,), (5,)]))))


@pytest.fixture
def target(tmp_path: Path) -> DeltaTarget:
    return target_in(tmp_path)


@pytest.fixture
def writer(target: DeltaTarget, tmp_path: Path) -> Writer:
    writer = target.writer(tmp_path)
    delete_and_insert(writer, 1)
    return writer


def files(target: DeltaTarget) -> list[DeltaFile]:
    view = target.path.view()
    assert view is not None
    return list(view.files.values())


def deleted(target: DeltaTarget) -> int:
    return sum(deleted_count(file) for file in files(target))


def assert_read(target: DeltaTarget, rows: list[Row]) -> None:
    """Asserts that our reader, delta-rs and DuckDB read these rows."""
    assert content(target) == read_by_delta_rs(target.uri) == read_by_duckdb(target.uri) == in_order(rows)


def on_disk(target: DeltaTarget) -> set[str]:
    root = Path(target.uri)
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.suffix in (".parquet", ".bin")} - {
        str(p.relative_to(root)) for p in (root / "_delta_log").rglob("*")
    }


def live_paths(target: DeltaTarget) -> set[str]:
    found = files(target)
    return {f.path for f in found} | {f.vector.path for f in found if f.vector}


@pytest.mark.parametrize("name", STEPS)
def test_every_reader_returns_the_rows_after_a_step_and_after_the_batch_that_follows(
    target: DeltaTarget, writer: Writer, name: str
) -> None:
    table, origins, rows = STEPS[name]
    assert deleted(target) == 2
    writer.commit(1, step(2, table, origins))
    assert_read(target, rows)
    assert deleted(target) == 2
    names = [c.name for c in table.captured]
    changed = tuple(2 if n == "id" else v for n, v in zip(names, rows[0], strict=True))
    writer.commit(1, batch(3, Upsert(rows_of(table, [changed]), keys_of(table, [(1,)]))))
    assert writer.status.fallback == ""
    assert_read(target, [changed, rows[2]])


@pytest.mark.parametrize("name", STEPS)
def test_files_are_rewritten_only_where_old_rows_would_be_misread(
    target: DeltaTarget, writer: Writer, name: str
) -> None:
    table, origins, _ = STEPS[name]
    before = {file.path for file in files(target)}
    writer.commit(1, step(2, table, origins))
    after = {file.path for file in files(target)}
    assert len(after) == 2
    assert (after == before) is (name in METADATA_ALONE)
    assert after == before or not after & before


@pytest.mark.parametrize("name", sorted(set(STEPS) - {"converted"}))
def test_the_key_index_reads_no_key_again(writer: Writer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the key's type changes its index is made again."""
    read: list[str] = []
    real = table_index.key_batches
    monkeypatch.setattr(table_index, "key_batches", lambda *a, **k: read.append(a[1]) or real(*a, **k))
    table, origins, _ = STEPS[name]
    writer.commit(1, step(2, table, origins))
    writer.commit(1, batch(3, Upsert(rows_of(table, []), keys_of(table, [(1,)]))))
    assert read == []


@pytest.mark.parametrize("name", STEPS)
def test_no_feature_keeps_readers_out_and_the_files_are_as_the_delta_log_says(
    target: DeltaTarget, writer: Writer, name: str
) -> None:
    table, origins, _ = STEPS[name]
    writer.commit(1, step(2, table, origins))
    protocol = DeltaTable(target.uri).protocol()
    assert protocol.reader_features == ["deletionVectors"]
    assert not {"columnMapping", "typeWidening"} & set(protocol.writer_features or ())
    for file in files(target):
        stats = json.loads(file.add["stats"])
        found = pq.read_table(Path(target.uri) / file.path)
        assert (stats["numRecords"], file.size) == (found.num_rows, (Path(target.uri) / file.path).stat().st_size)
        assert file.vector is None or stats["tightBounds"] is False
        for column in set(found.schema.names) & {c.name for c in table.captured}:
            assert stats["nullCount"][column] == found[column].null_count or file.vector


def test_a_step_above_the_limit_is_refused_before_anything_has_changed(tmp_path: Path) -> None:
    target = target_in(tmp_path, limits=CommitLimits(rewritten_bytes=1))
    before, there = target.last_commit(), on_disk(target)
    table, origins, _ = STEPS[FILLED]
    with pytest.raises(PermanentError, match="MiB") as refused:
        target.commit(1, step(1, table, origins))
    assert refused.value.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert (target.last_commit(), on_disk(target)) == (before, there)
    table, origins, _ = STEPS["a column added"]
    target.commit(1, step(1, table, origins))


def test_emptying_removes_files_and_writes_none(target: DeltaTarget, writer: Writer) -> None:
    there = on_disk(target)
    writer.commit(1, batch(2, Empty()))
    assert_read(target, [])
    assert on_disk(target) == there
    writer.commit(1, batch(3, Upsert(rows_of(TABLE, ROWS), keys_of(TABLE, []))))
    assert_read(target, ROWS)


# -- deaths, races, other programs


@pytest.mark.parametrize("name", [FILLED, "a column added", "converted"])
@pytest.mark.parametrize("gate", ["step-staged", "committed"])
def test_a_step_that_died_is_made_again_or_is_in(target: DeltaTarget, writer: Writer, gate: str, name: str) -> None:
    table, origins, rows = STEPS[name]
    with pytest.raises(Died), dying_at(gate):
        writer.commit(1, step(2, table, origins))
    assert_read(target, rows if gate == "committed" else ROWS)
    state = target.commit(2, step(2, table, origins, epoch=2))
    assert (state.commit_number, state.epoch) == (3, 1 if gate == "committed" else 2)
    assert_read(target, rows)


def test_files_of_a_step_that_died_are_removed(tmp_path: Path) -> None:
    target = target_in(tmp_path)
    DeltaTable(target.uri).alter.set_table_properties(NOTHING_KEPT)
    table, origins, rows = STEPS[FILLED]
    delete_and_insert(target.writer(tmp_path), 1)
    with pytest.raises(Died), dying_at("step-staged"):
        target.writer(tmp_path).commit(1, step(2, table, origins))
    assert len(on_disk(target) - live_paths(target)) == 2
    writer = target.writer(tmp_path)
    writer.commit(1, step(2, table, origins))
    writer.commit(1, batch(3, Upsert(rows_of(table, rows[:1]), keys_of(table, []))))
    while writer.maintain():
        pass
    assert on_disk(target) == live_paths(target)
    assert_read(target, rows)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_loses_a_race_keeps_the_winners_files_and_leaves_none(
    target: DeltaTarget, writer: Writer, name: str
) -> None:
    """An OPTIMIZE commits while the step's files are written."""
    table, origins, rows = STEPS[name]
    with at_gate("step-staged", lambda: DeltaTable(target.uri).optimize.compact()):
        writer.commit(1, step(2, table, origins))
    assert_read(target, rows)
    assert live_paths(target) <= on_disk(target)
    writer.commit(1, batch(3, Upsert(rows_of(table, rows[:1]), keys_of(table, [(3,)]))))
    assert_read(target, rows[:2])


def test_a_lost_race_removes_what_it_wrote_and_no_deletion_vector_that_is_live(
    target: DeltaTarget, writer: Writer
) -> None:
    table, origins, rows = STEPS[FILLED]
    before = on_disk(target)

    def another_commit() -> None:
        DeltaTable(target.uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})

    with at_gate("step-staged", another_commit):
        writer.commit(1, step(2, table, origins))
    assert on_disk(target) == before | live_paths(target)
    assert_read(target, rows)


def test_an_optimize_between_steps(target: DeltaTarget, writer: Writer) -> None:
    table, origins, rows = STEPS["a column added"]
    writer.commit(1, step(2, table, origins))
    DeltaTable(target.uri).optimize.compact()
    back = [Kept(c.name) for c in TABLE.captured]
    writer.commit(1, step(3, TABLE, back))
    assert_read(target, ROWS)
    DeltaTable(target.uri).optimize.compact()
    writer.commit(1, step(4, table, origins))
    writer.commit(1, batch(5, Upsert(rows_of(table, []), keys_of(table, [(3,)]))))
    assert_read(target, rows[:2])


def test_a_table_is_opened_from_a_checkpoint_after_a_step(tmp_path: Path) -> None:
    target = target_in(tmp_path, MaintenancePolicy(checkpoint_entries=1))
    delete_and_insert(target, 1)
    for number, name in enumerate([FILLED, "converted"], 2):
        table, origins, rows = STEPS[name]
        target.commit(1, step(number, TABLE, KEPT) if name == FILLED else step(number, table, origins))
        DeltaTable(target.uri).create_checkpoint()
    assert_read(target, rows)
    target.commit(1, batch(4, Upsert(rows_of(table, []), keys_of(table, [(1,)]))))
    assert_read(target, rows[1:])


def test_files_from_before_and_after_a_step_become_one(tmp_path: Path) -> None:
    """Maintenance gathers files that lack a column with files that have it."""
    target = target_in(tmp_path, MaintenancePolicy(gathered_files=2))
    writer, (table, origins, rows) = target.writer(tmp_path), STEPS["a column added"]
    delete_and_insert(writer, 1)
    writer.commit(1, step(2, table, origins))
    writer.commit(1, batch(3, Upsert(rows_of(table, [(9, *[None] * 4, 7)]), keys_of(table, []))))
    while writer.maintain():
        pass
    assert len(files(target)) == 1
    assert_read(target, [*rows, (9, *[None] * 4, 7)])


# -- columns of other programs


def add_their_column(target: Target, name: str) -> None:
    """Another program's column, with values."""
    assert isinstance(target, DeltaTarget)
    table = DeltaTable(target.uri)
    table.alter.add_columns([_integer(name)])
    DeltaTable(target.uri).update(updates={name: "77"})


def _integer(name: str) -> object:
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    return Field(name, PrimitiveType("integer"), nullable=True)


@pytest.mark.parametrize("name", ["x", "X"])
def test_values_of_another_programs_column_do_not_become_the_sources(
    target: DeltaTarget, writer: Writer, name: str
) -> None:
    """The source adds a column of that name: NULL in all rows."""
    add_their_column(target, name)
    table, origins, rows = STEPS["a column added"]
    writer.commit(1, step(2, table, origins))
    assert_read(target, rows)


def test_nor_do_they_when_a_step_came_in_between(target: DeltaTarget, writer: Writer) -> None:
    """A step of another column has left their column in the files."""
    add_their_column(target, "x")
    between = make_table({**BEFORE, "y": "int(11)"}, ["id"])
    writer.commit(1, step(2, between, [*KEPT, Filled()]))
    table = make_table({**BEFORE, "y": "int(11)", "x": "int(11)"}, ["id"])
    writer.commit(1, step(3, table, [*KEPT, Kept("y"), Filled()]))
    found = content(target)
    assert found == in_order([(*row, None, None) for row in ROWS])
    assert found == read_by_delta_rs(target.uri) == read_by_duckdb(target.uri)


def test_what_users_gave_the_table_stays_where_the_files_stay(target: DeltaTarget, writer: Writer) -> None:
    """A comment on a column of ours, and a column of theirs with its values."""
    add_their_column(target, "theirs")
    DeltaTable(target.uri).alter.set_column_metadata("note", {"comment": "written by hand"})
    table, origins, rows = STEPS["a column added"]
    writer.commit(1, step(2, table, origins))
    found = {f.name: f for f in DeltaTable(target.uri).schema().fields}
    assert found["note"].metadata == {"comment": "written by hand"}
    assert read_by_delta_rs(target.uri) == in_order([(*row, 77) for row in rows])
    assert content(target) == rows
