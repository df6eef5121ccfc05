"""The applier: whole transactions, exactly once, table by table; a table's position never passes
what it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.errors import PermanentError, Reason, TransientError, fail
from cdcsync_core.positions.chunk import WHOLE, Intervals
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position, TransactionId
from cdcsync_core.state import Identity, SinkWrite, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.sinks.contract.changes import AdvancePosition
from cdcsync_spark.sinks.contract.writer import Busy
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from support.memory_target import MemoryTarget

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
INT, TEXT = SourceType.parse("int"), SourceType.parse("varchar(20)", "utf8mb4")
INSERT, BEFORE, AFTER, DELETE = ChangeKind

Image = tuple[ChangeKind, int, str]


def definition(name: str) -> Capture:
    return Capture(SourceTable(TableId("shop", name), (Column("id", INT, False), Column("v", TEXT))), ("id",))


def at(offset: int) -> LogOffset:
    return LogOffset("binlog.000001", offset)


def file(offset: int) -> FilePosition:
    return FilePosition(at(offset))


def gtid(ranges: str, offset: int) -> GtidPosition:
    return GtidPosition(GtidSet.parse(f"{UUID}:{ranges}" if ranges else ""), at(offset))


def state(name: str, position: Position, *, epoch: int = 1, nonce: int = 0, high: int = 4) -> TableState:
    identity = Identity("default/shop", Lineage.of(f"mysql:{UUID}"), f"shop.{name}")
    done = Intervals().add(WHOLE)
    return TableState(
        identity,
        definition(name),
        TargetSchema.of(definition(name)),
        epoch,
        resnapshot_nonce=nonce,
        generation=nonce,
        finished=done,
        low=position,
        high=at(high),
        position=position,
    )


@dataclass
class MemoryStream:
    """Targets in memory, a run over them, and batches made by hand."""

    folder: Path
    targets: dict[str, MemoryTarget]
    now: float = 1000.0
    number: int = 0
    applier: Applier = field(init=False)

    def run(self, start: Position, epoch: int = 2) -> Applier:
        """A new run from the targets' states, as the stream application makes it."""
        tables = {
            f"shop.{n}": StreamTable(f"shop.{n}", t, t.state, self.now)  # type: ignore[arg-type]
            for n, t in self.targets.items()
            if t.state
        }
        self.applier = Applier(tables, epoch, start, lambda: self.now)
        return self.applier

    def table(self, name: str) -> StreamTable:
        return self.applier.tables[f"shop.{name}"]

    def batch(
        self,
        start: Position,
        end: Position,
        transactions: Sequence[tuple[TransactionId, dict[str, list[Image]]]] = (),
        stops: dict[str, tuple[PermanentError, Position]] | None = None,
    ) -> BinlogBatch:
        self.number += 1
        names = sorted({n for _, rows in transactions for n in rows} | set(stops or {}))
        parts = [self._part(n, end, transactions, (stops or {}).get(n)) for n in names]
        path = ""
        if transactions:
            path = str(self.folder / f"{self.number}.json")
            write_transactions(path, Transactions([t for t, _ in transactions], [None] * len(transactions)))
        return BinlogBatch.from_json(BinlogBatch(start, end, 1.0, path, tuple(parts)).to_json())

    def _part(
        self,
        name: str,
        end: Position,
        transactions: Sequence[tuple[TransactionId, dict[str, list[Image]]]],
        stop: tuple[PermanentError, Position] | None,
    ) -> TableBatch:
        images = [(i, *image) for i, (_, rows) in enumerate(transactions) for image in rows.get(name, [])]
        path = ""
        if images:
            path = str(self.folder / f"{self.number}-{name}.arrow")
            schema = changes_schema(captured_schema(definition(name)))
            columns = [[i[1] for i in images], [i[0] for i in images], [i[2] for i in images], [i[3] for i in images]]
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_table(
                    pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
                )
        return TableBatch(f"shop.{name}", path, len(images), 0, stop[1] if stop else end, stop[0] if stop else None)

    def values(self, name: str) -> dict[int, str]:
        return {key[0]: row["v"] for key, row in sorted(self.targets[name].rows.items())}


def file_transaction(end: int, **rows: list[Image]) -> tuple[TransactionId, dict[str, list[Image]]]:
    return TransactionId(at(end)), rows


def gtid_transaction(number: int, end: int, **rows: list[Image]) -> tuple[TransactionId, dict[str, list[Image]]]:
    return TransactionId(at(end), Gtid(UUID, number)), rows


def a_stop(found: str = "ALTER TABLE orders") -> PermanentError:
    return PermanentError(Reason.SCHEMA_CHANGE_REFUSED, found)


@pytest.fixture
def stream(tmp_path: Path) -> MemoryStream:
    made = MemoryStream(
        tmp_path, {"orders": MemoryTarget(state("orders", file(100))), "items": MemoryTarget(state("items", file(100)))}
    )
    made.run(file(100))
    return made


def test_a_batch_is_applied_with_its_position(stream: MemoryStream) -> None:
    """Rule R4: rows and position in one commit."""
    stream.applier.apply(
        stream.batch(file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a"), (INSERT, 2, "b")])])
    )
    target = stream.targets["orders"]
    assert stream.values("orders") == {1: "a", 2: "b"}
    assert [c.state.position for c in target.log] == [file(300)]
    assert [(c.state.commit_number, c.state.epoch) for c in target.log] == [(1, 2)]


def test_a_table_that_rested_takes_part_again(stream: MemoryStream) -> None:
    """Rule R5: the reader passed two batches without a change for the table, whose committed
    position stayed behind meanwhile."""
    apply = stream.applier.apply
    apply(stream.batch(file(100), file(200), [file_transaction(200, items=[(INSERT, 1, "i")])]))
    apply(stream.batch(file(200), file(300)))
    apply(stream.batch(file(300), file(400), [file_transaction(400, orders=[(INSERT, 1, "a")])]))
    assert not stream.table("orders").handed_over
    assert stream.values("orders") == {1: "a"}
    assert stream.targets["orders"].state == replace(stream.table("orders").state, position=file(400))


def test_a_replay_of_the_same_batch_changes_nothing(stream: MemoryStream) -> None:
    """Rule R4: after a crash between a commit and its report the batch comes again."""
    batch = stream.batch(file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a")])])
    stream.applier.apply(batch)
    stream.run(file(100), epoch=3)
    stream.applier.apply(batch)
    assert len(stream.targets["orders"].log) == 1


def test_a_batch_that_was_applied_to_one_of_two_tables_is_applied_to_the_other(stream: MemoryStream) -> None:
    """A crash between the commits of two tables of one batch."""
    batch = stream.batch(
        file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a")], items=[(INSERT, 7, "i")])]
    )
    stream.targets["orders"].fail_next = fail(Reason.SINK_UNREACHABLE, "gone")  # type: ignore[assignment]
    with pytest.raises(TransientError):
        stream.applier.apply(batch)
    stream.run(file(100), epoch=3)
    stream.applier.apply(batch)
    assert stream.values("orders") == {1: "a"}
    assert stream.values("items") == {7: "i"}
    assert len(stream.targets["items"].log) == 1


def test_of_a_partly_covered_batch_only_the_rest_is_applied(stream: MemoryStream) -> None:
    """Rule R5: batches are cut differently after a restart; by offset, what ends at or before the
    position is in."""
    first = [file_transaction(200, orders=[(INSERT, 1, "old")]), file_transaction(300, orders=[(DELETE, 1, "old")])]
    stream.applier.apply(stream.batch(file(100), file(300), first))
    stream.run(file(100), epoch=3)
    again = [*first, file_transaction(400, orders=[(INSERT, 2, "new")])]
    stream.applier.apply(stream.batch(file(100), file(400), again))
    commit = stream.targets["orders"].log[-1].change
    assert stream.values("orders") == {2: "new"}
    assert commit.upserts.num_rows == 1  # type: ignore[union-attr]
    assert commit.deletes.num_rows == 0  # type: ignore[union-attr]


def test_gtid_sets_with_gaps_decide_transaction_by_transaction(tmp_path: Path) -> None:
    """Rule R5: a table has 1-5 and 7 but not 6, which comes between them in the binlog."""
    stream = MemoryStream(tmp_path, {"orders": MemoryTarget(state("orders", gtid("1-5:7", 100)))})
    stream.targets["orders"].rows[(1,)] = {"id": 1, "v": "seven"}
    stream.run(gtid("1-5", 100))
    stream.applier.apply(
        stream.batch(
            gtid("1-5", 100),
            gtid("1-8", 400),
            [
                gtid_transaction(7, 200, orders=[(INSERT, 1, "seven")]),
                gtid_transaction(6, 300, orders=[(INSERT, 2, "six")]),
                gtid_transaction(8, 400, orders=[(BEFORE, 2, "six"), (AFTER, 2, "eight")]),
            ],
        )
    )
    merged = stream.targets["orders"].log[0].change
    assert stream.values("orders") == {1: "seven", 2: "eight"}
    assert merged.upserts["id"].to_pylist() == [2]  # type: ignore[union-attr]
    assert stream.targets["orders"].state.position == gtid("1-8", 400)  # type: ignore[union-attr]


def test_a_batch_whose_rows_are_all_there_still_moves_the_position(tmp_path: Path) -> None:
    stream = MemoryStream(tmp_path, {"orders": MemoryTarget(state("orders", gtid("1-5:7", 100)))})
    stream.run(gtid("1-5", 100))
    stream.applier.apply(
        stream.batch(gtid("1-5", 100), gtid("1-7", 300), [gtid_transaction(7, 300, orders=[(INSERT, 1, "seven")])])
    )
    assert stream.values("orders") == {}
    assert stream.targets["orders"].state.position == gtid("1-7", 300)  # type: ignore[union-attr]


def test_a_lost_race_decides_again_on_the_state_that_won(stream: MemoryStream) -> None:
    """Rule R8: the other writer applied the first transaction meanwhile."""
    batch = stream.batch(
        file(100),
        file(300),
        [file_transaction(200, orders=[(INSERT, 1, "a")]), file_transaction(300, orders=[(INSERT, 2, "b")])],
    )

    def other(target: MemoryTarget) -> None:
        assert target.state
        target.rows[(1,)] = {"id": 1, "v": "a"}
        target.state = replace(target.state, commit_number=target.state.commit_number + 1, position=file(200))

    stream.targets["orders"].lose_next = other
    stream.applier.apply(batch)
    merged = stream.targets["orders"].log[0].change
    assert stream.values("orders") == {1: "a", 2: "b"}
    assert merged.upserts["id"].to_pylist() == [2]  # type: ignore[union-attr]


# -- tables that were taken over


def test_a_table_that_was_resnapshot_is_handed_over(stream: MemoryStream) -> None:
    """Rule R5: its new content is as of its own LOW, and the changes between are the second
    reader's to apply."""
    stream.targets["orders"].state = state("orders", file(250), nonce=1)
    stream.applier.apply(stream.batch(file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a")])]))
    assert stream.table("orders").handed_over
    assert stream.table("orders").error is None
    assert stream.targets["orders"].log == []


def test_a_table_with_a_higher_epoch_is_released_and_has_not_failed(stream: MemoryStream) -> None:
    """Rules R5 and R8: the run that read it again has a higher epoch; the others flow on."""
    stream.targets["orders"].state = state("orders", file(250), nonce=1, epoch=9)
    stream.applier.apply(
        stream.batch(file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a")], items=[(INSERT, 1, "i")])])
    )
    assert stream.table("orders").handed_over
    assert stream.table("orders").error is None
    assert stream.values("items") == {1: "i"}


def test_a_table_whose_position_went_back_ends_the_run(stream: MemoryStream) -> None:
    """A restored target lacks what this run has applied; the next run goes on from the target's
    position (R4)."""
    stream.applier.apply(stream.batch(file(100), file(200), [file_transaction(200, orders=[(INSERT, 1, "a")])]))
    stream.targets["orders"].state = state("orders", file(100))
    with pytest.raises(TransientError, match="went back") as ended:
        stream.applier.apply(stream.batch(file(200), file(300), [file_transaction(300, orders=[(INSERT, 2, "b")])]))
    assert ended.value.reason is Reason.SINK_WRITTEN
    table = stream.table("orders")
    assert (stream.applier.position(table), stream.applier.consistent(table)) == (file(100), False)
    assert stream.targets["orders"].state.position == file(100)  # type: ignore[union-attr]
    with pytest.raises(TransientError, match="went back"):
        stream.applier.note_others(stream.table("orders"))


def test_a_table_whose_target_is_gone_stops_alone(stream: MemoryStream) -> None:
    stream.targets["orders"].state = None
    stream.applier.note_others(stream.table("orders"))
    error = stream.table("orders").error
    assert error is not None
    assert (error.reason, error.table) == (Reason.SINK_CONFLICT, "shop.orders")
    assert "is gone" in error.found
    assert not stream.table("orders").flowing
    assert stream.table("items").flowing


def test_a_target_that_is_being_made_ready_is_asked_again(
    stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stream.table("orders")
    before = table.state

    def busy(*, wait: bool = True) -> TableState | None:
        assert not wait
        raise Busy

    monkeypatch.setattr(stream.targets["orders"], "last_commit", busy)
    stream.applier.note_others(table)
    assert (table.state, table.flowing) == (before, True)


def test_a_table_is_consistent_once_what_was_taken_back_is_replayed(stream: MemoryStream) -> None:
    stream.targets["orders"].state = replace(state("orders", file(100)), replaying=file(300))
    stream.applier.note_others(stream.table("orders"))
    stream.applier.apply(stream.batch(file(100), file(200), [file_transaction(200, orders=[(INSERT, 1, "a")])]))
    assert not stream.applier.consistent(stream.table("orders"))
    stream.applier.apply(stream.batch(file(200), file(300)))
    assert stream.applier.consistent(stream.table("orders"))
    stream.applier.checkpoint_idle(older_than=float("inf"))
    assert stream.targets["orders"].state.replaying is None


def test_what_another_program_changed_is_noted_and_kept_by_the_next_commit(stream: MemoryStream) -> None:
    write = SinkWrite(7, "DuckDB", "WRITE")
    stream.targets["orders"].state = replace(state("orders", file(100)), written=write)
    stream.applier.note_others(stream.table("orders"))
    assert stream.table("orders").state.written == write
    stream.applier.apply(stream.batch(file(100), file(200), [file_transaction(200, orders=[(INSERT, 1, "a")])]))
    found = stream.targets["orders"].state
    assert found is not None
    assert (found.written, found.position) == (write, file(200))


def test_a_stamp_never_lifts_a_table_that_was_read_again(stream: MemoryStream) -> None:
    """Its position would pass changes that it does not have."""
    stream.applier.apply(stream.batch(file(100), file(300)))
    stream.targets["orders"].state = state("orders", file(250), nonce=1)
    stream.applier.checkpoint_idle(older_than=float("inf"))
    assert stream.targets["orders"].state.position == file(250)  # type: ignore[union-attr]
    assert stream.table("orders").handed_over


def test_a_stamp_of_a_table_that_another_run_owns_releases_it(stream: MemoryStream) -> None:
    stream.applier.apply(stream.batch(file(100), file(300)))
    stream.targets["orders"].state = state("orders", file(250), nonce=1, epoch=9)
    stream.applier.checkpoint_idle(older_than=float("inf"))
    assert stream.table("orders").handed_over
    assert stream.targets["items"].state.position == file(300)  # type: ignore[union-attr]


def test_a_refusal_stops_a_table_unless_this_run_has_written_it(stream: MemoryStream) -> None:
    """Keys that are rotated, a token that ran out: the next run has new ones, and stops the table
    if those are refused, too."""
    refused = fail(Reason.PRIVILEGE_MISSING, "committing failed: 403", remedy="grant it", table="shop.orders")
    apply = stream.applier.apply
    apply(stream.batch(file(100), file(200), [file_transaction(200, orders=[(INSERT, 1, "a")])]))
    stream.targets["orders"].fail_next = refused
    with pytest.raises(TransientError) as caught:
        apply(stream.batch(file(200), file(300), [file_transaction(300, orders=[(INSERT, 2, "b")])]))
    assert (caught.value.reason, caught.value.remedy) == (Reason.SINK_UNREACHABLE, "grant it")
    assert stream.table("orders").error is None
    apply = stream.run(file(200), epoch=3).apply
    stream.targets["orders"].fail_next = refused
    apply(stream.batch(file(200), file(300), [file_transaction(300, orders=[(INSERT, 2, "b")])]))
    stop = stream.table("orders").error
    assert stop is not None
    assert stop.reason is Reason.PRIVILEGE_MISSING


def test_another_partys_table_in_the_targets_place_stops_the_table_only(stream: MemoryStream) -> None:
    stream.targets["orders"].fail_next = PermanentError(Reason.SINK_CONFLICT, "another program's table")
    stream.applier.apply(
        stream.batch(file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a")], items=[(INSERT, 1, "i")])])
    )
    assert stream.table("orders").error is not None
    assert stream.values("items") == {1: "i"}


def test_a_table_that_is_busy_stays_where_it_is_until_a_later_run(stream: MemoryStream) -> None:
    """Another session locks its target: the others go on."""
    rows = [file_transaction(300, orders=[(INSERT, 1, "a")], items=[(INSERT, 1, "i")])]
    stream.targets["orders"].fail_next = fail(Reason.TABLE_BUSY, "the database refuses: lock timeout (1205)")
    stream.applier.apply(stream.batch(file(100), file(300), rows))
    error = stream.table("orders").error
    assert error is not None
    assert (error.reason, error.table) == (Reason.TABLE_BUSY, "shop.orders")
    assert (stream.values("orders"), stream.values("items")) == ({}, {1: "i"})
    stream.run(file(100), epoch=3).apply(stream.batch(file(100), file(300), rows))
    assert (stream.values("orders"), stream.values("items")) == ({1: "a"}, {1: "i"})


def test_a_stamp_that_fails_for_good_stops_the_table_only(stream: MemoryStream) -> None:
    stream.applier.apply(stream.batch(file(100), file(300)))
    stream.targets["items"].fail_next = PermanentError(Reason.SINK_CONFLICT, "another program's table")
    stream.applier.checkpoint_idle(older_than=float("inf"))
    assert stream.table("items").error is not None
    assert stream.targets["orders"].state.position == file(300)  # type: ignore[union-attr]


def test_a_missing_batch_ends_the_run(stream: MemoryStream) -> None:
    """Between two batches nothing may be left out: a table that rested would pass it unseen."""
    stream.applier.apply(stream.batch(file(100), file(200)))
    with pytest.raises(TransientError, match="left out"):
        stream.applier.apply(stream.batch(file(300), file(400), [file_transaction(400, orders=[(INSERT, 1, "a")])]))
    assert stream.targets["orders"].log == []


# -- stops


def test_rows_before_a_ddl_are_applied_and_the_table_stops_there(stream: MemoryStream) -> None:
    """Rule R9: everything before the transaction that stopped the table counts, nothing after
    it."""
    stream.applier.apply(
        stream.batch(
            file(100),
            file(500),
            [file_transaction(200, orders=[(INSERT, 1, "a")]), file_transaction(500, items=[(INSERT, 1, "i")])],
            {"orders": (a_stop(), file(300))},
        )
    )
    assert stream.values("orders") == {1: "a"}
    assert stream.targets["orders"].state.position == file(300)  # type: ignore[union-attr]
    assert stream.table("orders").error.reason is Reason.SCHEMA_CHANGE_REFUSED  # type: ignore[union-attr]
    assert stream.applier.position(stream.table("orders")) == file(300)
    assert stream.values("items") == {1: "i"}


def test_a_table_that_stops_without_rows_keeps_the_place(stream: MemoryStream) -> None:
    stream.applier.apply(stream.batch(file(100), file(500), stops={"orders": (a_stop(), file(300))}))
    assert stream.targets["orders"].state.position == file(300)  # type: ignore[union-attr]
    assert isinstance(stream.targets["orders"].log[0].change, AdvancePosition)
    assert stream.table("orders").error is not None


def test_a_stopped_table_takes_no_more_rows_and_no_stamp(stream: MemoryStream) -> None:
    stream.applier.apply(stream.batch(file(100), file(500), stops={"orders": (a_stop(), file(300))}))
    stream.applier.apply(stream.batch(file(500), file(600), [file_transaction(600, orders=[(INSERT, 9, "z")])]))
    stream.applier.checkpoint_idle(older_than=float("inf"))
    assert stream.targets["orders"].state.position == file(300)  # type: ignore[union-attr]
    assert stream.values("orders") == {}


def test_a_stop_comes_again_after_a_restart(stream: MemoryStream) -> None:
    """The table stands before the DDL, so the next run meets it again and says the same."""
    batch = stream.batch(
        file(100), file(500), [file_transaction(200, orders=[(INSERT, 1, "a")])], {"orders": (a_stop(), file(300))}
    )
    stream.applier.apply(batch)
    stream.run(file(100), epoch=3)
    stream.applier.apply(batch)
    assert stream.table("orders").error is not None
    assert stream.targets["orders"].state.position == file(300)  # type: ignore[union-attr]
    assert stream.values("orders") == {1: "a"}


def test_a_released_table_has_not_stopped(stream: MemoryStream) -> None:
    stream.targets["orders"].state = state("orders", file(250), nonce=1)
    stream.applier.apply(stream.batch(file(100), file(500), stops={"orders": (a_stop(), file(300))}))
    assert stream.table("orders").handed_over
    assert stream.table("orders").error is None


# -- positions of idle tables


def test_the_position_of_a_resting_table_follows_the_reader(stream: MemoryStream) -> None:
    stream.applier.apply(stream.batch(file(100), file(300)))
    assert stream.applier.position(stream.table("orders")) == file(300)
    assert stream.targets["orders"].state.position == file(100)  # type: ignore[union-attr]


def test_a_table_is_consistent_once_the_log_has_passed_its_high_watermark(tmp_path: Path) -> None:
    """Rule R2."""
    stream = MemoryStream(tmp_path, {"orders": MemoryTarget(state("orders", gtid("1-5", 100), high=300))})
    stream.run(GtidPosition(GtidSet.parse(f"{UUID}:1-5")))
    table = stream.table("orders")
    assert not stream.applier.consistent(table)
    stream.applier.apply(stream.batch(GtidPosition(GtidSet.parse(f"{UUID}:1-5")), gtid("1-6", 299)))
    assert not stream.applier.consistent(table)
    stream.applier.apply(stream.batch(gtid("1-6", 299), gtid("1-6", 300)))
    assert stream.applier.consistent(table)


def test_an_idle_table_is_commits_when_its_last_commit_is_old(stream: MemoryStream) -> None:
    """Rule R4: before the last commit becomes useless."""
    stream.applier.apply(stream.batch(file(100), file(300), [file_transaction(300, items=[(INSERT, 1, "i")])]))
    stream.applier.checkpoint_idle(older_than=stream.now - 10)
    assert stream.targets["orders"].log == []
    stream.now += 20
    stream.applier.checkpoint_idle(older_than=stream.now - 10)
    commits = stream.targets["orders"].log
    assert [(type(c.change), c.state.position, c.state.epoch) for c in commits] == [(AdvancePosition, file(300), 2)]
    stream.applier.checkpoint_idle(older_than=stream.now - 10)
    assert len(commits) == 1


def test_an_idle_table_leaves_a_binlog_file_that_may_be_purged(stream: MemoryStream) -> None:
    """Rule R4, whatever purges it; but no table at each file that a reader passes which lags."""
    ends = [FilePosition(LogOffset(f"binlog.{number:06d}", 300)) for number in (1, 2, 3)]
    commits, young = stream.targets["orders"].log, float("-inf")
    stream.now += 601
    stream.applier.apply(stream.batch(file(100), ends[0]))
    stream.applier.checkpoint_idle(young, safe_from=9)
    assert commits == [], "it would stay in its file"
    stream.applier.apply(stream.batch(ends[0], ends[1]))
    stream.applier.checkpoint_idle(young, safe_from=1)
    assert commits == [], "the file is safe"
    stream.applier.checkpoint_idle(young, safe_from=9)
    assert [c.state.position for c in commits] == [ends[1]]
    stream.applier.apply(stream.batch(ends[1], ends[2]))
    stream.applier.checkpoint_idle(young, safe_from=9)
    assert len(commits) == 1
    stream.now += 601
    stream.applier.checkpoint_idle(young, safe_from=9)
    assert [c.state.position for c in commits] == ends[1:]


def test_a_stamp_with_no_news_is_no_commit_and_is_not_tried_at_every_batch(stream: MemoryStream) -> None:
    """Ten thousand idle tables of an idle source must not be opened every second."""
    stream.now += 20
    stream.applier.checkpoint_idle(older_than=stream.now - 10)
    opened = stream.targets["orders"].opened
    stream.applier.checkpoint_idle(older_than=stream.now - 10)
    assert stream.targets["orders"].log == []
    assert stream.targets["orders"].opened == opened


def test_a_stamp_repeats_nothing_after_a_restart(stream: MemoryStream) -> None:
    stream.applier.apply(stream.batch(file(100), file(300)))
    stream.applier.checkpoint_idle(older_than=float("inf"))
    stream.run(file(300), epoch=3)
    stream.applier.checkpoint_idle(older_than=float("inf"))
    assert len(stream.targets["orders"].log) == 1


def test_the_date_counts_of_a_batch_are_kept_in_the_state(stream: MemoryStream) -> None:
    batch = stream.batch(file(100), file(300), [file_transaction(300, orders=[(INSERT, 1, "a")])])
    counted = replace(batch, tables=tuple(replace(t, nulled=3) for t in batch.tables))
    stream.applier.apply(counted)
    assert stream.targets["orders"].state.nulled_dates == 3  # type: ignore[union-attr]
