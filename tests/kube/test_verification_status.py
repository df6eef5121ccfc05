"""What a verification's run reads of its sync, by the rights that the operator gives it, on a real
API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status, only_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects import run_objects
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.store import KubeStore
from cdcsync_operator.decision.observed import StartRun
from cdcsync_spark.verify.sync_status import read_resource
from support.apiserver import as_token
from support.in_process_sync import InProcessSync
from support.waiting import eventually

MANY = 1200
RUN = StartRun(RunKind.VERIFY, "shop-v-1", 1, (("shop.t0007", 0),), "f")


@pytest.fixture
def store(sync: InProcessSync) -> KubeStore:
    sync.create(state="paused")
    paused = KubeStore(sync.api, sync.namespace, "shop", PodPolicy(), Image("x"), lambda _: None)
    paused.load()
    return paused


@pytest.fixture
def run(sync: InProcessSync, store: KubeStore) -> Iterator[Api]:
    """The API server as the account of a run that was started when the sync had `MANY` tables."""
    resource = store.load()[0]
    core = f"/api/v1/namespaces/{sync.namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}"
    sync.api.create(f"{core}/serviceaccounts", run_objects.account(resource, RUN.id))
    account = run_objects.account_name(RUN.id)
    sync.api.create(f"{rbac}/roles", run_objects.role(resource, RUN, tables=MANY))
    sync.api.create(f"{rbac}/rolebindings", run_objects.binding(resource, RUN.id, account))
    body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
    token = sync.api.create(f"{core}/serviceaccounts/{account}/token", body)["status"]["token"]
    as_run = as_token(sync.api, token)
    eventually(lambda: _may_read(as_run, f"{sync.syncs}/shop"))
    yield as_run
    as_run.close()


def _may_read(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        return error.status != 403
    return True


def many(count: int, phase: TablePhase = TablePhase.STREAMING) -> Status:
    tables = [TableStatus(name=f"shop.t{i:04d}", phase=phase) for i in range(count)]
    return only_tables(Status(observed_generation=1, phase=Phase.STREAMING), tables)


def test_a_run_reads_all_tables_of_a_large_sync_and_no_other_config_map(
    sync: InProcessSync, store: KubeStore, run: Api
) -> None:
    store.save(many(MANY))
    metadata = store.load()[0].metadata
    assert read_resource(run, metadata).table_status == many(MANY).table_status
    store.save(many(MANY + 500))
    assert len(read_resource(run, metadata).table_status) == MANY + 500, "of tables that came meanwhile, too"
    core = f"/api/v1/namespaces/{sync.namespace}"
    for path in (f"{core}/configmaps/kube-root-ca.crt", f"{core}/configmaps", f"{core}/secrets/login", sync.syncs):
        assert not _may_read(run, path), path


def test_a_config_map_of_another_program_is_no_table_of_the_sync(
    sync: InProcessSync, store: KubeStore, run: Api
) -> None:
    store.save(many(MANY))
    path = f"/api/v1/namespaces/{sync.namespace}/configmaps/shop-tables-1"
    sync.api.merge(path, {"data": {"tables": '[{"name": "shop.t0500", "phase": "Streaming"}]'}})
    shown = read_resource(run, store.load()[0].metadata).table_status
    assert 0 < len(shown) < 200, "those that the status shows itself"
