"""What the applier does where the source crashed: which tables are repaired, in which order, and
what a fault reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason, TransientError, fail
from cdcsync_core.positions.chunk import Intervals, Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, LogOffset, Place, Position
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.upsert import fold
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import Append, Commit
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.crash_repair import Piece, as_changes
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.wire.binlog.facts import FileLeft

CRASHED, NEXT = "binlog.000001", "binlog.000002"
LEFT = FileLeft(CRASHED, NEXT)
BEFORE = FilePosition(Place(CRASHED, 500, "mariadb:1"))
BEHIND = FilePosition(Place(NEXT, 4, "mariadb:1"), MariaDbGtidPos.parse("0-1-7"), 1700)
HIGH = Place(NEXT, 900, "mariadb:1")


def _table(name: str) -> Capture:
    columns = (Column("id", SourceType.parse("int(11)"), nullable=False), Column("v", SourceType.parse("int(11)")))
    return Capture(SourceTable(TableId("shop", name), columns), ("id",))


def _rows(table: Capture, rows: Mapping[int, int]) -> pa.Table:
    return pa.table({"id": [*rows], "v": [*rows.values()]}, schema=captured_schema(table))


@dataclass
class SuspiciousSource:
    """The keys 1 and 2 are suspicious in every table; 1 is there."""

    faults: dict[str, CdcError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    while_read: list[bool] = field(default_factory=list)
    stream: CrashedFileStream | None = None

    def keys(self, left: FileLeft, tables: Mapping[TableId, Capture]) -> Mapping[TableId, pa.Table | CdcError]:
        assert left == LEFT
        self.asked += sorted(i.name for i in tables)
        schema = captured_schema(_table("a")).field("id")
        keys = pa.table({"id": pa.array([1, 2], schema.type)})
        return {i: self.faults.get(i.name, keys) for i in tables}

    def passed(self, before: Position, place: LogOffset) -> Position:
        assert (before, place) == (BEFORE, BEHIND.at)
        return BEHIND

    def pieces(self, table: Capture, keys: pa.Table, passed: Position) -> Iterator[Piece]:
        assert self.stream
        self.while_read.append(self.stream.consistent(table.id.name))
        for i in range(keys.num_rows):
            key = keys.slice(i, 1)
            there = {1: 10} if key["id"][0].as_py() == 1 else {}
            yield Piece(as_changes(table, key, _rows(table, there)), HIGH, 0, last=i == keys.num_rows - 1)


class CrashedFileStream:
    """Table `a` at the end of the crashed file, `b` behind it; both have the rows 1, 2 and 3."""

    def __init__(self, folder: Path, source: SuspiciousSource) -> None:
        self.sink = DeltaSink(open_store(str(folder / "lake")), "default/shop")
        self.folder = folder
        tables = [self._made("a", BEFORE), self._made("b", BEHIND), self._made("c", BEFORE)]
        self.applier = Applier({t.name: t for t in tables}, 1, BEFORE, lambda: 0.0, source)
        source.stream = self

    def _made(self, name: str, position: FilePosition) -> StreamTable:
        table = _table(name)
        target = self.sink.target(table.id)
        target.prepare(
            TableState(
                Identity("default/shop", Lineage.of("mariadb:1"), str(table.id)), table, TargetSchema.of(table), epoch=1
            )
        )
        files = target.stage(table, _rows(table, {1: 1, 2: 2, 3: 3}).to_batches(), "rows")

        def whole(found: TableState) -> Commit:
            state = replace(found, commit_number=found.commit_number + 1, finished=Intervals((Split(),)), low=position)
            return Commit(
                replace(state, high=Place(CRASHED, 400, "mariadb:1"), position=position), Append(tuple(files))
            )

        state = target.commit(1, whole)
        return StreamTable(str(table.id), target.writer(self.folder), state, committed=0.0)

    def crash(self) -> None:
        end = FilePosition(Place(NEXT, 300, "mariadb:1"))
        self.applier.apply(BinlogBatch.from_json(BinlogBatch(BEFORE, end, 1.0, "", (), left=LEFT).to_json()))

    def table(self, name: str) -> StreamTable:
        return self.applier.tables[f"shop.{name}"]

    def consistent(self, name: str) -> bool:
        return self.applier.consistent(self.table(name))

    def rows(self, name: str) -> dict[int, int]:
        found = self.sink.target(TableId("shop", name)).open_snapshot().scan().read_all()
        return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture
def source() -> SuspiciousSource:
    return SuspiciousSource()


@pytest.fixture
def stream(tmp_path: Path, source: SuspiciousSource) -> CrashedFileStream:
    return CrashedFileStream(tmp_path, source)


def test_the_suspicious_keys_become_what_the_source_has(stream: CrashedFileStream) -> None:
    stream.crash()
    assert stream.rows("a") == {1: 10, 3: 3}
    assert stream.table("a").state.position == BEHIND
    assert stream.table("a").state.high == HIGH


def test_a_table_is_not_consistent_until_what_was_read_is_passed(
    stream: CrashedFileStream, source: SuspiciousSource
) -> None:
    assert stream.consistent("a")
    stream.crash()
    assert source.while_read == [False, False]
    assert not stream.consistent("a")
    stream.applier.reader = FilePosition(HIGH)
    assert stream.consistent("a")


def test_a_table_behind_the_place_was_repaired_before(stream: CrashedFileStream, source: SuspiciousSource) -> None:
    stream.crash()
    assert source.asked == ["a", "c"]
    assert stream.rows("b") == {1: 1, 2: 2, 3: 3}
    assert stream.consistent("b")
    stream.applier.reader = BEFORE
    stream.crash()
    assert source.asked == ["a", "c"]


def test_keys_that_cannot_be_known_stop_their_table_where_it_stands(
    stream: CrashedFileStream, source: SuspiciousSource
) -> None:
    source.faults["a"] = fail(Reason.LOG_INCOMPLETE, "rows that cannot be read")
    stream.crash()
    assert stream.table("a").error is source.faults["a"]
    assert stream.table("a").state.position == BEFORE
    assert stream.rows("c") == {1: 10, 3: 3}


def test_a_declared_key_has_no_index_by_which_rows_are_reread(
    stream: CrashedFileStream, source: SuspiciousSource
) -> None:
    table = stream.table("a")
    table.state = replace(table.state, capture=replace(table.state.capture, declared=True))
    stream.crash()
    assert table.error is not None
    assert table.error.reason is Reason.POSITION_LOST
    assert table.state.position == BEFORE
    assert stream.rows("a") == {1: 1, 2: 2, 3: 3}
    assert stream.rows("c") == {1: 10, 3: 3}


def test_a_source_that_is_lost_meanwhile_ends_the_run_before_the_place_is_passed(
    stream: CrashedFileStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> Iterator[Piece]:
        raise TransientError(Reason.SOURCE_UNREACHABLE, "it went away")

    monkeypatch.setattr(SuspiciousSource, "pieces", lost)
    with pytest.raises(TransientError):
        stream.crash()
    assert stream.applier.reader == BEFORE
    assert stream.table("a").state.position == BEFORE


def test_pieces_fold_as_a_batch_does() -> None:
    table = _table("a")
    changes = as_changes(table, pa.table({"id": pa.array([1, 2], pa.int32())}), _rows(table, {1: 10}))
    folded = fold(Changelog(changes), ("id",))
    assert folded.upserts.to_pylist() == [{"id": 1, "v": 10}]
    assert folded.deletes.to_pylist() == [{"id": 2}]
