"""Fixtures that lend real servers to tests.

- `mariadb1011`, `mariadb1011_loose`, `mariadb114`, `mariadb118`, `mysql97_gtid`, `mysql97_nogtid`:
  a `Server`, started when first used and shared by the whole session. A test on a shared server
  works in a database of its own and leaves the server's settings as they were.
- `any_server`: each of them in turn; the test runs once per variant. `any_mariadb`, `any_mysql`:
  each of one flavour. The second variant of a program is for `make test-all`. `every_server`: all
  of them always, for what has to do with positions. `usually_on("mysql97_gtid")` marks a long test
  whose `any_server` is that variant, and the others in `make test-all` only. `variants` does the
  same for tests that take a `variant` by name.
- `fresh_database`: `fresh_database(server)` returns the name of a new database, dropped after the
  test.
- `fresh_server`: `fresh_server("mysql97_gtid", **options)` returns a server of the test's own, to
  crash, reset or restart.

A test that uses one of them carries the marker `server` by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from _pytest.mark.structures import ParameterSet

from cdcsync_demo.embedded import OptionValue
from support.servers import UNSYNCED, VARIANTS, Flavor, Server

if TYPE_CHECKING:
    from support.iceberg_catalog import IcebergCatalog
    from support.kafka import KafkaBroker
    from support.postgresql import PostgresServer
    from support.registry import SchemaRegistry

FreshDatabase = Callable[[Server], str]
FreshServer = Callable[..., Server]
#: options by the flavour of the server
Syncing = Mapping[Flavor, Mapping[str, OptionValue]]
#: the same program as another one, with other settings of its log or of another version
_SECOND = ("mariadb1011_loose", "mariadb114", "mariadb118", "mysql97_nogtid")

SERVER_FIXTURES = frozenset(
    {
        *VARIANTS,
        "any_server",
        "any_mariadb",
        "any_mysql",
        "every_server",
        "fresh_server",
        "kafka",
        "postgres",
        "registry",
        "iceberg_catalog",
    }
)


@pytest.fixture(scope="session")
def syncing() -> Syncing:
    """How servers wait for the disk."""
    return UNSYNCED


def _shared_server(name: str) -> Callable[[pytest.TempPathFactory], Iterator[Server]]:
    @pytest.fixture(scope="session", name=name)
    def shared_server(tmp_path_factory: pytest.TempPathFactory, syncing: Syncing) -> Iterator[Server]:
        variant = VARIANTS[name]
        server = variant.start(tmp_path_factory.mktemp(name), **syncing[variant.flavor])
        yield server
        server.remove()

    return shared_server


mariadb1011 = _shared_server("mariadb1011")
mariadb1011_loose = _shared_server("mariadb1011_loose")
mariadb114 = _shared_server("mariadb114")
mariadb118 = _shared_server("mariadb118")
mysql97_gtid = _shared_server("mysql97_gtid")
mysql97_nogtid = _shared_server("mysql97_nogtid")


def _lent_server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


def _each(*flavors: str) -> list[ParameterSet]:
    return [
        pytest.param(variant.name, marks=pytest.mark.long if variant.name in _SECOND else ())
        for variant in VARIANTS.values()
        if variant.flavor in flavors
    ]


def usually_on(*names: str) -> pytest.MarkDecorator:
    params = [pytest.param(name, marks=() if name in names else pytest.mark.long) for name in VARIANTS]
    return pytest.mark.parametrize("any_server", params, indirect=True)


def variants(*names: str, also: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """A parameter `variant`: the named ones always, `also` in `make test-all`."""
    more = [pytest.param(name, marks=pytest.mark.long) for name in also]
    return pytest.mark.parametrize("variant", [*names, *more])


any_server = pytest.fixture(params=_each("mariadb", "mysql"), name="any_server")(_lent_server)
any_mariadb = pytest.fixture(params=_each("mariadb"), name="any_mariadb")(_lent_server)
every_server = pytest.fixture(params=list(VARIANTS), name="every_server")(_lent_server)
any_mysql = pytest.fixture(params=_each("mysql"), name="any_mysql")(_lent_server)


@pytest.fixture
def fresh_database() -> Iterator[FreshDatabase]:
    with ExitStack() as cleanup:

        def create(server: Server) -> str:
            name = server.create_database()
            cleanup.callback(server.drop_database, name)
            return name

        yield create


@pytest.fixture
def fresh_server(tmp_path_factory: pytest.TempPathFactory, syncing: Syncing) -> Iterator[FreshServer]:
    with ExitStack() as cleanup:

        def start(variant: str, **options: OptionValue) -> Server:
            chosen = VARIANTS[variant]
            server = chosen.start(tmp_path_factory.mktemp(variant), **{**syncing[chosen.flavor], **options})
            cleanup.callback(server.remove)
            return server

        yield start


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka broker of the session's own; a test works in topics of its own (`new_topic`).

    Its client is loaded for a test that asks for a broker only."""
    from support.kafka import KafkaBroker

    broker = KafkaBroker(tmp_path_factory.mktemp("kafka")).start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A schema registry of the session's own; a test works in subjects of its own."""
    from support.registry import SchemaRegistry

    found = SchemaRegistry(tmp_path_factory.mktemp("registry")).start()
    yield found
    found.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the session's own; a test works in a database of its own.

    Its client is loaded for a test that asks for a server only."""
    from support.postgresql import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergCatalog]:
    """A REST catalog of the session's own; a test works in a namespace of its own, and leaves no
    fault behind."""
    from support.iceberg_catalog import IcebergCatalog

    catalog = IcebergCatalog(tmp_path_factory.mktemp("iceberg-catalog")).start()
    yield catalog
    catalog.kill()
