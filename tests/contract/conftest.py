"""Fixtures of the sinks' contract: every test that takes `sink` runs on every store; a new sink adds its row to `SINKS`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcsync_spark.sinks.base import Sink, Target
from cdcsync_spark.sinks.delta import DeltaSink
from cdcsync_spark.sinks.place import Place
from contract.sinkcase import ORDERS, SYNC
from contract.stores import STORES, S3Server, s3_server

SINKS = {"delta": DeltaSink}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty lake on each store."""
    if request.param == "local":
        return Place.parse(str(tmp_path / "lake"))
    server: S3Server = request.getfixturevalue("s3")
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    server.make_bucket(bucket)
    return server.place(bucket, tmp_path)


@pytest.fixture(params=sorted(SINKS))
def sink(request: pytest.FixtureRequest, place: Place) -> Sink:
    return SINKS[request.param](place, SYNC)


@pytest.fixture
def target(sink: Sink) -> Target:
    """The place of `ORDERS`, not made yet."""
    return sink.target(ORDERS.id)
