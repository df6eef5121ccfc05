"""Iceberg tables by a REST catalog, Iceberg's own: whole lives of a table, answers that are lost,
and what is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Commit, Upsert
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, NewTable
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4
from cdcsync_spark.sinks.iceberg.replica.commit import EXPIRED_TOGETHER, VersionPublication
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.iceberg.table import expiry
from cdcsync_spark.sinks.iceberg.table.expiry import MOST_AGE
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from contract import crashing, stepping
from contract.sinkcase import (
    ORDERS,
    SYNC,
    Model,
    Row,
    batch,
    content,
    first_state,
    in_order,
    keys_of,
    make_table,
    rows_of,
    stamp,
    whole_snapshot,
)
from support.folder_catalog import LocalStores
from support.iceberg_catalog import IcebergCatalog
from support.signature import AccessKey, SigningServer
from support.waiting import eventually

CHANGE = Upsert(rows_of(ORDERS, [(1, "changed"), (9, "new")]), keys_of(ORDERS, [(2,)]))
FIRST: list[Row] = [(1, "a"), (2, "b"), (3, "c")]
CHANGED: list[Row] = [(1, "changed"), (3, "c"), (9, "new")]


@pytest.fixture
def catalog(iceberg_catalog: IcebergCatalog) -> RestCatalog:
    return RestCatalog(RestSettings(iceberg_catalog.uri, seconds=120))


@pytest.fixture
def sink(catalog: RestCatalog) -> IcebergSink:
    """In a namespace of its own."""
    return IcebergSink(catalog, LocalStores(), SYNC, (f"n{uuid.uuid4().hex}",))


def name_of(sink: IcebergSink) -> CatalogTableName:
    return CatalogTableName(sink.namespace, "orders")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("program", [crashing, stepping], ids=["rows", "steps"])
def test_whole_lives_of_a_table(sink: IcebergSink, program: ModuleType, version: int) -> None:
    """Waves, batches, a resnapshot by a branch, changes of the schema; and a second run after."""
    sink = replace(sink, format_version=version)
    for epoch in (1, 2):
        program.run(sink, epoch)
        assert content(sink.target(ORDERS.id)) == in_order(program.EXPECTED)
    loaded = PyIcebergCatalog("rest", uri=uri_of(sink)).load_table((*sink.namespace, "orders"))
    assert loaded.format_version == version
    rows = loaded.scan().to_arrow().to_pydict().values()
    assert in_order(zip(*rows, strict=True)) == in_order(program.EXPECTED)


def uri_of(sink: IcebergSink) -> str:
    assert isinstance(sink.catalog, RestCatalog)
    return sink.catalog.settings.uri


@pytest.mark.parametrize("version", [2, 3])
def test_no_table_is_upgraded(sink: IcebergSink, version: int) -> None:
    """What another version made is refused until the manifest says the same."""
    ours, other = (replace(sink, format_version=n).target(ORDERS.id) for n in (version, 5 - version))
    before = whole_snapshot(ours, FIRST)
    uses = (lambda: other.prepare(first_state()), other.last_commit, lambda: other.commit(2, batch(1, CHANGE)))
    for use in uses:
        with pytest.raises(PermanentError, match=f"has the format version {version}") as refused:
            use()
        assert f"set spec.sink.iceberg.formatVersion to {version}" in refused.value.message
    assert metadata_of(sink)["format-version"] == version
    assert ours.commit(1, batch(1, CHANGE)).commit_number == before.commit_number + 1
    assert content(ours) == CHANGED


def test_a_table_that_another_program_upgraded_goes_on_where_it_has_no_files_of_positions(
    sink: IcebergSink, tmp_path: Path
) -> None:
    """Its rows have no ids yet. Where rows were deleted, Spark has to rewrite the files first."""
    older, model = replace(sink, format_version=2).target(ORDERS.id), Model(ORDERS, {(n,): (n, "a") for n in range(9)})
    whole_snapshot(older, model.rows.values())
    sink.catalog.commit(name_of(sink), [], [{"action": "upgrade-format-version", "format-version": 3}])
    newer = replace(sink, policy=MaintenancePolicy(gathered_files=2, smallest_class_bytes=2**20)).target(ORDERS.id)
    with closing(newer.writer(tmp_path)) as writer:
        for number in range(1, 4):
            writer.commit(1, batch(number, model.apply([(number, "c"), (number + 20, "new")], [(number + 3,)])))
            assert content(newer) == model.content
        assert "compact" in list(iter(writer.maintain, ""))
    assert content(newer) == model.content
    rows = PyIcebergCatalog("rest", uri=uri_of(sink)).load_table((*sink.namespace, "orders")).scan().to_arrow()
    assert in_order(zip(*rows.to_pydict().values(), strict=True)) == model.content
    sink = replace(sink, namespace=(*sink.namespace, "deleted"))
    older = replace(sink, format_version=2).target(ORDERS.id)
    whole_snapshot(older, FIRST)
    older.commit(1, batch(1, CHANGE))
    sink.catalog.commit(name_of(sink), [], [{"action": "upgrade-format-version", "format-version": 3}])
    with pytest.raises(
        PermanentError, match=r"is of another kind.*let Spark rewrite the table's data files"
    ) as refused:
        sink.target(ORDERS.id).last_commit()
    assert refused.value.reason is Reason.SINK_CONFLICT


@pytest.mark.parametrize("landed", [False, True])
def test_a_lost_answer_is_decided_by_the_table(
    sink: IcebergSink, iceberg_catalog: IcebergCatalog, landed: bool
) -> None:
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, FIRST)
    iceberg_catalog.fault("after" if landed else "before")
    if landed:
        assert target.commit(1, batch(1, CHANGE)).commit_number == before.commit_number + 1
        assert content(target) == CHANGED
    else:
        with pytest.raises(
            CdcError, match=r"not confirmed, .*it answered 503: .*the request was not carried out"
        ) as lost:
            target.commit(1, batch(1, CHANGE))
        assert lost.value.reason is Reason.SINK_UNREACHABLE
        assert content(target) == FIRST
    assert target.commit(1, batch(1, CHANGE)).commit_number == before.commit_number + 1
    assert content(target) == CHANGED


def metadata_of(sink: IcebergSink) -> Any:
    loaded = sink.catalog.load(name_of(sink))
    assert loaded is not None
    return loaded.metadata


@pytest.mark.parametrize("raced", [False, True])
def test_a_commit_that_is_refused_as_invalid_is_a_lost_race_where_the_table_has_changed(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch, raced: bool
) -> None:
    """A catalog may answer so to a snapshot whose sequence number another branch's first commit
    took: no requirement could name that branch. Here the update is one that no table takes."""
    target, answers = sink.target(ORDERS.id), [[INVALID]]
    before = whole_snapshot(target, FIRST)
    monkeypatch.setattr(VersionPublication, "_expiry_updates", lambda _: answers.pop() if answers else [])

    def build(found: TableState) -> Commit | None:
        if raced and answers:
            sink.catalog.commit(name_of(sink), [], [{"action": "set-properties", "updates": {"theirs": "1"}}])
        return batch(1, CHANGE)(found)

    if raced:
        assert target.commit(1, build).commit_number == before.commit_number + 1
        assert content(target) == CHANGED
        assert metadata_of(sink)["properties"]["theirs"] == "1"
    else:
        with pytest.raises(PermanentError, match="it answered 400") as refused:
            target.commit(1, build)
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert target.last_commit() == before


INVALID = {"action": "set-snapshot-ref", "ref-name": "other", "type": "branch", "snapshot-id": 999}


def set_tag(sink: IcebergSink, snapshot: int) -> None:
    """As another program does it, to which the catalog confirms it."""
    update = {"action": "set-snapshot-ref", "ref-name": "theirs", "type": "tag", "snapshot-id": snapshot}
    sink.catalog.commit(name_of(sink), [], [update])


@pytest.fixture
def expiring(sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """The writer of a table of which snapshots expire with the next commit; a tag of another
    program is at the oldest one."""
    monkeypatch.setattr(expiry, "NEWEST", 1)
    target = replace(sink, properties=((MOST_AGE, "0"),)).target(ORDERS.id)
    whole_snapshot(target, FIRST)
    set_tag(sink, metadata_of(sink)["current-snapshot-id"])
    writer: Writer = target.writer(tmp_path)
    for _ in range(EXPIRED_TOGETHER + 1):
        writer.commit(1, stamp())
    return writer


def test_a_tag_that_is_set_before_snapshots_expire_keeps_its_own(sink: IcebergSink, expiring: Writer) -> None:
    """Iceberg's REST handlers remove a tag together with its snapshot, and no requirement names a
    tag that no reader has seen yet. So those of the table are asked for just before."""
    before = metadata_of(sink)["snapshots"]

    def build(found: TableState) -> Commit | None:
        set_tag(sink, before[1]["snapshot-id"])
        return stamp()(found)

    expiring.commit(1, build)
    assert metadata_of(sink)["refs"]["theirs"]["snapshot-id"] == before[1]["snapshot-id"]
    assert len(metadata_of(sink)["snapshots"]) == 3, "the others have expired"


def test_a_tag_that_is_moved_while_snapshots_expire_keeps_its_own(
    sink: IcebergSink, iceberg_catalog: IcebergCatalog, expiring: Writer
) -> None:
    before = metadata_of(sink)["snapshots"]
    iceberg_catalog.fault("hold")
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(expiring.commit, 1, stamp())
        eventually(iceberg_catalog.holds)
        set_tag(sink, before[1]["snapshot-id"])
        iceberg_catalog.fault("release")
        committed.result()
    assert metadata_of(sink)["refs"]["theirs"]["snapshot-id"] == before[1]["snapshot-id"]
    assert len(metadata_of(sink)["snapshots"]) == 3, "the others have expired"


def test_a_table_that_was_taken_back_is_refused(sink: IcebergSink) -> None:
    """Any program may have done it, here by the catalog's protocol."""
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    before = metadata_of(sink)
    target.commit(1, batch(1, CHANGE))
    after = metadata_of(sink)
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
    sink.catalog.commit(name_of(sink), [], [{**back, "snapshot-id": before["current-snapshot-id"]}])
    for use in (target.last_commit, lambda: target.commit(1, batch(2, CHANGE)), target.open_snapshot):
        with pytest.raises(PermanentError, match="the branch main is not as our commit 2") as stopped:
            use()
        assert stopped.value.reason is Reason.SINK_CONFLICT
    sink.catalog.commit(name_of(sink), [], [{**back, "snapshot-id": after["current-snapshot-id"]}])
    assert content(target) == CHANGED


def test_what_is_no_table_of_ours_is_refused(sink: IcebergSink) -> None:
    target, state = sink.target(ORDERS.id), first_state()
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
    sink.catalog.create(name_of(sink), NewTable(schema, 3, {}))
    with pytest.raises(PermanentError, match="another program's table"):
        target.prepare(state)
    sink.catalog.drop(name_of(sink))
    for version in (1, 2):
        sink.catalog.create(name_of(sink), NewTable(schema, version, {}))
        with pytest.raises(PermanentError, match=f"format version {version}"):
            target.prepare(state)
        sink.catalog.drop(name_of(sink))
    assert target.prepare(state) == state


def test_a_partitioned_table_is_refused(sink: IcebergSink) -> None:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    spec = {"spec-id": 1, "fields": [{"name": "p", "transform": "identity", "source-id": 2, "field-id": 1000}]}
    updates = [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": 1}]
    sink.catalog.commit(name_of(sink), [], updates)
    for use in (lambda: target.commit(1, batch(1, CHANGE)), target.open_snapshot):
        with pytest.raises(PermanentError, match="the table was partitioned"):
            use()


def test_a_run_with_a_lower_epoch_loses_on_a_copy_too(sink: IcebergSink) -> None:
    """Main and its copy are branches of one table, which other programs see."""
    target, copy = sink.target(ORDERS.id), sink.target(ORDERS.id, generation=1)
    whole_snapshot(target, FIRST)
    assert copy.prepare(first_state(nonce=1, epoch=2)) == first_state(nonce=1, epoch=2)
    assert set(metadata_of(sink)["refs"]) == {"main", "cdcsync-resnapshot-1"}
    with pytest.raises(PermanentError, match="superseded by epoch 2"):
        copy.commit(1, lambda found: pytest.fail(f"asked with {found}"))
    assert target.commit(1, batch(1, CHANGE)).epoch == 1
    sink.discard(ORDERS.id, 1)
    assert set(metadata_of(sink)["refs"]) == {"main"}
    assert not [name for name in metadata_of(sink)["properties"] if name.startswith("cdcsync.state.")]
    assert content(target) == CHANGED


def test_a_column_that_is_renamed_while_a_copy_is_made_is_none_of_the_copys(
    sink: IcebergSink, iceberg_catalog: IcebergCatalog
) -> None:
    """The other program's schema takes the number that ours was to have, and no field id."""
    wider = make_table({"id": "bigint(20)", "note": "varchar(20)", "more": "int(11)"}, ["id"])
    target, copy = sink.target(ORDERS.id), sink.target(ORDERS.id, generation=1)
    whole_snapshot(target, FIRST)
    (schema,) = metadata_of(sink)["schemas"]
    renamed = [field | ({"name": "renamed"} if field["name"] == "note" else {}) for field in schema["fields"]]
    iceberg_catalog.fault("hold")
    with ThreadPoolExecutor(1) as pool:
        preparation = pool.submit(copy.prepare, first_state(wider, nonce=1))
        eventually(iceberg_catalog.holds)
        updates = [
            {"action": "add-schema", "schema": {**schema, "schema-id": 1, "fields": renamed}},
            {"action": "set-current-schema", "schema-id": -1},
        ]
        sink.catalog.commit(name_of(sink), [], updates)
        iceberg_catalog.fault("release")
        preparation.result()
    metadata = metadata_of(sink)
    number = metadata["refs"]["cdcsync-resnapshot-1"]["snapshot-id"]
    (snapshot,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == number)
    (its,) = (s for s in metadata["schemas"] if s["schema-id"] == snapshot["schema-id"])
    assert [field["name"] for field in its["fields"]] == ["id", "note", "more"]


KEY = AccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1", "s3tables")


@pytest.fixture
def signing(iceberg_catalog: IcebergCatalog) -> Iterator[SigningServer]:
    """Lets no request pass to the catalog that is not signed as it should be."""
    with SigningServer(iceberg_catalog.uri, KEY) as server:
        yield server


def signed_sink(server: SigningServer, folder: Path, key: AccessKey) -> IcebergSink:
    (folder / "username").write_text(key.id)
    (folder / "password").write_text(key.secret)
    login = SigV4(folder / "username", folder / "password", key.region, key.service)
    catalog = RestCatalog(RestSettings(server.uri, login=login, seconds=120))
    return IcebergSink(catalog, LocalStores(), SYNC, (f"n{uuid.uuid4().hex}", "eu"))


def test_requests_to_aws_are_signed_through_a_whole_life_and_a_lost_answer(
    signing: SigningServer, iceberg_catalog: IcebergCatalog, tmp_path: Path
) -> None:
    sink = signed_sink(signing, tmp_path, KEY)
    for epoch in (1, 2):
        stepping.run(sink, epoch)
        assert content(sink.target(ORDERS.id)) == in_order(stepping.EXPECTED)
    target = replace(sink, namespace=("lost",)).target(ORDERS.id)
    before = whole_snapshot(target, FIRST)
    iceberg_catalog.fault("after")
    assert target.commit(1, batch(1, CHANGE)).commit_number == before.commit_number + 1
    assert content(target) == CHANGED
    assert (signing.passed > 20, signing.faults) == (True, [])


def test_a_wrong_key_is_named(signing: SigningServer, tmp_path: Path) -> None:
    sink = signed_sink(signing, tmp_path, replace(KEY, secret="another"))
    with pytest.raises(PermanentError, match="it answered 403") as refused:
        whole_snapshot(sink.target(ORDERS.id), FIRST)
    assert refused.value.reason is Reason.PRIVILEGE_MISSING
    assert "correct the access key in the Secret" in refused.value.message
    assert KEY.id not in refused.value.message
    assert set(signing.faults) == {"no match"}
