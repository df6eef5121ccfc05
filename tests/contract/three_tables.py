"""Three tables of a SQL database that are committed together, with a row each."""

from __future__ import annotations

from cdcsync_spark.sinks.contract.changes import Build, Upsert
from cdcsync_spark.sinks.sql.target import SqlSink, SqlTarget
from contract.sinkcase import Row, batch, keys_of, make_table, rows_of, whole_snapshot

TABLES = [make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], name=f"t{n}") for n in range(3)]
FIRST: list[Row] = [(1, "first")]
CHANGED: list[Row] = [(1, "changed"), (2, "new")]


def opened(sink: SqlSink) -> list[SqlTarget]:
    targets = [sink.target(table.id) for table in TABLES]
    for target, table in zip(targets, TABLES, strict=True):
        whole_snapshot(target, FIRST, table)
    return targets


def change(number: int, rows: list[Row]) -> Build:
    table = TABLES[number]
    return batch(1, Upsert(rows_of(table, rows), keys_of(table, [])))
