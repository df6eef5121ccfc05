"""What a run consists of on a cluster: names, labels and the plain objects, all but its pods.

A run owns everything by its id, so two runs of one sync never share a name, a report or a right,
and clearing a run away meets nothing of another one (see `run_removal`). Everything is owned by the
resource, too, so deleting that leaves nothing. Pure.

    <run>-report-N    ConfigMap   by the driver only: its reports (shard 0: also the run)
    <run>-config-N    ConfigMap   the RunConfig, compressed, in pieces; immutable
    <run>-plan-N      ConfigMap   the chunk plan as it grows; immutable
    <run>             Role, RoleBinding; NetworkPolicy, where the chart asks for them
    cdcsync-run-<run> ServiceAccount; by this name the chart's ValidatingAdmissionPolicy knows it
    <run>-auth        Secret      by which a snapshot's driver and executors know each other
    <run>-driver      Pod
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from cdcsync_core.resource.spec import API_VERSION, GROUP, KIND, CdcSync
from cdcsync_core.runs.report import TableReport
from cdcsync_core.runs.run import PlanShard
from cdcsync_operator.decision.needs import Generations
from cdcsync_operator.decision.observed import StartRun
from cdcsync_operator.decision.runs.kinds import RUNS

Object = dict[str, Any]
Generation = tuple[str, int]

SYNC_LABEL = f"{GROUP}/sync"
RUN_LABEL = f"{GROUP}/run"
PART_LABEL = f"{GROUP}/part"
KIND_LABEL = f"{GROUP}/kind"
#: on the report of a run that was asked to drain, and of one whose whole plan is written
STOP_ASKED = f"{GROUP}/stop-asked"
PLANNED = f"{GROUP}/planned"
#: on the pods of a run: the networks of the cluster that none of its processes connects with
NETWORKS = f"{GROUP}/refused-networks"
#: tables of a report shard: 500 ordinary entries are well below the 1 MiB of a ConfigMap
REPORT_TABLES = 500
#: the fewest that a driver halves that to, where entries are long; there are shards for so few
LEAST_REPORT_TABLES = 62
#: bytes that a run's list of tables may have in one shard, and what a table takes of them beside
#: its name
LIST_BYTES, LISTED_BYTES = 2**18, 20
#: the key of a run's Secret, and the file that it is mounted as
AUTH_KEY = "secret"
_PIECE = 700_000


def owner(resource: CdcSync) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def labels(resource: CdcSync, run: str, part: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "cdcsync",
        "app.kubernetes.io/managed-by": "cdcsync",
        SYNC_LABEL: resource.metadata.name,
        RUN_LABEL: run,
        PART_LABEL: part,
    }


def metadata(resource: CdcSync, name: str, run: str, part: str) -> Object:
    return {
        "name": name,
        "namespace": resource.metadata.namespace,
        "labels": labels(resource, run, part),
        "ownerReferences": [owner(resource)],
    }


def report_names(run: str, tables: int) -> list[str]:
    """At least one, and as many as a driver can need: it may write into these only."""
    return [f"{run}-report-{n}" for n in range(max(1, -(-tables // LEAST_REPORT_TABLES)))]


def shard_name(sync: str, number: int) -> str:
    """A ConfigMap with tables of a sync's status."""
    return f"{sync}-tables-{number}"


def reports(resource: CdcSync, action: StartRun, unknown: list[TableReport]) -> list[Object]:
    """`unknown`: entries of the tables that it is started without. The run's tables are in the
    first shard, and where they are too many for it, in those behind it, too."""
    first, *further = _pieces(action.tables)
    about = {
        "kind": action.kind.value,
        "tables": first,
        "fingerprint": action.fingerprint,
        **({"stopAt": action.stop_at} if action.stop_at else {}),
        **({"unknown": unknown} if unknown else {}),
    }
    shards: list[Object] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(resource, name, action.id, "report"), "data": {}}
        for name in report_names(action.id, len(action.tables))
    ]
    for shard, part in zip(shards, (about, *({"tables": piece} for piece in further)), strict=False):
        shard["data"] = {"run": json.dumps(part, ensure_ascii=False)}
    return shards


def _pieces(tables: Generations) -> list[list[Generation]]:
    """At least one. There are shards for all of them: the fewest tables of a shard take less."""
    pieces, size = [list[Generation]()], 0
    for entry in tables:
        size += len(entry[0].encode()) + LISTED_BYTES
        if size > LIST_BYTES:
            pieces.append([])
            size = len(entry[0].encode()) + LISTED_BYTES
        pieces[-1].append(entry)
    return pieces


def config_maps(resource: CdcSync, run: str, text: str, extra: dict[str, str]) -> list[Object]:
    """The RunConfig as compressed pieces `run.json.gz.N`; `extra` are further files of the first
    map."""
    packed = gzip.compress(text.encode(), mtime=0)
    pieces = [packed[i : i + _PIECE] for i in range(0, len(packed), _PIECE)]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(resource, f"{run}-config-{n}", run, "config"),
            "immutable": True,
            "binaryData": {f"run.json.gz.{n:05d}": base64.b64encode(piece).decode()},
            **({"data": extra} if n == 0 and extra else {}),
        }
        for n, piece in enumerate(pieces)
    ]


def plan_map(
    resource: CdcSync, run: str, number: int, shards: Sequence[tuple[int, PlanShard]], *, last: bool
) -> Object:
    """Shards with the index of their table in the run."""
    content = {"last": last, "shards": [{"index": i, "shard": json.loads(s.to_json())} for i, s in shards]}
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode(), mtime=0)).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(resource, f"{run}-plan-{number}", run, "plan"),
        "immutable": True,
        "binaryData": {"plan.json.gz": packed},
    }


def account_name(run: str) -> str:
    return f"cdcsync-run-{run}"


def account(resource: CdcSync, run: str) -> Object:
    about = metadata(resource, account_name(run), run, "access")
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}


def auth_name(run: str) -> str:
    return f"{run}-auth"


def auth_secret(resource: CdcSync, run: str, secret: str, report: Object) -> Object:
    """The secret by which a snapshot's driver and executors know each other. It is mounted, so no
    pod's specification shows it.

    The run's report owns it, which goes last: so the cluster removes it, and the operator needs no
    right to delete Secrets.
    """
    about = metadata(resource, auth_name(run), run, "access") | {"ownerReferences": [_owned_by(report)]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": about,
        "immutable": True,
        "stringData": {AUTH_KEY: secret},
    }


def _owned_by(config_map: Object) -> Object:
    about = config_map["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": about["name"], "uid": about["uid"]}


def network_policy(resource: CdcSync, run: str, refused: tuple[str, ...] | None = None) -> Object:
    """Connections to a run's pods come from its own pods and from readers of its metrics; with
    `refused` they go to no address in these networks. The policy is deleted with the run."""
    own_pods = {"matchLabels": {RUN_LABEL: run}}
    outward = {} if refused is None else {"egress": _egress(refused)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(resource, run, run, "access"),
        "spec": {
            "podSelector": own_pods,
            "policyTypes": ["Ingress", *(["Egress"] if outward else [])],
            "ingress": [{"from": [{"podSelector": own_pods}]}, {"ports": [{"port": "metrics", "protocol": "TCP"}]}],
            **outward,
        },
    }


def _egress(refused: tuple[str, ...]) -> list[Object]:
    """As the chart's for the operator: DNS anywhere, since clouds have name servers among their
    metadata addresses; pods, which some networks do not count among the blocks; all other
    addresses."""
    blocks = [
        {"ipBlock": {"cidr": cidr, **({"except": outside} if outside else {})}}
        for cidr, outside in (
            ("0.0.0.0/0", [network for network in refused if ":" not in network]),
            ("::/0", [network for network in refused if ":" in network]),
        )
    ]
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return [{"ports": dns}, {"to": [{"namespaceSelector": {}}, *blocks]}]


def role(
    resource: CdcSync, action: StartRun, secrets: Sequence[str] = (), release: str = "", tables: int = 0
) -> Object:
    """Its own reports; a snapshot also reads its plan, whose length is not known at first, and
    creates its executors, if it has some; a verification reads the status of its sync, which has
    so many `tables`.

    `secrets` are those that its executors mount, `release` is the operator's. `mount` and `run` are
    verbs of ours: the ValidatingAdmissionPolicies ask for them, that of a release for `run` on its
    own name and the run's, so that the rules of another release do not judge this run.
    """
    names = report_names(action.id, len(action.tables))
    rules: list[Object] = [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get", "patch"]}
    ]
    if RUNS[action.kind].by_splits:
        rules += [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    if not action.kind.copies:
        rules += _status_rules(resource.metadata.name, tables)
    if action.executors:
        pod_verbs = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
        rules += [
            {"apiGroups": [""], "resources": ["pods"], "verbs": pod_verbs},
            {"apiGroups": [GROUP], "resources": ["secrets"], "resourceNames": sorted(secrets), "verbs": ["mount"]},
        ]
        if release:
            marks = [action.id, f"{release}.{action.id}"]
            rules += [{"apiGroups": [GROUP], "resources": ["releases"], "resourceNames": marks, "verbs": ["run"]}]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(resource, action.id, action.id, "access"),
        "rules": rules,
    }


def _status_rules(sync: str, tables: int) -> list[Object]:
    """For the status of a sync and its shards; there are more for tables that are still to come."""
    shards = [shard_name(sync, n) for n in range(-(-tables // LEAST_REPORT_TABLES) + 1)]
    return [
        {"apiGroups": [GROUP], "resources": ["cdcsyncs"], "resourceNames": [sync], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": shards, "verbs": ["get"]},
    ]


def binding(resource: CdcSync, run: str, service_account: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(resource, run, run, "access"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": run},
        "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": resource.metadata.namespace}],
    }
