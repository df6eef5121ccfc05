"""Two snapshots at once, of MariaDB and of MySQL, under writers, while executors, drivers and the
operator are killed: the same rows.

The tests of this folder are chapters of one story and run in the order of their files.
"""

from __future__ import annotations

import pytest

from support.compare import diagnose_walk
from support.node import SYSTEM, Node, wait_until
from support.node_sync import EXECUTORS, NodeSync
from support.workload_tables import WALK

pytestmark = pytest.mark.timeout(2700)


def test_the_operator_has_its_rights(node: Node) -> None:
    assert "Phase:          Succeeded" in node.helm("test", "cdcsync", "-n", SYSTEM, "--timeout", "300s")


def test_kills_while_tables_are_read(shop: NodeSync, mysql_shop: NodeSync) -> None:
    """Kills an executor of one sync, which its driver replaces, and everything of the other one,
    the operator with it."""
    runs: dict[str, set[str]] = {shop.name: set(), mysql_shop.name: set()}
    executors: set[str] = set()
    killed: set[str] = set()

    def is_read(sync: NodeSync) -> bool:
        status = sync.status
        if status.runs.snapshot:
            runs[sync.name].add(status.runs.snapshot.id)
        return status.condition("SnapshotComplete").status == "True"

    def step() -> bool:
        executors.update(shop.pods(EXECUTORS))
        for sync, kill in ((shop, shop.kill_an_executor), (mysql_shop, mysql_shop.kill_everything)):
            if sync.name not in killed and sync.is_half_read():
                kill()
                killed.add(sync.name)
        return all([is_read(shop), is_read(mysql_shop)])

    with shop.workload, mysql_shop.workload:
        wait_until(step, 2000, "both are read", lambda: shop.describe() + mysql_shop.describe())
        shop.flows()
        mysql_shop.flows()
    assert killed == {shop.name, mysql_shop.name}, "the snapshot was over before anything could be killed"
    assert len(runs[shop.name]) == 1, "the driver went on without its executor"
    assert len(executors) >= 2
    assert len(runs[mysql_shop.name]) > 1
    for sync in (shop, mysql_shop):
        sync.arrives()
        target = sync.target(WALK)
        counters = dict(zip(target["id"].to_pylist(), target["counter"].to_pylist(), strict=True))
        assert not diagnose_walk(sync.workload.walked(), counters), "not what was committed"
        all_of_them = f"{len(sync.workload.tables)}/{len(sync.workload.tables)}"
        sync.until(lambda s, ready=all_of_them: s.tables.ready == ready, 180, "the status says so, too")


def test_deleting_a_sync_leaves_its_tables_and_nothing_else(mysql_shop: NodeSync) -> None:
    rows = mysql_shop.target(WALK).num_rows
    mysql_shop.node.api.delete(f"{mysql_shop.path}/{mysql_shop.name}")
    wait_until(lambda: not mysql_shop.left(), 120, "everything it owned is gone", lambda: str(mysql_shop.left()))
    assert not list(mysql_shop.node.api.items(mysql_shop.path))
    assert mysql_shop.target(WALK).num_rows == rows
