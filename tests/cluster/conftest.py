"""One node, one operator, one source and one object store for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.node import CHART, OPERATOR, SYSTEM, Node, ready, s3_server, wait_until
from support.servers import VARIANTS, Server


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    state, images = os.environ.get("CDCSYNC_NODE_STATE"), os.environ.get("CDCSYNC_NODE_IMAGES")
    assert state, "needed: a running node; remedy: make test-cluster"
    assert images
    made = Node(Path(state), images)
    values = {
        "image.repository": "localhost/cdcsync-operator",
        "image.tag": images,
        "driverImage.repository": "localhost/cdcsync-spark",
        "driverImage.tag": images,
        "imagePullPolicy": "Never",
        "resources.requests.cpu": "10m",
    }
    given = [part for k, v in values.items() for part in ("--set", f"{k}={v}")]
    made.helm("upgrade", "--install", "cdcsync", str(CHART), "-n", SYSTEM, "--create-namespace", *given)
    wait_until(
        lambda: [p for p in made.pods(SYSTEM, OPERATOR) if ready(p)],
        120,
        "the operator is ready",
        lambda: made.kubectl("-n", SYSTEM, "describe", "pods") + made.kubectl("-n", SYSTEM, "logs", "deploy/cdcsync"),
    )
    yield made
    made.api.close()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server with a bucket `lake`."""
    with s3_server(tmp_path_factory.mktemp("s3")) as address:
        yield address


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB that pods reach."""
    server = VARIANTS["mariadb1011"].start(tmp_path_factory.mktemp("source"), bind_address="0.0.0.0")
    yield server
    server.remove()
