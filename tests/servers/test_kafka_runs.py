"""Kafka as a sink under what happens to brokers and runs, as a user runs it: kills within a
transaction, a broker that hangs, rights that are missing, TLS and a login."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from support.event_consumer import CheckingConsumer
from support.fixtures import FreshDatabase, usually_on
from support.kafka import KafkaBroker
from support.kafka_syncs import kafka_spec, new_name, records
from support.lying_broker import counting_too_far, lying_broker
from support.secure_kafka import PASSWORD, USER, SecureBroker
from support.servers import Server
from support.sync_process import Gate, Sync
from support.topic_events import debezium_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROWS = 40


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """One whose rights may be taken, of the test's own."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    (tmp_path / "broker").mkdir()
    broker = KafkaBroker(tmp_path / "broker", settings).start()
    yield broker
    broker.kill()


class Shop:
    """A table that is copied to a topic."""

    def __init__(self, server: Server, database: str, folder: Path, kafka: KafkaBroker) -> None:
        self.server, self.database, self.kafka = server, database, kafka
        server.run("CREATE TABLE orders (id INT PRIMARY KEY, n INT)", db=database)
        server.run(*(f"INSERT INTO orders VALUES ({n}, 0)" for n in range(ROWS)), db=database)
        name = new_name()
        self.topic = f"{name}.{database}.orders"
        self.sync = Sync(server, [rf"{database}\..*"], folder / "sync", name=name, spec=kafka_spec(kafka))

    def change(self, n: int) -> None:
        self.server.run(
            *(f"UPDATE orders SET n = {n} WHERE id = {i}" for i in range(0, ROWS, 3)),
            f"DELETE FROM orders WHERE id = {n}",
            db=self.database,
        )

    def check(self) -> None:
        """No record is false, missing or there twice."""
        consumer = CheckingConsumer(("id",)).take(debezium_events(records(self.kafka, self.topic)))
        assert consumer.faults == []
        assert sorted((k, r["n"]) for (k,), r in consumer.rows.items()) == sorted(
            self.server.query("SELECT id, n FROM orders", db=self.database)
        )

    @property
    def reasons(self) -> set[Any]:
        status = self.sync.status()
        tables = status.get("tableStatus", [])
        return {c.get("reason") for c in [*status.get("conditions", []), *tables]}


@pytest.mark.long
@pytest.mark.parametrize("gates", [("part-sent",), ("part-sent", "kafka-sent")], ids="-".join)
@usually_on("mariadb1011")
def test_a_run_that_is_killed_within_a_transaction_is_gone_on_from(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker, gates: tuple[str, ...]
) -> None:
    shop = Shop(any_server, fresh_database(any_server), tmp_path, kafka)
    with shop.sync as sync:
        for n, gate in enumerate(gates, 1):
            sync.start("caught-up", Gate(gate))
            sync.wait_fired()
            assert sync.wait() == 0
            shop.check()
            shop.change(n)
        sync.run_to_completion()
        shop.check()


@pytest.mark.long
@usually_on("mariadb1011")
def test_a_broker_that_hangs_is_waited_for_and_gone_on_with(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, broker: KafkaBroker
) -> None:
    shop = Shop(any_server, fresh_database(any_server), tmp_path, broker)
    with shop.sync as sync:
        sync.start("forever")
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 1)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        shop.change(1)
        sync.wait_until(lambda: "SinkUnreachable" in shop.reasons, "the run ends for the broker")
        shop.change(2)
        os.kill(broker.pid, signal.SIGCONT)
        sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 1)
        sync.terminate()
        sync.run_to_completion()
        shop.check()


@pytest.mark.long
@usually_on("mariadb1011")
def test_a_broker_that_ends_the_process_is_named_tried_again_and_gone_on_with(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """An answer that announces more entries than there can be ends the driver by that signal, each
    start once more, in growing pauses; nothing else of the machine is ended."""
    with lying_broker(kafka.bootstrap) as liar:
        shop = Shop(any_server, fresh_database(any_server), tmp_path, kafka)
        with shop.sync as sync:
            sync.write_manifest(sink={"kafka": {"bootstrapServers": liar.address}})
            sync.start("forever")
            sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == 1)
            controller = sync.controller.pid
            liar.lie = counting_too_far
            assert sync.signal("driver", signal.SIGABRT)
            shop.change(1)
            lost = sync.wait_for(lambda s: s["restarts"].get("consecutive", 0) >= 2)
            assert lost["restarts"]["reason"] in ("DriverLost", "SinkUnreachable")
            assert "DriverLost: the driver was ended by SIGABRT" in sync.output(1).read_text(encoding="utf-8")
            assert sync.controller.pid == controller
            liar.lie = None
            sync.terminate()
            sync.run_to_completion()
            shop.check()


@pytest.mark.parametrize(
    ("resource", "operation", "needed"),
    [
        (ResourceType.TOPIC, AclOperation.WRITE, "WRITE on the state topic"),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, "transactional ids"),
    ],
)
@pytest.mark.long
@usually_on("mariadb1011")
def test_a_right_that_is_missing_is_named(
    any_server: Server,
    fresh_database: FreshDatabase,
    tmp_path: Path,
    broker: KafkaBroker,
    resource: ResourceType,
    operation: AclOperation,
    needed: str,
) -> None:
    shop = Shop(any_server, fresh_database(any_server), tmp_path, broker)
    admin, pattern = broker.admin(), (resource, "*", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    denied = AclBinding(*pattern, operation, AclPermissionType.DENY)
    admin.create_acls([denied])[denied].result(120)
    with shop.sync as sync:
        sync.start("caught-up")
        assert sync.wait() != 0
        assert "PrivilegeMissing" in shop.reasons
        assert needed in str(sync.status())
        chosen = AclBindingFilter(*pattern, AclOperation.ANY, AclPermissionType.ANY)
        admin.delete_acls([chosen])[chosen].result(120)
        sync.write_manifest(restartNonce=1)
        sync.run_to_completion()
        shop.check()


@usually_on("mariadb1011")
def test_a_sync_by_tls_and_a_login_is_gone_on_from_and_shows_no_password(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """The first run is killed within a transaction."""
    (tmp_path / "broker").mkdir()
    broker = SecureBroker(tmp_path / "broker").start()
    try:
        shop = Shop(any_server, fresh_database(any_server), tmp_path, broker)
        with shop.sync as sync:
            sync.write_manifest(
                sink={
                    "kafka": {
                        "bootstrapServers": broker.secure(),
                        "tls": {"caSecretRef": {"name": "kafka-ca"}},
                        "sasl": {"credentialsSecretRef": {"name": "kafka-account"}},
                    }
                }
            )
            account = secret("kafka-account", username=USER, password=PASSWORD)
            authority = secret("kafka-ca", **{"ca.crt": broker.authority.certificate})
            sync.manifest.write_text("---\n".join([sync.manifest.read_text(), account, authority]))
            sync.start("caught-up", Gate("part-sent"))
            sync.wait_fired()
            assert sync.wait() == 0
            shop.check()
            shop.change(1)
            sync.run_to_completion()
            shop.check()
            for file in filter(Path.is_file, [*sync.folder.glob("output-*"), *sync.state_dir.rglob("*")]):
                assert PASSWORD.encode() not in file.read_bytes(), file
    finally:
        broker.kill()


def secret(name: str, **values: str) -> str:
    """Its document."""
    about = {"name": name, "labels": {"cdcsync.io/source": "true"}}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": values})
