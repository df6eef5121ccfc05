"""What the operator deletes is a run's by owner and name, and each deletion names the uid of the
object that was judged: on a real API server, beside objects of other clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_kube.client import Api, Object
from cdcsync_operator.cluster.store import owner_of
from support.in_process_sync import InProcessSync

_V1 = "v1"


class Recording(Api):
    """Knows each deletion: its path and its options. `before` may do something first."""

    def __init__(self, api: Api) -> None:
        super().__init__(api.login)
        self.deletions: list[tuple[str, Object]] = []

    def _call(
        self, method: str, path: str, query: dict[str, str], body: Object | None = None, *more: Any, **named: Any
    ) -> Object:
        if method == "DELETE":
            assert not query, f"a collection is deleted: {path} {query}"
            self.deletions.append((path, body or {}))
            self.before_deletion(path)
        return super()._call(method, path, query, body, *more, **named)

    def before_deletion(self, path: str) -> None:
        pass


class Replacing(Recording):
    """Another client replaces each object, but for pods, between the judgement and its deletion,
    once."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.client, self.replaced = api, {}

    replaced: dict[str, str]

    def before_deletion(self, path: str) -> None:
        if "/pods/" in path or path in self.replaced:
            return
        found = self.client.get(path)
        self.client.delete(path)
        about = {k: v for k, v in found["metadata"].items() if k in ("name", "labels")}
        made = self.client.create(path.rpartition("/")[0], found | {"metadata": about})
        self.replaced[path] = made["metadata"]["uid"]


def _folders(sync: InProcessSync) -> dict[str, str]:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}"
    core = {kind: f"{sync.base}/{kind}" for kind in ("configmaps", "serviceaccounts", "pods")}
    return core | {kind: f"{rbac}/{kind}" for kind in ("roles", "rolebindings")}


def _foreign(sync: InProcessSync, run: str) -> dict[str, str]:
    """Objects of another client with the labels of a run, and of a kept pod; path -> uid."""
    rbac = "rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
    container = {"spec": {"containers": [{"name": "x", "image": "x"}]}}
    made: dict[str, str] = {}
    for folder, part, body in (
        ("configmaps", "report", {"apiVersion": _V1, "kind": "ConfigMap"}),
        ("configmaps", "plan", {"apiVersion": _V1, "kind": "ConfigMap"}),
        ("serviceaccounts", "access", {"apiVersion": _V1, "kind": "ServiceAccount"}),
        ("roles", "access", {"apiVersion": rbac, "kind": "Role"}),
        ("rolebindings", "access", {"apiVersion": rbac, "kind": "RoleBinding", "roleRef": role}),
        ("pods", "executor", {"apiVersion": _V1, "kind": "Pod"} | container),
        ("pods", "kept-driver", {"apiVersion": _V1, "kind": "Pod"} | container),
    ):
        labels = {"cdcsync.io/sync": "shop", "cdcsync.io/run": run, "cdcsync.io/part": part}
        path = _folders(sync)[folder]
        found = sync.api.create(path, body | {"metadata": {"name": f"victim-{part}", "labels": labels}})
        made[f"{path}/victim-{part}"] = found["metadata"]["uid"]
    return made


def _of_run(sync: InProcessSync, run: str) -> set[str]:
    """What a run owns of maps and rights."""
    names = {
        f"{folder}/{about['name']}"
        for kind, folder in _folders(sync).items()
        for about in sync.api.metadata(folder, labelSelector=f"cdcsync.io/run={run}")
        if kind != "pods" and about.get("ownerReferences")
    }
    return {name for name in names if "victim" not in name}


def _runs_of_reports(sync: InProcessSync) -> set[str]:
    reports = sync.api.metadata(f"{sync.base}/configmaps", labelSelector="cdcsync.io/part=report")
    return {about["labels"]["cdcsync.io/run"] for about in reports}


def test_objects_of_others_stay_whatever_their_labels(sync: InProcessSync) -> None:
    """The executors of a snapshot that failed, its maps and rights, and the pod kept before it."""
    read = Recording(sync.api)
    controller = sync.create().operator(read)
    status = sync.until(controller, lambda s: s.runs.snapshot and sync.pods())
    assert status.runs.snapshot
    run = status.runs.snapshot.id
    foreign = _foreign(sync, run)
    sync.executor(run, 1)
    words = {"code": 1, "reason": "ExecutorsLost", "message": "no executor has been there"}
    sync.end(RunKind.SNAPSHOT, 1, message=json.dumps(words))
    sync.until(controller, lambda _: not _of_run(sync, run))
    assert {path: sync.api.get(path)["metadata"]["uid"] for path in foreign} == foreign
    executors = sync.api.metadata(f"{sync.base}/pods", labelSelector="cdcsync.io/part=executor")
    assert [about["name"] for about in executors] == ["victim-executor"]
    assert all(body.get("preconditions", {}).get("uid") for _, body in read.deletions)


def test_what_took_the_name_of_an_object_between_judgement_and_deletion_stays(sync: InProcessSync) -> None:
    read = Replacing(sync.api)
    controller = sync.create().operator(read)
    sync.to_streaming(controller)
    old = sync.stored.runs.stream
    assert old
    sync.change(restartNonce=1)
    sync.until(controller, lambda s: s.runs.stream and s.runs.stream.id != old.id and s.runs.stream.pod in sync.pods())
    sync.until(controller, lambda _: not _of_run(sync, old.id))
    mine = {path: uid for path, uid in read.replaced.items() if old.id in path}
    assert {path.split("/")[-2] for path in mine} == _folders(sync).keys() - {"pods"}
    assert {path: sync.api.get(path)["metadata"]["uid"] for path in mine} == mine


@pytest.mark.parametrize("tables", [2, 200])
def test_a_run_is_cleared_away_with_a_deletion_an_object_and_a_few_reads(sync: InProcessSync, tables: int) -> None:
    sync.tables = [f"shop.t{n}" for n in range(tables)]
    read = Recording(sync.api)
    controller = sync.create().operator(read)
    sync.to_streaming(controller)
    old = sync.stored.runs.stream
    assert old
    objects = _of_run(sync, old.id)
    sync.change(state="paused")
    sync.until(controller, lambda _: old.pod not in sync.pods())
    done, calls = len(read.deletions), read.calls
    sync.until(controller, lambda _: not _of_run(sync, old.id))
    deleted = [path for path, _ in read.deletions[done:] if "/pods/" not in path]
    assert sorted(deleted) == sorted(objects), "each once"
    assert deleted[-1].endswith("-report-0"), "what makes the run known goes last"
    assert read.calls - calls <= len(objects) + 25


def test_forged_reports_cost_each_reconciliation_a_few_calls(sync: InProcessSync) -> None:
    """The sync comes to flow beside them, and they are cleared away, some with each
    reconciliation."""
    counted = Recording(sync.api)
    controller = sync.create().operator(counted)
    owner = owner_of(sync.api.get(f"{sync.syncs}/shop"))
    for n in range(60):
        run = f"shop-x{n}"
        labels = {"cdcsync.io/sync": "shop", "cdcsync.io/run": run, "cdcsync.io/part": "report"}
        about = {"name": f"{run}-report-{n % 2}", "labels": labels, "ownerReferences": [owner]}
        sync.api.create(f"{sync.base}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})
    controller.reconcile()
    assert counted.calls <= 150
    assert len(counted.deletions) == 8
    sync.to_streaming(controller)
    sync.until(controller, lambda _: not any(r.startswith("shop-x") for r in _runs_of_reports(sync)))
