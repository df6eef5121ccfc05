"""Another controller takes over a sync from its targets alone: it has the manifest, and nothing
that the first one kept (R4). The first one, back with an old status, invents nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.fixtures import FreshDatabase, usually_on
from support.lake import rows_of
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]


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

    def controller(self, name: str) -> Sync:
        """A controller with a state folder of its own."""
        spec = {"sink": {"delta": {"path": str(self.lake)}}}
        return Sync(self.server, [rf"{self.database}\..*"], self.folder / name, "shop", spec)

    def change(self, n: int) -> None:
        self.server.run(
            f"UPDATE orders SET n = {n} WHERE id % 3 = 0",
            f"DELETE FROM orders WHERE id = {n}",
            f"INSERT INTO orders VALUES ({n + 1000}, {n})",
            db=self.database,
        )

    def check(self) -> dict[str, Any]:
        """Compares the copy with the table; the state of the copy."""
        copy = rows_of(DeltaTable(str(self.lake / self.database / "orders")))
        rows = sorted(zip(copy["id"].to_pylist(), copy["n"].to_pylist(), strict=True))
        assert rows == sorted(self.server.query("SELECT id, n FROM orders", db=self.database))
        newest = max((self.lake / self.database / "orders" / "_delta_log").glob("*.json"))
        info = json.loads(newest.read_text(encoding="utf-8").splitlines()[0])["commitInfo"]
        state: dict[str, Any] = json.loads(info["cdcsync"])
        return state


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
