"""The manifest means on a laptop what it means on a cluster, and nothing in it is accepted and
ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.resource.manifest import load_manifest, parse_resource, read_yaml
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.sinks.kind import Endpoint, StoreUse
from cdcsync_core.resource.spec import Tables, replica_id
from cdcsync_mysql.sessions.connection import source_from_spec
from cdcsync_mysql.sessions.source import snapshot_host_of

SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: shop-mysql, labels: {cdcsync.io/source: "true"}}
data: {username: Y2Rj}
stringData: {password: "s3cr3t:word"}
"""
SYNC = """
apiVersion: cdcsync.io/v1alpha1
kind: CdcSync
metadata: {name: shop}
spec:
  source: {host: mysql.shop.svc, credentialsSecretRef: {name: shop-mysql}}
  tables: {include: ['shop\\..*'], exclude: ['shop\\.tmp_.*']}
  sink: {type: delta, delta: {path: /tmp/lake}}
"""


def faults(*texts: str) -> str:
    with pytest.raises(PermanentError) as caught:
        load_manifest(texts)
    assert caught.value.reason is Reason.SPEC_INVALID
    return caught.value.message


def with_spec(extra: str) -> str:
    return SYNC + "".join(f"  {line}\n" for line in extra.splitlines())


def test_defaults_are_those_of_the_interface() -> None:
    manifest = load_manifest([SECRET, SYNC])
    spec = manifest.resource.spec
    assert manifest.resource.full_name == "default/shop"
    assert (spec.state, spec.source.port, spec.source.server_id, spec.source.heartbeat_interval) == (
        "running",
        3306,
        0,
        30.0,
    )
    assert (spec.snapshot.chunk_size, spec.snapshot.parallelism, spec.snapshot.max_split_seconds) == (50_000, 8, 60)
    assert (spec.snapshot.only, spec.start.from_) == (False, "snapshot")
    assert (spec.stream.interval, spec.stream.max_batch_bytes) == (1.0, 64 * 2**20)
    assert (spec.driver.cpu, spec.driver.memory, spec.executors.instances) == (None, None, "auto")
    assert (spec.auto_restart.enabled, spec.auto_restart.backoff.initial, spec.auto_restart.backoff.max) == (
        True,
        5.0,
        600.0,
    )
    assert (spec.auto_restart.max_restarts, spec.restart_nonce, spec.resnapshot) == (None, 0, ())
    assert (spec.schema_change.behavior, spec.on_position_lost, spec.image) == ("evolve", "fail", "")


@pytest.mark.parametrize(
    ("host", "mode"),
    [("127.0.0.1", "disabled"), ("localhost", "disabled"), ("::1", "disabled"), ("10.0.0.1", "required")],
)
def test_tls_is_required_unless_the_server_is_this_machine(host: str, mode: str) -> None:
    text = SYNC.replace("mysql.shop.svc", f"'{host}'")
    assert load_manifest([SECRET, text]).resource.spec.source.tls.mode == mode


@pytest.mark.parametrize(
    ("hosts", "mode"), [("['127.0.0.1', '127.0.0.2']", "disabled"), ("['127.0.0.1', db]", "required")]
)
def test_a_source_may_have_several_hosts(hosts: str, mode: str) -> None:
    """All of them are this machine, or TLS is required of each."""
    source = load_manifest([SECRET, SYNC.replace("host: mysql.shop.svc", f"hosts: {hosts}")]).resource.spec.source
    assert source.tls.mode == mode
    assert len(source.servers) == 2
    parsed = source_from_spec(source.following("mysql:a"), Path("/secrets"))
    assert (parsed.hosts, parsed.followed) == (source.servers, "mysql:a")
    assert parsed.tls.allow_unverified == (mode == "disabled")


@pytest.mark.parametrize(("replica", "mode"), [("'127.0.0.2'", "disabled"), ("replica", "required")])
def test_a_snapshot_may_be_read_on_a_replica(replica: str, mode: str) -> None:
    """It gets the account, too."""
    text = SYNC.replace("host: mysql.shop.svc", f"host: '127.0.0.1', snapshotHost: {replica}")
    source = load_manifest([SECRET, text]).resource.spec.source
    assert source.tls.mode == mode
    parsed = source_from_spec(source, Path("/secrets"))
    assert parsed.hosts == ("127.0.0.1",)
    assert parsed.tls.allow_unverified == (mode == "disabled")
    host = snapshot_host_of(source, parsed)
    assert host is not None
    assert host.hosts == (replica.strip("'"),)


@pytest.mark.parametrize(
    ("hosts", "needed"),
    [
        ("host: db, snapshotHost: db", "snapshotHost is a replica"),
        ("host: db, hosts: [db2]", "host, or hosts, one of both"),
        ("hosts: []", "host, or hosts, one of both"),
        ("hosts: [db, DB.]", "each host once"),
        ("hosts: 'db'", "spec.source.hosts"),
        ("hosts: ['d b']", "spec.source.hosts"),
    ],
)
def test_hosts_that_are_refused(hosts: str, needed: str) -> None:
    assert needed in faults(SECRET, SYNC.replace("host: mysql.shop.svc", hosts))


def test_a_written_resource_reads_back_equal() -> None:
    extra = (
        "restartNonce: 3\nautoRestart: {backoff: {initial: 500ms, max: 1m30s}, maxRestarts: 2}\nsnapshot: {only: true}"
    )
    resource = load_manifest([SECRET, with_spec(extra)]).resource
    again = parse_resource(resource.to_dict())
    assert again == resource
    assert resource.spec.auto_restart.backoff.initial == 0.5
    assert resource.spec.auto_restart.backoff.max == 90.0


def test_all_faults_at_once_with_path_found_and_needed() -> None:
    text = SYNC.replace("{host: mysql.shop.svc,", "{host: mysql.shop.svc, port: '3306',")
    text += (
        "  state: stopped\n  stream: {interval: 5 minutes}\n  snapshot: {rowsPerSecond: 5}\n  start: {from: Earliest}\n"
    )
    found = faults(SECRET, text)
    assert "spec.state is 'stopped'; needed: 'running' or 'paused'" in found
    assert "spec.source.port is '3306'; needed: a valid integer" in found
    assert "spec.stream.interval is '5 minutes'; needed: a duration" in found
    assert "spec.snapshot.rowsPerSecond is not known or not built yet; needed: one of chunkSize" in found
    assert "spec.start.from is 'Earliest'; needed: 'snapshot'" in found


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ("transforms: []", "spec.transforms"),
        ("routes: []", "spec.routes"),
        ("schemaChange: {behavior: ignore}", "spec.schemaChange.behavior"),
        ("schemaChange: {resnapshotMaxRows: -1}", "spec.schemaChange.resnapshotMaxRows"),
        ("onPositionLost: continue", "spec.onPositionLost"),
        ("resnapshot: [{nonce: 1}]", "spec.resnapshot"),
        ("resnapshot: [{table: shop.a, tables: x, nonce: 1}]", "spec.resnapshot"),
        ("resnapshot: [{tables: '(', nonce: 1}]", "spec.resnapshot"),
        ("resnapshot: [{tables: x, nonce: 1}, {tables: x, nonce: 2}]", "spec.resnapshot"),
        (f"resnapshot: [{', '.join(f'{{tables: x{i}, nonce: 1}}' for i in range(101))}]", "at most 100 patterns"),
        ("restartNonce: on", "spec.restartNonce"),
        ("image: 7", "spec.image"),
        ("stream: {maxBatchBytes: 64MiB}", "spec.stream.maxBatchBytes"),
        ("sparkConf: {spark.kubernetes.namespace: x}", "spec.sparkConf"),
        ("sparkConf: {spark.driver.extraJavaOptions: x}", "spec.sparkConf"),
        ("sparkConf: {spark.jars.packages: x}", "spec.sparkConf"),
        ("sparkConf: {spark.hadoop.fs.s3a.secret.key: x}", "spec.sparkConf"),
        ("resnapshot: [{table: shop.a, nonce: 1}, {table: shop.a, nonce: 2}]", "spec.resnapshot"),
        ("autoRestart: {backoff: {initial: 5m, max: 1m}}", "spec.autoRestart.backoff"),
        ("driver: {memory: 1Mi}", "spec.driver.memory"),
    ],
)
def test_what_is_not_built_or_out_of_bounds_is_refused_with_its_path(extra: str, path: str) -> None:
    assert f"{path}" in faults(SECRET, with_spec(extra))


def test_rows_are_not_delivered_early_to_replicas() -> None:
    assert "snapshot.delivery early with sink.delta.mode history" in faults(
        SECRET, with_spec("snapshot: {delivery: early}")
    )


@pytest.mark.parametrize(
    "sink",
    [
        "delta: {path: /tmp/lake, mode: history}",
        "kafka: {bootstrapServers: 'broker:9092', staging: {path: /tmp/staging}}",
    ],
)
def test_a_history_and_topics_may_be_delivered_early(sink: str) -> None:
    text = with_spec("snapshot: {delivery: early}").replace("{type: delta, delta: {path: /tmp/lake}}", f"{{{sink}}}")
    assert load_manifest([SECRET, text]).resource.spec.snapshot.delivery == "early"


@pytest.mark.parametrize("sink", ["{}", "{type: delta}", "{delta: null}"])
def test_a_sink_is_of_exactly_one_kind(sink: str) -> None:
    text = SYNC.replace("{type: delta, delta: {path: /tmp/lake}}", sink)
    assert "spec.sink is refused; needed: exactly one kind of sink: delta" in faults(SECRET, text)


@pytest.mark.parametrize(
    ("tls", "found"),
    [
        ("mode: disabled", "tls.mode is disabled; needed: tls.mode: verify-identity"),
        ("mode: required", "tls.mode required verifies no broker; needed: brokers that are verified"),
    ],
)
def test_a_password_without_tls_is_refused_with_what_to_write(tls: str, found: str) -> None:
    account = "sasl: {mechanism: PLAIN, credentialsSecretRef: {name: src}}"
    kafka = f"kafka: {{bootstrapServers: 'broker:9092', staging: {{path: /tmp/staging}}, tls: {{{tls}}}, {account}}}"
    text = SYNC.replace("{type: delta, delta: {path: /tmp/lake}}", f"{{{kafka}}}")
    expected = f"spec.sink.kafka: sasl.mechanism is PLAIN, which sends the password itself, and {found}"
    assert expected in faults(SECRET, text)


def test_a_kind_of_sink_that_is_not_known_is_refused_with_those_that_are() -> None:
    found = faults(SECRET, SYNC.replace("delta: {path: /tmp/lake}", "hudi: {path: /tmp/lake}"))
    assert "spec.sink.hudi is not known or not built yet; needed: one of type, delta" in found


def test_a_sink_answers_where_it_is_and_what_it_needs() -> None:
    folder = load_manifest([SECRET, SYNC]).resource.spec.sink.kind
    assert folder.stores() == (StoreUse("spec.sink.delta", "/tmp/lake"),)
    assert (folder.secrets(), folder.endpoints(), folder.stores()[0].is_folder) == ({}, (), True)
    section = {
        "path": "s3://b/x",
        "credentialsSecretRef": {"name": "k"},
        "options": {"endpoint": "http://h:9000", "region": "r"},
    }
    store = SinkSpec.model_validate({"delta": section}).kind
    assert store.stores() == (StoreUse("spec.sink.delta", "s3://b/x", "http://h:9000", "r", "k"),)
    assert (store.secrets(), store.stores()[0].is_folder) == ({"k": set()}, False)
    assert store.endpoints() == (Endpoint("spec.sink.delta.options.endpoint", "h"),)


@pytest.mark.parametrize("pattern", ["(", "a" * 257, "", "(?=x)x"])
def test_a_bad_pattern_is_refused_at_load(pattern: str) -> None:
    assert "spec.tables.include[0]" in faults(SECRET, SYNC.replace("shop\\..*", pattern))


def test_a_list_is_not_at_fault_for_its_items() -> None:
    assert faults(SECRET, SYNC.replace("shop\\..*", "(")).count("spec.tables.include") == 1


def test_patterns_match_in_full_and_exclude_wins() -> None:
    tables = load_manifest([SECRET, SYNC]).resource.spec.tables.selection
    assert tables.captures("shop.orders")
    assert not tables.captures("shop.tmp_1")
    assert not tables.captures("my_shop.orders")
    assert not tables.captures("shop.orders\nx")


@pytest.mark.parametrize("name", ["Shop", "a" * 41, "shop.eu", "-shop", "shop_1", ""])
def test_a_bad_name_is_refused(name: str) -> None:
    assert "metadata.name" in faults(SECRET, SYNC.replace("{name: shop}", f"{{name: '{name}'}}"))


def test_yaml_1_2_words_are_text() -> None:
    assert read_yaml("[on, off, yes, no, y, 2024-01-01, 1:30, 0o17, 0x1F, 017, ~, 1e3, .5, true]")[0] == [
        "on", "off", "yes", "no", "y", "2024-01-01", "1:30", 15, 31, 17, None, 1000.0, 0.5, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("!!int hunter2", "a value that is none of its tag at line 2, column 4"),
        ("!!int [1]", "expected a scalar node, but found sequence"),
        ("!!float hunter2", "a value that is none of its tag"),
        ("!!bool hunter2", "a value that is none of its tag"),
        ("!!map hunter2", "a value that is none of its tag"),
        ("!!seq hunter2", "expected a sequence node"),
        ("!!set hunter2", "a tag beyond the core schema"),
        ("!!timestamp hunter2", "a tag beyond the core schema"),
        ("9" * 5000, "a value that is none of its tag"),
        ("[" * 20_000, "nested too deeply"),
    ],
)
def test_a_value_that_is_none_of_its_tag_is_refused_at_its_place(text: str, fault: str) -> None:
    with pytest.raises(CdcError) as caught:
        read_yaml(f"a:\n   {text}\n")
    assert fault in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_repeated_key_is_refused() -> None:
    assert "a key for the second time at line 9" in faults(SECRET, SYNC + "  tables: {include: [a]}\n")


@pytest.mark.parametrize("state", ["{name: other}", "{name: shop-mysql, labels: {cdcsync.io/source: 'false'}}"])
def test_a_secret_that_is_missing_or_without_the_label_is_refused(state: str) -> None:
    text = SECRET.replace('{name: shop-mysql, labels: {cdcsync.io/source: "true"}}', state)
    assert "cdcsync.io/source" in faults(text, SYNC)


def test_a_missing_key_of_a_secret_is_named() -> None:
    assert "Secret shop-mysql: no key username" in faults(SECRET.replace("username", "user"), SYNC)


@pytest.mark.parametrize(
    "line",
    [
        "stringData: {password: *hunter2}",
        "stringData: {password: !hunter2}",
        "stringData: {password: @hunter2}",
        "stringData: {password: [hunter2]}",
        "stringData: {password: 'hunter2}",
        "data: {password: hunter2}",
        "passwords: hunter2",
    ],
)
def test_no_fault_shows_a_secret(line: str) -> None:
    text = SECRET.replace("data: {username: Y2Rj}\n", "").replace('stringData: {password: "s3cr3t:word"}', line)
    assert "hunter2" not in faults(text, SYNC)


def test_no_fault_shows_a_password_in_a_wrong_place() -> None:
    in_source = SYNC.replace("{host: mysql.shop.svc,", "{host: 'cdc:hunter2@mysql', password: hunter2,")
    in_path = SYNC.replace("/tmp/lake", "s3://key:hunter2@bucket/x")
    assert "hunter2" not in faults(SECRET, in_source)
    assert "hunter2" not in faults(SECRET, in_path)


def test_secret_values_are_in_no_repr() -> None:
    manifest = load_manifest([SECRET, SYNC])
    assert "s3cr3t" not in repr(manifest)
    assert manifest.secrets["shop-mysql"]["password"].get_secret_value() == "s3cr3t:word"
    assert manifest.secrets["shop-mysql"]["username"].get_secret_value() == "cdc"


@pytest.mark.parametrize(("texts", "expected"), [([], "0 documents"), ([SYNC, SYNC], "2 documents")])
def test_exactly_one_resource(texts: list[str], expected: str) -> None:
    assert expected in faults(SECRET, *texts)


def test_another_kind_is_refused() -> None:
    assert "kind ConfigMap" in faults(SECRET, SYNC, "{apiVersion: v1, kind: ConfigMap}")


def test_replica_ids_are_stable_and_in_range() -> None:
    ids = {replica_id("ns", f"sync-{i}") for i in range(1000)}
    assert len(ids) == 1000
    assert all(2**31 <= i < 2**32 for i in ids)
    assert replica_id("default", "shop") == replica_id("default", "shop")


def test_settings_of_a_table_are_those_of_its_name_and_of_this_spec() -> None:
    """Looked up by name; a copy with other entries has its own."""
    overrides = [{"table": f"shop.t{n}", "acceptUnloggedCascades": n % 2 == 0} for n in range(1000)]
    tables = Tables.model_validate({"include": ["shop\\..*"], "overrides": overrides})
    assert [tables.override(f"shop.t{n}").accept_unlogged_cascades for n in (0, 1, 998)] == [True, False, True]
    assert not tables.override("shop.other").accept_unlogged_cascades
    copy = tables.model_copy(update={"overrides": ()})
    assert not copy.override("shop.t0").accept_unlogged_cascades
    assert copy != tables
