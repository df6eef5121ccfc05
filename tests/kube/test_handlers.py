"""The operator's process, with Kopf in it, on a real API server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_operator.cluster.operator import list_syncs
from support.apiserver import kubeconfig
from support.in_process_sync import InProcessSync


@pytest.fixture
def operators(sync: InProcessSync, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts an operator's process; its log is in `tmp_path`."""
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(sync.api)))
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str = "one", port: int = 0) -> subprocess.Popen[bytes]:
        settings = {
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "HOSTNAME": name,
            "CDCSYNC_DRIVER_IMAGE": "cdcsync/spark:test",
            "CDCSYNC_NAMESPACES": sync.namespace,
            "CDCSYNC_LEASE": f"{sync.namespace}/cdcsync",
            "CDCSYNC_REFUSED_SOURCE_NETWORKS": "",  # the sources are on this machine
            "CDCSYNC_METRICS_PORT": str(port or free_port()),
        }
        with (tmp_path / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "cdcsync_operator.cluster.handlers"]
            started.append(subprocess.Popen(command, env=os.environ | settings, stderr=log, stdout=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def eventually(what: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + 180
    while not what():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def leading(sync: InProcessSync) -> str:
    found = sync.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{sync.namespace}/leases")
    return next((str(lease["spec"].get("holderIdentity")) for lease in found), "")


def shown(sync: InProcessSync, folder: Path) -> str:
    """What `cdcsync status` shows of it."""
    command = [sys.executable, "-m", "cdcsync_operator", "status", "shop", "-n", sync.namespace]
    environment = os.environ | {"KUBECONFIG": str(folder / "kubeconfig")}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_it_sees_what_is_there_and_what_comes_and_ends_in_order(
    sync: InProcessSync, operators: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    port = free_port()
    process, log = operators(port=port), tmp_path / "one.log"
    eventually(lambda: leading(sync) == "one", log)
    sync.create(state="paused")
    eventually(lambda: sync.stored.phase == "Paused", log)
    eventually(lambda: f'name="shop",namespace="{sync.namespace}",phase="Paused"}} 1' in page(port), log)
    sync.change(source={"host": "127.0.0.1", "port": 1}, state="running")
    eventually(lambda: sync.stored.restarts.reason == "SourceUnreachable", log)
    assert "SourceUnreachable" in shown(sync, tmp_path)
    found = sync.api.get(f"{sync.syncs}/shop")["metadata"]
    assert "finalizers" not in found
    assert "annotations" not in found
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, log.read_text()
    assert leading(sync) == "", "the next one begins at once"


def test_the_syncs_that_there_are_can_be_listed(sync: InProcessSync) -> None:
    assert list_syncs(sync.api, (sync.namespace,)) == []
    sync.create(state="paused")
    assert list_syncs(sync.api, (sync.namespace,)) == [(sync.namespace, "shop")]
    assert (sync.namespace, "shop") in list_syncs(sync.api, ())


def test_a_second_operator_waits_and_takes_over(
    sync: InProcessSync, operators: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    first = operators("one")
    eventually(lambda: leading(sync) == "one", tmp_path / "one.log")
    operators("two")
    first.send_signal(signal.SIGTERM)
    first.wait(120)
    eventually(lambda: leading(sync) == "two", tmp_path / "two.log")
    sync.create(state="paused")
    eventually(lambda: sync.stored.phase == "Paused", tmp_path / "two.log")
