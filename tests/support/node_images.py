"""Images on the tests' node, what runs of them, and the plugin by which a sync takes another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.node import OPERATOR, SYSTEM, Node, ready, wait_until
from support.node_sync import NodeSync

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(sys.executable).with_name("kubectl-cdcsync")


def ctr(*arguments: str) -> None:
    """A command of containerd's on the node."""
    script = f'. "{ROOT}/tests/cluster/lib.sh"; ctr_ "$@"'
    done = subprocess.run(["bash", "-c", script, "ctr", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def operators(node: Node, image: str, count: int) -> None:
    """Waits until they are as many, of that image, and no other is left."""

    def replaced() -> bool:
        pods = node.pods(SYSTEM, OPERATOR)
        images = {c["image"] for p in pods for c in p["spec"]["containers"]}
        return len(pods) == count and all(map(ready, pods)) and images == {image}

    wait_until(replaced, 240, f"{count} operators of {image}", node.operator_log)


def driver_image(sync: NodeSync) -> str:
    pod = sync.node.api.get(f"/api/v1/namespaces/{sync.name}/pods/{sync.driver()}")
    return str(pod["spec"]["containers"][0]["image"])


def plugin(node: Node, *arguments: str) -> str:
    """What `kubectl cdcsync` prints for a command and a sync, whose namespace has its name."""
    environment = os.environ | {"KUBECONFIG": str(node.kubeconfig)}
    command = [str(PLUGIN), arguments[0], arguments[1], "-n", arguments[1], *arguments[2:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
