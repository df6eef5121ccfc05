"""A table's part of a batch as a value: images and the transactions that they count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cdcsync_core.positions.position import FilePosition, LogOffset, TransactionId
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, Transactions, write_transactions
from cdcsync_spark.delivery.changelog import Changelog, open_changelog
from cdcsync_spark.rows.changes import ChangeKind, changes_schema

SCHEMA = changes_schema(pa.schema([pa.field("id", pa.int32())]))


def at(offset: int) -> LogOffset:
    return LogOffset("binlog.000001", offset)


IMAGES = pa.table({SCHEMA.names[0]: [ChangeKind.INSERT] * 3, SCHEMA.names[1]: [0, 1, 1], "id": [1, 2, 3]}, SCHEMA)
TRANSACTIONS = Transactions([TransactionId(at(200)), TransactionId(at(300))], [1.5, 2.5])


def test_what_a_position_covers_is_left_out() -> None:
    """Rule R5: a table skips what its own position has; transactions keep their numbers."""
    changes = Changelog(IMAGES, TRANSACTIONS)
    assert changes.without(FilePosition(at(100))) == changes
    later = changes.without(FilePosition(at(200)))
    assert later.images.to_pydict() == {SCHEMA.names[0]: [0, 0], SCHEMA.names[1]: [1, 1], "id": [2, 3]}
    assert later.transactions == TRANSACTIONS
    assert changes.without(FilePosition(at(300))).images.num_rows == 0


def test_it_is_read_from_the_files_of_a_batch(tmp_path: Path) -> None:
    rows, transactions = tmp_path / "rows.arrow", str(tmp_path / "transactions.json")
    with pa.OSFile(str(rows), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(IMAGES)
    write_transactions(transactions, TRANSACTIONS)
    end = FilePosition(at(300))
    part = TableBatch("shop.orders", str(rows), 3, 0, end)
    batch = BinlogBatch(FilePosition(at(100)), end, 2.5, transactions, (part,))
    with open_changelog(part, batch) as found:
        assert found.images.equals(IMAGES)
        assert (list(found.transactions.ids), found.transactions.committed_at) == (TRANSACTIONS.ids, [1.5, 2.5])
