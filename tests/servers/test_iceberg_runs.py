"""`cdcsync run` into Iceberg tables, as a user runs it: by a REST catalog, and by a file of SQLite
without a server. Programs that know nothing of CdcSync read what is there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest
from click.testing import CliRunner
from pyiceberg.table import StaticTable

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.main import cli
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, NewTable
from cdcsync_spark.sinks.iceberg.catalog.sqlite import SqliteCatalog
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from support.fixtures import FreshDatabase
from support.iceberg_catalog import ICEBERG, IcebergCatalog, metadata_file
from support.iceberg_spark import IcebergSpark
from support.servers import Server
from support.sync_process import Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
ROWS = 12_000


def duckdb_rows(metadata: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__path__[0]).rglob("*.duckdb_extension")
        connection.load_extension(str(extension))
    names = ", ".join(f'"{column}"' for column in columns)
    return connection.execute(f"SELECT {names} FROM iceberg_scan('{metadata}') ORDER BY 1").fetchall()


def pyiceberg_rows(metadata: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    table = StaticTable.from_metadata(metadata).scan(selected_fields=tuple(columns)).to_arrow()
    ordered = table.select(list(columns)).sort_by(columns[0])
    return list(zip(*(column.to_pylist() for column in ordered.columns), strict=True))


READERS: dict[str, Callable[[str, Sequence[str]], list[tuple[Any, ...]]]] = {
    "DuckDB": duckdb_rows,
    "PyIceberg": pyiceberg_rows,
}


def consistent(status: dict[str, Any]) -> tuple[str, str, str]:
    found = next((c for c in status.get("conditions", []) if c["type"] == "Consistent"), None)
    return (found["status"], found["reason"], found["message"]) if found else ("", "", "")


def fill(server: Server, database: str) -> None:
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)"
    server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, word VARCHAR(40), amount DECIMAL(12,2), at DATETIME(6))",
        f"INSERT INTO orders {numbers} SELECT i, CONCAT('w', i), i / 7, '2026-01-01 00:00:00.5' FROM n",
        *(
            f"INSERT INTO orders SELECT id + {600 * k}, CONCAT(word, '-{k}'), amount, at FROM orders WHERE id <= 600"
            for k in range(1, ROWS // 600)
        ),
        db=database,
    )


def change(server: Server, database: str, round_: int) -> None:
    server.run(
        f"UPDATE orders SET word = 'u{round_}', at = NULL WHERE id % 10 = {round_}",
        f"DELETE FROM orders WHERE id % 100 = {round_ + 50}",
        f"INSERT INTO orders (id, word, amount, at) SELECT {ROWS * (round_ + 2)} + id, word, amount, at FROM orders WHERE id < 50",
        db=database,
    )


def source_rows(server: Server, database: str) -> list[tuple[Any, ...]]:
    return list(server.query(f"SELECT id, word, amount, at FROM {database}.orders ORDER BY id"))


def assert_read_alike(metadata: str, expected: list[tuple[Any, ...]]) -> None:
    for name, read in READERS.items():
        assert read(metadata, ["id", "word", "amount", "at"]) == expected, name


@pytest.mark.long
def test_a_rest_catalog_through_kills_and_lost_answers(
    mariadb1011: Server, iceberg_catalog: IcebergCatalog, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    fill(server, database)
    namespace = f"n{uuid.uuid4().hex}"
    catalog = {"uri": iceberg_catalog.uri, "warehouse": iceberg_catalog.warehouse}
    sink = {"iceberg": {"catalog": catalog, "namespace": namespace, "properties": {"owner": "shop"}}}
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec={"sink": sink}) as sync:
        checked = CliRunner().invoke(cli, ["check", "-f", str(sync.manifest), "-o", "json"])
        assert checked.exit_code == 0, checked.output
        assert "Iceberg's REST protocol" in checked.stdout
        sync.start(gate=Gate("wave-staged"))
        sync.wait_fired()
        sync.kill_all()
        sync.start(gate=Gate("vectors-written"))
        sync.wait_phase("Streaming")
        change(server, database, 1)
        sync.wait_fired()
        sync.kill_all()
        iceberg_catalog.fault("after")
        sync.start()
        sync.wait_phase("Streaming")
        change(server, database, 2)
        server.run("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none'", db=database)
        change(server, database, 3)
        sync.terminate()
        sync.run_to_completion()
        verified = sync.command("verify", timeout=400)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert_read_alike(metadata_file(iceberg_catalog.database, namespace, "orders"), source_rows(server, database))


@pytest.mark.long
def test_a_file_of_sqlite_without_a_server(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    fill(server, database)
    warehouse, file = tmp_path / "warehouse", tmp_path / "catalog.db"
    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{file}", "warehouse": str(warehouse)}
    with Sync(
        server, [rf"{database}\..*"], tmp_path / "sync", spec={"sink": {"iceberg": {"catalog": catalog}}}
    ) as sync:
        sync.start()
        sync.wait_phase("Streaming")
        change(server, database, 1)
        sync.terminate()
        sync.run_to_completion()
        assert_read_alike(metadata_file(file, database, "orders"), source_rows(server, database))


@pytest.mark.long
def test_what_spark_does_to_a_table_is_known_and_stops_no_other(
    mariadb1011: Server, iceberg_catalog: IcebergCatalog, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """A row that it deletes is missed until a verification finds it again; a table that it takes
    back is refused."""
    server, database, tables = mariadb1011, fresh_database(mariadb1011), ("taken", "back", "busy", "altered")
    for table in tables:
        columns = "id INT PRIMARY KEY, n INT" if table == "altered" else "id INT PRIMARY KEY"
        server.run(f"CREATE TABLE {table} ({columns})", f"INSERT INTO {table} (id) VALUES (1), (2)", db=database)
    namespace = f"n{uuid.uuid4().hex}"
    catalog = {"uri": iceberg_catalog.uri, "warehouse": iceberg_catalog.warehouse}
    sink = {"iceberg": {"catalog": catalog, "namespace": namespace}}
    (tmp_path / "spark").mkdir()

    def rows(table: str) -> list[tuple[Any, ...]]:
        return pyiceberg_rows(metadata_file(iceberg_catalog.database, namespace, table), ["id"])

    def insert(table: str, number: int) -> None:
        server.run(f"INSERT INTO {table} (id) VALUES ({number})", db=database)
        sync.wait_until(lambda: (number,) in rows(table), f"{number} in {table}")

    with (
        IcebergSpark(iceberg_catalog.uri, ICEBERG / "jars", tmp_path / "spark") as spark,
        Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec={"sink": sink}) as sync,
    ):
        sync.start()
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == len(tables))
        for table in tables:
            insert(table, 3)
        sync.wait_for(lambda s: consistent(s)[0] == "True")
        spark.sql(f"DELETE FROM lake.{namespace}.taken WHERE id = 2")
        begun = time.monotonic()
        status = sync.wait_for(lambda s: consistent(s)[1] == "SinkWritten")
        print(f"a deleted row was known after {time.monotonic() - begun:.1f} s")
        assert f'{database}.taken: the program "spark' in consistent(status)[2]
        insert("taken", 4)
        assert rows("taken") == [(1,), (3,), (4,)]
        assert consistent(sync.status())[1] == "SinkWritten", "our next commit keeps the note"
        spark.sql(f"INSERT INTO lake.{namespace}.taken VALUES (2)")
        assert sync.command("verify", timeout=400).returncode == 0
        sync.wait_for(lambda s: consistent(s)[0] == "True")

        spark.sql(f"ALTER TABLE lake.{namespace}.altered ADD COLUMN theirs STRING")
        assert sync.command("verify", timeout=400).returncode == 0, "a column beside the source's is no difference"
        spark.sql(f"ALTER TABLE lake.{namespace}.altered RENAME COLUMN n TO m")
        verified = sync.command("verify", timeout=400)
        assert verified.returncode == ExitCode.USER_MUST_ACT, (
            "a column that is not there is read as NULL, as it is here"
        )
        assert "the target's column 'n' is missing" in verified.stdout + verified.stderr
        spark.sql(f"ALTER TABLE lake.{namespace}.altered RENAME COLUMN m TO n")
        assert sync.command("verify", timeout=400).returncode == 0
        insert("altered", 4)

        (before,) = spark.sql(f"SELECT snapshot_id FROM lake.{namespace}.back.snapshots ORDER BY committed_at LIMIT 1")
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{namespace}.back', {before[0]})")
        begun = time.monotonic()
        status = sync.wait_for(lambda s: s.get("tables", {}).get("failed") == 1)
        print(f"a table that was taken back was known after {time.monotonic() - begun:.1f} s")
        failed = [(t["name"], t["reason"]) for t in status["tableStatus"] if t["phase"] == "Failed"]
        assert failed == [(f"{database}.back", "SinkConflict")]
        assert consistent(status)[0] == "False"
        insert("busy", 4)
        assert rows("back") == [(1,), (2,)]


def test_check_names_what_spark_cannot_read_and_what_is_not_ours(
    mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """A column with the name of a metadata column; and another program's table in the catalog."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    server.run("CREATE TABLE a (id INT PRIMARY KEY, _Row_Id INT)", db=database)
    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    with Sync(
        server, [rf"{database}\..*"], tmp_path / "sync", spec={"sink": {"iceberg": {"catalog": catalog}}}
    ) as sync:
        for excluded, code in (([], ExitCode.USAGE), (["_Row_Id"], ExitCode.DONE)):
            override = {"table": f"{database}.a", "columns": {"exclude": excluded}}
            sync.write_manifest(tables={"overrides": [override]})
            checked = CliRunner().invoke(cli, ["check", "-f", str(sync.manifest), "-o", "json"])
            assert checked.exit_code == code, checked.output
            assert ("_Row_Id has the name of a metadata column" in checked.stderr) == bool(code)
        assert not (tmp_path / "catalog.db").exists(), "who only reads makes no file"
        stores = TableStores(folder=str(tmp_path / "warehouse"))
        other_program = SqliteCatalog(str(tmp_path / "catalog.db"), str(tmp_path / "warehouse"), stores)
        field = {"id": 1, "name": "id", "required": True, "type": "int"}
        new = NewTable({"type": "struct", "schema-id": 0, "fields": [field]}, 3, {})
        other_program.create(CatalogTableName((database,), "a"), new)
        checked = CliRunner().invoke(cli, ["check", "-f", str(sync.manifest), "-o", "json"])
        assert checked.exit_code != ExitCode.DONE
        assert "is missing, or holds no state" in checked.stderr
