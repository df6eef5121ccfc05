"""Iceberg tables in an object store, by a REST catalog: with an account of the store in a Secret,
and with credentials that the catalog gives for a table. The store judges each request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog

from cdcsync_operator.cli.main import cli
from contract.stores import REGION, GuardedServer, guarded_server
from support.fixtures import FreshDatabase
from support.iceberg_catalog import IcebergCatalog
from support.servers import Server
from support.sync_process import Gate, Sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
BUCKET = "lake"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GuardedServer]:
    with guarded_server(tmp_path) as server:
        yield server


@pytest.fixture
def catalog(store: GuardedServer, tmp_path: Path) -> Iterator[IcebergCatalog]:
    """Its metadata are in the store, too."""
    store.make_bucket(BUCKET)
    properties = {"io-impl": "SignedStoreIO", **client_settings(store, *store.admin)}
    (tmp_path / "catalog").mkdir()
    running = IcebergCatalog(tmp_path / "catalog", f"s3://{BUCKET}/tables", **properties).start()
    yield running
    running.kill()


def client_settings(store: GuardedServer, key: str, secret: str) -> dict[str, str]:
    """As Iceberg's clients name them."""
    return {
        "s3.endpoint": store.server.endpoint,
        "client.region": REGION,
        "s3.access-key-id": key,
        "s3.secret-access-key": secret,
    }


def rows_in(catalog: IcebergCatalog, store: GuardedServer, namespace: str) -> list[tuple[Any, ...]]:
    """Read by PyIceberg with an account of its own."""
    reader = PyIcebergCatalog("rest", uri=catalog.uri, **client_settings(store, *store.admin))
    rows = reader.load_table((namespace, "orders")).scan().to_arrow().sort_by("id")
    return list(zip(*rows.to_pydict().values(), strict=True))


def source_rows(server: Server, database: str) -> list[tuple[Any, ...]]:
    return list(server.query(f"SELECT * FROM {database}.orders ORDER BY id"))


def fill(server: Server, database: str) -> None:
    server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, word VARCHAR(40))",
        "INSERT INTO orders WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        "SELECT i, CONCAT('w', i) FROM n",
        db=database,
    )


def change(server: Server, database: str, number: int) -> None:
    server.run(
        f"UPDATE orders SET word = 'u{number}' WHERE id % 10 = {number}",
        f"DELETE FROM orders WHERE id % 100 = {number + 50}",
        f"INSERT INTO orders (id, word) VALUES ({1000 + number}, 'new')",
        db=database,
    )


@pytest.mark.long
def test_an_account_by_the_catalog_through_kills_a_lost_answer_and_its_end(
    mariadb1011: Server, catalog: IcebergCatalog, store: GuardedServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """The manifest names no store; what serves at first is taken away once it has ended."""
    server, database = mariadb1011, fresh_database(mariadb1011)
    fill(server, database)
    first, second = store.account("s3:*"), store.account("s3:*")
    catalog.vend(client_settings(store, *first))
    sink = {"iceberg": {"catalog": {"uri": catalog.uri}, "properties": {"owner": "shop"}}}
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
        catalog.fault("after")
        end = time.time() + 20
        catalog.vend({**client_settings(store, *first), "s3.session-token-expires-at-ms": str(round(end * 1000))})
        sync.start()
        sync.wait_phase("Streaming")
        catalog.vend(client_settings(store, *second))
        sync.wait_until(lambda: time.time() > end + 5, "the first account has ended")
        store.revoke(first[0])
        change(server, database, 2)
        server.run("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none'", db=database)
        change(server, database, 3)
        sync.wait_until(
            lambda: rows_in(catalog, store, database) == source_rows(server, database), "the rows of the source"
        )
        assert_no_account_is_shown(sync, first, second)


def assert_no_account_is_shown(sync: Sync, *accounts: tuple[str, str]) -> None:
    texts = [f.read_text(errors="replace") for f in sync.folder.rglob("*") if f.is_file()]
    assert texts
    for account in accounts:
        assert not any(part in text for part in account for text in texts)


@pytest.mark.long
def test_an_account_of_the_store_in_a_secret(
    mariadb1011: Server, catalog: IcebergCatalog, store: GuardedServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server, database = mariadb1011, fresh_database(mariadb1011)
    fill(server, database)
    key, secret = store.account("s3:*")
    sink = {
        "catalog": {"uri": catalog.uri},
        "credentialsSecretRef": {"name": "lake"},
        "options": {"endpoint": store.server.endpoint, "region": REGION},
    }
    secrets = {"lake": {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}}
    spec = {"sink": {"iceberg": sink}}
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=spec, secrets=secrets) as sync:
        sync.start(gate=Gate("vectors-written"))
        sync.wait_phase("Streaming")
        change(server, database, 1)
        sync.wait_fired()
        sync.kill_all()
        change(server, database, 2)
        sync.run_to_completion()
        assert rows_in(catalog, store, database) == source_rows(server, database)
        verified = sync.command("verify", timeout=400)
        assert verified.returncode == 0, verified.stdout + verified.stderr
