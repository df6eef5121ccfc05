"""Another controller takes over a sync from its targets alone: it has the manifest, and nothing
that the first one kept (R4). The first one, back with an old status, invents nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from support.event_consumer import CheckingConsumer
from support.fixtures import FreshDatabase, usually_on
from support.iceberg_catalog import metadata_file
from support.kafka import KafkaBroker
from support.kafka_syncs import kafka_spec, new_name, records
from support.lake import rows_of
from support.postgresql import PostgresServer
from support.servers import Server
from support.sync_process import ACCOUNT, PASSWORD, Sync
from support.topic_events import debezium_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class CopyPlace:
    """Where both controllers have the copy of a table `orders`: the manifest's section of the sink,
    and what reads the copy's columns `id` and `n`."""

    sink: dict[str, Any]
    rows: Callable[[], Rows]


def iceberg(folder: Path, database: str) -> CopyPlace:
    file = folder / "catalog.db"
    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{file}", "warehouse": str(folder / "warehouse")}

    def rows() -> Rows:
        table = StaticTable.from_metadata(metadata_file(file, database, "orders")).scan().to_arrow()
        return list(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))

    return CopyPlace({"iceberg": {"catalog": catalog}}, rows)


def postgresql(server: PostgresServer, database: str) -> CopyPlace:
    target = f"takeover_{database}"
    server.create_database(target)
    server.create_account(ACCOUNT, PASSWORD)
    account = {"database": target, "credentialsSecretRef": {"name": "source"}}

    def rows() -> Rows:
        with server.connect(target) as connection:
            return connection.execute(f"SELECT id, n FROM {database}.orders".encode()).fetchall()

    return CopyPlace({"postgresql": {"host": "127.0.0.1", "port": server.port, **account}}, rows)


def mysql(server: Server, schema: str) -> CopyPlace:
    server.create_user(ACCOUNT, PASSWORD)
    account = {"credentialsSecretRef": {"name": "source"}}
    places = {"database": schema, "stateDatabase": schema}
    section = {"host": "127.0.0.1", "port": server.port, **places, **account}
    return CopyPlace({"mysql": section}, lambda: list(server.query("SELECT id, n FROM orders", db=schema)))


def topic(kafka: KafkaBroker, folder: Path, name: str) -> CopyPlace:
    """A record that came twice is none of the source's changes."""

    def rows() -> Rows:
        consumer = CheckingConsumer(("id",)).take(debezium_events(records(kafka, name)))
        assert consumer.faults == []
        return [(key, row["n"]) for (key,), row in consumer.rows.items()]

    return CopyPlace(kafka_spec(kafka, staging={"path": str(folder / "staging")})["sink"], rows)


class Orders:
    """A table, and its copy in a lake that two controllers reach."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database, self.folder = server, database, folder
        self.lake = folder / "lake"
        numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        server.run(
            "CREATE TABLE orders (id INT PRIMARY KEY, n INT)",
            f"INSERT INTO orders {numbers} SELECT i, 0 FROM n",
            db=database,
        )

    def controller(self, name: str, sync: str = "shop", sink: dict[str, Any] | None = None) -> Sync:
        """A controller of `sync` with a state folder of its own."""
        spec = {"sink": sink or {"delta": {"path": str(self.lake)}}}
        return Sync(self.server, [rf"{self.database}\..*"], self.folder / name, sync, spec)

    def change(self, n: int) -> None:
        self.server.run(
            f"UPDATE orders SET n = {n} WHERE id % 3 = 0",
            f"DELETE FROM orders WHERE id = {n}",
            f"INSERT INTO orders VALUES ({n + 1000}, {n}), ({n + 2000}, {n})",
            db=self.database,
        )

    def rows(self) -> Rows:
        return sorted(self.server.query("SELECT id, n FROM orders", db=self.database))

    def check(self) -> dict[str, Any]:
        """Compares the copy with the table; the state of the copy."""
        copy = rows_of(DeltaTable(str(self.lake / self.database / "orders")))
        rows = sorted(zip(copy["id"].to_pylist(), copy["n"].to_pylist(), strict=True))
        assert rows == self.rows()
        newest = max((self.lake / self.database / "orders" / "_delta_log").glob("*.json"))
        info = json.loads(newest.read_text(encoding="utf-8").splitlines()[0])["commitInfo"]
        state: dict[str, Any] = json.loads(info["cdcsync"])
        return state


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: str, tmp_path: Path, fresh_database: FreshDatabase) -> CopyPlace:
    if kind in ("mariadb1011", "mysql97_nogtid"):
        server: Server = request.getfixturevalue(kind)
        return mysql(server, fresh_database(server))
    database = request.getfixturevalue("database")
    if kind == "postgresql":
        return postgresql(request.getfixturevalue("postgres"), database)
    if kind == "kafka":
        name = f"{request.getfixturevalue('sync_name')}.{database}.orders"
        return topic(request.getfixturevalue("kafka"), tmp_path, name)
    return iceberg(tmp_path, database)


@pytest.fixture
def source(kind: str, request: pytest.FixtureRequest) -> Server:
    """Another server than the target's, where that is one of its kind."""
    server: Server = request.getfixturevalue("mysql97_gtid" if kind == "mariadb1011" else "mariadb1011")
    return server


@pytest.fixture
def database(source: Server, fresh_database: FreshDatabase) -> str:
    return fresh_database(source)


@pytest.fixture
def sync_name() -> str:
    return new_name()


@pytest.mark.parametrize(
    "kind",
    [
        "iceberg",
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("postgresql", "mariadb1011", "mysql97_nogtid", "kafka")
        ),
    ],
)
def test_every_kind_of_sink_is_taken_over_from_its_targets_alone(
    source: Server, database: str, sync_name: str, place: CopyPlace, tmp_path: Path
) -> None:
    orders = Orders(source, database, tmp_path)
    with (
        orders.controller("first", sync_name, place.sink) as first,
        orders.controller("second", sync_name, place.sink) as second,
    ):
        first.run_to_completion()
        for n, sync in enumerate((second, first), 1):
            orders.change(n)
            sync.run_to_completion()
            assert sorted(place.rows()) == orders.rows()
            (table,) = sync.status()["tableStatus"]
            assert (table.get("generation", 0), table["rows"]) == (0, 500), "the rows of the first snapshot"


@pytest.mark.long
@usually_on("mariadb1011")
def test_another_controller_goes_on_and_the_first_one_may_come_back(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    orders = Orders(any_server, fresh_database(any_server), tmp_path)
    with orders.controller("first") as first, orders.controller("second") as second:
        first.start("forever")
        first.wait_for(lambda status: status.get("tables", {}).get("streaming") == 1)
        first.kill_all()
        epochs = []
        for n, sync in enumerate((second, first, second), 1):
            orders.change(n)
            sync.run_to_completion()
            state = orders.check()
            assert (state["generation"], state["rows"]) == (0, 500), "the rows of the first snapshot"
            epochs.append(state["epoch"])
        assert epochs == sorted(set(epochs)), "each run is newer than the one before, whatever its status was"
