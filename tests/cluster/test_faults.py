"""What a cluster refuses or kills ends as a reason in the status, and is tried again; many syncs at
once are all reconciled.

The faulty syncs were made before the first test (see conftest), because some reasons take long.
"""

from __future__ import annotations

import time

import pytest

from cdcsync_core.runs.status import Status
from support.faults import FAULTS, LONG_FAULTS
from support.node import Node, wait_until
from support.node_sync import make_namespace, make_secret, make_sync, source_part
from support.servers import Server

MANY = 50


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", [*FAULTS, *(pytest.param(n, marks=pytest.mark.long) for n in LONG_FAULTS)])
def test_what_the_cluster_refuses_is_reported(node: Node, refused: None, name: str) -> None:
    path, fault = f"/apis/cdcsync.io/v1alpha1/namespaces/{name}/cdcsyncs", (FAULTS | LONG_FAULTS)[name]

    def status() -> Status:
        return Status.model_validate(node.api.get(f"{path}/faulty")["status"])

    def describe() -> str:
        seen = node.kubectl("-n", name, "get", "pods", "-o", "yaml")
        return (
            repr(status())
            + seen
            + node.kubectl("-n", name, "logs", "-l", "app.kubernetes.io/name=cdcsync", "--tail=60")
        )

    wait_until(lambda: status().restarts.reason == fault.reason, fault.seconds, fault.reason, describe)
    found = status()
    assert found.condition("Ready").reason == fault.reason, describe()
    assert fault.words in found.condition("Ready").message, describe()
    assert found.condition("Stalled").status == "False", describe()
    assert found.restarts.next_attempt_at or found.runs.snapshot, describe()
    node.api.delete(f"{path}/faulty")
    wait_until(lambda: not list(node.api.items(path)), 60, "it is gone")


def test_many_syncs_of_one_namespace_are_all_reconciled(node: Node, source: Server) -> None:
    """Most are paused; some are refused by the policy, some lack their Secret."""
    make_namespace(node, "many")
    make_secret(node, "many", "source", {"username": "cdc", "password": "x"})
    kinds: dict[tuple[str, str], dict[str, object]] = {
        ("Paused", "False"): {"state": "paused"},
        # a spelling of an address of the cloud's metadata that `kubectl apply` takes
        ("SpecInvalid", "True"): {"source": source_part(node, source) | {"host": "2002:a9fe:a9fe::1"}},
        ("SpecInvalid", "False"): {"source": source_part(node, source) | {"credentialsSecretRef": {"name": "none"}}},
    }
    wanted = {f"s{n}": list(kinds)[max(0, n - MANY + len(kinds))] for n in range(MANY)}
    base: dict[str, object] = {
        "source": source_part(node, source),
        "tables": {"include": [".*"]},
        "sink": {"delta": {"path": "s3://lake/many"}},
    }
    begun = time.monotonic()
    for name, kind in wanted.items():
        make_sync(node, "many", name, base | kinds[kind])
    path = "/apis/cdcsync.io/v1alpha1/namespaces/many/cdcsyncs"

    def others() -> list[tuple[str, Status]]:
        found = [(o["metadata"]["name"], Status.model_validate(o["status"])) for o in node.api.items(path)]
        assert len(found) == MANY
        return [(n, s) for n, s in found if wanted[n] != (s.condition("Ready").reason, s.condition("Stalled").status)]

    wait_until(lambda: not others(), 120, "all are seen", lambda: str(others()))
    print(f"{MANY} syncs seen after {time.monotonic() - begun:.1f} s")
    node.api.delete(path)
    wait_until(lambda: not list(node.api.items(path)), 60, "they are gone")
