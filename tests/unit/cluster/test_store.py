"""The status of a sync of many tables on a cluster: a reconciler never starts from
fewer than all of them (R7)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase, Status, only_tables
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_kube.client import ApiError, Object
from cdcsync_operator.cli import cluster_syncs
from cdcsync_operator.cli.cluster_syncs import ClusterSyncs
from cdcsync_operator.cli.kubectl.changes import check_names
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.cluster import store as cluster_store
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.cluster.store import KubeStore, StatusTakenOver
from cdcsync_operator.decision.observed import ObservedTable, PreflightResult
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls
from cdcsync_operator.reconcile.table_shards import SHOWN_OF_MORE
from support.traced import traced
from unit.cluster.fake_api import FakeApi

MANY = 500
SYNCS = "/apis/cdcsync.io/v1alpha1/namespaces/lake/cdcsyncs"
NAMES = [f"shop.t{i:04d}" for i in range(MANY)]


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.add(
        SYNCS,
        {
            "apiVersion": "cdcsync.io/v1alpha1",
            "kind": "CdcSync",
            "metadata": {"name": "shop", "namespace": "lake", "generation": 1, "uid": "u"},
            "spec": {
                "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "login"}},
                "tables": {"include": [r"shop\..*"]},
                "sink": {"delta": {"path": "s3://lake/cdc"}},
            },
        },
    )
    return made


def store(api: FakeApi) -> KubeStore:
    return KubeStore(api, "lake", "shop", PodPolicy(), Image("x"), lambda _: None)


def many() -> Status:
    return only_tables(
        Status(observed_generation=1, phase=Phase.STREAMING),
        [TableStatus(name=n, phase=TablePhase.STREAMING) for n in NAMES],
    )


def test_who_begins_again_after_a_write_begins_with_all_tables(api: FakeApi) -> None:
    mine = store(api)
    mine.load()
    mine.save(many())
    assert len(api.objects[f"{SYNCS}/shop"]["status"]["tableStatus"]) == SHOWN_OF_MORE
    assert mine.load()[1] == many()
    assert len(store(api).load()[1].table_status) == MANY


def test_what_another_program_wrote_counts_and_not_what_is_remembered(api: FakeApi) -> None:
    mine, other = store(api), store(api)
    mine.load()
    mine.save(many())
    other.load()
    other.save(many().with_(phase=Phase.PAUSED))
    with pytest.raises(StatusTakenOver):
        mine.load()
    found = mine.load()[1]
    assert (found.phase, len(found.table_status)) == (Phase.PAUSED, MANY)


def test_tables_of_a_source_with_a_long_gtid_set_find_room(api: FakeApi) -> None:
    gtids = ",".join(f"{i:08x}-71ab-11ee-9ab2-0242ac120002:1-{123456789 + i}" for i in range(40))
    place = StatusPosition(file="binlog.000421", offset=123456789, gtid_set=gtids)
    wide = only_tables(many(), [t.model_copy(update={"low": place, "position": place}) for t in many().table_status])
    mine = store(api)
    mine.load()
    mine.save(wide)
    assert len(store(api).load()[1].table_status) == MANY


@pytest.mark.parametrize("name", ["shop-tables-7", "shop-tables-x"])
def test_labels_alone_make_no_shard(api: FakeApi, name: str) -> None:
    """Who may create ConfigMaps may write any label and, before it is taken, any name."""
    mine = store(api)
    mine.load()
    mine.save(many())
    labels = {"cdcsync.io/sync": "shop", "cdcsync.io/part": "tables"}
    foreign = {"metadata": {"name": name, "labels": labels}, "data": {"tables": '[{"name": "shop.invented"}]'}}
    api.add("/api/v1/namespaces/lake/configmaps", foreign)
    again = store(api)
    found = again.load()[1]
    assert len(found.table_status) == MANY
    again.save(only_tables(many(), many().table_status[:1]))
    assert api.names("/configmaps") == {name}


def test_an_operator_that_died_between_the_tables_and_the_status_is_not_believed(api: FakeApi) -> None:
    """R4: then the targets are asked."""
    mine = store(api)
    mine.load()
    mine.save(many())
    api.refuse = lambda method, path: ApiError(0, "", "died") if path.endswith("/status") else None
    changed = [t.model_copy(update={"rows": 7}) for t in many().table_status]
    with pytest.raises(ApiError):
        mine.save(only_tables(many(), changed))
    api.refuse = lambda method, path: None
    assert mine.load()[1] == many(), "who lives still has all of it"
    assert store(api).load()[1].table_status == ()


def written_by_an_older_release(api: FakeApi) -> None:
    """One whose status has no digest of its tables."""
    before = store(api)
    before.load()
    before.save(many())
    del api.objects[f"{SYNCS}/shop"]["status"]["tableDigest"]


def test_the_tables_of_an_older_release_are_taken_by_their_number(api: FakeApi) -> None:
    written_by_an_older_release(api)
    updated = store(api)
    loaded = updated.load()[1]
    assert loaded == many()
    updated.save(loaded)
    assert api.objects[f"{SYNCS}/shop"]["status"]["tableDigest"]


@pytest.mark.parametrize("text", ["[", "{}", "[1]", "[" * 100_000, '[{"name": "shop.t0000"}]'])
def test_what_is_not_all_tables_of_an_older_release_counts_as_lost(api: FakeApi, text: str) -> None:
    written_by_an_older_release(api)
    api.objects["/api/v1/namespaces/lake/configmaps/shop-tables-0"]["data"]["tables"] = text
    assert store(api).load()[1].table_status == ()


def pad_shards(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 of one table and a megabyte each, in the place of those of `shop`."""
    about = api.objects["/api/v1/namespaces/lake/configmaps/shop-tables-0"]["metadata"]
    for n in range(200):
        path = f"/api/v1/namespaces/lake/configmaps/shop-tables-{n}"
        api.objects[path] = {"metadata": about | {"name": f"shop-tables-{n}"}, "data": {}}
    answer = api._get

    def padded(path: str, query: dict[str, str], _: None) -> Object:
        stored = answer(path, query, _)
        if "shop-tables" not in path:
            return stored
        number = path.rpartition("-")[2]
        return stored | {"data": {"tables": f'[{{"name": "shop.t{number}", "message": "{"x" * 2**20}"}}]'}}

    monkeypatch.setattr(api, "_get", padded)


def memory_of_load(api: FakeApi) -> int:
    """Bytes at most, for a resource of which no table counts."""

    def load() -> int:
        assert store(api).load()[1].table_status == ()
        return tracemalloc.get_traced_memory()[1]

    return traced(load)


def test_large_texts_in_the_place_of_the_tables_are_not_kept(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may create ConfigMaps knows the owner, too, and a status may count many tables."""
    before = store(api)
    before.load()
    before.save(many())
    pad_shards(api, monkeypatch)
    assert memory_of_load(api) < 16 * 2**20


def test_a_status_that_counts_on_large_texts_gets_none(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write the status, too, counts on them."""
    written_by_an_older_release(api)
    api.objects[f"{SYNCS}/shop"]["status"]["tables"] = {"total": 200}
    pad_shards(api, monkeypatch)
    monkeypatch.setattr(cluster_store, "_MOST_BYTES", 150 * 2**20)
    assert memory_of_load(api) < 16 * 2**20


# ---- with the controller


def _look(resource: CdcSync, secrets: Path, unread: frozenset[str] | None) -> PreflightOutcome:
    return PreflightOutcome(
        PreflightResult(resource.metadata.generation, 0.0, (), tuple(ObservedTable(n) for n in NAMES)), {}
    )


@pytest.fixture
def controller(api: FakeApi) -> Iterator[KubeController]:
    first = store(api)
    first.load()
    first.save(many())
    calls = SourceCalls(_look, lambda r, s: LogOffset("b.000001", 1), lambda r, s: nullcontext(lambda t, b: iter(())))
    made = KubeController(
        api, OperatorSettings(Image("x"), PodPolicy()), "lake", "shop", calls, lambda: 0.0, lambda: None
    )
    made.reconcile()
    yield made
    made.close()


@pytest.mark.parametrize("status", [409, 429, 500, 0])
def test_an_error_of_the_api_server_loses_no_tables(api: FakeApi, controller: KubeController, status: int) -> None:
    api.refuse = lambda method, path: ApiError(status, "", "not now") if "secrets" in path or "pods" in path else None
    controller.reconcile()
    assert controller.failures == 1
    api.refuse = lambda method, path: None
    controller.reconcile()
    assert controller.failures == 0
    assert (controller.status.tables.total, len(controller.status.table_status)) == (MANY, MANY)
    assert len(store(api).load()[1].table_status) == MANY


def test_a_refused_spec_is_said_and_keeps_every_table(api: FakeApi, controller: KubeController) -> None:
    about = api.objects[f"{SYNCS}/shop"]
    about["metadata"]["generation"] = 2
    about["spec"]["driver"] = {"serviceAccountName": "cloud"}
    controller.reconcile()
    found = store(api)
    found.refresh()
    assert found.status().condition("Stalled").reason == "SpecInvalid"
    assert len(found.status().table_status) == MANY


def test_a_map_of_its_tables_that_another_one_made_is_left_alone(api: FakeApi) -> None:
    mine = store(api)
    mine.load()
    mine.save(many())
    (path,) = [p for p in api.objects if p.endswith("shop-tables-0")]
    api.objects[path] |= {"data": {"tables": "[]"}}
    api.objects[path]["metadata"]["ownerReferences"] = [{"uid": "another"}]
    again = store(api)
    again.load()
    with pytest.raises(CdcError, match="that is not this sync's"):
        again.save(many())
    assert api.objects[path]["data"] == {"tables": "[]"}


# ---- with a command that reads them meanwhile


@pytest.fixture
def read_before(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Object:
    """As it was read just before the operator wrote its progress."""
    monkeypatch.setattr(cluster_syncs, "_PAUSE", 0.0)
    operator = store(api)
    operator.load()
    operator.save(many())
    before = api.get(f"{SYNCS}/shop")
    operator.save(progress())
    return before


def progress() -> Status:
    return only_tables(many(), [t.model_copy(update={"rows": 9}) for t in many().table_status])


def test_tables_that_were_written_meanwhile_are_read_with_their_status(api: FakeApi, read_before: Object) -> None:
    assert ClusterSyncs(api, "lake").all_tables(read_before).table_status == progress().table_status


def test_a_name_that_is_no_tables_is_refused_though_they_were_written_meanwhile(
    api: FakeApi, read_before: Object
) -> None:
    with pytest.raises(CdcError, match=r"shop\.no_such: no table of this CdcSync"):
        check_names(Output(as_json=False), ClusterSyncs(api, "lake"), read_before, ("shop.no_such",))


@pytest.mark.parametrize(("status", "readings"), [(403, 1), (404, 5), (500, 5)])
def test_what_may_not_be_read_is_not_asked_for_again(
    api: FakeApi, read_before: Object, status: int, readings: int
) -> None:
    asked: list[str] = []

    def refuse(method: str, path: str) -> ApiError | None:
        if "/configmaps" not in path:
            return None
        asked.append(path)
        return ApiError(status, "", "not now")

    api.refuse = refuse
    assert 0 < len(ClusterSyncs(api, "lake").all_tables(read_before).table_status) < MANY
    assert len(asked) == readings
