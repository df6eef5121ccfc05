"""Every rule of the CRD, met by a manifest that breaks it, on a real API server: what it refuses
and in which words."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.resource.manifest import parse_resource
from cdcsync_kube.client import Api, ApiError, Object
from support.apiserver import NODE, kubeconfig, minor_version

CRD = Path(__file__).resolve().parents[2] / "crds" / "cdcsync.yaml"
SHOP: Object = {
    "apiVersion": "cdcsync.io/v1alpha1",
    "kind": "CdcSync",
    "metadata": {"name": "shop"},
    "spec": {
        "source": {"host": "mysql.shop.svc", "credentialsSecretRef": {"name": "shop-mysql"}},
        "tables": {"include": [r"shop\..*"]},
        "sink": {"delta": {"path": "s3://lake/cdc"}},
    },
}


NIGHTLY = {"schedule": {"cron": "0 2 * * *"}}
#: a login that sends the password
PLAIN = {"mechanism": "PLAIN", "credentialsSecretRef": {"name": "account"}}
UNSAFE = {"url": "http://localhost", "tls": {"caSecretRef": {"name": "authority"}}}
OPEN = {"url": "http://r", "credentialsSecretRef": {"name": "registry"}}


def kafka(**more: Any) -> Object:
    """A sink of topics."""
    return {"kafka": {"bootstrapServers": "broker:9092", "staging": {"path": "s3://lake/staging"}, **more}}


def iceberg(uri: str = "https://catalog", namespace: str = "", properties: Any = None, **catalog: Any) -> Object:
    """A sink of a catalog's tables."""
    return {"iceberg": {"catalog": {"uri": uri, **catalog}, "namespace": namespace, "properties": properties or {}}}


def iceberg_history(columns: Object) -> Object:
    return {"iceberg": {**iceberg()["iceberg"], "mode": "history", "historyColumns": columns}}


def database(kind: str, **section: Any) -> Object:
    """A sink of tables of a SQL database."""
    return {kind: {"host": "serving", "credentialsSecretRef": {"name": "a"}, **section}}


#: a catalog that is a file, an authority, an account
METASTORE = {"type": "hive", "uri": "thrift://metastore.example:9083", "warehouse": "s3://lake/tables"}
FILE = {"type": "jdbc", "uri": "jdbc:sqlite:/lake/catalog.db", "warehouse": "/lake"}
TLS = {"tls": {"caSecretRef": {"name": "ca"}}}
ACCOUNT = {"credentialsSecretRef": {"name": "a"}}
SIGNED = {"authentication": "sigv4", "sigv4": {"region": "eu-central-1"}}
OPENLY = "sink.iceberg.catalog.uri and oauth2.serverUri are https"
#: path, value, and what the refusal has
BROKEN = [
    ("metadata.name", "s" * 41, "metadata.name has at most 40 characters"),
    ("metadata.name", "shop.orders", "metadata.name has no dot"),
    ("spec.source.tls", {"mode": "verify-ca"}, "tls.caSecretRef is needed where tls.mode is"),
    ("spec.source.tls", {"mode": "verify-identity", "caSecretRef": {}}, "tls.caSecretRef is needed where tls.mode is"),
    ("spec.source.tls", {"caSecretRef": {"name": "ca"}, "allowUnverified": True}, "tls.allowUnverified and tls.caSecretRef contradict"),
    ("spec.source.tls", {"caSecretRef": {"key": "ca"}}, "caSecretRef.name is needed where caSecretRef.key is given"),
    ("spec.source.hosts", ["db", "db2"], "source.host or source.hosts is needed, one of both"),
    ("spec.source", {"credentialsSecretRef": {"name": "a"}, "hosts": []}, "source.host or source.hosts is needed"),
    ("spec.source", {"credentialsSecretRef": {"name": "a"}, "hosts": ["db", "DB"]}, "source.hosts has each host once"),
    ("spec.source.heartbeatInterval", "11m", "heartbeatInterval is between 1s and 10m"),
    ("spec.source.heartbeatInterval", 0, "heartbeatInterval is between 1s and 10m"),
    ("spec.snapshot", {"windows": [{"cron": "0 2 * * *", "duration": "30s"}]}, "duration is between 1m and 168h"),
    ("spec.snapshot", {"windows": [{"cron": "@daily", "duration": "4h"}]}, "should match"),
    ("spec.snapshot", {"windows": [{"cron": "0 2 * * *"}]}, "duration: Required value"),
    ("spec.snapshot", {"maxRowsPerSecond": 99}, "greater than or equal to 100"),
    ("spec.snapshot", {"maxBytesPerSecond": "63Ki"}, "maxBytesPerSecond is between 64Ki and 1Ti"),
    ("spec.snapshot", {"maxLoad": {"replicaLag": "900ms"}}, "replicaLag is between 1s and 24h"),
    ("spec.stream", {"interval": "50ms"}, "interval is between 100ms and 1h"),
    ("spec.stream", {"maxBatchBytes": "1Ki"}, "maxBatchBytes is between 4Ki and 16Gi"),
    ("spec.stream", {"schedule": {"cron": "@daily"}}, "should match"),
    ("spec.stream", {"schedule": {"cron": "0 2 * *"}}, "should match"),
    ("spec.stream", {"schedule": {"cron": "0 0 2 * * *"}}, "should match"),
    ("spec.stream", {"schedule": {"cron": "0 2 * * *", "timeZone": "../UTC"}}, "should match"),
    ("spec", SHOP["spec"] | {"snapshot": {"only": True}, "stream": NIGHTLY}, "stream.schedule and snapshot.only contradict"),
    ("spec", SHOP["spec"] | {"snapshot": {"delivery": "early"}}, "snapshot.delivery early needs"),
    ("spec", SHOP["spec"] | {"snapshot": {"only": True}, "start": {"from": "latest"}}, "snapshot.only needs start.from snapshot"),
    ("spec.start", {"from": "position", "file": "binlog.000001"}, "file and offset belong to start.from position"),
    ("spec.start", {"gtidSet": "0-1-1"}, "gtidSet to gtid"),
    ("spec.start", {"from": "timestamp"}, "timestamp to timestamp"),
    ("spec.start", {"from": "timestamp", "timestamp": "yesterday"}, "should match"),
    ("spec.driver", {"memory": "100Mi"}, "memory is between 512Mi and 16Ti"),
    ("spec.driver", {"cpu": "5m"}, "cpu is between 10m and 256"),
    ("spec.driver", {"cpu": "1.2345"}, "should match"),
    ("spec.stream", {"driver": {"memory": "100Mi"}}, "memory is between 512Mi and 16Ti"),
    ("spec.stream", {"driver": {"cpu": 300}}, "cpu is between 10m and 256"),
    ("spec.executors", {"instances": "some"}, "instances is auto, or between 1 and 10000"),
    ("spec.executors", {"instances": 0}, "instances is auto, or between 1 and 10000"),
    ("spec.executors", {"memory": 1024}, "memory is between 512Mi and 16Ti"),
    ("spec.tables.include", ["shop\\.(a"], "not a regular expression in RE2 syntax"),
    ("spec.tables", {"include": ["a"], "exclude": ["(?=a)"]}, "not a regular expression in RE2 syntax"),
    ("spec.sink", {}, "sink has exactly one kind of sink"),
    ("spec.sink", {"type": "delta"}, "sink has exactly one kind of sink"),
    ("spec.sink.delta.path", "s3://key:word@lake/cdc", "sink.delta.path holds no credentials"),
    ("spec.sink.delta", {"path": "s3://a/b", "mode": "history", "options": {"deletionVectors": False}}, "sink.delta.mode history needs"),
    ("spec.sink.delta.historyColumns", {"op": "Change", "ts": "change"}, "historyColumns are different names"),
    ("spec.sink", {**database("mysql"), "type": "postgresql"}, "sink.type names the field that is given"),
    ("spec.sink", database("postgresql"), "sink.postgresql.database: Required value"),
    ("spec.sink", database("mysql", database="a b"), "should match"),
    ("spec.sink", {**iceberg(), "type": "delta"}, "sink.type names the field that is given"),
    ("spec.sink", {**iceberg(), "delta": {"path": "s3://a/b"}}, "sink has exactly one kind of sink"),
    ("spec.sink", iceberg(type="jdbc"), "sink.iceberg.catalog.type jdbc goes with a uri like"),
    ("spec.sink", iceberg("jdbc:sqlite:/c.db", warehouse="/lake"), "sink.iceberg.catalog.type jdbc goes with a uri like"),
    ("spec.sink", iceberg(**FILE | {"warehouse": "lake"}), "sink.iceberg.catalog.warehouse is needed"),
    ("spec.sink", iceberg(**FILE, **TLS), "sink.iceberg.catalog.tls goes with the types rest, hive and glue"),
    ("spec.sink", iceberg(**METASTORE | {"warehouse": ""}), "sink.iceberg.catalog.warehouse is needed"),
    ("spec.sink", iceberg(**METASTORE, **ACCOUNT), "sink.iceberg.catalog.credentialsSecretRef goes with the types rest"),
    ("spec.sink", iceberg(type="hive", warehouse="/lake"), "hive with thrift://host:9083"),
    ("spec.sink", iceberg("http://catalog", **TLS), "sink.iceberg.catalog.uri is https where sink.iceberg.catalog.tls is given"),
    ("spec.sink", iceberg("http://catalog", **ACCOUNT), OPENLY),
    ("spec.sink", iceberg(**ACCOUNT, oauth2={"serverUri": "http://t"}), OPENLY),
    ("spec.sink", iceberg(type="nessie"), "supported values:"),
    ("spec.sink", iceberg(type="glue", warehouse="s3://lake"), "sink.iceberg.catalog.authentication is sigv4 where"),
    ("spec.sink", iceberg(**SIGNED, **ACCOUNT, type="glue"), "sink.iceberg.catalog.warehouse is needed"),
    ("spec.sink", iceberg(authentication="basic"), "supported values:"),
    ("spec.sink", iceberg(authentication="sigv4", **ACCOUNT), "sink.iceberg.catalog.sigv4 and credentialsSecretRef are needed"),
    ("spec.sink", iceberg(**SIGNED), "sink.iceberg.catalog.sigv4 and credentialsSecretRef are needed"),
    ("spec.sink", iceberg(**SIGNED | {"authentication": "token"}, **ACCOUNT), "sigv4 goes with that alone"),
    ("spec.sink", iceberg(namespace="a..b"), "should match"),
    ("spec.sink", iceberg(properties={"cdcsync.state": "x"}), "sink.iceberg.properties has a property that the sink sets itself"),
    ("spec.sink", iceberg(properties={"write.location-provider.impl": "x.Y"}), "sink.iceberg.properties has a property"),
    ("spec.sink", {"iceberg": {"catalog": {"uri": "https://c"}, "formatVersion": 1}}, "supported values:"),
    ("spec.sink", iceberg(r"https://evil\@good"), "should match"),
    ("spec.sink", iceberg(oauth2={"serverUri": "https://evil%2egood"}), "should match"),
    ("spec.sink", kafka(format="debezium-avro", schemaRegistry={"url": "https://ⓔvil"}), "should match"),
    ("spec.sink", {"delta": {"path": "s3://a/b", "options": {"endpoint": "https://good@evil"}}}, "should match"),
    ("spec.sink", {"delta": {"path": "s3://a/b", "options": {"region": "eu.evil/"}}}, "should match"),
    ("spec.sink", {"iceberg": {"catalog": {"uri": "https://c"}, "mode": "scd2"}}, "supported values:"),
    ("spec.sink", iceberg_history({"op": "Change", "ts": "change"}), "historyColumns are different names"),
    ("spec.sink", {**kafka(), "delta": {"path": "s3://a/b"}}, "sink has exactly one kind of sink"),
    ("spec.sink", {**kafka(), "type": "delta"}, "sink.type names the field that is given"),
    ("spec.sink", kafka(topic="all"), "sink.kafka.topic has {database} and {table}"),
    ("spec.sink", kafka(producerConfig={"ssl.key.password": "x"}), "sink.kafka.producerConfig has another key"),
    ("spec.sink", kafka(staging={"path": "s3://key:word@lake/x"}), "sink.kafka.staging.path holds no credentials"),
    ("spec.sink", kafka(tls={"caSecretRef": {"key": "ca"}}), "caSecretRef.name is needed where caSecretRef.key is given"),
    ("spec.sink", kafka(tls={"caSecretRef": {"name": "c"}, "allowUnverified": True}), "tls.allowUnverified and tls.caSecretRef contradict"),
    ("spec.sink", kafka(sasl=PLAIN, tls={"mode": "disabled"}), "sink.kafka.sasl.mechanism PLAIN sends the password itself"),
    ("spec.sink", kafka(sasl=PLAIN, tls={"mode": "required"}), "sink.kafka.sasl.mechanism PLAIN sends the password itself"),
    ("spec.sink", kafka(sasl={**PLAIN, "mechanism": "GSSAPI"}), "supported values:"),
    ("spec.sink", kafka(format="canal-json", compatible="exact"), "sink.kafka.compatible exact goes with the format debezium-json"),
    ("spec.sink", kafka(format="debezium-avro"), "sink.kafka.schemaRegistry goes with the format debezium-avro"),
    ("spec.sink", kafka(schemaRegistry={"url": "https://r"}), "sink.kafka.schemaRegistry goes with the format debezium-avro"),
    ("spec.sink", kafka(format="debezium-avro", schemaRegistry={"url": "ftp://r"}), "schemaRegistry.url"),
    ("spec.sink", kafka(format="debezium-avro", schemaRegistry=OPEN), "sink.kafka.schemaRegistry.url is https"),
    ("spec.sink", kafka(format="debezium-avro", schemaRegistry=UNSAFE), "is https where sink.kafka.schemaRegistry.tls is given"),
    ("spec.sink", kafka(format="debezium-avro", schemaRegistry={"url": "https://r", "tls": {}}), "caSecretRef"),
    ("spec.sink", kafka(delivery="at-most-once"), "supported values:"),
    ("spec.sink.delta.mode", "scd2", 'supported values: "replica", "history"'),
    ("spec.resnapshot", [{"nonce": 1}], "an entry of resnapshot has table"),
    ("spec.resnapshot", [{"tables": f"a.{i}", "nonce": 1} for i in range(101)], "at most 100 patterns"),
    ("spec.verify", {"nonce": 1, "tables": [f"a.{i}" for i in range(101)]}, "must have at most 100 items"),
    ("spec.resnapshot", [{"table": "a.b", "tables": ".*", "nonce": 1}], "an entry of resnapshot has table"),
    ("spec.sparkConf", {"hadoop.x": "1"}, "sparkConf has keys that begin with spark."),
    ("spec.sparkConf", {"spark.kubernetes.namespace": "x"}, "sparkConf may not set spark.kubernetes.*"),
    ("spec.sparkConf", {"spark.driver.extraJavaOptions": "x"}, "sparkConf may not set spark.kubernetes.*"),
    ("spec.sparkConf", {"spark.jars.packages": "x"}, "sparkConf may not set spark.kubernetes.*"),
    ("spec.sparkConf", {"spark.plugins": "x"}, "sparkConf may not set spark.kubernetes.*"),
    ("spec.autoRestart", {"backoff": {"initial": "5m", "max": 60}}, "autoRestart.backoff.max is at least"),
    ("spec.autoRestart", {"backoff": {"initial": "1ms"}}, "initial is between 100ms and 1h"),
    ("spec.autoRestart", {"backoff": {"max": "25h"}}, "max is between 100ms and 24h"),
    # no rule, but the schema itself
    ("spec.state", "stopped", 'supported values: "running", "paused"'),
    ("spec.tables", {"include": ["a"], "newTables": "take"}, 'supported values: "capture", "ignore"'),
    ("spec.tables", {"include": ["a"], "invalidCharacters": "drop"}, 'supported values: "fail", "replace"'),
    ("spec.snapshot", {"rowsPerSecond": 5}, "unknown field"),
    ("spec.tables.overrides", [{"table": "a.b"}, {"table": "a.b"}], "Duplicate value"),
    ("spec.stream.interval", "5 minutes", "should match"),
]  # fmt: skip
#: what is changed from the first value to the second, and what the refusal has
FROZEN = [
    ("spec.sink.delta.path", "s3://lake/cdc", "s3://lake/other", "sink.delta.path cannot be changed"),
    ("spec.sink.delta.mode", "replica", "history", "sink.delta.mode cannot be changed"),
    ("spec.sink.delta.historyColumns", {}, {"op": "change"}, "sink.delta.historyColumns cannot be changed"),
    ("spec.sink", {"delta": {"path": "s3://lake/cdc"}}, {"delta": None}, "sink has exactly one kind of sink"),
    ("spec.sink", database("mysql"), database("mysql", database="other"), "sink.mysql.database cannot be changed"),
    (
        "spec.sink",
        database("mysql"),
        database("mysql", stateDatabase="b"),
        "sink.mysql.stateDatabase cannot be changed",
    ),
    (
        "spec.sink",
        database("postgresql", database="a"),
        database("postgresql", database="b"),
        "sink.postgresql.database cannot be changed",
    ),
    (
        "spec.sink",
        database("postgresql", database="a"),
        database("postgresql", database="a", schema="b"),
        "sink.postgresql.schema cannot be changed",
    ),
    (
        "spec.sink",
        database("postgresql", database="a"),
        database("postgresql", database="a", stateSchema="b"),
        "sink.postgresql.stateSchema cannot be changed",
    ),
    ("spec.sink", iceberg(), iceberg(namespace="other"), "sink.iceberg.namespace cannot be changed"),
    (
        "spec.sink",
        iceberg(),
        {"iceberg": {**iceberg()["iceberg"], "mode": "history"}},
        "sink.iceberg.mode cannot be changed",
    ),
    (
        "spec.sink",
        iceberg(),
        {"iceberg": {**iceberg()["iceberg"], "historyColumns": {"op": "c"}}},
        "sink.iceberg.historyColumns cannot be changed",
    ),
    ("spec.sink", iceberg(), iceberg(warehouse="other"), "sink.iceberg.catalog.warehouse cannot be changed"),
    ("spec.sink", iceberg(warehouse="/lake"), iceberg(**FILE), "sink.iceberg.catalog.type cannot be changed"),
    ("spec.sink", kafka(), kafka(format="changelog-json"), "sink.kafka.format cannot be changed"),
    ("spec.sink", kafka(), kafka(compatible="exact"), "sink.kafka.compatible cannot be changed"),
    ("spec.sink", kafka(), kafka(topic="b.{database}.{table}"), "sink.kafka.topic cannot be changed"),
    ("spec.resnapshot", [{"table": "a.b", "nonce": 2}], [{"table": "a.b", "nonce": 1}], "resnapshot nonces only grow"),
]


def changed(path: str, value: Any) -> Object:
    document = copy.deepcopy(SHOP)
    *parents, last = path.split(".")
    node = document
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    return document


def path_of(namespace: str, name: str = "") -> str:
    return f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs" + (f"/{name}" if name else "")


@pytest.mark.parametrize(("path", "value", "expected"), BROKEN, ids=[f"{p}={str(v)[:30]}" for p, v, _ in BROKEN])
def test_a_broken_manifest_is_refused_in_words(api: Api, namespace: str, path: str, value: Any, expected: str) -> None:
    with pytest.raises(ApiError) as caught:
        api.create(path_of(namespace) + "?fieldValidation=Strict", changed(path, value))
    assert caught.value.status in (400, 422)
    assert expected in caught.value.message


@pytest.mark.parametrize(("path", "before", "after", "expected"), FROZEN, ids=[f[0] for f in FROZEN])
def test_what_cannot_be_changed_is_refused_in_words(
    api: Api, namespace: str, path: str, before: Any, after: Any, expected: str
) -> None:
    api.create(path_of(namespace), changed(path, before))
    with pytest.raises(ApiError) as caught:
        api.merge(path_of(namespace, "shop"), {"spec": changed(path, after)["spec"]})
    assert expected in caught.value.message


def test_every_rule_is_broken_by_a_test() -> None:
    def messages(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (rule["message"] for rule in node.get("x-kubernetes-validations", []))
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from messages(child)

    expected = [s for *_, s in BROKEN] + [s for *_, s in FROZEN]
    untested = [m for m in messages(yaml.safe_load(CRD.read_text())) if not any(m.startswith(s) for s in expected)]
    assert untested == []


def test_what_the_server_stores_is_what_the_controller_reads(api: Api, namespace: str) -> None:
    """Defaults filled in by the server and by the model are the same."""
    stored = api.create(path_of(namespace), SHOP)
    assert stored["status"] == {"observedGeneration": -1}
    assert parse_resource(stored).spec == parse_resource(SHOP).spec


def of_version(version: str, namespace: str, name: str = "") -> str:
    return path_of(namespace, name).replace("/v1alpha1/", f"/{version}/")


@pytest.mark.parametrize(("written", "read"), [("v1alpha1", "v1beta1"), ("v1beta1", "v1alpha1")])
def test_each_version_reads_what_the_other_one_wrote(api: Api, namespace: str, written: str, read: str) -> None:
    created = api.create(of_version(written, namespace), SHOP | {"apiVersion": f"cdcsync.io/{written}"})
    answer = api.get(of_version(read, namespace, "shop"))
    assert (created["apiVersion"], answer["apiVersion"]) == (f"cdcsync.io/{written}", f"cdcsync.io/{read}")
    assert answer["spec"] == created["spec"]
    assert parse_resource(answer).spec == parse_resource(created).spec
    answer["status"] = {"observedGeneration": 1, "phase": "Streaming"}
    api.replace(f"{of_version(read, namespace, 'shop')}/status", answer)
    assert api.get(of_version(written, namespace, "shop"))["status"] == answer["status"]


def test_the_newer_version_has_the_same_rules(api: Api, namespace: str) -> None:
    """Checks a rule of new objects and one of changes, whichever version wrote the object."""
    path, value, expected = BROKEN[0]
    with pytest.raises(ApiError) as caught:
        api.create(of_version("v1beta1", namespace), changed(path, value) | {"apiVersion": "cdcsync.io/v1beta1"})
    assert expected in caught.value.message
    path, before, after, expected = FROZEN[0]
    api.create(path_of(namespace), changed(path, before))
    with pytest.raises(ApiError) as caught:
        api.merge(of_version("v1beta1", namespace, "shop"), {"spec": changed(path, after)["spec"]})
    assert expected in caught.value.message


def test_the_crd_is_applied_by_the_server(api: Api, tmp_path: Path) -> None:
    """An apply of the client would keep a copy of it in an annotation, which is too long."""
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(api)))

    def apply(*options: str) -> subprocess.CompletedProcess[str]:
        command = [str(NODE), "kubectl", "--kubeconfig", str(config), "apply", "-f", str(CRD), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "metadata.annotations: Too long" in apply().stderr
    assert apply("--server-side", "--force-conflicts").returncode == 0
    crd = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cdcsyncs.cdcsync.io")
    assert [v["name"] for v in crd["spec"]["versions"]] == ["v1alpha1", "v1beta1"]
    assert crd["status"]["storedVersions"] == ["v1alpha1"]


def test_the_wide_list_shows_where_the_tables_go(api: Api, namespace: str) -> None:
    """Whatever kind of sink the resource has."""
    api.create(path_of(namespace), SHOP)
    table = api._call("GET", path_of(namespace), {}, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    columns = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    assert dict(zip(columns, row["cells"], strict=True))["Sink"] == "s3://lake/cdc"


def test_the_examples_are_accepted(api: Api, namespace: str) -> None:
    """The API server's answer is the assertion: unknown fields are errors, too."""
    created = 0
    for path in sorted((CRD.parents[1] / "examples").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] == "CdcSync":
                version = document["apiVersion"].partition("/")[2]
                api.create(of_version(version, namespace) + "?fieldValidation=Strict", document)
                created += 1
    assert created >= 2


def test_the_charts_example_is_accepted(api: Api, namespace: str) -> None:
    """Artifact Hub shows it beside the kind's description."""
    annotations = yaml.safe_load((CRD.parents[1] / "helm" / "cdcsync" / "Chart.yaml").read_text())["annotations"]
    (crd,) = yaml.safe_load(annotations["artifacthub.io/crds"])
    (example,) = yaml.safe_load(annotations["artifacthub.io/crdsExamples"])
    assert f"{crd['name']}/{crd['version']}" == f"cdcsyncs.{example['apiVersion']}"
    api.create(of_version(crd["version"], namespace) + "?fieldValidation=Strict", example)


def test_every_field_of_a_pod_template_is_one_of_kubernetes(api: Api) -> None:
    """Compares each field and its type with the API server's own description of a
    PodTemplateSpec."""
    known = api.get("/openapi/v3/api/v1")["components"]["schemas"]
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    def reference(node: Object) -> Object:
        name = (node.get("allOf") or [node])[0].get("$ref")
        return known[name.rpartition("/")[2]] if name else node

    def differences(path: str, ours: Object, theirs: Object) -> Iterator[str]:
        theirs = reference(theirs)
        if "x-kubernetes-int-or-string" in ours:
            if theirs.get("format") != "int-or-string" and "oneOf" not in theirs:
                yield f"{path}: {theirs}"
        elif ours["type"] != theirs.get("type"):
            yield f"{path}: {theirs.get('type')}"
        for name, field in ours.get("properties", {}).items():
            if name not in theirs["properties"]:
                yield f"{path}.{name}"
            else:
                yield from differences(f"{path}.{name}", field, theirs["properties"][name])
        for part in ("items", "additionalProperties"):
            if part in ours:
                yield from differences(f"{path}[]", ours[part], theirs[part])

    for part in ("driver", "executors"):
        template = spec[part]["properties"]["podTemplate"]
        others = list(differences(part, template, known["io.k8s.api.core.v1.PodTemplateSpec"]))
        if minor_version(api) < 34:  # the first version that has it
            others = [path for path in others if not path.endswith(".valueFrom.fileKeyRef")]
        assert others == []


def nested(depth: int) -> Object:
    inner: Object = {}
    for _ in range(depth):
        inner = {"nodeAffinity": inner}
    return inner


def test_what_a_pod_template_does_not_have_is_refused_by_apply_and_else_not_kept(api: Api, namespace: str) -> None:
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs"
    resource = copy.deepcopy(SHOP)
    resource["spec"]["driver"] = {"podTemplate": {"spec": {"affinity": nested(800), "hostNetwork": True}}}
    with pytest.raises(ApiError, match="unknown field"):
        api.create(f"{path}?fieldValidation=Strict", resource)
    stored = api.create(path, resource)["spec"]["driver"]["podTemplate"]
    assert stored == {"spec": {"affinity": {"nodeAffinity": {}}}}


def test_a_pod_template_has_bounds(api: Api, namespace: str) -> None:
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs"
    resource = copy.deepcopy(SHOP)
    variables = [{"name": f"V{n}", "value": "x"} for n in range(65)]
    resource["spec"]["executors"] = {"podTemplate": {"spec": {"containers": [{"name": "e", "env": variables}]}}}
    with pytest.raises(ApiError, match="must have at most 64 items"):
        api.create(path, resource)
