"""History tables in Iceberg as a user runs them: a real server, drivers that are killed, a change
of the definition. The table is read by PyIceberg, and a consumer checks every row of it."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.table import StaticTable

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.main import cli
from support.event_consumer import CheckingConsumer, Event
from support.fixtures import FreshDatabase
from support.iceberg_catalog import IcebergCatalog, metadata_file
from support.servers import Server
from support.sync_process import Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
ROWS = 3000
METADATA = ["_cdc_op", "_cdc_ts", "_cdc_seq", "_cdc_position", "_cdc_gtid"]


def fill(server: Server, database: str) -> None:
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
    server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, word VARCHAR(40), amount DECIMAL(12,2))",
        f"INSERT INTO orders {numbers} SELECT i, CONCAT('w', i), i / 7 FROM n",
        *(
            f"INSERT INTO orders SELECT id + {500 * k}, CONCAT(word, '-{k}'), amount FROM orders WHERE id <= 500"
            for k in range(1, ROWS // 500)
        ),
        "CREATE TABLE bag (word VARCHAR(9))",
        "INSERT INTO bag VALUES ('a'), ('a'), ('b')",
        db=database,
    )


def change(server: Server, database: str, round_: int) -> None:
    server.run(
        f"UPDATE orders SET word = 'u{round_}' WHERE id % 10 = {round_}",
        f"DELETE FROM orders WHERE id % 100 = {round_ + 50}",
        f"UPDATE orders SET id = id + 100000 WHERE id % 500 = {round_}",
        f"INSERT INTO bag VALUES ('c{round_}')",
        "DELETE FROM bag WHERE word = 'a' LIMIT 1",
        db=database,
    )


def events_of(history: pa.Table) -> Iterator[Event]:
    """In the order of the ordinals."""
    for row in history.sort_by("_cdc_seq").to_pylist():
        yield Event(row["_cdc_op"], {k: v for k, v in row.items() if k not in METADATA}, row["_cdc_seq"])


@pytest.mark.long
def test_a_history_through_kills_and_a_change_of_the_definition(
    mariadb1011: Server, iceberg_catalog: IcebergCatalog, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server, database, namespace = mariadb1011, fresh_database(mariadb1011), f"n{uuid.uuid4().hex}"
    fill(server, database)
    catalog = {"uri": iceberg_catalog.uri, "warehouse": iceberg_catalog.warehouse}
    sink = {"iceberg": {"catalog": catalog, "namespace": namespace, "mode": "history"}}
    spec = {"sink": sink, "snapshot": {"chunkSize": 500, "parallelism": 2}}

    def history(table: str = "orders") -> pa.Table:
        metadata = metadata_file(iceberg_catalog.database, namespace, table)
        return StaticTable.from_metadata(metadata).scan().to_arrow()

    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=spec) as sync:
        for command, found in (("check", "columns"), ("plan", "columns")):
            shown = CliRunner().invoke(cli, [command, "-f", str(sync.manifest), "-o", "json"])
            assert shown.exit_code == ExitCode.DONE, shown.output
            assert METADATA[0] in json.dumps(json.loads(shown.stdout)["tables"][0][found])
        for number, gate in enumerate((Gate("wave-staged", 3), Gate("before-publish"))):
            sync.start("forever", gate)
            sync.wait_fired()
            change(server, database, number + 1)
            sync.kill_all()
        sync.start("forever", Gate("data-written"))
        sync.wait_phase("Streaming")
        change(server, database, 3)
        sync.wait_fired()
        sync.kill_all()
        server.run("ALTER TABLE orders ADD city VARCHAR(20) AFTER id", db=database)
        change(server, database, 4)
        sync.run_to_completion()
        rows = history()
        assert rows.schema.names == ["id", "city", "word", "amount", *METADATA]
        consumer = CheckingConsumer(("id",)).take(events_of(rows))
        assert consumer.faults == [], consumer.faults[:3]
        source = server.query(f"SELECT id, city, word, amount FROM {database}.orders ORDER BY id")
        assert sorted(tuple(row.values()) for row in consumer.rows.values()) == [tuple(row) for row in source]
        snapshot = rows.filter(pa.compute.equal(rows["_cdc_seq"], 0))
        assert snapshot.num_rows < rows.num_rows, "changes came after the snapshot"
        left = Counter[str]()
        for event in events_of(history("bag")):
            left[event.row["word"]] += 1 if event.operation.startswith("+") else -1
        assert +left == Counter(word for (word,) in server.query(f"SELECT word FROM {database}.bag"))
        verified = sync.command("verify", timeout=400)
        (line,) = (line.split() for line in verified.stdout.splitlines() if line.split()[:1] == [f"{database}.orders"])
        assert line[-1] == "equal", verified.stdout + verified.stderr

        sync.write_manifest(resnapshot=[{"table": f"{database}.orders", "nonce": 1}])
        sync.run_to_completion()
        again = history()
        assert sorted(again["id"].to_pylist()) == [row[0] for row in source]
        assert set(again["_cdc_seq"].to_pylist()) == {0}

        sync.write_manifest(sink={"iceberg": {"mode": "replica"}})
        sync.start("caught-up")
        assert sync.wait() == ExitCode.USER_MUST_ACT
        assert "holds a history" in sync.logs()
        assert history().equals(again)
