"""The section of Kafka: how brokers are reached, and what goes to them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cdcsync_core.resource.sinks.kafka import Kafka
from cdcsync_core.resource.sinks.kind import Endpoint
from cdcsync_core.resource.topic_names import topic_prefix
from cdcsync_spark.sinks.kafka.encoding import SourceLabel, origin_of
from contract.sinkcase import first_state

ACCOUNT = {"credentialsSecretRef": {"name": "account"}}
PLAIN = {"mechanism": "PLAIN", **ACCOUNT}


def kafka(servers: str = "kafka-0.example:9093,kafka-1.example:9093", **more: Any) -> Kafka:
    return Kafka.model_validate({"bootstrapServers": servers, "staging": {"path": "s3://lake/x"}, **more})


@pytest.mark.parametrize(
    ("servers", "tls", "mode", "verified"),
    [
        ("kafka.example:9093", None, "verify-identity", True),
        ("kafka.example:9093", {}, "verify-identity", True),
        ("localhost:1,127.0.0.1:2,[::1]:3", None, "disabled", False),
        ("localhost:1,kafka.example:2", None, "verify-identity", True),
        ("localhost:1", {"caSecretRef": {"name": "ca"}}, "verify-identity", True),
        ("kafka.example:9093", {"mode": "disabled"}, "disabled", False),
        ("kafka.example:9093", {"mode": "required"}, "required", False),
        ("kafka.example:9093", {"mode": "required", "caSecretRef": {"name": "ca"}}, "required", True),
        ("kafka.example:9093", {"mode": "verify-ca"}, "verify-ca", True),
    ],
)
def test_brokers_are_verified_unless_they_are_this_machine(
    servers: str, tls: dict[str, Any] | None, mode: str, verified: bool
) -> None:
    found = kafka(servers, **({} if tls is None else {"tls": tls})).tls
    assert (found.mode, found.verified) == (mode, verified)


@pytest.mark.parametrize(
    ("servers", "tls", "fault"),
    [
        ("localhost:9092", {}, "tls.mode is disabled; needed: tls.mode: verify-identity"),
        ("kafka.example:9092", {"mode": "disabled"}, "tls.mode is disabled; needed: tls.mode: verify-identity"),
        (
            "kafka.example:9092",
            {"mode": "disabled", "allowUnverified": True},
            "tls.mode is disabled; needed: tls.mode: verify-identity",
        ),
        ("kafka.example:9092", {"mode": "required"}, "brokers that are verified"),
    ],
)
def test_a_password_is_not_sent_openly(servers: str, tls: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        kafka(servers, tls=tls, sasl=PLAIN)
    assert kafka(servers, tls=tls, sasl=ACCOUNT).sasl, "a challenge is answered anywhere"


def test_a_password_goes_to_brokers_that_are_verified_or_accepted() -> None:
    for tls in ({}, {"mode": "verify-ca"}, {"mode": "required", "allowUnverified": True}):
        assert kafka(tls=tls, sasl=PLAIN).sasl


def test_its_secrets_and_the_hosts_that_get_them() -> None:
    tls = {"caSecretRef": {"name": "ca"}, "clientCertSecretRef": {"name": "pair"}}
    staging = {"path": "s3://lake/x", "credentialsSecretRef": {"name": "account"}}
    sink = kafka("b:1,[fd00::1]:2", tls=tls, sasl=ACCOUNT, staging=staging)
    assert sink.secrets() == {"account": {"username", "password"}, "ca": {"ca.crt"}, "pair": {"tls.crt", "tls.key"}}
    assert sink.secret_hosts() == {"account": ("b", "fd00::1"), "pair": ("b", "fd00::1")}
    assert kafka().secrets() == kafka().secret_hosts() == {}


AVRO = {"format": "debezium-avro"}
CA = {"caSecretRef": {"name": "ca"}}


def test_exact_values_go_with_debezium_json() -> None:
    assert (kafka().form, kafka(compatible="exact").form) == ("debezium-json", "debezium-json, exact")
    with pytest.raises(ValidationError, match="compatible exact with the format debezium-json"):
        kafka(compatible="exact", format="canal-json")


REGISTRY = {"url": "https://registry.example/apis/ccompat/v7"}


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (AVRO, "schemaRegistry with the format debezium-avro"),
        ({"schemaRegistry": REGISTRY}, "schemaRegistry with the format debezium-avro"),
        (AVRO | {"schemaRegistry": {"url": "registry.example"}}, "pattern"),
        (AVRO | {"schemaRegistry": {"url": "https://user:word@registry.example"}}, "pattern"),
        (AVRO | {"schemaRegistry": {"url": "http://registry.example", **ACCOUNT}}, "an https url"),
        (AVRO | {"schemaRegistry": {"url": "http://localhost:1", "tls": CA}}, "an https url, because tls is given"),
        (AVRO | {"schemaRegistry": REGISTRY | {"tls": {}}}, "caSecretRef"),
        (AVRO | {"schemaRegistry": REGISTRY | {"tls": {"caSecretRef": {}}}}, "name"),
    ],
)
def test_a_registry_goes_with_avro_and_gets_no_password_openly(more: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        kafka(**more)


def test_the_account_of_a_registry_is_for_its_host() -> None:
    found = kafka(**AVRO, schemaRegistry=REGISTRY | ACCOUNT)
    assert found.secrets() == {"account": {"username", "password"}}
    assert found.secret_hosts() == {"account": ("registry.example",)}
    assert Endpoint("spec.sink.kafka.schemaRegistry.url", "registry.example") in found.servers()
    assert kafka(**AVRO, schemaRegistry={"url": "http://localhost:8081", **ACCOUNT}).schema_registry is not None


def test_the_authority_of_a_registry_is_read_and_is_no_secret() -> None:
    tls = {"caSecretRef": {"name": "ca", "key": "bundle.pem"}}
    found = kafka(**AVRO, tls=CA, schemaRegistry=REGISTRY | ACCOUNT | {"tls": tls})
    assert found.secrets() == {"account": {"username", "password"}, "ca": {"ca.crt", "bundle.pem"}}
    assert found.secret_hosts() == {"account": ("registry.example",)}


@pytest.mark.parametrize(
    ("template", "prefix"),
    [
        ("{name}.{database}.{table}", "shop"),
        ("{namespace}-{name}_{table}.{database}", "a-shop"),
        ("{database}.{table}", "shop"),
        ("cdc.eu.{database}.{name}.{table}", "cdc.eu"),
    ],
)
def test_the_prefix_is_what_all_topics_begin_with(template: str, prefix: str) -> None:
    assert topic_prefix(template, "a/shop") == prefix


@pytest.mark.parametrize(("log", "number"), [("mysql:0-1-2", 7), ("mariadb:5", 7)])
def test_records_have_the_server_id_of_either_flavour(log: str, number: int) -> None:
    origin = origin_of(SourceLabel("shop", number), first_state(log=log), snapshot=False)
    assert (origin.prefix, origin.server_id) == ("shop", number)


@pytest.mark.parametrize("field", ["topicConfig", "producerConfig"])
@pytest.mark.parametrize(("value", "shown"), [(1000, '"1000"'), (True, '"true"'), (0.5, '"0.5"')])
def test_a_number_among_settings_is_asked_for_in_quotes(field: str, value: object, shown: str) -> None:
    with pytest.raises(ValidationError, match=f"write linger.ms: {shown}, in quotes"):
        kafka(**{field: {"linger.ms": value}})
    assert kafka(**{field: {"linger.ms": shown.strip('"')}})


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, False),
        ({"format": "changelog-json"}, False),
        ({"compatible": "exact"}, True),
        ({"format": "canal-json"}, True),
        ({"format": "upsert-json"}, True),
        (AVRO | {"schemaRegistry": REGISTRY}, True),
        ({"delivery": "at-least-once"}, True),
        ({"topicConfig": {"cleanup.policy": "compact,delete"}}, True),
    ],
)
def test_which_topics_take_tables_without_a_key(fields: dict[str, Any], needed: bool) -> None:
    assert kafka(**fields).needs_row_key is needed
