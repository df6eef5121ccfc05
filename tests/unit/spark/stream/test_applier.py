"""Applying batches to real Delta tables: what decides whether a table goes on is what this run
knows of it (rules R4, R5, R8)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.chunk import Intervals, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, Place, TransactionId
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit, Replace
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable

SYNC = "default/shop"


def _place(offset: int) -> FilePosition:
    return FilePosition(Place("binlog.000001", offset, "mariadb:1"))


def _table(name: str) -> Capture:
    columns = (Column("id", SourceType.parse("int(11)"), nullable=False), Column("v", SourceType.parse("int(11)")))
    return Capture(SourceTable(TableId("shop", name), columns), ("id",))


class TwoTableStream:
    """Tables `a` and `b` in a lake, both complete as of offset 100, and one run of epoch 1 that
    reads from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sink = DeltaSink(open_store(str(folder / "lake")), SYNC)
        tables = {f"shop.{name}": self._made(_table(name)) for name in ("a", "b")}
        self.applier = Applier(tables, 1, _place(100), lambda: 0.0)

    def _made(self, table: Capture) -> StreamTable:
        at = _place(100)
        state = TableState(
            Identity(SYNC, Lineage.of("mariadb:1"), str(table.id)), table, TargetSchema.of(table), epoch=1
        )
        target = self.sink.target(table.id)
        found = target.prepare(
            replace(state, finished=Intervals((Split(),)), low=at, high=at.at, position=at, splits=1)
        )
        return StreamTable(str(table.id), target.writer(self.folder), found, committed=0.0)

    def batch(self, start: int, end: int, rows: dict[str, list[tuple[ChangeKind, int, int]]]) -> BinlogBatch:
        """One transaction that ends at `end`, with (kind, id, v) for each table's name."""
        transactions = str(self.folder / f"{start}.json")
        write_transactions(
            transactions, Transactions([TransactionId(Place("binlog.000001", end, "mariadb:1"))], [None])
        )
        parts = tuple(self._part(name, changes, start, end) for name, changes in sorted(rows.items()))
        return BinlogBatch(_place(start), _place(end), None, transactions, parts)

    def _part(self, name: str, changes: list[tuple[ChangeKind, int, int]], start: int, end: int) -> TableBatch:
        path = str(self.folder / f"{start}-{name}.arrow")
        schema = changes_schema(captured_schema(_table(name)))
        columns = [
            [k for k, _, _ in changes],
            [0] * len(changes),
            [i for _, i, _ in changes],
            [v for _, _, v in changes],
        ]
        rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(rows)
        return TableBatch(f"shop.{name}", path, len(changes), 0, _place(end))

    def stream_table(self, name: str) -> StreamTable:
        return self.applier.tables[f"shop.{name}"]

    def rows(self, name: str) -> dict[int, int]:
        rows = self.sink.target(TableId("shop", name)).open_snapshot().scan().read_all()
        return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.fixture
def stream(tmp_path: Path) -> TwoTableStream:
    return TwoTableStream(tmp_path)


def test_a_table_that_was_idle_for_many_batches_goes_on(stream: TwoTableStream) -> None:
    stream.applier.apply(stream.batch(100, 200, {"a": [(ChangeKind.INSERT, 1, 10)]}))
    stream.applier.apply(stream.batch(200, 300, {"a": [(ChangeKind.INSERT, 2, 20)]}))

    stream.applier.apply(stream.batch(300, 400, {"b": [(ChangeKind.INSERT, 7, 70)]}))

    assert stream.rows("b") == {7: 70}
    assert stream.stream_table("b").flowing
    assert stream.stream_table("b").state.position == _place(400)


def test_the_same_batch_again_changes_nothing(stream: TwoTableStream) -> None:
    batch = stream.batch(100, 200, {"a": [(ChangeKind.INSERT, 1, 10)]})
    stream.applier.apply(batch)
    number = stream.stream_table("a").state.commit_number

    stream.applier.apply(batch)

    assert stream.rows("a") == {1: 10}
    assert stream.stream_table("a").state.commit_number == number


def test_a_batch_that_leaves_out_a_piece_of_the_log_is_refused(stream: TwoTableStream) -> None:
    with pytest.raises(CdcError) as caught:
        stream.applier.apply(stream.batch(101, 200, {"a": [(ChangeKind.INSERT, 1, 10)]}))

    assert caught.value.reason is Reason.INTERNAL_ERROR
    assert stream.rows("a") == {}


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_table_that_was_read_again_is_left_to_its_new_owner(stream: TwoTableStream, epoch: int) -> None:
    """Its new content is as of an earlier place than the reader's: neither a batch nor a stamp may
    move it forward."""
    table = stream.stream_table("a")
    older = _place(60)
    table.target.commit(
        epoch,
        lambda found: Commit(
            replace(
                found,
                epoch=epoch,
                commit_number=found.commit_number + 1,
                resnapshot_nonce=5,
                generation=5,
                low=older,
                position=older,
            ),
            Replace(()),
        ),
    )

    stream.applier.apply(stream.batch(100, 200, {"b": [(ChangeKind.INSERT, 1, 10)]}))
    stream.applier.checkpoint_idle(older_than=float("inf"))

    assert not table.flowing
    assert table.error is None
    found = table.target.last_commit()
    assert found is not None
    assert found.position == older
    assert stream.stream_table("b").state.position == _place(200)


def test_an_idle_table_is_stamped_with_the_readers_place_once(stream: TwoTableStream) -> None:
    stream.applier.apply(stream.batch(100, 200, {"a": [(ChangeKind.INSERT, 1, 10)]}))

    stream.applier.checkpoint_idle(older_than=float("inf"))
    stream.applier.checkpoint_idle(older_than=float("inf"))

    found = stream.stream_table("b").target.last_commit()
    assert found is not None
    assert (found.position, found.commit_number) == (_place(200), 1)


def test_a_target_that_forgets_sooner_is_stamped_sooner(stream: TwoTableStream) -> None:
    """R4: a quarter of what the target's log keeps."""
    stream.applier.apply(stream.batch(100, 200, {"a": [(ChangeKind.INSERT, 1, 10)]}))
    table = stream.stream_table("b")
    opened = DeltaTable(stream.sink.target(TableId("shop", "b")).uri)
    opened.alter.set_table_properties({"delta.logRetentionDuration": "interval 400 seconds"})
    for age, number in ((90, 0), (110, 1)):
        assert table.target.last_commit() is not None
        table.committed = -age  # the clock stands at 0
        stream.applier.checkpoint_idle(older_than=-1000)
        found = table.target.last_commit()
        assert found is not None
        assert found.commit_number == number


def test_a_run_that_was_superseded_stops_its_tables(stream: TwoTableStream) -> None:
    target = stream.stream_table("a").target
    target.commit(
        2, lambda found: Commit(replace(found, epoch=2, commit_number=found.commit_number + 1), AdvancePosition())
    )

    stream.applier.apply(stream.batch(100, 200, {"a": [(ChangeKind.INSERT, 1, 10)]}))

    stop = stream.stream_table("a").error
    assert stop is not None
    assert stop.reason is Reason.SINK_CONFLICT
    assert stream.rows("a") == {}


@pytest.mark.parametrize("torn", [True, False])
def test_a_target_that_cannot_be_read_stops_alone(stream: TwoTableStream, torn: bool) -> None:
    """A check for a resnapshot meets the same Delta log, a torn or an empty one."""
    log = Path(stream.sink.target(TableId("shop", "a")).uri, "_delta_log")
    entry = log / f"{1:020d}.json"
    if torn:
        entry.write_text('{"add":')
    else:
        (log / f"{0:020d}.json").rename(entry)

    stream.applier.apply(stream.batch(100, 200, {n: [(ChangeKind.INSERT, 1, 10)] for n in ("a", "b")}))

    stop = stream.stream_table("a").error
    assert stop is not None
    assert stop.reason is Reason.SINK_CONFLICT
    assert stream.rows("b") == {1: 10}
