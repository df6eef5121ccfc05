"""Fifty syncs whose sources mean harm, beside ten honest ones: those do not notice.

The hostile ones stall, flood or invent, each way ten times, in one namespace or spread over five of
which each has all ways; those that get as far as a plan ask for a node that does not exist, so that
nothing of theirs runs but what the operator does for them. An honest sync that flows goes on as it
was, one that is made or changed meanwhile is served, and the operator lives.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from deltalake import DeltaTable

from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Object
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL
from cdcsync_operator.cluster.quota.room import PLANS
from support import hostile
from support.hostile import Hostile
from support.invented_keys import inventing
from support.lake import rows_of
from support.node import (
    ACCESS_KEY,
    OPERATOR,
    REGION,
    SECRET_KEY,
    SYSTEM,
    Node,
    storage_options,
    wait_until,
)
from support.node_sync import PASSWORD, make_namespace, make_secret, make_sync, small, source_part
from support.servers import Server
from support.sync_process import GRANTS

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

HONEST, AT_ONCE = 10, 3
EACH = 10
_SYNCS = "/apis/cdcsync.io/v1alpha1/namespaces/{}/cdcsyncs"
_NOWHERE: Object = {"podTemplate": {"spec": {"nodeSelector": {"no-such": "node"}}}}
#: rows of the table that is to be split by one; their keys are dense
_ROWS = 300_000


@dataclass(frozen=True)
class Honest:
    """A sync of one table, whose rows are counted in the lake."""

    node: Node
    server: Server
    store: str
    name: str
    database: str

    @property
    def path(self) -> str:
        return f"{_SYNCS.format(self.name)}/{self.name}"

    def create(self) -> None:
        self.server.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", db=self.database)
        make_namespace(self.node, self.name)
        make_secret(self.node, self.name, "source", {"username": "cdc", "password": PASSWORD})
        make_secret(
            self.node, self.name, "lake", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        )
        delta = {"path": f"s3://lake/{self.name}", "credentialsSecretRef": {"name": "lake"}}
        spec: Object = {
            # long, so that a busy machine makes no source look silent
            "source": source_part(self.node, self.server) | {"heartbeatInterval": "10s"},
            "tables": {"include": [rf"{self.database}\.t"]},
            "snapshot": {"parallelism": 1},
            "sink": {"delta": delta | {"options": {"endpoint": self.store, "region": REGION}}},
            "driver": {"memory": "512Mi", "podTemplate": small("driver")},
            "executors": {"instances": 1, "memory": "512Mi", "podTemplate": small("executor")},
        }
        make_sync(self.node, self.name, self.name, spec)

    @property
    def status(self) -> Status:
        return Status.model_validate(self.node.api.get(self.path).get("status") or {})

    def flows(self) -> bool:
        return self.status.condition("Ready").status == "True"

    def standing(self) -> tuple[str, str]:
        """Its driver, and since when it has been as ready as it is."""
        status = self.status
        ready = status.condition("Ready")
        return status.runs.stream.pod if status.runs.stream else "", f"{ready.status} {ready.last_transition_time}"

    def insert(self, row: int) -> None:
        self.server.run(f"INSERT INTO t VALUES ({row})", db=self.database)

    def rows(self) -> set[int]:
        uri = f"s3://lake/{self.name}/{self.database}/t"
        return set(rows_of(DeltaTable(uri, storage_options=storage_options(self.store)))["id"].to_pylist())

    def change(self) -> int:
        """A change that restarts nothing; the generation that is to be observed."""
        changed = self.node.api.merge(self.path, {"spec": {"autoRestart": {"maxRestarts": 1000}}})
        return int(changed["metadata"]["generation"])

    def describe(self) -> str:
        return f"{self.name}: {self.status!r}\n" + self.node.operator_log()


@pytest.fixture(scope="module")
def flowing(node: Node, source: Server, store: str) -> Iterator[list[Honest]]:
    """All of the honest ones but the one that is made meanwhile."""
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    made = [Honest(node, source, store, f"honest-{n}", source.create_database()) for n in range(HONEST - 1)]
    for begin in range(0, len(made), AT_ONCE):  # a snapshot takes more of the node than a stream
        batch = made[begin : begin + AT_ONCE]
        for sync in batch:
            sync.create()
        for sync in batch:
            wait_until(sync.flows, 600, f"{sync.name} flows", sync.describe)
    yield made
    for sync in made:
        node.api.delete(_SYNCS.format(sync.name))


def _hostile_spec(node: Node, server: Server, port: int, database: str, **more: Any) -> Object:
    return {
        "source": source_part(node, server) | {"port": port},
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {"delta": {"path": "s3://lake/hostile"}},
        "driver": _NOWHERE,
        "autoRestart": {"backoff": {"initial": "100ms", "max": "200ms"}},
        **more,
    }


def _operator(node: Node) -> list[tuple[str, int]]:
    """Its pods, and how often each has been started again."""
    pods = node.pods(SYSTEM, OPERATOR)
    return [(p["metadata"]["name"], p["status"]["containerStatuses"][0]["restartCount"]) for p in pods]


def _planned(node: Node) -> dict[str, int]:
    """Bytes of the hostile syncs' plans in the cluster, by sync."""
    found: dict[str, int] = {}
    for one in node.api.items("/api/v1/configmaps", page=50, labelSelector=f"{PART_LABEL}=plan"):
        sync = one["metadata"]["labels"]["cdcsync.io/sync"]
        if one["metadata"]["namespace"].startswith("hostile"):
            found[sync] = found.get(sync, 0) + sum(len(text) for text in one["binaryData"].values())
    return found


def _is_met(node: Node, server: Hostile) -> Callable[[], bool]:
    """Whether a client has met the server. The API server is asked meanwhile, because it closes
    connections that are idle."""
    return lambda: bool(_operator(node)) and server.met.acquire(blocking=False)


def _has(sync: Honest, rows: set[int]) -> Callable[[], bool]:
    return lambda: sync.rows() == rows


@pytest.fixture
def late(node: Node, source: Server, store: str, namespaces: int) -> Iterator[Honest]:
    made = Honest(node, source, store, f"late-{namespaces}", source.create_database())
    yield made
    node.api.delete(_SYNCS.format(made.name))


@pytest.mark.parametrize("namespaces", [1, 5])
def test_fifty_hostile_syncs_are_not_noticed_by_ten_honest_ones(
    node: Node, source: Server, store: str, flowing: list[Honest], late: Honest, namespaces: int
) -> None:
    """Chunk plans of all syncs have PLANS.total; one namespace leaves theirs to others."""
    most = PLANS.most if namespaces == 1 else PLANS.total
    tenants = [f"hostile-{namespaces}-{n}" for n in range(namespaces)]
    ways = {
        "packets": Hostile(hostile.endless_packets),
        "drip": Hostile(hostile.dripping_greeting),
        "silence": Hostile(hostile.silence),
        "keys": Hostile(inventing(source)),
    }
    long_keys, dense = source.create_database(), source.create_database()
    source.run("CREATE TABLE t (k VARBINARY(700) PRIMARY KEY)", "INSERT INTO t VALUES ('a')", db=long_keys)
    rows = f"INSERT INTO t SELECT seq FROM seq_1_to_{_ROWS}"
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", rows, "ANALYZE TABLE t", db=dense)
    operator, standing = _operator(node), [sync.standing() for sync in flowing]
    for tenant in tenants:
        make_namespace(node, tenant)
        make_secret(node, tenant, "source", {"username": "cdc", "password": PASSWORD})
    with ExitStack() as stack:
        for name, server in ways.items():
            port = stack.enter_context(server.listening(node.address))
            for n in range(EACH):
                spec = _hostile_spec(node, source, port, long_keys)
                make_sync(node, tenants[n % namespaces], f"{name}-{n}", spec)
        for n in range(EACH):
            spec = _hostile_spec(node, source, source.port, dense, snapshot={"chunkSize": 1})
            make_sync(node, tenants[n % namespaces], f"rows-{n}", spec)
        for tenant in tenants:
            stack.callback(node.api.delete, _SYNCS.format(tenant))
        for name, server in ways.items():
            wait_until(_is_met(node, server), 600, f"the operator asks the sources of {name}", node.operator_log)
        late.create()
        generations = [sync.change() for sync in flowing]
        wait_until(lambda: {n.partition("-")[0] for n in _planned(node)} == {"keys", "rows"}, 900, "both are planned")
        rows_so_far = itertools.count(1000 * namespaces)

        def all_are_served() -> bool:
            row = next(rows_so_far)
            for sync in flowing:
                sync.insert(row)
            assert sum(_planned(node).values()) <= most
            return late.flows() and [s.status.observed_generation for s in flowing] == generations

        wait_until(all_are_served, 600, "what is made and changed meanwhile is served", late.describe)
        assert [sync.standing() for sync in flowing] == standing, "none was restarted, or less than ready"
        for sync in flowing:
            expected = {int(r[0]) for r in source.query("SELECT id FROM t", db=sync.database)}
            wait_until(_has(sync, expected), 120, "its rows have arrived", sync.describe)
        assert _operator(node) == operator, node.operator_log()
        assert sum(_planned(node).values()) <= most
    wait_until(lambda: not _planned(node), 300, "what they had is gone", node.operator_log)
    assert _operator(node) == operator
    assert [sync.standing() for sync in flowing] == standing
