"""A release is replaced by the next one and comes back, on the node: both have other images, two
operators take turns, and streams go on from their positions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from deltalake import DeltaTable

from cdcsync_spark.sinks.lake.layout import segment
from support.node import CHART, SYSTEM, Node, storage_options, wait_until
from support.node_images import ctr, driver_image, operators, plugin
from support.node_sync import NodeSync
from support.node_topics import TopicSync
from support.workload_tables import WALK

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture
def next_tag(own_node: Node) -> Iterator[str]:
    """That of images which are the same under another name."""
    tag = f"{own_node.images}-next"
    for name in ("operator", "spark"):
        ctr("images", "tag", "--force", *(f"localhost/cdcsync-{name}:{t}" for t in (own_node.images, tag)))
    yield tag
    own_node.install()
    for name in ("operator", "spark"):
        ctr("images", "rm", f"localhost/cdcsync-{name}:{tag}")


def test_a_release_is_replaced_and_comes_back(
    own_node: Node, next_tag: str, shop: NodeSync, topic_sync: TopicSync
) -> None:
    node = own_node
    shop.flows()
    first = shop.driver()
    wait_until(lambda: topic_sync.flows, 240, "the sync to topics flows", topic_sync.describe)
    with shop.workload.__class__(shop.server, shop.database, seed=11, pace=shop.workload.pace):
        tags = [f"{part}.tag={next_tag}" for part in ("image", "driverImage")]
        given = [word for tag in (*tags, "replicas=2") for word in ("--set", tag)]
        node.helm("upgrade", "cdcsync", str(CHART), "-n", SYSTEM, "--reuse-values", *given)
        operators(node, f"localhost/cdcsync-operator:{next_tag}", 2)
        shop.flows()
        assert (shop.driver(), topic_sync.flows) == (first, True), "running drivers keep their image"
        assert driver_image(shop) == f"localhost/cdcsync-spark:{node.images}"
        plugin(node, "restart", shop.name)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != first, 240, "a driver of the next image")
        shop.flows()
        assert driver_image(shop) == f"localhost/cdcsync-spark:{next_tag}"
        print(f"\nthe stream's longest pause was {_longest_pause(shop):.1f} s", end="")
        node.helm("rollback", "cdcsync", "-n", SYSTEM)
        operators(node, f"localhost/cdcsync-operator:{node.images}", 1)
        second = shop.driver()
        plugin(node, "restart", shop.name)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != second, 240, "a driver of the first image")
        shop.flows()
        assert driver_image(shop) == f"localhost/cdcsync-spark:{node.images}"
    shop.arrives()
    *_, result = plugin(node, "verify", shop.name, "--wait", "15m", "-o", "json").splitlines()
    assert json.loads(result)["state"] == "Equal"
    assert topic_sync.flows


def _longest_pause(shop: NodeSync) -> float:
    """Seconds between two commits of a table that is always written, of its last hundred."""
    uri = f"s3://lake/{shop.name}/{segment(shop.database)}/{segment(WALK)}"
    history = DeltaTable(uri, storage_options=storage_options(shop.store)).history(100)
    times = sorted(entry["timestamp"] for entry in history)
    return max(later - earlier for earlier, later in pairwise(times)) / 1000
