"""The chart: what Helm renders for each switch, that unknown values are refused, and that a real
API server takes it all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.resource.networks import parse_networks
from cdcsync_core.runs.run import RunKind
from cdcsync_kube.client import Api
from cdcsync_operator.cluster.objects.driver_pod import driver_pod
from cdcsync_operator.cluster.objects.run_objects import network_policy
from cdcsync_operator.cluster.policy.source_networks import DEFAULT_REFUSED
from cdcsync_operator.cluster.rbac import NEEDED, OF_NODES
from cdcsync_operator.cluster.settings import from_environment
from cdcsync_operator.decision.observed import StartRun
from support.apiserver import kubeconfig
from support.chart import CHART, ROOT, helm, rendered
from support.forbidden_templates import CONTAINERS, PODS
from unit.controller.harness import resource

SNAPSHOTS = Path(__file__).with_name("chart_snapshots")

#: name of the snapshot -> values
SWITCHES: dict[str, dict[str, Any]] = {
    "cluster-wide": {"clusterWide": True},
    "one-namespace": {"watchNamespaces": ["shop"]},
    "namespace-selector": {"namespaceSelector": "cdc=yes, stage notin (test, dev)"},
    "no-crds": {"crds": {"enabled": False}, "watchNamespaces": ["shop"]},
    "disposable-crds": {"crds": {"keep": False}, "watchNamespaces": ["shop"]},
    "pod-monitor": {
        "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "watchNamespaces": ["shop"],
    },
    "no-network-policy": {"networkPolicy": {"enabled": False}, "watchNamespaces": ["shop", "lake"]},
    "egress": {"networkPolicy": {"egress": {"enabled": True}}, "watchNamespaces": ["shop"]},
    "own-account": {"serviceAccount": {"create": False, "name": "mine"}, "watchNamespaces": ["shop"]},
    "everything": {
        "enabled": True,
        "clusterWide": True,
        "image": {"repository": "registry.example/operator", "tag": "7"},
        "driverImage": {"repository": "registry.example/spark", "digest": f"sha256:{'8' * 64}"},
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["pull"],
        "policy": {
            "allowPodTemplate": False,
            "allowedServiceAccounts": ["cloud", "lake"],
            "allowedInPodTemplate": [
                "tolerations",
                "volumes/persistentVolumeClaim",
                "securityContext",
                "tokens",
                "nodeName",
            ],
            "allowedImages": ["registry.example/team/*", "proxy:1"],
            "allowedSparkConf": ["spark.hadoop.*"],
            "allowedPullSecrets": ["pull-too", "default-dockercfg-*"],
            "refusedSourceNetworks": ["10.96.0.0/12"],
            "minRestartBackoff": "20s",
        },
        "selector": "team in (lake, shop), shard!=two",
        "replicas": 2,
        "workers": 8,
        "serviceAccount": {"annotations": {"team": "lake"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "priorityClassName": "high",
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "fullnameOverride": "capture",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
        "metrics": {"tables": {"enabled": True, "limit": 50}},
    },
    "two-replicas": {"replicas": 2, "watchNamespaces": ["shop", "lake"], "podDisruptionBudget": {"snapshots": True}},
    "no-rights": {"rbac": {"create": False}, "watchNamespaces": ["shop"], "nameOverride": "capture"},
    "alerts": {
        "metrics": {
            "alerts": {"enabled": True, "labels": {"release": "prometheus"}, "manualUrl": "https://manual.example"}
        },
        "watchNamespaces": ["shop"],
    },
}
#: what the API server of the tests lacks, or what is not written there
MONITORING = ("pod-monitor", "alerts")


def test_each_word_that_allows_more_of_a_pod_template_is_taken() -> None:
    """And by all of them together the policies refuse nothing that a word allows."""
    words = sorted({word for _, _, word in (*PODS, *CONTAINERS) if word})
    assert {"dns", "tokens", "volumes/persistentVolumeClaim"} <= set(words)
    documents = rendered({"clusterWide": True, "policy": {"allowedInPodTemplate": words}})
    policies = [d for d in documents if d["kind"] == "ValidatingAdmissionPolicy"]
    messages = [v["message"] for policy in policies for v in policy["spec"]["validations"]]
    assert messages
    assert not [m for m in messages if any(f"'{word}'" in m for word in words)]
    assert "executors resolve names as the cluster does" not in messages


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_renders_what_was_agreed(name: str) -> None:
    """A changed chart shows as a changed snapshot; `CHART_SNAPSHOTS=write` writes them again, for a
    reader to judge."""
    documents = [d for d in rendered(SWITCHES[name]) if d["kind"] != "CustomResourceDefinition"]
    text = yaml.safe_dump_all(documents, sort_keys=True, width=120)
    path = SNAPSHOTS / f"{name}.yaml"
    if os.environ.get("CHART_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_the_charts_crd_is_the_projects() -> None:
    source = (ROOT / "crds" / "cdcsync.yaml").read_text()
    assert (CHART / "files" / "cdcsync.yaml").read_text() == source, "remedy: cp crds/cdcsync.yaml helm/cdcsync/files/"
    (crd,) = [
        d for d in rendered({"crds": {"keep": False}, "clusterWide": True}) if d["kind"] == "CustomResourceDefinition"
    ]
    assert crd == yaml.safe_load(source)


def test_a_kept_crd_stays_when_the_chart_goes() -> None:
    (crd,) = [d for d in rendered({"clusterWide": True}) if d["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not [d for d in rendered(SWITCHES["no-crds"]) if d["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    "values",
    [
        {"watchNamespace": ["shop"]},
        {"image": {"name": "x"}},
        {"crds": {"install": True}},
        {"replicas": "two"},
        {"imagePullPolicy": "Sometimes"},
        {"policy": {"allowedInPodTemplate": ["everything"]}},
        {"image": {"repository": "x", "digest": "sha256:short"}},
        {"extraEnv": [{"name": "CDCSYNC_LEASE", "value": "a/b"}]},
        {"podSecurityContext": {"runAsUser": 0}},
        {"fullnameOverride": "Capture"},
        {"metrics": {"alerts": {"manualUrl": "manual.example"}}},
    ],
)
def test_unknown_and_wrong_values_are_refused(values: dict[str, Any]) -> None:
    result = helm("template", "cdcsync", str(CHART), values=values)
    assert result.returncode != 0
    assert next(iter(values)) in result.stderr


@pytest.mark.parametrize(
    "network",
    [
        "{banana}",
        "10.0.0.0/33",
        "256.1.1.1",
        "fd00::/129",
        "db.example.com",
        "1::2::3 x",
        ":::::",
        "1::2::3",
        "1:2",
        "1:2:3:4:5:6:7::8",
    ],
)
def test_a_network_that_is_none_is_refused(network: str) -> None:
    """The operator would end at its start."""
    values = {"policy": {"refusedSourceNetworks": [network]}, "clusterWide": True}
    result = helm("template", "cdcsync", str(CHART), values=values)
    assert result.returncode != 0
    assert "refusedSourceNetworks" in result.stderr


def test_networks_in_each_form_are_taken() -> None:
    networks = [
        "1:2:3:4:5:6:7:8",
        "1::8",
        "1:2:3:4:5:6:7::",
        "::2:3:4:5:6:7:8/64",
        "fd00::/8",
        "2001:DB8::a/128",
        "::",
        "10.0.0.7",
    ]
    values = {"policy": {"refusedSourceNetworks": networks}, "clusterWide": True}
    assert helm("template", "cdcsync", str(CHART), values=values).returncode == 0
    assert len(parse_networks(tuple(networks))) == len(networks)


@pytest.mark.parametrize("network", ["10.0.0.1", "0.0.0.0/0", "::/0", "banana"])
def test_a_network_that_no_policy_can_leave_out_is_refused(network: str) -> None:
    values = {"networkPolicy": {"egress": {"enabled": True, "refused": [network]}}, "clusterWide": True}
    result = helm("template", "cdcsync", str(CHART), values=values)
    assert result.returncode != 0
    assert "refused" in result.stderr


def test_the_charts_networks_are_those_of_the_operator() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert tuple(values["policy"]["refusedSourceNetworks"]) == DEFAULT_REFUSED


@pytest.mark.parametrize(
    ("values", "expected"),
    [({"clusterWide": True}, "true"), ({"watchNamespaces": ["a"]}, "false"), ({"namespaceSelector": "a=b"}, "true"),
     ({"clusterWide": True, "policy": {"secretsNameHosts": False}}, "false")],
)  # fmt: skip
def test_secrets_must_name_their_hosts_where_all_namespaces_are_watched(values: dict[str, Any], expected: str) -> None:
    (deployment,) = [d for d in rendered(values) if d["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "CDCSYNC_SECRETS_NAME_HOSTS", "value": expected} in container["env"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "watchNamespaces is empty"),
        ({"watchNamespaces": ["a"], "clusterWide": True}, "contradict each other"),
        ({"namespaceSelector": "cdc=yes", "watchNamespaces": ["a"]}, "contradict each other"),
        ({"namespaceSelector": "cdc=yes", "clusterWide": True}, "contradict each other"),
        ({"namespaceSelector": "cdc=yes", "policy": {"admission": False}}, "needed: policy.admission: true"),
        ({"namespaceSelector": "cdc='yes'"}, "is no label selector"),
        ({"clusterWide": True, "selector": "shard in one"}, "is no label selector"),
    ],
)
def test_the_watched_namespaces_must_be_given(values: dict[str, Any], expected: str) -> None:
    """All namespaces are as good as the whole cluster, so they are not the default."""
    assert expected in helm("template", "cdcsync", str(CHART), values=values).stderr


def test_a_drivers_metrics_cannot_be_forged() -> None:
    """A pod of any namespace may carry the labels by which drivers are found."""
    (drivers,) = [d for d in rendered(SWITCHES["pod-monitor"]) if d["metadata"]["name"].endswith("-drivers")]
    (endpoint,) = drivers["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is False
    assert endpoint["metricRelabelings"][0] == {
        "action": "keep",
        "sourceLabels": ["__name__"],
        "regex": "cdcsync_driver_.*",
    }
    assert drivers["spec"]["sampleLimit"] > 0


def test_the_operator_serves_no_more_samples_than_prometheus_takes() -> None:
    values = {"metrics": {"podMonitor": {"enabled": True, "sampleLimit": 700}}, "clusterWide": True}
    monitors = [d["spec"]["sampleLimit"] for d in rendered(values) if d["kind"] == "PodMonitor"]
    assert monitors == [700, 700]
    (deployment,) = [d for d in rendered(values) if d["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "CDCSYNC_SAMPLE_LIMIT", "value": "700"} in container["env"]


@pytest.mark.parametrize("what", ["podMonitor", "alerts"])
def test_monitoring_without_the_operator_for_it_is_refused_in_words(what: str) -> None:
    values = {"metrics": {what: {"enabled": True}}, "clusterWide": True}
    assert "needs the Prometheus Operator" in helm("template", "cdcsync", str(CHART), values=values).stderr


def test_a_rule_that_is_none_cannot_be_left_out() -> None:
    values = {"metrics": {"alerts": {"enabled": True, "disabled": ["CdcSyncStaled"]}}, "clusterWide": True}
    more = ["--api-versions", "monitoring.coreos.com/v1"]
    result = helm("template", "cdcsync", str(CHART), *more, values=values)
    assert 'names "CdcSyncStaled", which is no rule; needed: one of CdcSyncStalled' in result.stderr


def test_the_dashboards_are_given_to_grafana_as_they_are() -> None:
    maps = [d for d in rendered({"clusterWide": True, "metrics": {"dashboards": {"enabled": True}}})
            if d["kind"] == "ConfigMap"]  # fmt: skip
    files = sorted((CHART / "files" / "dashboards").glob("*.json"))
    assert [d["metadata"]["name"] for d in maps] == [f"cdcsync-dashboard-{path.stem}" for path in files]
    for config, path in zip(maps, files, strict=True):
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert config["data"] == {f"cdcsync-{path.name}": path.read_text()}


def test_a_budget_for_snapshots_needs_the_names_of_namespaces() -> None:
    values = {"clusterWide": True, "podDisruptionBudget": {"snapshots": True}}
    assert "needed: watchNamespaces" in helm("template", "cdcsync", str(CHART), values=values).stderr


def deployment(**values: Any) -> dict[str, Any]:
    (found,) = [d for d in rendered({"clusterWide": True} | values) if d["kind"] == "Deployment"]
    return dict(found["spec"])


def test_several_replicas_are_replaced_one_by_one_and_spread() -> None:
    one, two = deployment(), deployment(replicas=2)
    assert one["strategy"] == {"type": "Recreate"}
    assert "topologySpreadConstraints" not in one["template"]["spec"]
    assert two["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    (spread,) = two["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == two["selector"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"runAsUser": None, "runAsGroup": None, "fsGroup": None}, {}),
        ({"runAsUser": 1000660000}, {"runAsUser": 1000660000, "runAsGroup": 65532, "fsGroup": 65532}),
        (None, {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}),
    ],
)
def test_the_cluster_may_give_the_ids_of_all_pods(ids: dict[str, Any] | None, expected: dict[str, int]) -> None:
    """Pods of runs have the operator's ids; None is what an upgrade with --reuse-values has."""
    template = deployment(podSecurityContext=ids)["template"]["spec"]
    context = template["securityContext"]
    rest = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert context == expected | rest
    (container,) = template["containers"]
    settings = from_environment({e["name"]: e.get("value", "") for e in container["env"]})
    assert dict(settings.image.ids) == expected
    run = driver_pod(resource(), StartRun(RunKind.STREAM, "run", 1, (), "f"), settings.image, "account", [])
    assert run["spec"]["securityContext"] == context


def test_the_chart_passes_lint() -> None:
    result = helm("lint", "--strict", str(CHART), values={"clusterWide": True})
    assert result.returncode == 0, result.stdout


def test_the_operator_understands_what_the_chart_tells_it() -> None:
    (deployment,) = [d for d in rendered(SWITCHES["everything"]) if d["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    settings = from_environment({e["name"]: e["value"] for e in container["env"] if "value" in e})
    assert (settings.image.name, settings.image.pull_policy) == (f"registry.example/spark@sha256:{'8' * 64}", "Always")
    assert settings.image.pull_secrets == ("pull",)
    assert settings.policy.allowed_service_accounts == {"cloud", "lake"}
    assert settings.policy.allowed_images == ("registry.example/team/*", "proxy:1")
    assert settings.policy.allows("volumes/persistentVolumeClaim")
    assert settings.policy.allows_conf("spark.hadoop.x")
    assert settings.policy.allowed_pull_secrets == ("pull", "pull-too", "default-dockercfg-*")
    assert settings.release == "cdc.capture"
    assert settings.network_policies
    assert settings.selector == "team in (lake, shop), shard!=two"
    assert settings.sample_limit == 20_000
    assert settings.policy.refused_source_networks == ("10.96.0.0/12",)
    assert settings.policy.least_restart_seconds == 20
    assert (settings.policy.allow_pod_template, settings.workers, settings.lease) == (False, 8, "cdc/capture")
    assert settings.tables_of_sync == 50


@pytest.mark.parametrize("refused", [None, ["10.0.0.0/8"], ["fd00::/8"], []])
def test_runs_get_the_egress_that_the_operator_has(refused: list[str] | None) -> None:
    egress = {"enabled": True, **({} if refused is None else {"refused": refused})}
    documents = rendered({"clusterWide": True, "networkPolicy": {"egress": egress}})
    (deployment,) = [d for d in documents if d["kind"] == "Deployment"]
    (policy,) = [d for d in documents if d["kind"] == "NetworkPolicy"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    settings = from_environment({e["name"]: e.get("value", "") for e in container["env"]})
    run = network_policy(resource(), "run", settings.refused_egress)
    assert run["spec"]["policyTypes"] == policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert run["spec"]["egress"] == policy["spec"]["egress"]


def test_egress_is_free_without_the_switch() -> None:
    for values in ({}, {"networkPolicy": {"enabled": False, "egress": {"enabled": True}}}):
        documents = rendered({"clusterWide": True, **values})
        (deployment,) = [d for d in documents if d["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        settings = from_environment({e["name"]: e.get("value", "") for e in container["env"]})
        assert settings.refused_egress is None
        assert not [d for d in documents if d["kind"] == "NetworkPolicy" and "Egress" in d["spec"]["policyTypes"]]


def test_values_of_an_earlier_release_render_as_before() -> None:
    """`helm upgrade --reuse-values` does not take the chart's new values."""
    for enabled in (True, False):
        values = {"networkPolicy": {"enabled": enabled, "egress": None}, "policy": {"allowedPullSecrets": None}}
        values |= dict.fromkeys(("podSecurityContext", "podDisruptionBudget", "rbac", "extraEnv"))
        values |= {"metrics": {"tables": None, "alerts": None, "dashboards": None}}
        expected = rendered({"clusterWide": True, "networkPolicy": {"enabled": enabled}})
        assert rendered({"clusterWide": True, **values}) == expected
    half = {"clusterWide": True, "networkPolicy": {"egress": {"enabled": True, "refused": None}}}
    result = helm("template", "cdcsync", str(CHART), values=half)
    assert "networkPolicy.egress.refused is missing" in result.stderr, "an egress that refuses nothing, unasked"


def test_the_tested_rights_are_given_and_secrets_are_listed_only() -> None:
    nodes, role = [d for d in rendered({"clusterWide": True}) if d["kind"] == "ClusterRole"]

    def rights(role: Any) -> set[tuple[str, str, str]]:
        rules = role["rules"]
        return {(g, r, v) for x in rules for g in x["apiGroups"] for r in x["resources"] for v in x["verbs"]}

    given = rights(role)
    assert rights(nodes) == set(OF_NODES)
    assert set(NEEDED) <= given
    assert {v for group, resource, v in given if (group, resource) == ("", "secrets")} == {"list", "create"}
    assert not any("*" in part for right in given for part in right)


def test_a_namespace_that_is_gone_fails_no_installation_and_no_upgrade(
    api: Api, namespace: str, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(api)))
    where = ("--kubeconfig", str(config), "--namespace", namespace)
    values = {"crds": {"enabled": False}, "watchNamespaces": [namespace, "gone"], "policy": {"admission": False}}
    for command in ("install", "upgrade"):
        result = helm(command, "cdcsync", str(CHART), *where, values=values)
        assert result.returncode == 0, result.stderr
        assert "The namespace gone does not exist" in result.stdout
    (deployment,) = api.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "CDCSYNC_NAMESPACES", "value": namespace} in container["env"]
    nowhere = helm("upgrade", "cdcsync", str(CHART), *where, values=values | {"watchNamespaces": ["gone"]})
    assert "none of the watchNamespaces exists: gone" in nowhere.stderr


def test_a_release_with_a_selector_has_nothing_in_a_tenants_namespace() -> None:
    """So that no namespace that has come or gone since makes a difference to a rollback."""
    documents = rendered({"namespaceSelector": "cdcsync=yes"})
    namespaces = {d["metadata"].get("namespace") for d in documents}
    assert namespaces == {None, "cdc"}, "the namespace of the release"
    cluster_wide = {d["kind"] for d in documents if "namespace" not in d["metadata"]}
    assert all(kind.startswith(("Cluster", "Validating", "CustomResource")) for kind in cluster_wide)


def test_the_notes_have_the_next_command_and_what_is_left_to_do(api: Api, namespace: str, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(api)))
    where = ("--kubeconfig", str(config), "--namespace", namespace, "--dry-run=server", "--output", "json")

    def notes(**values: Any) -> str:
        done = helm("install", "cdcsync", str(CHART), *where, values={"crds": {"enabled": False}, **values})
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["info"]["notes"])

    plain = notes(watchNamespaces=[namespace])
    assert f"kubectl -n {namespace} apply -f shop.yaml" in plain
    assert "the CRD has to be that of this version" in plain
    assert not [text for text in ("does not exist", "rbac.create") if text in plain]
    absent = f"{namespace}-absent"
    assert f"The namespace {absent} does not exist" in notes(watchNamespaces=[namespace, absent])
    assert "needs the Roles and bindings" in notes(watchNamespaces=[namespace], rbac={"create": False})


def test_the_operator_lists_nodes_where_anybody_may_have_a_sync() -> None:
    def lists(**values: Any) -> tuple[bool, bool]:
        documents = rendered(values)
        (deployment,) = [d for d in documents if d["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        settings = from_environment({e["name"]: e.get("value", "") for e in container["env"]})
        has_right = any(d["kind"] == "ClusterRole" and d["metadata"]["name"] == "cdc-cdcsync-nodes" for d in documents)
        assert has_right == (settings.refuse_nodes or settings.refuse_ranges)
        return settings.refuse_nodes, settings.refuse_ranges

    assert lists(clusterWide=True) == lists(namespaceSelector="cdcsync=yes") == (True, True)
    assert lists(watchNamespaces=["shop"]) == (False, False)
    assert lists(watchNamespaces=["shop"], policy={"refuseClusterNetworks": True}) == (False, True)
    lenient = {"refuseNodeAddresses": False, "refuseClusterNetworks": False}
    assert lists(clusterWide=True, policy=lenient) == (False, False)


def test_apply_refuses_the_addresses_of_nodes_pods_and_services_that_helm_finds(
    api: Api, namespace: str, tmp_path: Path
) -> None:
    config, name = tmp_path / "kubeconfig", f"node-of-{namespace}"
    config.write_text(json.dumps(kubeconfig(api)))
    services = [c for item in api.items("/apis/networking.k8s.io/v1/servicecidrs") for c in item["spec"]["cidrs"]]
    assert services

    def judged(**values: Any) -> str:
        where = ("--kubeconfig", str(config), "--namespace", namespace, "--dry-run=server", "--output", "json")
        done = helm("install", "cdcsync", str(CHART), *where, values={"crds": {"enabled": False}, **values})
        assert done.returncode == 0, done.stderr
        documents = [d for d in yaml.safe_load_all(json.loads(done.stdout)["manifest"]) if d]
        (policy,) = [
            d
            for d in documents
            if d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"].endswith("-syncs")
        ]
        return next(str(v["expression"]) for v in policy["spec"]["validations"] if "in a network that" in v["message"])

    about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDRs": ["10.8.1.0/24"]}}
    api.create("/api/v1/nodes", about)
    try:
        addresses = [{"type": "InternalIP", "address": "10.7.0.9"}, {"type": "Hostname", "address": "nine"}]
        api.merge(f"/api/v1/nodes/{name}/status", {"status": {"addresses": addresses}})
        for values in ({"clusterWide": True}, {"namespaceSelector": "cdcsync=yes"}):
            assert all(f"'{n}'" in judged(**values) for n in ("10.7.0.9", "10.8.1.0/24", *services))
        assert "10.7.0.9" not in judged(watchNamespaces=[namespace])
        lenient = judged(clusterWide=True, policy={"refuseNodeAddresses": False, "refuseClusterNetworks": False})
        assert not any(f"'{n}'" in lenient for n in ("10.7.0.9", "10.8.1.0/24", *services))
    finally:
        api.delete(f"/api/v1/nodes/{name}")


def test_a_release_is_upgraded_and_rolled_back_whatever_a_tenant_has(api: Api, namespace: str, tmp_path: Path) -> None:
    """In the tenant's namespace are a sync that the policies refuse, one that a finalizer keeps,
    and objects whose names and labels are those of runs; another namespace of his never goes."""
    config, tenant, stuck = tmp_path / "kubeconfig", f"{namespace}-tenant", f"{namespace}-stuck"
    config.write_text(json.dumps(kubeconfig(api)))
    for name in (tenant, stuck):
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    syncs = f"/apis/cdcsync.io/v1beta1/namespaces/{tenant}/cdcsyncs"
    spec = resource().spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for name, pod in (("refused", {"nodeName": "one"}), ("kept", {})):
        about = {"name": name, "finalizers": ["tenant.example/never"]}
        body = {"apiVersion": "cdcsync.io/v1beta1", "kind": "CdcSync", "metadata": about}
        api.create(syncs, body | {"spec": spec | {"driver": {"podTemplate": {"spec": pod}}}})
    api.delete(f"{syncs}/kept")
    labels = {"cdcsync.io/run": "x" * 63, "cdcsync.io/sync": "kept", "app.kubernetes.io/instance": "cdcsync"}
    for kind in ("ConfigMap", "Secret"):
        about = {"name": "cdcsync", "labels": labels, "finalizers": ["tenant.example/never"]}
        body = {"apiVersion": "v1", "kind": kind, "metadata": about}
        api.create(f"/api/v1/namespaces/{tenant}/{kind.lower()}s", body)
    where = ("--kubeconfig", str(config), "--namespace", namespace)
    watched = {"crds": {"enabled": False}, "watchNamespaces": [namespace, tenant, stuck]}

    def released(command: str, *more: str, values: dict[str, Any] | None = None) -> int:
        done = helm(command, "cdcsync", *more, *where, values=values)
        assert done.returncode == 0, done.stderr
        (deployment,) = api.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return int(next(e["value"] for e in container["env"] if e["name"] == "CDCSYNC_WORKERS"))

    try:
        assert released("install", str(CHART), values=watched | {"workers": 3}) == 3
        api.delete(f"/api/v1/namespaces/{stuck}")
        assert api.get(f"/api/v1/namespaces/{stuck}")["status"]["phase"] == "Terminating"
        api.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stuck}/rolebindings/cdcsync")
        assert released("upgrade", str(CHART), values=watched | {"workers": 5}) == 5
        assert released("upgrade", str(CHART), values=watched | {"workers": 7}) == 7
        assert released("rollback", "2") == 5
        assert [item["metadata"]["name"] for item in api.items(syncs)] == ["kept", "refused"]
    finally:
        helm("uninstall", "cdcsync", *where)


@pytest.mark.parametrize("name", [n for n in SWITCHES if n not in MONITORING])
def test_an_api_server_takes_it(api: Api, namespace: str, name: str) -> None:
    """Each object as it is, strictly, without being stored."""
    for document in rendered(SWITCHES[name]):
        if document["kind"] == "CustomResourceDefinition":
            continue
        group, _, version = document["apiVersion"].rpartition("/")
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        kind = document["kind"]
        plural = f"{kind.lower()}s".replace("policys", "policies")
        scope = "" if kind.startswith(("Cluster", "Validating")) else f"/namespaces/{namespace}"
        document["metadata"].pop("namespace", None)
        api.create(f"{base}{scope}/{plural}?dryRun=All&fieldValidation=Strict", document)
