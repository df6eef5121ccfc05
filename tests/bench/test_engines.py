"""What Spark costs a stream: one run to the binlog's end with each engine, from its start to its
end, on copies of one lake. An idle one has nothing to apply, so it is the start alone.

    CDCSYNC_BENCH_CHANGES=1000000 make bench ARGS='-k engines'

The default is 100,000 changes of TPC-DS `customer` (18 columns), in transactions of 500 rows.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench import customers
from bench.measured import Figures, by_part, contender
from cdcsync_core.resource.manifest import load_manifest
from cdcsync_core.runs.run import LOG_END, RunConfig, RunKind, TableAssignment
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.sessions.connection import connect, source_from_spec
from support.fixtures import FreshDatabase
from support.lake import query
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

CHANGES = int(os.environ.get("CDCSYNC_BENCH_CHANGES", "100000"))
ROWS = max(1, CHANGES // 10_000) * 10_000
_ENGINES = ("cdcsync_stream_in_spark", "cdcsync_stream_in_process")
_SUMS = "count(*), sum(c_customer_sk), sum(c_birth_day), sum(c_current_addr_sk), sum(c_last_review_date_sk)"


def test_what_spark_costs(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    table = TableId(database, "customer")
    customers.fill(server, database, ROWS)
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec={"stream": {"interval": "1s"}}) as sync:
        sync.run_to_completion()
        idle = [_run(sync, table, f"{name}-idle", name)[0] for name in _ENGINES]
        customers.change(server, database, ROWS, 1)
        runs = [_run(sync, table, name, name) for name in _ENGINES]
    print("\n| run | row images | CPU s | of these | wall s | PSS MiB |\n|---|---|---|---|---|---|")
    for name, found in [*zip((f"{n}, idle" for n in _ENGINES), idle, strict=True), *((f.name, f) for f, _ in runs)]:
        print(
            f"| {name} | {found.rows:,} | {found.cpu:.1f} | {by_part(found.parts)} | {found.wall:.1f} | {found.memory:.0f} |"
        )
    expected = tuple(int(value) for value in server.query(f"SELECT {_SUMS} FROM {table}")[0])
    for found, uri in runs:
        assert tuple(c[0].as_py() for c in query(DeltaTable(uri), f"SELECT {_SUMS} FROM t").columns) == expected
        assert found.rows == runs[0][0].rows > 0


def _run(sync: Sync, table: TableId, folder: str, engine: str) -> tuple[Figures, str]:
    """The figures of a run on a copy of the sync's lake, and where its table is."""
    place = sync.folder / folder
    shutil.copytree(sync.lake, place / "lake")
    config = _config(sync, table, place)
    (place / "run.json").write_text(config.to_json())
    return contender(engine, place / "run.json"), str((place / "lake").joinpath(*str(table).split(".")))


def _config(sync: Sync, table: TableId, place: Path) -> RunConfig:
    manifest = load_manifest([sync.manifest.read_text()])
    resource = manifest.resource.to_dict()
    resource["spec"]["sink"]["delta"]["path"] = str(place / "lake")
    for name, values in manifest.secrets.items():
        for key, value in values.items():
            path = place / "secrets" / name / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value.get_secret_value())
    with connect(source_from_spec(manifest.resource.spec.source, place / "secrets")) as connection:
        capture = read_table(connection, table)
    for folder in ("plan", "scratch"):
        (place / folder).mkdir()
    config = RunConfig(
        "bench-1", 1, RunKind.STREAM, resource, (TableAssignment(capture),),
        str(place / "plan"), str(place / "secrets"), str(place / "scratch"),
    )  # fmt: skip
    return replace(config, stop_at=LOG_END)
