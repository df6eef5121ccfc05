"""A Secret that says for which hosts it is goes to no other: by the pure rule, from a file, and on
a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_core.resource.manifest import Secrets, load_manifest
from cdcsync_core.resource.secret_hosts import admits
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.store import KubeStore
from unit.cluster.fake_api import FakeApi

SYNC = """
apiVersion: cdcsync.io/v1alpha1
kind: CdcSync
metadata: {name: shop}
spec:
  source: {host: HOST, credentialsSecretRef: {name: login}, tls: {clientCertSecretRef: {name: pair}}}
  tables: {include: ['shop\\..*']}
  sink: {delta: {path: "s3://lake/cdc"}}
"""


@pytest.mark.parametrize(
    ("hosts", "host", "admitted"),
    [
        ("db.example.com", "db.example.com", True),
        ("DB.example.com.", "db.Example.com", True),
        ("a, b  c,db", "db", True),
        ("*.example.com", "db.example.com", True),
        ("*.example.com", "a.db.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", ".example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("db.example.com", "db.example.com.evil.net", False),
        ("*", "db", False),
        ("d*", "db", False),
        ("10.0.0.1", "10.0.0.11", False),
        ("", "db", False),
        (" , ", "db", False),
    ],
)
def test_which_hosts_are_admitted(hosts: str, host: str, admitted: bool) -> None:
    assert admits(hosts, host) is admitted


def _secret(name: str, hosts: str | None) -> dict[str, Any]:
    annotations = {} if hosts is None else {"annotations": {"cdcsync.io/hosts": hosts}}
    about = {"name": name, "labels": {"cdcsync.io/source": "true"}, **annotations}
    values = {"username": "cdc", "password": "pw", "tls.crt": "c", "tls.key": "k"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": values}


@pytest.mark.parametrize("name", ["login", "pair"])
def test_a_manifest_with_another_host_is_refused(name: str) -> None:
    import yaml

    hosts = {"login": "db.example.com", "pair": "db.example.com"}
    good = [yaml.safe_dump(_secret(n, h)) for n, h in hosts.items()]
    load_manifest([*good, SYNC.replace("HOST", "db.example.com")])
    bad = [yaml.safe_dump(_secret(n, "other.example.com" if n == name else h)) for n, h in hosts.items()]
    with pytest.raises(PermanentError, match=f"Secret {name} is not for the host db.example.com"):
        load_manifest([*bad, SYNC.replace("HOST", "db.example.com")])


@pytest.mark.parametrize("name", ["login", "pair"])
@pytest.mark.parametrize(
    "hosts", ["hosts: [a.example.com, b.example.com]", "host: a.example.com, snapshotHost: b.example.com"]
)
def test_a_secret_must_name_each_host(name: str, hosts: str) -> None:
    import yaml

    sync = SYNC.replace("host: HOST", hosts)
    load_manifest([*[yaml.safe_dump(_secret(n, "*.example.com")) for n in ("login", "pair")], sync])
    bad = [yaml.safe_dump(_secret(n, "a.example.com" if n == name else None)) for n in ("login", "pair")]
    with pytest.raises(PermanentError, match=f"Secret {name} is not for the host b.example.com"):
        load_manifest([*bad, sync])


@pytest.mark.parametrize("name", ["account", "pair"])
def test_a_secret_for_brokers_is_for_all_of_them(name: str) -> None:
    import yaml

    kafka = (
        "{kafka: {bootstrapServers: 'a.example.com:1,b.example.com:2', staging: {path: 's3://lake/x'}, "
        "sasl: {credentialsSecretRef: {name: account}}, tls: {clientCertSecretRef: {name: pair}}}}"
    )
    sync = SYNC.replace('{delta: {path: "s3://lake/cdc"}}', kafka).replace("HOST", "db")
    sync = sync.replace(", tls: {clientCertSecretRef: {name: pair}}}\n  tables", "}\n  tables")
    secrets = {"login": None, "account": "*.example.com", "pair": "*.example.com"}
    load_manifest([*[yaml.safe_dump(_secret(n, h)) for n, h in secrets.items()], sync])
    bad = [yaml.safe_dump(_secret(n, "a.example.com" if n == name else h)) for n, h in secrets.items()]
    with pytest.raises(PermanentError, match=f"Secret {name} is not for the host b.example.com"):
        load_manifest([*bad, sync])


class SecretCluster:
    """One sync and its Secrets; `files` is what would be written for connections."""

    def __init__(self) -> None:
        self.api, self.files = FakeApi(), dict[str, set[str]]()
        self.now = 0.0
        syncs = "/apis/cdcsync.io/v1alpha1/namespaces/lake/cdcsyncs"
        self.path = f"{syncs}/shop"
        import yaml

        body = yaml.safe_load(SYNC.replace("HOST", "db.example.com"))
        body["metadata"] |= {"namespace": "lake", "generation": 1, "uid": "u"}
        self.api.add(syncs, body)
        for name in ("login", "pair"):
            secret = _secret(name, "db.example.com" if name == "login" else None)
            self.api.add(
                "/api/v1/namespaces/lake/secrets", secret | {"data": dict.fromkeys(secret["stringData"], "eA==")}
            )
        self.store = KubeStore(self.api, "lake", "shop", PodPolicy(), Image("x"), self._keep, lambda: self.now)

    def _keep(self, secrets: Secrets) -> None:
        self.files = {name: set(values) for name, values in secrets.items()}

    def missing(self) -> tuple[str, ...]:
        self.store.load()
        return self.store.missing_secrets()

    def point_at(self, host: str) -> None:
        self.api.objects[self.path]["spec"]["source"]["host"] = host


def test_a_host_that_changes_gets_no_file_of_the_secret() -> None:
    """At once, although Secrets that were all there are not asked for again for a while."""
    cluster = SecretCluster()
    assert cluster.missing() == ()
    assert set(cluster.files) == {"login", "pair"}
    cluster.point_at("evil.example.net")
    (phrase,) = cluster.missing()
    assert "Secret login is not for the host evil.example.net" in phrase
    assert set(cluster.files) == {"pair"}
    cluster.point_at("db.example.com")
    assert cluster.missing() == ()
    assert set(cluster.files) == {"login", "pair"}


def test_keys_that_change_places_get_no_file_of_the_secret() -> None:
    """At once, although the same keys of the Secret are wanted."""
    cluster = SecretCluster()
    assert cluster.missing() == ()
    account = cluster.api.objects[cluster.path]["spec"]["source"]["credentialsSecretRef"]
    account |= {"usernameKey": "password", "passwordKey": "username"}
    (phrase,) = cluster.missing()
    assert "Secret login: spec.source names its key password as usernameKey" in phrase
    assert set(cluster.files) == {"pair"}
