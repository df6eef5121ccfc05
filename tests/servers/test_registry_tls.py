"""A schema registry by TLS with an authority of the user's own: by it and for the host, or not at
all; and the manifest of the examples that has one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.manifest import load_manifest
from cdcsync_spark.sinks import check_servers
from support.fixtures import FreshDatabase
from support.kafka import KafkaBroker
from support.registry import SchemaRegistry
from support.secure_kafka import PASSWORD, USER, Authority, SecureBroker
from support.servers import Server
from support.small_sync import SmallSync
from support.verified import verify

pytestmark = pytest.mark.timeout(300)
MakeSync = Callable[..., SmallSync]
OURS = {"caSecretRef": {"name": "authority"}}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("tests")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SchemaRegistry]:
    found = SchemaRegistry(tmp_path_factory.mktemp("secured"), authority).start()
    yield found
    found.kill()


@pytest.fixture
def sync_of(
    tmp_path: Path, kafka: KafkaBroker, mariadb1011: Server, fresh_database: FreshDatabase, authority: Authority
) -> MakeSync:
    """Makes a sync of a table of three rows; the Secret `authority` has the registry's
    authority."""
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)", db=database)

    def make(url: str, tls: dict[str, Any] | None) -> SmallSync:
        registry = {"url": url} | ({"tls": tls} if tls else {})
        section = {
            "bootstrapServers": kafka.bootstrap,
            "replicationFactor": 1,
            "format": "debezium-avro",
            "schemaRegistry": registry,
        }
        sync = SmallSync(mariadb1011, database, tmp_path, name=f"s{uuid.uuid4().hex[:12]}", kafka=section)
        write(sync, authority.certificate)
        return sync

    return make


def write(sync: SmallSync, certificate: str) -> None:
    file = sync.secrets_dir / "authority" / "ca.crt"
    file.parent.mkdir(exist_ok=True)
    file.write_text(certificate)


def check(sync: SmallSync) -> tuple[CdcError, ...]:
    return check_servers(sync.resource.spec.sink, sync.secrets_dir, sync.resource.full_name, ()).errors


def refusal(sync: SmallSync, kafka: KafkaBroker) -> CdcError:
    """The refusal of the check and of a run, which has sent nothing."""
    (checked,) = check(sync)
    with pytest.raises(CdcError) as refused:
        sync.copy()
    assert kafka.read(f"{sync.name}.{sync.database}.t") == []
    assert (checked.reason, checked.remedy) == (refused.value.reason, refused.value.remedy)
    return refused.value


def test_a_registry_by_the_authority_that_is_given(secured: SchemaRegistry, sync_of: MakeSync) -> None:
    """Schemas are registered and read back."""
    sync = sync_of(secured.secure(), OURS)
    assert check(sync) == ()
    sync.copy()
    sync.catch_up()
    result = verify(sync)["t"]
    assert (result.target_rows, result.equal) == (3, True)


def test_a_registry_by_another_authority(secured: SchemaRegistry, sync_of: MakeSync, kafka: KafkaBroker) -> None:
    """One that is corrected is read at the next request."""
    sync = sync_of(secured.secure(), OURS)
    ours = (sync.secrets_dir / "authority" / "ca.crt").read_text()
    write(sync, Authority("another").certificate)
    error = refusal(sync, kafka)
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert "its certificate is refused" in error.found
    assert "spec.sink.kafka.schemaRegistry.tls.caSecretRef" in error.remedy
    write(sync, ours)
    assert check(sync) == ()


def test_a_registry_by_an_authority_that_the_machine_does_not_know(
    secured: SchemaRegistry, sync_of: MakeSync, kafka: KafkaBroker
) -> None:
    assert refusal(sync_of(secured.secure(), None), kafka).reason is Reason.AUTHENTICATION_FAILED


def test_a_certificate_that_names_another_host(secured: SchemaRegistry, sync_of: MakeSync, kafka: KafkaBroker) -> None:
    error = refusal(sync_of(secured.secure("127.0.0.1"), OURS), kafka)
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert "not valid for '127.0.0.1'" in error.found
    assert "the host of schemaRegistry.url" in error.remedy


@pytest.mark.parametrize("text", ["no certificate", None])
def test_an_authority_that_cannot_be_read(secured: SchemaRegistry, sync_of: MakeSync, text: str | None) -> None:
    sync = sync_of(secured.secure(), OURS)
    write(sync, text or "")
    if text is None:
        (sync.secrets_dir / "authority" / "ca.crt").unlink()
    (error,) = check(sync)
    assert error.reason is Reason.SPEC_INVALID
    assert "no readable certificate in authority/ca.crt" in error.found


def test_a_registry_without_tls(secured: SchemaRegistry, sync_of: MakeSync) -> None:
    (error,) = check(sync_of(secured.url.replace("http:", "https:"), OURS))
    assert error.reason is Reason.SINK_UNREACHABLE


EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka-avro.yaml"


def test_the_sink_of_the_example(
    tmp_path: Path, mariadb1011: Server, fresh_database: FreshDatabase, secured: SchemaRegistry, authority: Authority
) -> None:
    """Replaces the hosts, and makes what its Secrets are for: TLS and a login, at brokers and
    registry."""
    sink = load_manifest([EXAMPLE.read_text()]).resource.to_dict()["spec"]["sink"]["kafka"]
    sink["schemaRegistry"]["url"] = secured.secure()
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", db=database)
    broker = SecureBroker(tmp_path / "broker").start()
    try:
        sink |= {"bootstrapServers": broker.secure(), "replicationFactor": 1}
        sync = SmallSync(mariadb1011, database, tmp_path, name=f"s{uuid.uuid4().hex[:12]}", kafka=sink)
        for name, files in {
            "shop-kafka": {"username": USER, "password": PASSWORD},
            "kafka-ca": {"ca.crt": broker.authority.certificate},
            "shop-registry": {"username": USER, "password": PASSWORD},
            "registry-ca": {"ca.crt": authority.certificate},
        }.items():
            (sync.secrets_dir / name).mkdir()
            for key, text in files.items():
                (sync.secrets_dir / name / key).write_text(text)
        assert check(sync) == ()
        sync.copy()
        sync.catch_up()
        result = verify(sync)["t"]
        assert (result.target_rows, result.equal) == (2, True)
    finally:
        broker.kill()
