"""Fixtures of the sinks' contract: every test that takes `sink` runs on every store; a new sink
adds its row to `SINKS`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from pyspark.sql import SparkSession

from cdcsync_spark.engine.start import start_session
from cdcsync_spark.sinks.contract.sink import Sink, Target
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.sinkcase import ORDERS, SYNC
from contract.stores import STORES, S3Server, s3_server
from support import delta_jars, sql_sink
from support.catalog_sink import CatalogSink
from support.folder_catalog import iceberg_sink
from support.iceberg_catalog import ICEBERG, IcebergCatalog
from support.iceberg_spark import IcebergSpark
from support.memory_target import MemorySink

#: `delta` commits by deletion vectors, `delta-rewritten` by rewriting files; `catalog` has the
#: lake's writer under another format, `iceberg` under Iceberg's, with position deletes in
#: `iceberg-v2`; `memory` has no store
SINKS: dict[str, Callable[[Store, str], Sink]] = {
    "delta": DeltaSink,
    "delta-rewritten": partial(DeltaSink, vectors=False),
    "catalog": CatalogSink,
    "iceberg": iceberg_sink,
    "iceberg-v2": partial(iceberg_sink, format_version=2),
    "memory": lambda _, sync: MemorySink(sync=sync),
}
#: the databases, each with the fixture of its server
DATABASES: dict[str, tuple[str, Callable[[Any, Path], AbstractContextManager[Dialect]]]] = {
    "postgresql": ("postgres", sql_sink.postgresql),
    "mariadb": ("mariadb1011", sql_sink.mysql),
    "mysql": ("mysql97_nogtid", sql_sink.mysql),
}
#: of these, on which `make test` leaves the contract to `make test-all`: it has the writer's tests
#: on MariaDB, too (test_sql_writer.py)
SELDOM = ("mariadb", "mysql")
#: sinks whose contract `make test` leaves to `make test-all`: test_iceberg_rest.py has whole lives
SELDOM_SINKS = ("iceberg-v2",)
#: for many queries over few rows: to compile each costs more than to run it
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process; a start costs more than a test."""
    folder = str(tmp_path_factory.mktemp("spark"))
    extra = delta_jars.settings() | INTERPRETED | {"spark.databricks.delta.snapshotPartitions": "1"}
    with start_session("delta", cores=2, memory="1g", scratch_dir=folder, extra=extra) as spark:
        yield spark


@pytest.fixture(scope="session")
def iceberg_spark(iceberg_catalog: IcebergCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergSpark]:
    """Another program's session for all tests of a process."""
    with IcebergSpark(iceberg_catalog.uri, ICEBERG / "jars", tmp_path_factory.mktemp("iceberg-spark")) as session:
        yield session


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every sink on a local disk, the first one on the other stores, too; unless a test says where
    it runs, or is about Delta."""
    chosen = any("store" in str(m.args[0]) for m in metafunc.definition.iter_markers("parametrize"))
    if "store" in metafunc.fixturenames and not chosen:
        first, *others = (s for s in SINKS if s.startswith("delta") or "test_delta" not in metafunc.module.__name__)
        runs = [(first, store) for store in STORES] + [(other, "local") for other in others]
        databases = [] if "test_delta" in metafunc.module.__name__ else [served(n, n in SELDOM) for n in DATABASES]
        marks = {name: [pytest.mark.long] for name in SELDOM_SINKS}
        parameters = [pytest.param(*run, id="-".join(run), marks=marks.get(run[0], [])) for run in runs] + databases
        metafunc.parametrize(("sink", "store"), parameters, indirect=True)


def served(name: str, seldom: bool) -> ParameterSet:
    """A parameter for `sink` and `store`: a database of its server."""
    marks = [pytest.mark.server, *([pytest.mark.long] if seldom else [])]
    return pytest.param(name, "local", id=name, marks=marks)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty lake on each store."""
    if request.param == "local":
        return open_store(str(tmp_path / "lake"))
    server: S3Server = request.getfixturevalue("s3")
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    server.make_bucket(bucket)
    return server.store(bucket, tmp_path)


@pytest.fixture
def sink(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Sink]:
    name = getattr(request, "param", "delta")
    if name in SINKS:
        yield SINKS[name](store, SYNC)
        return
    server, open_dialect = DATABASES[name]
    with open_dialect(request.getfixturevalue(server), tmp_path) as dialect:
        yield SqlSink(dialect, SYNC)


@pytest.fixture
def target(sink: Sink) -> Target:
    """The target of `ORDERS`, not made yet."""
    return sink.target(ORDERS.id)
