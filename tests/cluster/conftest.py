"""One cluster, one operator, one object store, a MariaDB and a MySQL for all tests of this folder,
and a sync of each of both."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from support.faults import begin_faults
from support.kafka import KafkaBroker
from support.node import Node, s3_server
from support.node_sync import NodeSync
from support.node_topics import TopicSync
from support.servers import VARIANTS, Server
from support.workload import Pace

PACE = Pace(rows=20_000, writers=4, per_second=40)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with the operator's log."""
    report = yield
    node = getattr(item, "funcargs", {}).get("node")
    if report.failed and node is not None:
        report.sections.append(("the operator", node.operator_log()))
    return report


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with Node.of_environment().ours() as made:
        yield made


@pytest.fixture
def own_node(node: Node) -> Node:
    """Whose processes a test may stop."""
    if node.state is None:
        pytest.skip("needed: a node of the tests' own; this cluster was given")
    return node


@pytest.fixture(scope="session")
def store(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server with a bucket `lake`."""
    with s3_server(tmp_path_factory.mktemp("s3"), node.address) as address:
        yield address


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB that pods reach."""
    server = VARIANTS["mariadb1011"].start(tmp_path_factory.mktemp("source"), bind_address="0.0.0.0")
    yield server
    server.remove()


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MySQL that pods reach."""
    server = VARIANTS["mysql97_gtid"].start(tmp_path_factory.mktemp("mysql"), bind_address="0.0.0.0")
    yield server
    server.remove()


@pytest.fixture(scope="session")
def refused(request: pytest.FixtureRequest, node: Node, source: Server) -> None:
    """Syncs that cannot run, those that the chosen tests use."""
    named = [getattr(item, "callspec", None) for item in request.session.items if "refused" in item.fixturenames]
    begin_faults(node, source, [call.params["name"] for call in named if call is not None])


@pytest.fixture(scope="session")
def shop(node: Node, source: Server, store: str) -> Iterator[NodeSync]:
    """A sync of MariaDB, with two executors."""
    made = NodeSync(node, source, store, "shop", PACE, executors=2)
    made.create()
    yield made
    made.workload.stop()


@pytest.fixture(scope="session")
def mysql_shop(node: Node, mysql: Server, store: str) -> Iterator[NodeSync]:
    """A sync of MySQL, with one executor."""
    made = NodeSync(node, mysql, store, "mysql", PACE, executors=1)
    made.create()
    yield made
    made.workload.stop()


@pytest.fixture(scope="session")
def broker(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One that pods reach."""
    started = KafkaBroker(tmp_path_factory.mktemp("broker"), address=node.address).start()
    yield started
    started.kill()


@pytest.fixture(scope="session")
def topic_sync(node: Node, source: Server, store: str, broker: KafkaBroker) -> TopicSync:
    """A sync of one table; the first test that needs its records waits for it."""
    sync = TopicSync(node, source, store, broker, source.create_database())
    sync.create()
    return sync
