"""Sealed transactions to files: a table's rows, its failures and its place, each table
for itself."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import FilePosition, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.assembly.sealed import SealedTransactions, TableStop
from cdcsync_spark.binlog.assembly.spool import Spool, Spooled
from cdcsync_spark.binlog.assembly.transaction_ids import TransactionIds
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, read_transactions
from cdcsync_spark.binlog.batch_file import BatchWriter
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import FollowPolicy, SchemaStep
from cdcsync_spark.wire.binlog.facts import MappedColumn, Operation, RowsEvent, TableMap
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.facts import UUID, at

#: MYSQL_TYPE_LONG
LONG = 3
ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")


def definition(table: TableId) -> Capture:
    return Capture(
        SourceTable(table, (Column("id", SourceType.parse("int"), False), Column("v", SourceType.parse("int")))),
        ("id",),
    )


def table_map(table: TableId, second: str = "v") -> TableMap:
    columns = (MappedColumn(LONG, 0, False, "id", False), MappedColumn(LONG, 0, True, second, False))
    return TableMap(1, table, columns)


MAPS = {t: table_map(t) for t in (ORDERS, ITEMS)}


def image(key: int, value: int | None) -> bytes:
    """NULL bitmap (the second column's bit is 2), then 4 bytes little endian for each value that is
    not NULL."""
    if value is None:
        return b"\x02" + struct.pack("<i", key)
    return b"\x00" + struct.pack("<ii", key, value)


def event(
    table: TableId, *images: bytes, operation: Operation = Operation.WRITE, mapped: TableMap | None = None
) -> RowsEvent:
    return RowsEvent(table, mapped or MAPS[table], operation, b"".join(images), 100)


def sealed(
    rows: dict[TableId, list[tuple[int, RowsEvent]]], stops: dict[TableId, TableStop] | None = None
) -> SealedTransactions:
    transactions = TransactionIds([TransactionId(at(200), Gtid(UUID, 1)), TransactionId(at(300))] if rows else [])
    committed_at: list[float | None] = [6.25, None] if rows else []
    spooled = {t: [(i, Spooled(e)) for i, e in found] for t, found in rows.items()}
    return SealedTransactions(
        FilePosition(at(100)), FilePosition(at(300)), 7.5, transactions, committed_at, spooled, stops or {}
    )


@pytest.fixture
def writer(tmp_path: Path) -> BatchWriter:
    return BatchWriter(tmp_path, Definitions({t: definition(t) for t in (ORDERS, ITEMS)}))


def part(batch: BinlogBatch, table: TableId) -> TableBatch:
    (found,) = [p for p in batch.tables if p.table == str(table)]
    return found


def content(found: TableBatch) -> list[tuple[Any, ...]]:
    with pa.memory_map(found.file) as source:
        return [tuple(row.values()) for row in pa.ipc.open_file(source).read_all().to_pylist()]


def test_each_table_gets_its_rows_with_kind_and_transaction(writer: BatchWriter) -> None:
    """Kinds: 0 insert, 1 and 2 the images of an update, 3 delete."""
    orders = [
        (0, event(ORDERS, image(1, 10), image(2, None))),
        (1, event(ORDERS, image(1, 10), image(1, 11), operation=Operation.UPDATE)),
        (1, event(ORDERS, image(2, None), operation=Operation.DELETE)),
    ]
    batch = writer.write(sealed({ORDERS: orders, ITEMS: [(1, event(ITEMS, image(7, 70)))]}))
    assert content(part(batch, ORDERS)) == [
        (0, 0, 1, 10),
        (0, 0, 2, None),
        (1, 1, 1, 10),
        (2, 1, 1, 11),
        (3, 1, 2, None),
    ]
    assert content(part(batch, ITEMS)) == [(0, 1, 7, 70)]
    assert part(batch, ORDERS).rows == 5
    assert part(batch, ORDERS).upto == batch.end
    ids = [TransactionId(at(200), Gtid(UUID, 1)), TransactionId(at(300))]
    assert read_transactions(batch.transactions) == Transactions(ids, [6.25, None])


def test_a_before_image_that_folds_away_is_read_and_not_written(writer: BatchWriter) -> None:
    """`rows` counts the images of the log; the second update changes the key."""
    images = (image(1, 10), image(1, 11), image(1, 11), image(2, 11))
    orders = [(0, event(ORDERS, *images, operation=Operation.UPDATE))]
    found = part(replace(writer, befores=False).write(sealed({ORDERS: orders})), ORDERS)
    assert content(found) == [(2, 0, 1, 11), (1, 0, 1, 11), (2, 0, 2, 11)]
    assert found.rows == 4


def test_a_declared_key_keeps_its_before_images(tmp_path: Path) -> None:
    """A row that keeps its key and one that gets it differ in the before image alone."""
    definitions = Definitions({ORDERS: replace(definition(ORDERS), declared=True)})
    orders = [(0, event(ORDERS, image(1, 10), image(1, 11), operation=Operation.UPDATE))]
    found = part(BatchWriter(tmp_path, definitions, befores=False).write(sealed({ORDERS: orders})), ORDERS)
    assert content(found) == [(1, 0, 1, 10), (2, 0, 1, 11)]


def test_a_batch_without_rows_says_only_where_the_reader_is(writer: BatchWriter) -> None:
    batch = writer.write(sealed({}))
    assert (batch.start, batch.end, batch.timestamp) == (FilePosition(at(100)), FilePosition(at(300)), 7.5)
    assert (batch.transactions, batch.tables, batch.fatal) == ("", (), None)
    assert list(writer.folder.iterdir()) == []


def test_files_of_successive_batches_do_not_meet(writer: BatchWriter) -> None:
    """The batch before is still being applied."""
    batches = [writer.write(sealed({ORDERS: [(0, event(ORDERS, image(n, n)))]})) for n in range(3)]
    assert [content(part(b, ORDERS)) for b in batches] == [[(0, 0, n, n)] for n in range(3)]
    assert len({b.transactions for b in batches}) == 3


def test_a_stopped_table_keeps_its_rows_and_the_place_of_the_stop(writer: BatchWriter) -> None:
    """Rule R9."""
    stop = TableStop(fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE"), FilePosition(at(200)))
    batch = writer.write(sealed({ORDERS: [(0, event(ORDERS, image(1, 10)))]}, {ORDERS: stop}))
    found = part(batch, ORDERS)
    assert content(found) == [(0, 0, 1, 10)]
    assert (found.upto, found.stop) == (FilePosition(at(200)), stop.error)


def test_a_table_that_stops_without_rows_has_no_file(writer: BatchWriter) -> None:
    stop = TableStop(fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE"), FilePosition(at(200)))
    found = part(writer.write(sealed({}, {ORDERS: stop})), ORDERS)
    assert (found.file, found.rows, found.upto, found.stop) == ("", 0, FilePosition(at(200)), stop.error)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        # half a value: the image ends before its column
        (event(ORDERS, b"\x00\x01"), Reason.TYPE_UNSUPPORTED),
        # another definition without a DDL in the log
        (event(ORDERS, image(3, 30), mapped=table_map(ORDERS, second="w")), Reason.SCHEMA_CHANGE_REFUSED),
        # an update with one image
        (event(ORDERS, image(3, 30), operation=Operation.UPDATE), Reason.TYPE_UNSUPPORTED),
    ],
)
def test_a_table_that_cannot_be_decoded_uses_nothing_of_the_batch(
    writer: BatchWriter, broken: RowsEvent, reason: Reason
) -> None:
    """Its position must not pass what it does not have; the other table flows on."""
    orders = [(0, event(ORDERS, image(1, 10))), (1, broken)]
    batch = writer.write(sealed({ORDERS: orders, ITEMS: [(1, event(ITEMS, image(7, 70)))]}))
    found = part(batch, ORDERS)
    assert (found.file, found.rows, found.nulled, found.upto) == ("", 0, 0, batch.start)
    assert found.stop is not None
    assert (found.stop.reason, found.stop.table) == (reason, "shop.orders")
    assert content(part(batch, ITEMS)) == [(0, 1, 7, 70)]
    assert len([p for p in writer.folder.iterdir() if p.suffix == ".arrow"]) == 1


@pytest.mark.parametrize("bad", [0, 1, 30, 59])
def test_the_error_names_the_transaction_of_the_first_rows_that_cannot_be_decoded(
    writer: BatchWriter, bad: int
) -> None:
    events = [(i, event(ORDERS, image(i, i) if i not in (bad, 59) else b"\x00\x01")) for i in range(60)]
    batch = writer.write(
        replace(
            sealed({ORDERS: events}),
            transactions=TransactionIds(TransactionId(at(1000 + i)) for i in range(60)),
            committed_at=[None] * 60,
        )
    )
    stop = part(batch, ORDERS).stop
    assert stop is not None
    assert f"(at binlog.000001:{1000 + bad})" in stop.found


def test_undecodable_rows_before_a_ddl_hide_no_position(writer: BatchWriter) -> None:
    """The stop by the DDL lies further than what the table has then."""
    stop = TableStop(fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE"), FilePosition(at(200)))
    found = part(writer.write(sealed({ORDERS: [(0, event(ORDERS, b"\x00"))]}, {ORDERS: stop})), ORDERS)
    assert found.upto == FilePosition(at(100))
    assert found.stop is not None
    assert found.stop.reason is Reason.TYPE_UNSUPPORTED


def test_spilled_and_joined_events_decode_as_if_in_memory(writer: BatchWriter, tmp_path: Path) -> None:
    """Rule R9: a transaction too large for memory is the same thing."""
    events = [event(ORDERS, image(n, n * 10)) for n in range(50)]
    spool, found = Spool(str(tmp_path), 1000), list[Spooled]()
    for one in events:
        spool.add_to(found, one)
    assert len(found) < 50
    plain = writer.write(sealed({ORDERS: [(0, e) for e in events]}))
    spilled = writer.write(replace(sealed({ORDERS: []}), rows={ORDERS: [(0, item) for item in found]}))
    assert content(part(spilled, ORDERS)) == content(part(plain, ORDERS))


def test_a_changed_definition_is_seen_in_every_piece(writer: BatchWriter) -> None:
    """The check is made once per description that the log gives; a new description is checked
    again."""
    assert part(writer.write(sealed({ORDERS: [(0, event(ORDERS, image(1, 1)))]})), ORDERS).stop is None
    changed = event(ORDERS, image(2, 2), mapped=table_map(ORDERS, second="w"))
    stop = part(writer.write(sealed({ORDERS: [(0, changed)]})), ORDERS).stop
    assert stop is not None
    assert stop.reason is Reason.SCHEMA_CHANGE_REFUSED


def test_a_failing_disk_is_no_tables_fault(writer: BatchWriter) -> None:
    """Then nothing of the batch is handed over."""
    os.rmdir(writer.folder)  # noqa: PTH106
    with pytest.raises(CdcError) as caught:
        writer.write(sealed({ORDERS: [(0, event(ORDERS, image(1, 10)))]}))
    assert caught.value.reason is Reason.INTERNAL_ERROR


def test_a_batch_comes_back_from_its_line(writer: BatchWriter) -> None:
    """It crosses from Spark's source process to the driver as JSON."""
    stop = TableStop(fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE", table="shop.items"), FilePosition(at(200)))
    batch = writer.write(sealed({ORDERS: [(0, event(ORDERS, image(1, 10)))]}, {ITEMS: stop}))
    line = batch.to_json()
    assert "\n" not in line
    again = BinlogBatch.from_json(line)
    assert again.to_json() == line
    assert (again.start, again.end, again.transactions) == (batch.start, batch.end, batch.transactions)
    found = part(again, ITEMS).stop
    assert found is not None
    assert (found.reason, found.table, type(found)) == (stop.error.reason, "shop.items", type(stop.error))


def test_the_reason_why_a_run_ends_comes_back_too() -> None:
    fatal = fail(Reason.POSITION_LOST, "the file is gone", remedy="read the tables again")
    batch = BinlogBatch(FilePosition(at(100)), FilePosition(at(100)), None, "", (), fatal)
    again = BinlogBatch.from_json(batch.to_json()).fatal
    assert again is not None
    assert (again.reason, again.message) == (fatal.reason, fatal.message)


def unproved(tmp_path: Path) -> BatchWriter:
    policies = {ORDERS: FollowPolicy(follow=True)}
    return BatchWriter(tmp_path, Definitions({ORDERS: definition(ORDERS)}, policies, {ORDERS}))


def test_the_first_rows_after_a_step_prove_it(tmp_path: Path) -> None:
    """Once; they say so, and the target's state records it."""
    writer, orders = unproved(tmp_path), {ORDERS: [(0, event(ORDERS, image(1, 10)))]}
    assert [part(writer.write(sealed(orders)), ORDERS).proved for _ in range(2)] == [True, False]


def test_rows_that_contradict_a_prediction_are_not_used(tmp_path: Path) -> None:
    """Also in what a reader of rows need not know: here, that a column may not be NULL."""
    other = replace(MAPS[ORDERS], columns=tuple(replace(c, nullable=False) for c in MAPS[ORDERS].columns))
    found = part(unproved(tmp_path).write(sealed({ORDERS: [(0, event(ORDERS, image(1, 10), mapped=other))]})), ORDERS)
    assert found.stop is not None
    assert (found.stop.reason, found.file, found.upto) == (Reason.SCHEMA_CHANGE_REFUSED, "", FilePosition(at(100)))


def test_a_step_comes_back_from_its_line(writer: BatchWriter) -> None:
    step = SchemaStep(Statement("shop", "TRUNCATE orders"), TransactionId(at(300)), 5.0)
    batch = writer.write(replace(sealed({}), steps={ORDERS: step}))
    assert part(batch, ORDERS) == TableBatch(str(ORDERS), "", 0, 0, FilePosition(at(300)), None, step)
    assert BinlogBatch.from_json(batch.to_json()) == batch
