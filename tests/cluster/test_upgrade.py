"""A release is replaced by the next one and comes back, on the node: both have other images, two
operators take turns, and streams go on from their positions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdcsync_spark.sinks.lake.layout import segment
from support.node import CHART, OPERATOR, SYSTEM, Node, ready, storage_options, wait_until
from support.node_sync import NodeSync
from support.node_topics import TopicSync
from support.workload_tables import WALK

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(sys.executable).with_name("kubectl-cdcsync")


@pytest.fixture
def next_tag(own_node: Node) -> Iterator[str]:
    """That of images which are the same under another name."""
    tag = f"{own_node.images}-next"
    for name in ("operator", "spark"):
        _ctr("images", "tag", "--force", *(f"localhost/cdcsync-{name}:{t}" for t in (own_node.images, tag)))
    yield tag
    own_node.install()
    for name in ("operator", "spark"):
        _ctr("images", "rm", f"localhost/cdcsync-{name}:{tag}")


def _ctr(*arguments: str) -> None:
    script = f'. "{ROOT}/tests/cluster/lib.sh"; ctr_ "$@"'
    done = subprocess.run(["bash", "-c", script, "ctr", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
        _operators(node, f"cdcsync-operator:{next_tag}", 2)
        shop.flows()
        assert (shop.driver(), topic_sync.flows) == (first, True), "running drivers keep their image"
        assert _image(shop) == f"localhost/cdcsync-spark:{node.images}"
        _plugin(node, "restart", shop.name)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != first, 240, "a driver of the next image")
        shop.flows()
        assert _image(shop) == f"localhost/cdcsync-spark:{next_tag}"
        print(f"\nthe stream's longest pause was {_longest_pause(shop):.1f} s", end="")
        node.helm("rollback", "cdcsync", "-n", SYSTEM)
        _operators(node, f"cdcsync-operator:{node.images}", 1)
        second = shop.driver()
        _plugin(node, "restart", shop.name)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != second, 240, "a driver of the first image")
        shop.flows()
        assert _image(shop) == f"localhost/cdcsync-spark:{node.images}"
    shop.arrives()
    *_, result = _plugin(node, "verify", shop.name, "--wait", "15m", "-o", "json").splitlines()
    assert json.loads(result)["state"] == "Equal"
    assert topic_sync.flows


def _operators(node: Node, image: str, count: int) -> None:
    """The operators are as many, of that image, and no other is left."""

    def replaced() -> bool:
        pods = node.pods(SYSTEM, OPERATOR)
        images = {c["image"] for p in pods for c in p["spec"]["containers"]}
        return len(pods) == count and all(map(ready, pods)) and images == {f"localhost/{image}"}

    wait_until(replaced, 240, f"{count} operators of {image}", node.operator_log)


def _image(shop: NodeSync) -> str:
    pod = shop.node.api.get(f"/api/v1/namespaces/{shop.name}/pods/{shop.driver()}")
    return str(pod["spec"]["containers"][0]["image"])


def _plugin(node: Node, *arguments: str) -> str:
    environment = os.environ | {"KUBECONFIG": str(node.kubeconfig)}
    command = [str(PLUGIN), arguments[0], arguments[1], "-n", arguments[1], *arguments[2:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _longest_pause(shop: NodeSync) -> float:
    """Seconds between two commits of a table that is always written, of its last hundred."""
    uri = f"s3://lake/{shop.name}/{segment(shop.database)}/{segment(WALK)}"
    history = DeltaTable(uri, storage_options=storage_options(shop.store)).history(100)
    times = sorted(entry["timestamp"] for entry in history)
    return max(later - earlier for earlier, later in pairwise(times)) / 1000
