"""The rights of the manual's table are what works: on a broker that denies by default, an account
with them can do everything, and one that lacks any is told which."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.formats.json_records import Records
from cdcsync_spark.sinks.kafka.check import BrokerCheck
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.rights import RIGHTS, On, table
from cdcsync_spark.sinks.kafka.connection.topics import Topics
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from cdcsync_spark.sinks.kafka.transactions.session import TopicRecords, state_topic
from cdcsync_spark.sinks.kafka.transactions.table_fault import TableFault
from contract.sinkcase import ORDERS, SYNC, content, first_state
from support.event_source import HIGH, NAME, EventSource, follow, read_snapshot
from support.kafka import read_topic
from support.secure_kafka import DENYING, PASSWORD, USER, SecureBroker

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]
NEEDED = [(right.on, operation) for right in RIGHTS if not right.optional for operation in right.operations]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    broker = SecureBroker(tmp_path_factory.mktemp("denying"), DENYING).start()
    yield broker
    broker.kill()


class Account(NamedTuple):
    """One sync's, with topics of its own; `folder` has its Secrets and its staging."""

    broker: SecureBroker
    folder: Path
    name: str

    def grant(self, rights: Iterable[tuple[On, str]]) -> None:
        prefix, state = ResourcePatternType.PREFIXED, state_topic(f"{SYNC}{self.name}")
        places = {
            On.TOPICS: (ResourceType.TOPIC, f"{self.name}.", prefix),
            On.STATE: (ResourceType.TOPIC, state, ResourcePatternType.LITERAL),
            On.TRANSACTIONS: (ResourceType.TRANSACTIONAL_ID, state, prefix),
            On.CLUSTER: (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL),
        }
        made = [
            AclBinding(
                *places[on], f"User:{USER}", "*", AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for on, operation in rights
        ]  # fmt: skip
        admin = self.broker.admin()  # held until the answers
        for answer in admin.create_acls(made).values():
            answer.result(120)

    def deny(self, operation: str, topic: str) -> None:
        binding = AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation[operation],
            AclPermissionType.DENY,
        )  # fmt: skip
        admin = self.broker.admin()
        admin.create_acls([binding])[binding].result(120)

    def revoke(self) -> None:
        """All rights of the account."""
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{USER}", None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        admin = self.broker.admin()
        admin.delete_acls([every])[every].result(120)

    def sink(self, role: str, delivery: str = "exactly-once") -> KafkaSink:
        spec = SinkSpec.model_validate(
            {
                "kafka": {
                    "bootstrapServers": self.broker.secure(),
                    "topic": f"{self.name}.{{database}}.{{table}}",
                    "format": "changelog-json",
                    "delivery": delivery,
                    "replicationFactor": 1,
                    "tls": {"caSecretRef": {"name": "ca"}},
                    "sasl": {"credentialsSecretRef": {"name": "account"}},
                    "staging": {"path": str(self.folder / "lake")},
                }
            }
        )
        made = sink_from_spec(spec, self.folder / "secrets", f"{SYNC}{self.name}", Role(role))
        assert isinstance(made, KafkaSink)
        made.settings = replace(made.settings, timeout=30.0)
        return made

    def work(self) -> list[tuple[object, ...]]:
        """A snapshot, changes, and what `verify` reads of them."""
        source = EventSource(random.Random(7))
        read_snapshot(self.sink("snapshot"), source.snapshot())
        follow(self.sink("stream"), source, self.folder, end=HIGH)
        return content(self.sink("").target(ORDERS.id))

    def check(self) -> BrokerCheck:
        sink = self.sink("")
        return BrokerCheck(sink.session, sink.topics)


@pytest.fixture
def account(broker: SecureBroker, tmp_path: Path) -> Account:
    for file, text in {"account/username": USER, "account/password": PASSWORD}.items():
        (tmp_path / "secrets" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "secrets" / file).write_text(text)
    (tmp_path / "secrets" / "ca").mkdir()
    (tmp_path / "secrets" / "ca" / "ca.crt").write_text(broker.authority.certificate)
    return Account(broker, tmp_path, f"r{uuid.uuid4().hex[:10]}")


def test_the_manual_has_the_table() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()


def test_the_documented_rights_are_enough(account: Account) -> None:
    account.grant(NEEDED)
    assert account.work()
    assert account.check().run((ORDERS.id,)).errors == ()
    warnings = account.check().run((ORDERS.id,)).warnings
    assert [w for w in warnings if "DESCRIBE_CONFIGS on the cluster" not in w] == []


@pytest.mark.parametrize(("on", "operation"), NEEDED)
def test_each_of_them_is_needed_and_named(account: Account, on: On, operation: str) -> None:
    account.grant([right for right in NEEDED if right != (on, operation)])
    with pytest.raises(CdcError) as found:
        account.work()
    # a table that its run has written once is tried by another run first
    assert found.value.reason in (Reason.PRIVILEGE_MISSING, Reason.SINK_UNREACHABLE)
    assert "a right is missing" in found.value.found
    assert operation in found.value.needed
    assert f"{on}" in found.value.needed


def test_check_names_what_is_missing(account: Account) -> None:
    account.grant(NEEDED)
    read_snapshot(account.sink("snapshot"), EventSource(random.Random(7)).snapshot())
    account.revoke()
    rights = {right for right in NEEDED if right[0] in (On.TOPICS, On.STATE)}
    account.grant(rights - {(On.TOPICS, "WRITE"), (On.TOPICS, "READ"), (On.STATE, "WRITE")})
    found = account.check().run((ORDERS.id,))
    assert [(e.reason, e.table) for e in found.errors] == [
        (Reason.PRIVILEGE_MISSING, ""),
        (Reason.PRIVILEGE_MISSING, NAME),
    ]
    assert all("may not WRITE the topic" in e.found for e in found.errors)
    assert any("may not READ the topic" in w and "`verify` needs" in w for w in found.warnings)


def test_check_names_topics_that_may_not_be_made(account: Account) -> None:
    account.grant(right for right in NEEDED if right[1] != "CREATE")
    state, table = account.check().run((ORDERS.id,)).errors
    assert [(e.reason, e.table) for e in (state, table)] == [
        (Reason.PRIVILEGE_MISSING, ""),
        (Reason.PRIVILEGE_MISSING, NAME),
    ]
    assert all("may not CREATE the topic" in e.found for e in (state, table))
    account.grant(NEEDED)
    assert account.check().run((ORDERS.id,)).errors == ()


def test_check_refuses_a_state_topic_whose_records_expire(account: Account) -> None:
    account.grant(NEEDED)
    read_snapshot(account.sink("snapshot"), EventSource(random.Random(7)).snapshot())
    topics = Topics(Brokers(KafkaSettings(account.broker.bootstrap)))
    assert topics.configure(account.sink("").session.state, {"cleanup.policy": "delete"})
    account.grant([(On.STATE, "DESCRIBE_CONFIGS")])
    (expiring,) = account.check().run((ORDERS.id,)).errors
    assert expiring.reason is Reason.SPEC_INVALID
    assert "its cleanup.policy is not compact" in expiring.found
    account.grant([(On.STATE, "ALTER_CONFIGS")])
    allowed = account.check().run((ORDERS.id,))
    assert allowed.errors == ()
    assert any("cleanup.policy=compact, which a run sets" in w for w in allowed.warnings)
    account.sink("stream").session.open()
    assert account.check().run((ORDERS.id,)).errors == ()


@pytest.mark.parametrize("operation", ["WRITE", "DESCRIBE"])
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_right_that_is_taken_from_one_topic_stops_its_table_alone(
    account: Account, delivery: str, operation: str
) -> None:
    account.grant(NEEDED)
    session = account.sink("stream", delivery).session
    session.open()
    records, pieces = dict[str, TableRecord](), dict[str, TopicRecords]()
    for name in ("a", "b", "c"):
        topic = f"{account.name}.shop.{name}"
        session.topics.make(topic, 1, 1, {})
        made = session.topics.made(topic)
        records[f"shop.{name}"] = TableRecord(first_state(), topic, made.id, 1)
        pieces[f"shop.{name}"] = TopicRecords(f"shop.{name}", topic, Records(pa.array([b"k"]), pa.array([b"v"])))
    assert session.transact(records, pieces.values())
    account.deny(operation, f"{account.name}.shop.b")
    with pytest.raises(TableFault) as fault:
        session.transact(records, pieces.values())
    assert (fault.value.table, fault.value.error.reason) == ("shop.b", Reason.PRIVILEGE_MISSING)
    assert "may not WRITE the topic" in fault.value.error.found
    del records["shop.b"], pieces["shop.b"]
    assert session.transact(records, pieces.values())
    expected = 2 if delivery == "exactly-once" else 3
    assert len(read_topic(account.broker.bootstrap, f"{account.name}.shop.a")) == expected
