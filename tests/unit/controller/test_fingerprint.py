"""What a change of each field does to what runs: the table of docs/operator.md, field by field.

A field that is added to the spec has no row here and fails the first test: it must be decided what
its change does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from cdcsync_core.resource.sinks.kind import SinkKind
from cdcsync_core.resource.spec import Spec
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.decision.runs.fingerprint import changed_fields, fingerprint
from unit.controller.harness import ControllerHarness, resource

NOTHING: frozenset[RunKind] = frozenset()
READERS = frozenset({RunKind.SNAPSHOT})
FLOWING = frozenset({RunKind.STREAM, RunKind.CATCH_UP})
COPYING = READERS | FLOWING
COMPARING = frozenset({RunKind.VERIFY})
ALL = COPYING | COMPARING

#: field -> a value that is not the one of `resource()`, and the kinds of runs that are started
#: again; None: it has one value only
CHANGES: dict[str, tuple[Any, frozenset[RunKind]] | None] = {
    "state": ("paused", NOTHING),
    "source.host": ("db", ALL),
    "source.hosts": (["a", "c"], ALL),
    "source.snapshotHost": ("127.0.0.2", READERS),
    "source.port": (3307, ALL),
    "source.credentialsSecretRef.name": ("other", ALL),
    "source.credentialsSecretRef.usernameKey": ("user", ALL),
    "source.credentialsSecretRef.passwordKey": ("word", ALL),
    "source.tls.mode": ("required", ALL),
    "source.tls.caSecretRef": ({"name": "ca"}, ALL),
    "source.tls.allowUnverified": (True, ALL),
    "source.tls.clientCertSecretRef": ({"name": "cert"}, ALL),
    "source.serverId": (7, FLOWING),
    "source.heartbeatInterval": ("5s", FLOWING),
    "source.lostTail": ("fail", NOTHING),
    "tables.include": ([r"shop\.a"], NOTHING),
    "tables.exclude": ([r"shop\.b"], NOTHING),
    "tables.newTables": ("ignore", NOTHING),
    "tables.invalidCharacters": ("replace", ALL),
    "tables.overrides": ([{"table": "shop.a", "columns": {"exclude": ["x"]}}], ALL),
    "snapshot.chunkSize": (10, READERS | COMPARING),
    "snapshot.parallelism": (3, READERS | COMPARING),
    "snapshot.maxSplitSeconds": (7, READERS | COMPARING),
    "snapshot.maxRowsPerSecond": (1000, READERS),
    "snapshot.maxBytesPerSecond": ("20Mi", READERS),
    "snapshot.maxLoad.threadsRunning": (40, READERS),
    "snapshot.maxLoad.historyListLength": (1000, READERS),
    "snapshot.maxLoad.replicaLag": ("30s", READERS),
    "snapshot.windows": ([{"cron": "0 2 * * *", "duration": "4h"}], NOTHING),
    "snapshot.only": (True, NOTHING),
    "snapshot.delivery": ("early", READERS),
    "start.from": ("latest", READERS),
    "start.file": None,
    "start.offset": None,
    "start.gtidSet": None,
    "start.timestamp": None,
    "stream.interval": ("5s", FLOWING),
    "stream.maxBatchBytes": ("1Mi", FLOWING),
    "stream.schedule": ({"cron": "0 2 * * *"}, frozenset({RunKind.STREAM})),
    "stream.driver.cpu": ("500m", FLOWING),
    "stream.driver.memory": ("512Mi", FLOWING),
    "sink.type": None,
    "sink.delta.path": ("/other", ALL),
    "sink.delta.credentialsSecretRef": ({"name": "lake"}, ALL),
    "sink.delta.options.endpoint": ("http://s3", ALL),
    "sink.delta.options.region": ("eu", ALL),
    "sink.delta.options.deletionVectors": (False, ALL),
    "sink.delta.mode": ("history", ALL),
    "sink.delta.historyColumns.op": ("change", ALL),
    "sink.delta.historyColumns.ts": ("at", ALL),
    "sink.delta.historyColumns.seq": ("n", ALL),
    "sink.delta.historyColumns.position": ("place", ALL),
    "sink.delta.historyColumns.gtid": ("gtid", ALL),
    "sink.kafka.bootstrapServers": ("h:1", ALL),
    "sink.kafka.tls.mode": ("required", ALL),
    "sink.kafka.tls.caSecretRef": ({"name": "ca"}, ALL),
    "sink.kafka.tls.clientCertSecretRef": ({"name": "pair"}, ALL),
    "sink.kafka.tls.allowUnverified": (True, ALL),
    "sink.kafka.sasl": ({"credentialsSecretRef": {"name": "account"}}, ALL),
    "sink.kafka.delivery": ("at-least-once", ALL),
    "sink.kafka.format": ("changelog-json", ALL),
    "sink.kafka.compatible": ("exact", ALL),
    "sink.kafka.schemaRegistry": None,
    "sink.kafka.topic": ("{database}.{table}", ALL),
    "sink.kafka.partitions": (2, ALL),
    "sink.kafka.replicationFactor": (2, ALL),
    "sink.kafka.topicConfig": ({"retention.ms": "1"}, ALL),
    "sink.kafka.producerConfig": ({"linger.ms": "1"}, ALL),
    "sink.kafka.staging.path": ("/other", ALL),
    "sink.kafka.staging.credentialsSecretRef": ({"name": "lake"}, ALL),
    "sink.kafka.staging.options.endpoint": ("http://s3", ALL),
    "sink.kafka.staging.options.region": ("eu", ALL),
    "sink.iceberg.catalog.type": None,
    "sink.iceberg.catalog.uri": ("https://other", ALL),
    "sink.iceberg.catalog.warehouse": ("other", ALL),
    "sink.iceberg.catalog.authentication": ("token", ALL),
    "sink.iceberg.catalog.credentialsSecretRef": ({"name": "account"}, ALL),
    "sink.iceberg.catalog.oauth2.serverUri": ("https://tokens", ALL),
    "sink.iceberg.catalog.oauth2.scope": ("all", ALL),
    "sink.iceberg.catalog.sigv4": ({"region": "eu-west-1"}, ALL),
    "sink.iceberg.catalog.tls": ({"caSecretRef": {"name": "ca"}}, ALL),
    "sink.iceberg.namespace": ("lake.shop", ALL),
    "sink.iceberg.formatVersion": (2, ALL),
    "sink.iceberg.mode": ("history", ALL),
    "sink.iceberg.historyColumns.op": ("change", ALL),
    "sink.iceberg.historyColumns.ts": ("at", ALL),
    "sink.iceberg.historyColumns.seq": ("n", ALL),
    "sink.iceberg.historyColumns.position": ("place", ALL),
    "sink.iceberg.historyColumns.gtid": ("gtid", ALL),
    "sink.iceberg.properties": ({"a": "b"}, ALL),
    "sink.iceberg.credentialsSecretRef": ({"name": "lake"}, ALL),
    "sink.iceberg.options.endpoint": ("http://s3", ALL),
    "sink.iceberg.options.region": ("eu", ALL),
    "sink.mysql.host": ("other", ALL),
    "sink.mysql.port": (7, ALL),
    "sink.mysql.tls.mode": ("required", ALL),
    "sink.mysql.tls.caSecretRef": ({"name": "ca"}, ALL),
    "sink.mysql.tls.clientCertSecretRef": ({"name": "pair"}, ALL),
    "sink.mysql.tls.allowUnverified": (True, ALL),
    "sink.mysql.credentialsSecretRef.name": ("account", ALL),
    "sink.mysql.credentialsSecretRef.usernameKey": ("user", ALL),
    "sink.mysql.credentialsSecretRef.passwordKey": ("word", ALL),
    "sink.mysql.database": ("other", ALL),
    "sink.mysql.stateDatabase": ("other", ALL),
    "sink.postgresql.host": ("other", ALL),
    "sink.postgresql.port": (7, ALL),
    "sink.postgresql.tls.mode": ("required", ALL),
    "sink.postgresql.tls.caSecretRef": ({"name": "ca"}, ALL),
    "sink.postgresql.tls.clientCertSecretRef": ({"name": "pair"}, ALL),
    "sink.postgresql.tls.allowUnverified": (True, ALL),
    "sink.postgresql.credentialsSecretRef.name": ("account", ALL),
    "sink.postgresql.credentialsSecretRef.usernameKey": ("user", ALL),
    "sink.postgresql.credentialsSecretRef.passwordKey": ("word", ALL),
    "sink.postgresql.database": ("other", ALL),
    "sink.postgresql.schema": ("other", ALL),
    "sink.postgresql.stateSchema": ("other", ALL),
    "schemaChange.behavior": ("fail", FLOWING),
    "schemaChange.droppedColumns": ("drop", FLOWING),
    "schemaChange.emptied": ("fail", FLOWING),
    "schemaChange.resnapshot": ("ask", NOTHING),
    "schemaChange.resnapshotMaxRows": (7, NOTHING),
    "onPositionLost": ("resnapshot", NOTHING),
    "driver.cpu": ("500m", ALL),
    "driver.memory": ("4Gi", ALL),
    "driver.serviceAccountName": ("cloud", ALL),
    "driver.podTemplate": ({"metadata": {"labels": {"a": "b"}}}, ALL),
    "executors.instances": (2, READERS),
    "executors.max": (2, READERS),
    "executors.cores": (2, READERS),
    "executors.memory": ("4Gi", READERS),
    "executors.podTemplate": ({"metadata": {"labels": {"a": "b"}}}, READERS),
    "sparkConf": ({"spark.x": "y"}, COPYING),
    "image": ("other:1", ALL),
    "autoRestart.enabled": (False, NOTHING),
    "autoRestart.backoff.initial": ("7s", NOTHING),
    "autoRestart.backoff.max": ("700s", NOTHING),
    "autoRestart.maxRestarts": (3, NOTHING),
    "restartNonce": (1, ALL),
    "resnapshot": ([{"table": "shop.a", "nonce": 1}], NOTHING),
    "verify.nonce": (1, COMPARING),
    "verify.tables": ([r"shop\.a"], COMPARING),
}  # fmt: skip


def test_every_field_is_in_the_table() -> None:
    assert set(CHANGES) == set(_fields(Spec))


@pytest.mark.parametrize("field", [f for f, change in CHANGES.items() if change])
def test_a_change_starts_those_runs_again_that_depend_on_it(field: str) -> None:
    change = CHANGES[field]
    assert change
    value, kinds = change
    before, after = _base(field), _changed(field, value)
    assert before != after
    assert {k for k in RunKind if fingerprint(before, k) != fingerprint(after, k)} == kinds


@pytest.mark.parametrize("field", [f for f, change in CHANGES.items() if change])
def test_a_fingerprint_names_the_field_that_changed(field: str) -> None:
    change = CHANGES[field]
    assert change
    value, kinds = change
    before, after = _base(field), _changed(field, value)
    for kind in kinds:
        found = changed_fields(fingerprint(before, kind), fingerprint(after, kind))
        assert len(found) >= 1
        assert all(f == field or f.startswith(f"{field}.") for f in found), found


def test_a_run_of_an_older_version_is_not_replaced_for_a_field_that_it_did_not_know() -> None:
    """A field that has its default is in no fingerprint."""
    spec = resource().spec
    assert "restartNonce" not in fingerprint(spec, RunKind.STREAM)
    assert fingerprint(spec, RunKind.STREAM) == fingerprint(_changed("restartNonce", 0), RunKind.STREAM)


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [
        ({"resnapshot": "ask", "resnapshotMaxRows": 7}, NOTHING),
        ({"behavior": "fail"}, FLOWING),
        ({"droppedColumns": "drop"}, FLOWING),
    ],
)
def test_the_policy_of_one_table_starts_those_runs_again_that_read_it(
    policy: dict[str, Any], kinds: frozenset[RunKind]
) -> None:
    before = resource().spec
    after = _changed("tables.overrides", [{"table": "shop.a", "schemaChange": policy}])
    assert {k for k in RunKind if fingerprint(before, k) != fingerprint(after, k)} == kinds
    assert after.schema_change_of("shop.a") != before.schema_change_of("shop.a")
    assert after.schema_change_of("shop.b") == before.schema_change_of("shop.b")


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://other.example"},
        {"tls": {"caSecretRef": {"name": "ca"}}},
        {"tls": {"caSecretRef": {"name": "authority", "key": "ca.pem"}}},
        {"credentialsSecretRef": {"name": "account"}},
    ],
)
def test_a_change_of_the_schema_registry_starts_all_runs_again(change: dict[str, Any]) -> None:
    """The format that it goes with is another row's."""
    registry = {"url": "https://registry.example", "tls": {"caSecretRef": {"name": "authority"}}}
    before, after = (_avro(r) for r in (registry, registry | change))
    for kind in RunKind:
        found = changed_fields(fingerprint(before, kind), fingerprint(after, kind))
        assert bool(found) == (kind in ALL)
        assert all(f.startswith("sink.kafka.schemaRegistry") for f in found), found


def _avro(registry: dict[str, Any]) -> Spec:
    base = {"bootstrapServers": "broker:9092", "staging": {"path": "/staging"}}
    return resource(sink={"kafka": base | {"format": "debezium-avro", "schemaRegistry": registry}}).spec


def test_executors_of_a_snapshot_to_come_do_not_stop_the_stream() -> None:
    harness = ControllerHarness()
    harness.to_streaming()
    first = harness.live(RunKind.STREAM)
    harness.change(executors={"instances": 9}, snapshot={"chunkSize": 7})
    harness.steps()
    assert harness.live(RunKind.STREAM) == first
    assert harness.status.observed_generation == 2


def _base(field: str) -> Spec:
    """`resource()`, with the kind of sink that has the field."""
    if field == "snapshot.delivery":
        return resource(sink={"delta": {"path": "/lake", "mode": "history"}}).spec
    if field == "source.hosts":
        return resource(source={"hosts": ["a", "b"], "credentialsSecretRef": {"name": "login"}}).spec
    if field.startswith("sink.iceberg."):
        signed = {"authentication": "sigv4", "credentialsSecretRef": {"name": "a"}, "sigv4": {"region": "eu-central-1"}}
        catalog = {"uri": "https://catalog"} | (signed if "sigv4" in field else {})
        return resource(sink={"iceberg": {"catalog": catalog}}).spec
    if field.startswith(("sink.mysql.", "sink.postgresql.")):
        server = {"host": "serving", "credentialsSecretRef": {"name": "serving"}}
        kind = field.split(".")[1]
        return resource(sink={kind: server | ({"database": "serving"} if kind == "postgresql" else {})}).spec
    if not field.startswith("sink.kafka."):
        return resource().spec
    return resource(sink={"kafka": {"bootstrapServers": "broker:9092", "staging": {"path": "/staging"}}}).spec


def _changed(field: str, value: Any) -> Spec:
    """`_base` with one field set; parents are filled in as a manifest would have them."""
    base = _base(field).model_dump(by_alias=True, mode="json", exclude_unset=True)
    *parents, last = field.split(".")
    part = base
    for name in parents:
        part = part.setdefault(name, {})
    part[last] = value
    return resource(**base).spec


def _fields(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Leaves by their public path; what may be missing as a whole is a leaf, but for a kind of
    sink."""
    for name, info in model.model_fields.items():
        path = f"{above}{info.alias or name}"
        kinds = [a for a in get_args(info.annotation) if isinstance(a, type) and issubclass(a, SinkKind)]
        section = kinds[0] if kinds else info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from _fields(section, f"{path}.")
        else:
            yield path
