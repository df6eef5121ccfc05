"""The NetworkPolicy of a run: whom its pods may reach, and who reaches them, by the rules that
Kubernetes has for policies. The chart's policy for the operator has the same egress
(`tests/kube/test_chart.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_operator.cluster.objects.run_objects import RUN_LABEL, network_policy
from unit.controller.harness import resource

_VALUES = yaml.safe_load(Path(__file__).parents[3].joinpath("helm/cdcsync/values.yaml").read_text())
REFUSED = tuple(_VALUES["networkPolicy"]["egress"]["refused"])


@dataclass(frozen=True)
class Peer:
    """What is at the other end: a pod with its labels, in the policy's namespace or another, or
    only an address."""

    address: str
    labels: dict[str, str] | None = None
    elsewhere: bool = False


def admits(policy: dict[str, Any], direction: str, peer: Peer, port: int | str, protocol: str = "TCP") -> bool:
    """Whether a pod that the policy selects may do it; a direction that no policy has is free."""
    spec = policy["spec"]
    if direction.capitalize() not in spec["policyTypes"]:
        return True
    end = {"egress": "to", "ingress": "from"}[direction]
    return any(
        (not rule.get("ports") or any(_has_port(each, port, protocol) for each in rule["ports"]))
        and (not rule.get(end) or any(_is_peer(each, peer) for each in rule[end]))
        for rule in spec.get(direction, [])
    )


def _has_port(rule: dict[str, Any], port: int | str, protocol: str) -> bool:
    assert set(rule) <= {"port", "protocol"}
    return rule.get("protocol", "TCP") == protocol and rule.get("port", port) == port


def _is_peer(rule: dict[str, Any], peer: Peer) -> bool:
    if block := rule.get("ipBlock"):
        assert set(block) <= {"cidr", "except"}
        address = ip_address(peer.address)
        return address in ip_network(block["cidr"]) and not any(
            address in ip_network(outside) for outside in block.get("except", [])
        )
    assert set(rule) <= {"namespaceSelector", "podSelector"}
    if peer.labels is None or (peer.elsewhere and "namespaceSelector" not in rule):
        return False
    assert rule.get("namespaceSelector", {}) == {}
    return rule.get("podSelector", {}).get("matchLabels", {}).items() <= peer.labels.items()


POLICY = network_policy(resource(), "run", REFUSED)
MINE = Peer("10.244.0.5", {RUN_LABEL: "run"})
OTHER = Peer("10.244.0.6", {RUN_LABEL: "other"})
DNS = Peer("10.244.1.2", {"k8s-app": "kube-dns"}, elsewhere=True)


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.1", "169.254.255.255", "100.100.100.200",
     "168.63.129.16", "fe80::1", "febf::1", "fd00:ec2::254", "fd00:ec2::23"],
)  # fmt: skip
def test_the_clouds_metadata_is_out_of_reach(address: str) -> None:
    for port in (80, 443, 8080, 32526):
        assert not admits(POLICY, "egress", Peer(address), port)
        assert not admits(POLICY, "egress", Peer(address), port, "UDP")
    for protocol in ("UDP", "TCP"):
        assert admits(POLICY, "egress", Peer(address), 53, protocol), "a cloud's name server may be there"


@pytest.mark.parametrize(
    ("address", "port"),
    [("10.96.0.1", 443), ("192.168.1.5", 6443), ("10.1.2.3", 3306), ("203.0.113.7", 9092), ("52.216.0.1", 443),
     ("100.100.100.199", 443), ("169.253.255.255", 443), ("169.255.0.0", 443), ("168.63.129.17", 443),
     ("2600:1f00::1", 443), ("fd00:ec3::1", 3306), ("fec0::1", 3306)],
)  # fmt: skip
def test_all_that_a_run_needs_is_in_reach(address: str, port: int) -> None:
    """The API server, sources, brokers, registries and stores."""
    assert admits(POLICY, "egress", Peer(address), port)


def test_pods_are_in_reach_where_a_network_does_not_count_them_among_the_blocks() -> None:
    outside = "169.254.1.1"
    for peer in (MINE, OTHER, DNS):
        assert admits(POLICY, "egress", Peer(outside, peer.labels, peer.elsewhere), 7079)
    assert admits(POLICY, "egress", DNS, 53, "UDP")


def test_into_a_run_come_its_own_pods_and_readers_of_metrics() -> None:
    assert POLICY["spec"]["podSelector"] == {"matchLabels": {RUN_LABEL: "run"}}
    for port in (7078, 7079, "metrics"):
        assert admits(POLICY, "ingress", MINE, port)
    for peer in (OTHER, DNS, Peer("10.244.0.7", MINE.labels, elsewhere=True), Peer("203.0.113.7")):
        assert admits(POLICY, "ingress", peer, "metrics")
        for port in (7078, 7079, 4040):
            assert not admits(POLICY, "ingress", peer, port)


def test_without_the_switch_egress_is_free_and_an_empty_list_refuses_nothing() -> None:
    assert admits(network_policy(resource(), "run"), "egress", Peer("169.254.169.254"), 80)
    for address in ("169.254.169.254", "fe80::1"):
        assert admits(network_policy(resource(), "run", ()), "egress", Peer(address), 80)
