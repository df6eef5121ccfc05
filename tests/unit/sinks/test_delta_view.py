"""A table as its Delta log has it, and the statistics of a file whose rows are deleted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdcsync_spark.sinks.delta.replica.maintenance import retention
from cdcsync_spark.sinks.delta.table.features import (
    deletion_vectors_unavailable,
    protocol_for,
    unsupported_reason,
    upgrade,
)
from cdcsync_spark.sinks.delta.table.log import TornFile, digest_of, head, parsing
from cdcsync_spark.sinks.delta.table.statistics import loosened
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor, z85
from cdcsync_spark.sinks.delta.table.view import Action, DeltaFile, TableView, entry_text
from cdcsync_spark.sinks.lake.compaction import next_compaction
from cdcsync_spark.sinks.lake.policy import POLICY
from contract.sinkcase import ORDERS, first_state

UUID = z85(bytes(16))
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def vector(offset: int, rows: int = 1) -> Descriptor:
    return Descriptor("u", f"_vectors{UUID}", offset, 36, rows)


def file(path: str, rows: int = 10, size: int = 1000, deleted: int = 0) -> DeltaFile:
    add = {"path": path, "size": size, "partitionValues": {}, "stats": json.dumps({"numRecords": rows})}
    return DeltaFile(add | ({"deletionVector": vector(1, deleted).to_dict()} if deleted else {}))


def view_of(*entries: list[Action]) -> TableView:
    view = TableView()
    for version, actions in enumerate(entries):
        view.entry(version, entry_text(actions))
    return view


def add(live: DeltaFile) -> Action:
    return {"add": dict(live.add)}


def test_a_file_with_other_deletions_is_another_file() -> None:
    """The Delta protocol, "Action Reconciliation": a `remove` takes back the `add` with its own
    vector only."""
    plain, first, second = file("a"), file("a").with_vector(vector(1), 10, data_change=True), vector(9, 2)
    view = view_of([add(plain)], [plain.removed(5, data_change=True), add(first)])
    assert view.files["a"].vector == vector(1)
    view.entry(2, entry_text([plain.removed(6, data_change=True)]))
    assert view.files["a"].vector == vector(1)
    view.entry(
        3, entry_text([add(first.with_vector(second, 10, data_change=True)), first.removed(7, data_change=True)])
    )
    assert view.files["a"].vector == second
    view.entry(4, entry_text([view.files["a"].removed(8, data_change=True)]))
    assert view.files == {}
    assert sorted(view.dead(before=9)) == sorted(["a", vector(1).path])
    assert view.dead(before=8) == []


def test_an_own_entry_applied_as_it_was_made_is_the_entry_as_it_is_read() -> None:
    """R4: what a writer keeps between its commits is what a fresh opening finds."""
    state = first_state(ORDERS)
    plain, now = file("a"), 5
    marked = plain.with_vector(vector(1), 10, data_change=True)
    entries = [
        [*head(state, "CREATE TABLE", now), protocol_for(SCHEMA, vectors=True), add(plain), add(file("b", 3))],
        [
            *head(replace(state, commit_number=1), "MERGE", now),
            plain.removed(now, data_change=True),
            add(marked),
            add(file("c")),
        ],
        [*head(replace(state, commit_number=2), "OPTIMIZE", now), marked.removed(now, data_change=False)],
    ]
    read, made = view_of(*entries), TableView()
    for version, actions in enumerate(entries):
        made.apply(version, actions, replace(state, commit_number=version), digest_of(entry_text(actions).encode()))
    assert (made, made.state, made.digest) == (read, replace(state, commit_number=2), read.digest)


def test_a_file_is_dead_only_when_no_live_vector_lies_in_it() -> None:
    """Vectors of one commit share a file: it is needed until the last of them is gone."""
    one, two = (file(p).with_vector(vector(o), 10, data_change=True) for p, o in (("a", 1), ("b", 50)))
    view = view_of([add(one), add(two)], [one.removed(5, data_change=True)])
    assert view.dead(before=100) == ["a"]
    view.entry(2, entry_text([two.removed(60, data_change=True)]))
    assert view.dead(before=50) == ["a"]
    assert sorted(view.dead(before=61)) == sorted(["a", "b", vector(1).path])


def test_statistics_keep_their_digits_and_say_that_they_may_be_wide() -> None:
    stats = '{"numRecords":3,"minValues":{"d":123456789012345678901234.567},"nullCount":{"d":0}}'
    wide = loosened(stats, 3)
    assert '"d":123456789012345678901234.567' in wide
    assert json.loads(wide)["tightBounds"] is False
    assert loosened(wide, 3) == wide
    assert json.loads(loosened("", 7)) == {"numRecords": 7, "tightBounds": False}


def table(properties: dict[str, str] | None = None, features: list[str] | None = None) -> TableView:
    protocol = protocol_for(SCHEMA, vectors=True)["protocol"]
    metadata = {"schemaString": SCHEMA, "partitionColumns": [], "configuration": properties or {}}
    return TableView(
        protocol={**protocol, "writerFeatures": protocol["writerFeatures"] + (features or [])}, metadata=metadata
    )


def test_what_we_do_not_know_is_not_ours_to_write() -> None:
    assert unsupported_reason(table()) == deletion_vectors_unavailable(table()) == ""
    assert "rowTracking" in unsupported_reason(table(features=["rowTracking"]))
    assert "enableChangeDataFeed" in unsupported_reason(table({"delta.enableChangeDataFeed": "true"}))
    assert "CHECK" in unsupported_reason(table({"delta.constraints.x": "id > 0"}, ["checkConstraints"]))
    assert "enableDeletionVectors" in deletion_vectors_unavailable(table({"delta.enableDeletionVectors": "false"}))
    ruled = SCHEMA.replace('"metadata":{}', '"metadata":{"delta.generationExpression":"1"}')
    view = table()
    view.metadata = {**view.metadata, "schemaString": ruled}
    assert "'id'" in unsupported_reason(view)


def test_an_upgrade_adds_and_takes_nothing_away() -> None:
    old = TableView(protocol={"minReaderVersion": 1, "minWriterVersion": 2}, metadata=table().metadata)
    protocol, metadata = upgrade(old, SCHEMA, {"delta.enableDeletionVectors": "true"}, vectors=True)
    assert protocol["protocol"]["writerFeatures"] == ["appendOnly", "deletionVectors", "invariants"]
    assert protocol["protocol"]["readerFeatures"] == ["deletionVectors"]
    assert metadata["metaData"]["configuration"] == {"delta.enableDeletionVectors": "true"}
    assert upgrade(table(), SCHEMA, {}, vectors=True) == []


def named(files: list[DeltaFile]) -> dict[str, DeltaFile]:
    return {file.log_path: file for file in files}


def test_small_files_of_one_class_are_gathered_and_emptied_ones_peeled() -> None:
    small = [file(f"s{n}") for n in range(POLICY.gathered_files)]
    assert next_compaction(named(small[:-1]), POLICY) is None
    move = next_compaction(named(small), POLICY)
    assert move is not None
    assert move.names == tuple(f.log_path for f in small)
    full, emptied = file("full", 100, 2**21, 24), file("emptied", 100, 2**21, 25)
    move = next_compaction(named([full, emptied]), POLICY)
    assert move is not None
    assert move.names == ("emptied",)
    huge = next_compaction(named([file("huge", 10**8, 2**33, 5 * 10**7)]), POLICY)
    assert huge is not None
    assert 1 <= huge.rows <= POLICY.most_rows


@pytest.mark.parametrize("rows", [POLICY.most_rows + 1, POLICY.most_rows * 2 // 3])
def test_files_of_many_narrow_rows_hold_up_none_of_their_class(rows: int) -> None:
    """An older one came first each time, and no other file went with it."""
    narrow = [file(f"narrow{n}", rows) for n in range(POLICY.gathered_files)]
    small = [file(f"s{n}") for n in range(POLICY.gathered_files)]
    move = next_compaction(named([*narrow, *small]), POLICY)
    assert move is not None
    assert move.names == tuple(f.log_path for f in small)
    assert next_compaction(named(narrow), POLICY) is None


def test_intervals_of_properties() -> None:
    for text, expected in {
        "interval 0 seconds": 0,
        "interval 2 hours": 7_200_000,
        "1 week": 604_800_000,
        "soon": None,
    }.items():
        assert retention({"delta.deletedFileRetentionDuration": text}) == expected
    assert retention({}) == 7 * 86_400_000


@pytest.mark.parametrize(
    "action",
    [
        {"add": {"path": 5, "size": 1}},
        {"add": {"path": "a", "size": "x"}},
        {"add": {"path": "a", "size": float("inf")}},
        {"add": {"path": "a", "size": 1, "deletionVector": {"storageType": "u"}}},
        {"add": {"path": "a", "size": 1, "deletionVector": vector(1).to_dict() | {"sizeInBytes": "4"}}},
        {"add": {"path": "a", "size": 1, "deletionVector": vector(1).to_dict() | {"pathOrInlineDv": "ü" * 20}}},
        {"remove": {"path": "a", "deletionTimestamp": float("inf")}},
        {"metaData": {"schemaString": "{"}},
        {"metaData": {"schemaString": SCHEMA, "configuration": [1]}},
        {"metaData": {"schemaString": SCHEMA, "partitionColumns": 5}},
        {"add": {"path": "a", "size": 1, "stats": "{"}},
    ],
)
def test_an_entry_that_is_no_deltas_is_a_torn_file(action: Action) -> None:
    with pytest.raises(TornFile):
        _use(entry_text([action]))


def test_an_entry_without_bottom_is_a_torn_file() -> None:
    with pytest.raises(TornFile):
        _use('{"add":' + "[" * 50_000)


def _use(text: str) -> None:
    view = TableView()
    with parsing("entry"):
        view.entry(0, text)
    _ = [live.rows for live in view.files.values()]


_ABSURD = [10**30, -1, 1e400, "x", None, [7]]


@pytest.mark.parametrize("size", _ABSURD)
def test_a_size_that_no_file_has_stops_the_table(size: object) -> None:
    add = {"path": "x.parquet", "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    with pytest.raises(TornFile), parsing("x.json"):
        TableView().entry(0, json.dumps({"add": add}))


@pytest.mark.parametrize("count", [10**30, -1, "[" * 100_000])
def test_a_count_that_no_file_has_stops_the_table(count: object) -> None:
    stats = count if isinstance(count, str) else json.dumps({"numRecords": count})
    with pytest.raises(TornFile):
        _ = DeltaFile({"path": "x.parquet", "size": 1, "stats": stats}).rows


@pytest.mark.parametrize("stats", ["[" * 100_000, "[]", "nonsense", '{"minValues":{"d":1e999999999}}'])
def test_statistics_that_cannot_be_loosened_stop_the_table(stats: str) -> None:
    """An exponent would be written as a gigabyte of digits."""
    with pytest.raises(TornFile):
        DeltaFile({"path": "x.parquet", "size": 1, "stats": stats}).with_vector(vector(1), 10, data_change=True)


@pytest.mark.parametrize("when", [10**30, -1, 1e400, "x"])
def test_a_time_that_never_is_stops_the_table(when: object) -> None:
    with pytest.raises(TornFile), parsing("x.json"):
        TableView().entry(0, json.dumps({"remove": {"path": "x", "deletionTimestamp": when}}))
