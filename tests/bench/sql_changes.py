"""Rows and changes of `customer` (18 columns) for tables of SQL databases, and what takes them: the
product's sink and Spark's JDBC writer, each a program (`python sql_changes.py NAME ARGUMENTS`) that
prints how many rows it wrote. `DebeziumJdbcSink.java` makes the same ones.

The rows are in memory; the product gets them as Arrow tables, as its reader gives them. A turn
updates eight columns of all rows but one in a hundred, which it deletes; turn 0 is the rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.state import TableState
from cdcsync_mysql.sessions.connection import Tls
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import Append, Change, Commit, Upsert
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from cdcsync_spark.sinks.sql.target import SqlSink, SqlTarget
from contract.sinkcase import SYNC, first_state, make_table

TABLE = make_table(
    {
        "c_customer_sk": "int(11)",
        "c_customer_id": "char(16)",
        "c_current_cdemo_sk": "int(11)",
        "c_current_hdemo_sk": "int(11)",
        "c_current_addr_sk": "int(11)",
        "c_first_shipto_date_sk": "int(11)",
        "c_first_sales_date_sk": "int(11)",
        "c_salutation": "char(10)",
        "c_first_name": "char(20)",
        "c_last_name": "char(30)",
        "c_preferred_cust_flag": "char(1)",
        "c_birth_day": "int(11)",
        "c_birth_month": "int(11)",
        "c_birth_year": "int(11)",
        "c_birth_country": "varchar(20)",
        "c_login": "char(13)",
        "c_email_address": "char(50)",
        "c_last_review_date_sk": "int(11)",
    },
    ["c_customer_sk"],
    "shop",
    "customer",
)
_SCHEMA = captured_schema(TABLE)


def dialect(kind: str, port: str, folder: str, database: str) -> Dialect:
    """`folder` has the account's files `username` and `password`; on MySQL `database` has the
    targets and the states."""
    files = Path(folder) / "username", Path(folder) / "password"
    login = SqlLogin("spec.sink", "127.0.0.1", int(port), *files, Tls("disabled", allow_unverified=True))
    return MySqlDialect(login, database, database) if kind == "mysql" else PostgresDialect(login, database, "public")


def rows(first: int, count: int, turn: int, keys: pa.Array | None = None) -> pa.Table:
    """The rows of the keys from `first` on, or of `keys`."""
    k = pa.array(range(first, first + count), pa.int32()) if keys is None else keys
    number = pc.utf8_lpad(k.cast(pa.string()), 8, "0")
    rare = pc.equal(_rest(k, 29), 0)
    none = pa.scalar(None, pa.int32())

    def text(value: str | None) -> pa.Array:
        return pa.array([value] * len(k), pa.string())

    columns = [
        k,
        pc.binary_join_element_wise("AAAAAAAA", number, ""),
        _rest(k, 1920800),
        pc.if_else(rare, none, _rest(k, 7200)),
        pc.add(_rest(k, 50000), turn),
        pc.add(_rest(k, 3000), 2449000),
        pc.add(_rest(k, 2900), 2449000),
        pc.if_else(rare, pa.scalar(None, pa.string()), "Dr." if turn else "Mrs."),
        text("Ada" if turn else "Zoë"),
        text("García"),
        pc.if_else(pc.equal(_rest(k, 2), 0), "Y", "N"),
        pc.add(_rest(pc.add(k, turn), 28), 1),
        pc.add(_rest(k, 12), 1),
        pc.add(_rest(pc.add(k, turn), 69), 1924),
        text("UNITED STATES"),
        text("changed" if turn else None),
        pc.binary_join_element_wise("new" if turn else "customer", number, "@example.org", ""),
        pc.add(_rest(k, 365), 2452283 + turn),
    ]
    return pa.table([c.cast(f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


def _rest(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


def changes(first: int, count: int, turn: int) -> Upsert:
    keys = pa.array(range(first, first + count), pa.int32())
    deleted = pc.equal(_rest(keys, 100), turn)
    gone = pa.table([keys.filter(deleted)], schema=pa.schema([_SCHEMA.field("c_customer_sk")]))
    return Upsert(rows(first, count, turn, keys.filter(pc.invert(deleted))), gone)


def cdcsync_load(kind: str, port: str, folder: str, database: str, count: str, most: str) -> int:
    """New rows, staged and published as a wave of a snapshot."""
    target = _target(dialect(kind, port, folder, database))
    target.prepare(first_state(TABLE))
    for first in _starts(count, most):
        staged = target.stage(TABLE, rows(first, int(most), 0).to_batches(), "wave")
        target.commit(1, lambda state: _next(state, Append(staged)))  # noqa: B023 (called at once)
    return int(count)


def cdcsync_changes(
    kind: str, port: str, folder: str, database: str, count: str, turns: str, most: str, times: str
) -> int:
    """Changes in commits of `most`; `times` gets the milliseconds of each."""
    writer, spent = _target(dialect(kind, port, folder, database)).writer(Path(folder)), list[float]()
    for turn in range(1, int(turns) + 1):
        for first in _starts(count, most):
            change = changes(first, int(most), turn)
            begun = time.perf_counter()
            writer.commit(1, lambda state: _next(state, change))  # noqa: B023 (called at once)
            spent.append(1000 * (time.perf_counter() - begun))
    Path(times).write_text("\n".join(map(str, spent)))
    return int(count) * int(turns)


def spark_load(url: str, user: str, password: str, table: str, folder: str, count: str, most: str, jars: str) -> int:
    """Spark's JDBC writer appends the Parquet file of so many rows, and then the file of each
    piece; `folder`/times gets the milliseconds of each of those."""
    from cdcsync_spark.engine.start import start_session

    driver = "com.mysql.cj.jdbc.Driver" if url.startswith("jdbc:mysql") else "org.postgresql.Driver"
    properties = {"user": user, "password": password, "batchsize": most, "driver": driver}
    spent = list[float]()
    extra = {
        "spark.jars": jars,
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Djava.io.tmpdir={folder}",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
    }
    with start_session("bench", cores=2, memory="1g", scratch_dir=folder, extra=extra) as spark:
        for file in (f"{folder}/{count}.parquet", *map(str, sorted(Path(folder).glob("piece-*.parquet")))):
            begun = time.perf_counter()
            spark.read.parquet(file).write.jdbc(url, table, mode="append", properties=properties)
            spent.append(1000 * (time.perf_counter() - begun))
    Path(folder, "times").write_text("\n".join(map(str, spent[1:])))
    return int(count)


def _target(server: Dialect) -> SqlTarget:
    return SqlSink(server, SYNC).target(TABLE.id)


def _next(state: TableState, change: Change) -> Commit:
    return Commit(replace(state, commit_number=state.commit_number + 1), change)


def _starts(count: str, most: str) -> Iterator[int]:
    return iter(range(1, int(count) + 1, int(most)))


if __name__ == "__main__":
    sys.stdout.write(f"\n{globals()[sys.argv[1]](*sys.argv[2:])}\n")
