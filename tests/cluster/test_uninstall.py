"""The chart goes and comes again: what it never owned stays, and goes on meanwhile. The last
chapter."""

from __future__ import annotations

import pytest

from support.node import OPERATOR, SYSTEM, Node, wait_until
from support.node_sync import NodeSync
from support.workload_tables import WALK

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_uninstalled_and_installed_again(node: Node, shop: NodeSync) -> None:
    shop.flows()
    kept = shop.driver()
    node.helm("uninstall", "cdcsync", "-n", SYSTEM, "--wait")
    wait_until(lambda: not node.pods(SYSTEM, OPERATOR), 60, "the operator is gone")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
    wait_until(lambda: not list(node.api.items(leases)), 120, "its lease is gone")
    shop.server.run(f"UPDATE {WALK} SET counter = counter + 1000", db=shop.database)
    shop.arrives()
    node.install()
    shop.change(executors={"instances": 3})
    shop.observed()
    assert shop.driver() == kept, "the next operator goes on with the driver that it finds"
    shop.arrives()
