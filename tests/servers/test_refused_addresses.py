"""A run connects with no address that the operator's policy refuses: neither with one that a name
of the spec has, nor with one that a peer sends it to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from deltalake import DeltaTable

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.networks import FILE_VARIABLE, VARIABLE
from cdcsync_lake.location import Location
from cdcsync_mysql.sessions.connection import Source, connect
from cdcsync_spark.sinks.iceberg.catalog.glue import GlueCatalog, GlueSettings
from cdcsync_spark.sinks.iceberg.catalog.hive import HiveCatalog
from cdcsync_spark.sinks.iceberg.catalog.login import OAuth2
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import open_store, store_errors
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from contract.stores import ACCESS_KEY, REGION, SECRET_KEY, s3_server
from support.hostile import Hostile, internal_page
from support.kafka import KafkaBroker
from support.relay import relay_to
from support.sql_sink import login

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
FOUND = "is at 127.0.0.1, in the network 127.0.0.1/32 that the operator's policy refuses"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 and all others of this machine are not refused."""
    monkeypatch.setenv(VARIABLE, "127.0.0.1/32 169.254.0.0/16")


@pytest.fixture
def inside() -> Iterator[tuple[Hostile, int]]:
    """A server that no run may reach, and its port."""
    server = Hostile(internal_page)
    with server.listening() as port:
        yield server, port
    assert server.met.acquire(blocking=False) is False
    assert server.sent == 0


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "AWS_ACCESS_KEY_ID").write_text(ACCESS_KEY)
    (folder / "AWS_SECRET_ACCESS_KEY").write_text(SECRET_KEY)
    return folder


def _refusal(error: CdcError) -> None:
    assert error.reason is Reason.SPEC_INVALID, error
    assert FOUND in error.message


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("host", ["localhost", "2130706433"])
def test_a_source(host: str, inside: tuple[Hostile, int], tmp_path: Path) -> None:
    (tmp_path / "login").write_text("x")
    with pytest.raises(CdcError) as found:
        connect(Source(host, inside[1], tmp_path / "login", tmp_path / "login"))
    _refusal(found.value)


@pytest.mark.usefixtures("refused")
def test_each_host_of_a_source_and_the_one_that_snapshots_read(inside: tuple[Hostile, int], tmp_path: Path) -> None:
    (tmp_path / "login").write_text("x")
    source = Source("127.0.0.1", inside[1], tmp_path / "login", tmp_path / "login", others=("localhost",))
    for each in (source, source.of_hosts("localhost")):
        with pytest.raises(CdcError) as found:
            connect(each)
        assert FOUND in found.value.message


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("host", ["localhost", "2130706433"])
@pytest.mark.parametrize(
    "dialect", [MySqlDialect, lambda login: PostgresDialect(login, "shop")], ids=["mysql", "postgresql"]
)
def test_a_database_as_a_target(
    dialect: Callable[[SqlLogin], Dialect], host: str, inside: tuple[Hostile, int], tmp_path: Path
) -> None:
    target = replace(login(tmp_path, "spec.sink.postgresql", inside[1], "sync", "x"), host=host)
    with pytest.raises(CdcError) as found:
        dialect(target).open()
    _refusal(found.value)
    assert "spec.source" not in str(found.value)


@pytest.mark.usefixtures("refused")
def test_glue(inside: tuple[Hostile, int], tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x")
    settings = GlueSettings(f"http://localhost:{inside[1]}", SigV4(tmp_path / "key", tmp_path / "key", "eu-central-1"))
    with pytest.raises(CdcError) as found:
        GlueCatalog(settings, "s3://lake/tables", TableStores()).check()
    _refusal(found.value)


@pytest.mark.usefixtures("refused")
def test_a_metastore(inside: tuple[Hostile, int], tmp_path: Path) -> None:
    with pytest.raises(CdcError) as found:
        HiveCatalog(f"thrift://localhost:{inside[1]}", "s3://lake/tables", TableStores()).check()
    _refusal(found.value)


@pytest.mark.usefixtures("refused")
def test_a_registry(inside: tuple[Hostile, int]) -> None:
    with pytest.raises(CdcError) as found:
        Registry(f"http://localhost:{inside[1]}").register("topic-value", {"type": "string"})
    _refusal(found.value)


@pytest.mark.usefixtures("refused")
def test_a_catalog_and_the_server_of_its_tokens(inside: tuple[Hostile, int], tmp_path: Path) -> None:
    (tmp_path / "login").write_text("x")
    url = f"http://localhost:{inside[1]}"
    login = OAuth2(tmp_path / "login", tmp_path / "login", f"{url}/tokens")
    for settings in (RestSettings(url), RestSettings("http://127.0.0.2:1", login=login)):
        with pytest.raises(CdcError) as found:
            RestCatalog(settings).check()
        _refusal(found.value)


@pytest.mark.usefixtures("refused")
def test_a_store_to_which_a_catalog_leads(inside: tuple[Hostile, int], secret: Path) -> None:
    """Neither where a table lies nor the settings that come with it lead past the policy, nor with
    the manifest's account to another store, and no folder of this machine is a table's."""
    url = f"http://127.0.0.1:{inside[1]}"
    settings = {"s3.endpoint": url, "client.region": "x", "py-io-impl": "os.system", "s3.signer.uri": url}
    with s3_server(secret.parent) as server, relay_to("127.0.0.1", int(server.endpoint[17:]), "127.0.0.2") as relay:
        server.make_bucket("lake")
        stores = TableStores(f"http://127.0.0.2:{relay.port}", REGION, str(secret))
        assert stores.at("s3://lake/shop/orders", lambda: settings).listed("data") == {}
    vended = settings | {"s3.access-key-id": "x", "s3.secret-access-key": "y"}
    store = TableStores().at("s3://lake/shop/orders", lambda: vended)
    for use in (_listed, _opened_by_arrow):
        with pytest.raises(CdcError) as found:
            use(store)
        _refusal(found.value)
    for location in (f"{url}/lake", "file:///etc", "/etc", "file:/etc", "gs://lake/x", f"s3://u:p@{url[7:]}/lake"):
        with pytest.raises(CdcError, match="the catalog puts a table at"):
            stores.at(location, lambda: settings)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("variables", [{}, {"AWS_PROXY_EXCLUDES": "*"}, {"AWS_METADATA_ENDPOINT": "http://127.0.0.1"}])
def test_a_store(variables: dict[str, str], inside: tuple[Hostile, int], secret: Path) -> None:
    for name, value in variables.items():
        (secret / name).write_text(value)
    place = ("s3://lake/cdc", f"http://localhost:{inside[1]}", REGION, str(secret))
    (error,) = store_errors(Location.parse(*place))
    _refusal(error)
    for use in (_listed, _opened_by_delta_rs):
        with pytest.raises(CdcError) as found:
            use(open_store(*place))
        _refusal(found.value)


def _opened_by_arrow(store: Store) -> None:
    with store.translating_errors("shop.orders", "reading"):
        store.files().open_input_file("data/a.parquet")


def _listed(store: Store) -> None:
    with store.translating_errors("shop.orders", "reading"):
        store.listed("shop")


def _opened_by_delta_rs(store: Store) -> None:
    with store.translating_errors("shop.orders", "opening"):
        DeltaTable(store.uri, storage_options=store.storage_options())


@pytest.mark.usefixtures("refused")
def test_a_store_that_redirects(inside: tuple[Hostile, int], secret: Path) -> None:
    location = f"http://127.0.0.1:{inside[1]}/x".encode()

    def redirect(server: Hostile, client: socket.socket) -> None:
        client.recv(65536)
        head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
        server.send(client, head % location)

    with Hostile(redirect).listening("127.0.0.2") as port, pytest.raises(CdcError):
        _listed(open_store("s3://lake/cdc", f"http://127.0.0.2:{port}", REGION, str(secret)))


def test_another_address_is_reached_as_ever(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit's requests through the policy's proxy, and past it."""
    with s3_server(tmp_path) as server:
        server.make_bucket("lake")
        for networks in ("127.0.0.2/32", ""):
            monkeypatch.setenv(VARIABLE, networks)
            store = open_store("s3://lake/cdc", server.endpoint, REGION, str(secret))
            assert store_errors(store.location) == ()
            name = f"shop/orders{networks.replace('/', '-')}"
            assert store.put_new(name, bytes(10_000_000))
            assert not store.put_new(name, b"2")
            assert store.read(name) == bytes(10_000_000)
            # delta-rs' client holds up all threads of Python until it has an answer
            with store.files().open_input_file(name) as opened:
                assert opened.size() == 10_000_000
                assert opened.read(1000) == bytes(1000)


@pytest.mark.usefixtures("refused")
def test_brokers_that_advertise_another_address(kafka: KafkaBroker) -> None:
    """The bootstrap server is allowed; what it names is not, and gets no connection."""
    host, _, port = kafka.bootstrap.partition(":")
    with relay_to(host, int(port), "127.0.0.2") as relay:
        brokers, topic = Brokers(KafkaSettings(f"127.0.0.2:{relay.port}", timeout=20)), kafka.new_topic("refused")
        with pytest.raises(CdcError) as found:
            _reach_and_write(brokers, topic)
    _refusal(found.value)
    assert f"the broker {kafka.bootstrap}" in found.value.message


def _reach_and_write(brokers: Brokers, topic: str) -> None:
    """Records go to the leader, by the address that it advertises."""
    brokers.reach(brokers.admin())
    producer = brokers.producer()
    producer.produce(topic, b"x")
    if producer.flush(20):
        raise brokers.timeout("writing")


def test_brokers_at_other_addresses_are_reached_as_ever(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.2/32 ::1/128")
    brokers = Brokers(KafkaSettings(kafka.bootstrap.replace("127.0.0.1", "localhost"), timeout=60))
    _reach_and_write(brokers, topic := kafka.new_topic("checked"))
    assert [r.value for r in kafka.read(topic)] == [b"x"]


def test_a_client_that_resolves_waits_for_no_thread_that_waits_for_it(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assignment holds Python's lock while a new client's threads resolve its servers."""
    monkeypatch.setenv(VARIABLE, "127.0.0.2/32")
    brokers, topic = Brokers(KafkaSettings(kafka.bootstrap)), kafka.new_topic("assigned")
    for _ in range(30):
        consumer = brokers.consumer("read_committed")
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.close()


def test_what_is_refused_while_a_run_goes_on(
    kafka: KafkaBroker, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new connection of the source, of the store and of brokers that the run has met before."""
    networks = tmp_path / "networks"
    networks.write_text("")
    monkeypatch.setenv(VARIABLE, "169.254.0.0/16")
    monkeypatch.setenv(FILE_VARIABLE, str(networks))
    server = Hostile(internal_page)
    with s3_server(tmp_path) as bucket, server.listening() as port:
        bucket.make_bucket("lake")
        store = open_store("s3://lake/cdc", bucket.endpoint, REGION, str(secret))
        assert store.put_new("shop/orders", b"1")
        brokers, topic = Brokers(KafkaSettings(kafka.bootstrap, timeout=60)), kafka.new_topic("joined")
        _reach_and_write(brokers, topic)
        networks.write_text("127.0.0.1/32")
        with pytest.raises(CdcError) as found:
            connect(Source("localhost", port, networks, networks))
        assert "127.0.0.1/32" in found.value.message
        assert server.sent == 0
        (error,) = store_errors(open_store("s3://lake/cdc", bucket.endpoint, REGION, str(secret)).location)
        assert "127.0.0.1/32" in error.message
        with pytest.raises(CdcError) as found:
            _reach_and_write(brokers, topic)
        assert "127.0.0.1/32" in found.value.message
