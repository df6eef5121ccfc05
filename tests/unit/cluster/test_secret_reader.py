"""Secrets on a cluster: by name, the wanted keys only, and no namespace takes the room of another
one."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cdcsync_core.resource.manifest import Secrets
from cdcsync_operator.cluster.policy.secret_reader import MOST_BYTES, MOST_KEYS, SecretReader
from cdcsync_operator.cluster.quota.room import Room, RoomBounds
from unit.cluster.fake_api import FakeApi
from unit.controller.harness import resource

SECRETS = "/api/v1/namespaces/lake/secrets"
LOGIN = {"username": "cdc", "password": "pw"}


class ListingApi(FakeApi):
    """Keeps the query of each list."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[dict[str, str]] = []

    def _get(self, path: str, query: dict[str, str], body: None) -> dict[str, Any]:
        self.queries.append(query)
        return super()._get(path, query, body)


@pytest.fixture
def api() -> ListingApi:
    return ListingApi()


def add(api: FakeApi, name: str, values: dict[str, str], *, labelled: bool = True, **annotations: str) -> None:
    labels = {"cdcsync.io/source": "true"} if labelled else {}
    named = {f"cdcsync.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    about = {"name": name, "labels": labels, "annotations": named}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    api.objects.pop(f"{SECRETS}/{name}", None)
    api.add(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data})


def spec(source: str = "login", sink: str = "", ca: str = "") -> Any:
    delta: dict[str, Any] = {"path": "s3://lake/x"} | ({"credentialsSecretRef": {"name": sink}} if sink else {})
    tls = {"tls": {"caSecretRef": {"name": ca}}} if ca else {}
    return resource(source={"host": "db", "credentialsSecretRef": {"name": source}, **tls}, sink={"delta": delta})


def texts(values: Secrets) -> dict[str, dict[str, str]]:
    return {name: {key: text.get_secret_value() for key, text in of.items()} for name, of in values.items()}


def test_they_are_asked_for_by_name(api: ListingApi) -> None:
    """No answer has more than the one that is named, of a thousand large ones in the namespace."""
    for name in ("login", "other"):
        add(api, name, LOGIN)
    found = SecretReader(api, "lake", "shop").read(spec())
    assert texts(found.values) == {"login": LOGIN}
    assert found.missing == ()
    assert [q["fieldSelector"] for q in api.queries] == ["metadata.name=login"]
    assert [q["labelSelector"] for q in api.queries] == ["cdcsync.io/source=true"]


def test_only_the_wanted_keys_are_kept(api: ListingApi) -> None:
    """The sink's keys are those that are variables; also where one Secret is both."""
    large = "x" * 500_000
    variables = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    add(api, "login", LOGIN | {"notes": large, "AWS_REGION": "r"})
    add(api, "lake", variables | {"notes.txt": large, "username": "u"})
    assert texts(SecretReader(api, "lake", "shop").read(spec(sink="lake")).values) == {
        "login": LOGIN,
        "lake": variables,
    }
    add(api, "login", LOGIN | variables | {"notes": large})
    both = SecretReader(api, "lake", "shop").read(spec(sink="login"))
    assert texts(both.values) == {"login": LOGIN | variables}


def test_what_a_schema_registry_needs_is_read(api: ListingApi) -> None:
    registry = {
        "url": "https://registry.example",
        "tls": {"caSecretRef": {"name": "authority"}},
        "credentialsSecretRef": {"name": "account"},
    }
    avro = {"format": "debezium-avro", "schemaRegistry": registry}
    kafka = {"bootstrapServers": "broker:9093", "staging": {"path": "s3://lake/x"}, **avro}
    wanted = resource(source={"host": "db", "credentialsSecretRef": {"name": "login"}}, sink={"kafka": kafka})
    add(api, "login", LOGIN)
    add(api, "account", LOGIN, hosts="registry.example")
    found = SecretReader(api, "lake", "shop").read(wanted)
    assert any("no Secret authority" in m for m in found.missing)
    add(api, "authority", {"ca.crt": "pem", "tls.key": "not wanted"})
    found = SecretReader(api, "lake", "shop").read(wanted)
    assert (texts(found.values), found.missing) == (
        {"login": LOGIN, "account": LOGIN, "authority": {"ca.crt": "pem"}},
        (),
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("lake", {"AWS_A": "x" * (MOST_BYTES + 1)}),
        ("lake", {f"AWS_{n}": "x" for n in range(MOST_KEYS + 1)}),
        ("login", LOGIN | {"password": "x" * (MOST_BYTES + 1)}),
    ],
)
def test_one_that_is_too_large_counts_as_missing_and_is_no_file(
    api: ListingApi, name: str, values: dict[str, str]
) -> None:
    for known in ("login", "lake"):
        add(api, known, values if known == name else LOGIN)
    found = SecretReader(api, "lake", "shop").read(spec(sink="lake"))
    assert name not in found.values
    (message,) = found.missing
    assert message.startswith(f"Secret {name}: ")
    assert "needed: at most" in message


def test_one_without_its_label_is_not_read_and_told_from_none(api: ListingApi) -> None:
    add(api, "login", LOGIN, labelled=False)
    found = SecretReader(api, "lake", "shop").read(spec(ca="authority"))
    assert found.values == {}
    assert any("Secret login has no label" in m for m in found.missing)
    assert any("no Secret authority" in m for m in found.missing)


def test_the_syncs_of_one_namespace_leave_room_to_those_of_others(api: ListingApi) -> None:
    """A file takes a page at least, so many small keys count, too."""
    room = Room(RoomBounds(total=8 * 4096, own=2 * 4096, namespaces=3))
    add(api, "login", LOGIN)
    api.objects[SECRETS.replace("lake", "good") + "/login"] = api.objects[f"{SECRETS}/login"]
    readers = [SecretReader(api, "lake", f"s{n}", room) for n in range(9)]
    found = [reader.read(spec()) for reader in readers]
    assert [bool(f.values) for f in found] == [True, True] + [False] * 7
    assert "no room" in found[-1].missing[0]
    assert SecretReader(api, "good", "shop", room).read(spec()).values
    for reader in readers[:2]:
        reader.close()
    assert readers[-1].read(spec()).values, "what deleted syncs had is free"


@pytest.mark.parametrize(
    "kind",
    [
        "kubernetes.io/service-account-token",
        "kubernetes.io/dockerconfigjson",
        "bootstrap.kubernetes.io/token",
        "x" * 300,
    ],
)
def test_a_secret_of_a_type_that_holds_no_login_counts_as_missing(api: ListingApi, kind: str) -> None:
    """The token of a service account, named by a key of the spec, would go to the spec's host."""
    add(api, "login", LOGIN)
    api.objects[f"{SECRETS}/login"]["type"] = kind
    found = SecretReader(api, "lake", "shop").read(spec())
    assert found.values == {}
    (phrase,) = found.missing
    assert phrase.startswith("Secret login is of the type ")
    assert "needed: one of Opaque, kubernetes.io/basic-auth, kubernetes.io/tls" in phrase
    assert len(phrase) < 400


def test_a_secret_must_name_its_hosts_where_the_policy_asks_for_it(api: ListingApi) -> None:
    add(api, "login", LOGIN)
    assert SecretReader(api, "lake", "shop").read(spec()).missing == ()
    reader = SecretReader(api, "lake", "shop", must_name_hosts=True)
    (phrase,) = reader.read(spec()).missing
    assert "Secret login is not for the host db (its annotation cdcsync.io/hosts: empty)" in phrase
    api.objects[f"{SECRETS}/login"]["metadata"]["annotations"] = {"cdcsync.io/hosts": "db"}
    assert texts(reader.read(spec()).values) == {"login": LOGIN}


def test_the_spec_alone_sends_no_password_to_a_server_that_is_not_verified(api: ListingApi) -> None:
    add(api, "login", LOGIN)
    source = {"host": "db", "credentialsSecretRef": {"name": "login"}, "tls": {"allowUnverified": True}}
    open_spec = resource(source=source)
    reader = SecretReader(api, "lake", "shop")
    (phrase,) = reader.read(open_spec).missing
    assert "Secret login would be sent to a server that is not verified (spec.source.tls.allowUnverified)" in phrase
    assert 'the annotation cdcsync.io/allow-unverified: "true"' in phrase
    api.objects[f"{SECRETS}/login"]["metadata"]["annotations"] = {"cdcsync.io/allow-unverified": "true"}
    assert texts(reader.read(open_spec).values) == {"login": LOGIN}


VICTIM = {"username": "cdc", "password": "pw", "other": "o", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
REF = {"name": "victim"}
_STORE = {"staging": {"path": "s3://lake/x"}}
_SIGNED = {"authentication": "sigv4", "sigv4": {"region": "eu-central-1"}}
_REGISTRY = {"format": "debezium-avro", "schemaRegistry": {"url": "https://h"}}


def using(place: str, account: dict[str, str], **section: Any) -> Any:
    """A sync that uses `account` at `place`: its source, a sink, Kafka's registry, or a catalog of
    AWS."""
    section = {"credentialsSecretRef": account, **section}
    if place == "source":
        return resource(source={"host": "h", **section})
    sinks: dict[str, dict[str, Any]] = {
        "mysql": {"mysql": {"host": "h", **section}},
        "postgresql": {"postgresql": {"host": "h", "database": "d", **section}},
        "kafka": {"kafka": {"bootstrapServers": "h:1", **_STORE, "sasl": {"credentialsSecretRef": account}}},
        "registry": {"kafka": {"bootstrapServers": "h:1", **_STORE, **_REGISTRY}},
        "iceberg": {"iceberg": {"catalog": {"uri": "https://h", **section}}},
        "token": {"iceberg": {"catalog": {"uri": "https://h", "authentication": "token", **section}}},
        "sigv4": {"iceberg": {"catalog": {"uri": "https://h", **_SIGNED, **section}}},
    }
    if place == "registry":
        sinks["registry"]["kafka"]["schemaRegistry"] = {"url": "https://h", **section}
    return resource(source={"host": "db", "credentialsSecretRef": {"name": "login"}}, sink=sinks[place])


PLACES = ("source", "mysql", "postgresql", "kafka", "registry", "iceberg", "token", "sigv4")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("field", "key", "annotation"),
    [("usernameKey", "password", "username-key"), ("passwordKey", "other", "password-key")],
)
def test_the_spec_alone_makes_no_other_key_an_account(
    api: ListingApi, place: str, field: str, key: str, annotation: str
) -> None:
    """A name is sent before the server is verified, and servers repeat it in what becomes a
    status."""
    add(api, "login", LOGIN)
    add(api, "victim", VICTIM)
    wanted, reader = using(place, REF | {field: key}), SecretReader(api, "lake", "shop")
    secrets = reader.read(wanted)
    assert "victim" not in secrets.values
    (phrase,) = secrets.missing
    assert f"names its key {key} as {field}" in phrase
    assert f"the annotation cdcsync.io/{annotation}: {key} on the Secret" in phrase
    add(api, "victim", VICTIM, **{annotation: f"none, {key}"})
    secrets = reader.read(wanted)
    assert secrets.missing == ()
    assert key in secrets.values["victim"]


def test_the_keys_of_a_store_may_sign_and_are_sent_to_nobody(api: ListingApi) -> None:
    add(api, "login", LOGIN)
    add(api, "victim", VICTIM)
    keys = REF | {"usernameKey": "AWS_ACCESS_KEY_ID", "passwordKey": "AWS_SECRET_ACCESS_KEY"}
    reader = SecretReader(api, "lake", "shop")
    assert reader.read(using("sigv4", keys)).missing == ()
    for place in PLACES[:-1]:
        (phrase,) = reader.read(using(place, keys)).missing
        assert phrase.startswith("Secret victim: ")


OWN = {"tls": {"caSecretRef": {"name": "own"}}}
SAME = {"tls": {"caSecretRef": {"name": "victim"}}}


@pytest.mark.parametrize("place", ["source", "mysql", "postgresql", "registry", "iceberg", "token"])
def test_an_authority_of_the_specs_own_is_no_consent(api: ListingApi, place: str) -> None:
    """Who creates a CdcSync may create a Secret with an authority of his own, too."""
    add(api, "login", LOGIN)
    add(api, "own", {"ca.crt": "pem"})
    add(api, "victim", VICTIM | {"ca.crt": "pem"})
    reader = SecretReader(api, "lake", "shop")
    (phrase,) = reader.read(using(place, REF, **OWN)).missing
    assert "Secret victim would be sent to a server that another Secret alone verifies (" in phrase
    assert reader.read(using(place, REF, **SAME)).missing == ()
    for consent in ({"hosts": "h"}, {"allow_unverified": "true"}):
        add(api, "victim", VICTIM, **consent)
        assert reader.read(using(place, REF, **OWN)).missing == ()
    add(api, "victim", VICTIM, hosts="other")
    (phrase,) = reader.read(using(place, REF, **OWN)).missing
    assert "Secret victim is not for the host h" in phrase


@pytest.mark.parametrize(("mechanism", "refused"), [("PLAIN", True), ("SCRAM-SHA-512", False)])
def test_an_authority_of_the_specs_own_may_verify_brokers_that_get_no_password(
    api: ListingApi, mechanism: str, refused: bool
) -> None:
    add(api, "login", LOGIN)
    add(api, "own", {"ca.crt": "pem"})
    add(api, "victim", VICTIM)
    sasl = {"mechanism": mechanism, "credentialsSecretRef": REF}
    kafka = {"bootstrapServers": "h:1", **_STORE, "sasl": sasl, **OWN}
    wanted = resource(source={"host": "db", "credentialsSecretRef": {"name": "login"}}, sink={"kafka": kafka})
    missing = SecretReader(api, "lake", "shop").read(wanted).missing
    assert [m.startswith("Secret victim would be sent") for m in missing] == [True] * refused
