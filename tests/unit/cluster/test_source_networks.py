"""Where a source may not be, by the operator's policy."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy, violations
from cdcsync_operator.cluster.policy.source_networks import DEFAULT_REFUSED
from cdcsync_operator.cluster.settings import from_environment
from unit.controller.harness import resource

REQUIRED = {"CDCSYNC_DRIVER_IMAGE": "x"}


def _refused(host: str, endpoint: str = "", networks: tuple[str, ...] = DEFAULT_REFUSED) -> list[str]:
    source = {"host": host, "credentialsSecretRef": {"name": "login"}}
    sink = {"delta": {"path": "s3://lake/cdc", "options": {"endpoint": endpoint}}}
    return violations(resource(source=source, sink=sink), PodPolicy(refused_source_networks=networks), Image("x"))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "localhost", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "::ffff:169.254.169.254",
     "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.254.169.254.", "LOCALHOST", "localhost.",
     "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"],
)  # fmt: skip
def test_addresses_that_only_the_operator_reaches_are_refused(host: str) -> None:
    (fault,) = _refused(host)
    assert f"spec.source.host: {host}" in fault
    assert "policy" in fault


def test_each_of_several_hosts_is_judged() -> None:
    source = {"hosts": ["db", "169.254.169.254"], "credentialsSecretRef": {"name": "login"}}
    (fault,) = violations(resource(source=source), PodPolicy(refused_source_networks=DEFAULT_REFUSED), Image("x"))
    assert "spec.source.hosts: 169.254.169.254" in fault
    source = {"host": "db", "snapshotHost": "169.254.169.254", "credentialsSecretRef": {"name": "login"}}
    (fault,) = violations(resource(source=source), PodPolicy(refused_source_networks=DEFAULT_REFUSED), Image("x"))
    assert "spec.source.snapshotHost: 169.254.169.254" in fault


@pytest.mark.parametrize("host", ["db.example.com", "10.0.0.1", "192.168.1.1", "2001:db8::1", "localhost.example.com"])
def test_other_hosts_are_not(host: str) -> None:
    """A name is judged when it is resolved."""
    assert _refused(host) == []


def test_the_stores_endpoint_is_asked_by_the_operator_too() -> None:
    assert "spec.sink.delta.options.endpoint" in _refused("db", "http://169.254.169.254/latest")[0]
    for spelling in (
        "http://2852039166",
        "http://0xa9fea9fe/",
        "http://169.254.169.254.:80",
        "https://[64:ff9b::a9fe:a9fe]",
    ):
        assert "spec.sink.delta.options.endpoint" in _refused("db", spelling)[0]
    assert _refused("db", "http://minio.lake:9000") == []


def test_brokers_are_judged_one_by_one() -> None:
    def refused(servers: str) -> list[str]:
        sink = {"kafka": {"bootstrapServers": servers, "staging": {"path": "s3://lake/x"}}}
        spec = resource(source={"host": "db", "credentialsSecretRef": {"name": "login"}}, sink=sink)
        return violations(spec, PodPolicy(refused_source_networks=DEFAULT_REFUSED), Image("x"))

    assert refused("kafka-0.example:9092,10.0.0.1:9092") == []
    (fault,) = refused("kafka-0.example:9092,169.254.169.254:80")
    assert "spec.sink.kafka.bootstrapServers: 169.254.169.254 is in" in fault
    assert len(refused("[::1]:9092,localhost:9092")) == 2


def test_a_policy_without_networks_refuses_nothing() -> None:
    assert _refused("127.0.0.1", networks=()) == []


def test_the_default_policy_refuses_the_api_server_too() -> None:
    settings = from_environment(REQUIRED | {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert settings.policy.refused_source_networks == (*DEFAULT_REFUSED, "10.96.0.1")
    assert len(_refused("10.96.0.1", networks=settings.policy.refused_source_networks)) == 1
    assert _refused("10.96.0.2", networks=settings.policy.refused_source_networks) == []


def test_the_chart_says_other_networks() -> None:
    chosen = {"CDCSYNC_REFUSED_SOURCE_NETWORKS": "10.96.0.0/12, fd00::/8"}
    assert from_environment(REQUIRED | chosen).policy.refused_source_networks == ("10.96.0.0/12", "fd00::/8")
    assert from_environment(REQUIRED | {"CDCSYNC_REFUSED_SOURCE_NETWORKS": ""}).policy.refused_source_networks == ()
    with pytest.raises(PermanentError, match=r"policy\.refusedSourceNetworks"):
        from_environment(REQUIRED | {"CDCSYNC_REFUSED_SOURCE_NETWORKS": "10.0.0.1/33"})


def test_the_addresses_of_the_operators_node_are_refused_where_the_chart_gives_them() -> None:
    settings = from_environment(REQUIRED | {"CDCSYNC_NODE_ADDRESSES": "10.0.0.7,fd00::7"})
    networks = settings.policy.refused_source_networks
    assert [len(_refused(host, networks=networks)) for host in ("10.0.0.7", "fd00::7", "10.0.0.8")] == [1, 1, 0]
