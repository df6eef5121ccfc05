"""`verify` finds every difference and invents none, while the source is written and the stream runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.run import ExitCode
from cdcsync_core.verification import Kind, Progress, TableResult, VerifyConfig, verdict
from cdcsync_spark.sinks.base import Commit, Merge
from cdcsync_spark.verify.comparison import open_comparison
from support.fixtures import FreshDatabase
from support.servers import Server
from support.small_sync import SmallSync

MakeSync = Callable[[Server, str], SmallSync]


@pytest.fixture
def sync_of(tmp_path: Path) -> MakeSync:
    return lambda server, database: SmallSync(server, database, tmp_path)


def verify(sync: SmallSync, *, patience: float = 30) -> dict[str, TableResult]:
    """Table name without the database -> its result."""
    scratch = sync.folder / "verify"
    scratch.mkdir(exist_ok=True)
    config = VerifyConfig(
        sync.resource.to_dict(),
        str(sync.secrets_dir),
        str(sync.status_file),
        str(sync.lock_file),
        str(scratch),
        patience=patience,
    )
    told: list[Progress | TableResult] = []
    results = open_comparison(config, told.append).run()
    assert not list(scratch.iterdir()), "scratch files are left"
    assert {t.table for t in told} == {r.table for r in results}
    return {r.table.partition(".")[2]: r for r in results}


def tamper(sync: SmallSync, table: str, upserts: list[dict[str, object]], deletes: list[dict[str, object]]) -> None:
    """Changes the target behind the sync's back: the state stays, but for its number."""
    target = sync.target(table)
    schema = target.open_snapshot().schema
    state = target.last_commit()
    assert state is not None
    keys = pa.schema([schema.field(k) for k in state.table.key])
    change = Merge(pa.Table.from_pylist(upserts, schema), pa.Table.from_pylist(deletes, keys))
    target.commit(1, lambda found: Commit(replace(found, number=found.number + 1), change))


KEYS = {
    "int_key": ("k INT NOT NULL", "{n} - 50"),
    "unsigned_key": ("k BIGINT UNSIGNED NOT NULL", "18446744073709551615 - {n}"),
    "decimal_key": ("k DECIMAL(30,5) NOT NULL", "{n} / 7 - 3"),
    "wide_decimal_key": ("k DECIMAL(60,20) NOT NULL", "{n} / 7 - 3"),
    "text_key": ("k VARCHAR(40) CHARACTER SET utf8mb4 NOT NULL", "CONCAT('Schlüssel ', {n})"),
    "latin_key": ("k VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_german1_ci NOT NULL", "CONCAT('Schlüssel ', {n})"),
    "utf16_key": ("k CHAR(20) CHARACTER SET utf16 NOT NULL", "CONCAT('ключ', {n})"),
    "binary_key": ("k BINARY(16) NOT NULL", "UNHEX(LEFT(SHA2({n}, 256), 32))"),
    "varbinary_key": ("k VARBINARY(40) NOT NULL", "UNHEX(SHA2({n}, 256))"),
    "date_key": ("k DATE NOT NULL", "DATE'1999-01-01' + INTERVAL {n} DAY"),
    "datetime_key": ("k DATETIME(6) NOT NULL", "TIMESTAMP'0900-02-28 23:59:59.000001' + INTERVAL {n} DAY"),
    "timestamp_key": ("k TIMESTAMP(3) NOT NULL", "TIMESTAMP'2020-03-29 01:30:00.125' + INTERVAL {n} HOUR"),
    "time_key": ("k TIME(3) NOT NULL", "SEC_TO_TIME({n} * 61.125 - 3000)"),
    "year_key": ("k YEAR NOT NULL", "1950 + {n}"),
    "enum_key": ("k ENUM('zwei','eins','drei','d''or') NOT NULL", "1 + {n} % 4"),
    "set_key": ("k SET('a','b','c','d','e','f','g') NOT NULL", "{n}"),
    "bit_key": ("k BIT(33) NOT NULL", "{n} + 4294967296"),
}


def create_key_tables(server: Server, database: str) -> list[str]:
    numbers = ", ".join(f"({n})" for n in range(120))
    server.run(
        "SET time_zone = '+00:00'",
        "CREATE TABLE seed (n INT PRIMARY KEY)",
        f"INSERT INTO seed VALUES {numbers}",
        db=database,
    )
    for name, (column, expression) in KEYS.items():
        server.run(
            f"CREATE TABLE {name} ({column}, second INT NOT NULL, v VARCHAR(20), PRIMARY KEY (k, second))",
            "SET time_zone = '+00:00'",
            f"INSERT INTO {name} SELECT {expression.format(n='n')}, n, CONCAT('v', n) FROM seed",
            db=database,
        )
    return [*KEYS, "seed"]


def test_every_type_of_key_is_compared_and_read_again(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """R3: equal tables are equal; then a changed, a lost and an invented row of each are found again by their keys."""
    database = fresh_database(any_server)
    tables = create_key_tables(any_server, database)
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    results = verify(sync)
    found = {t: (r.source_rows, r.target_rows, r.equal) for t, r in results.items()}
    assert found == dict.fromkeys(tables, (120, 120, True))
    assert verdict(results.values()) is ExitCode.DONE

    for table in KEYS:
        rows = sync.target(table).scan().read_all().to_pylist()
        changed, lost, invented = rows[3] | {"v": ""}, rows[4], rows[5] | {"second": 1000}
        tamper(sync, table, [changed, invented], [{"k": lost["k"], "second": lost["second"]}])
    results = verify(sync)
    for table in KEYS:
        assert results[table].counts == {Kind.DIFFERENT.value: 1, Kind.MISSING.value: 1, Kind.EXTRA.value: 1}, table
        shown = {d.kind: d for d in results[table].keys}
        assert shown[Kind.DIFFERENT].columns["v"][1] == "''"
        assert shown[Kind.EXTRA].key["second"] == "1000"
    assert results["seed"].equal
    assert verdict(results.values()) is ExitCode.DIFFERENCES
