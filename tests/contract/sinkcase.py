"""Tables, states and commits for the tests of sinks, and a model to compare a target with.

A target's content is compared as a sorted list of tuples; `Model` is the same table as a dictionary
from key to row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, Place
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Origin
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Append, Build, Change, Commit, Evolve, Upsert
from cdcsync_spark.sinks.contract.sink import Target

SYNC = "shop/orders"
WATERMARK = Place("binlog.000001", 100, "mysql:uuid")
Row = tuple[Any, ...]


def make_table(columns: Mapping[str, str], key: Sequence[str], database: str = "shop", name: str = "orders") -> Capture:
    """A table from column name -> declared type; texts are utf8mb4."""
    made = tuple(
        Column(n, SourceType.parse(t, "utf8mb4" if "char" in t or "text" in t else "")) for n, t in columns.items()
    )
    return Capture(SourceTable(TableId(database, name), made), tuple(key))


ORDERS = make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"])


def first_state(
    table: Capture = ORDERS, epoch: int = 1, sync: str = SYNC, log: str = "mysql:uuid", nonce: int = 0
) -> TableState:
    return TableState(
        Identity(sync, Lineage.of(log), str(table.id)),
        table,
        TargetSchema.of(table),
        epoch,
        resnapshot_nonce=nonce,
        generation=nonce,
    )


def rows_of(table: Capture, rows: Iterable[Row]) -> pa.Table:
    """Rows as tuples in the order of the columns to the table's schema."""
    schema = captured_schema(table)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def keys_of(table: Capture, keys: Iterable[Row]) -> pa.Table:
    schema = pa.schema([captured_schema(table).field(k) for k in table.key])
    columns = list(zip(*keys, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def content(target: Target) -> list[Row]:
    """All rows, sorted by their text (so that NULLs and mixed types have an order)."""
    read = target.open_snapshot().scan().read_all()
    return sorted(zip(*(c.to_pylist() for c in read.columns), strict=True), key=repr)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def stage(target: Target, table: Capture, rows: Iterable[Row], name: str = "wave") -> Append:
    return Append(target.stage(table, rows_of(table, rows).to_batches(), name))


def whole_snapshot(target: Target, rows: Iterable[Row], table: Capture = ORDERS, epoch: int = 1) -> TableState:
    """The table read in one wave: created, filled, its position the watermark."""
    target.prepare(first_state(table, epoch))
    append = stage(target, table, rows)

    def build(found: TableState) -> Commit:
        return Commit(
            replace(found.after_wave([Split()], FilePosition(WATERMARK), WATERMARK, 0, 0), epoch=epoch), append
        )

    return target.commit(epoch, build)


def batch(number: int, change: Change, epoch: int = 1) -> Build:
    """The stream's batch that ends at byte `1000 * number`; None where the target has passed it."""
    end = FilePosition(Place(WATERMARK.file, 1000 * number, "mysql:uuid"))

    def build(found: TableState) -> Commit | None:
        assert found.position is not None
        if found.position.has_reached(end.at):
            return None
        return Commit(replace(found.after_batch(end), epoch=epoch), change)

    return build


def with_table(state: TableState, table: Capture) -> TableState:
    """The same state of a table with another definition."""
    return replace(state, capture=table, schema=TargetSchema.of(table))


def step(number: int, table: Capture, origins: Sequence[Origin], epoch: int = 1) -> Build:
    """The batch `number` that gives the rows the columns of `table`."""
    plain = batch(number, Evolve(tuple(origins)), epoch)

    def build(found: TableState) -> Commit | None:
        commit = plain(found)
        return commit and replace(commit, state=with_table(commit.state, table))

    return build


def stamp(epoch: int = 1) -> Build:
    """A commit of the state alone: the claim of a run."""

    def build(found: TableState) -> Commit:
        return Commit(replace(found, commit_number=found.commit_number + 1, epoch=epoch), AdvancePosition())

    return build


@dataclass
class Model:
    """What the target must hold: key -> row."""

    table: Capture
    rows: dict[Row, Row] = field(default_factory=dict)

    def key(self, row: Row) -> Row:
        names = [c.name for c in self.table.captured]
        return tuple(row[names.index(k)] for k in self.table.key)

    def apply(self, upserts: Iterable[Row], deletes: Iterable[Row]) -> Upsert:
        """The same batch for the model (now) and for a target (as an `Upsert`); a later row of
        a key wins, upserts win over deletes."""
        last = {self.key(r): r for r in upserts}
        gone = [k for k in dict.fromkeys(deletes) if k not in last]
        self.rows |= last
        for key in gone:
            self.rows.pop(key, None)
        return Upsert(rows_of(self.table, last.values()), keys_of(self.table, gone))

    @property
    def content(self) -> list[Row]:
        return in_order(self.rows.values())
