"""A target whose partitions, names, rules or columns another program changed: no commit makes a
table that readers misread, and what cannot be committed stops the table for good, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.sinks.contract.changes import Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.fallback import delta_rs
from cdcsync_spark.sinks.delta.fallback import merge as delta_merge
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink, DeltaTarget
from cdcsync_spark.sinks.delta.table.view import entry_text
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.lives import read_by_duckdb
from contract.sinkcase import (
    ORDERS,
    SYNC,
    Row,
    batch,
    content,
    in_order,
    keys_of,
    make_table,
    rows_of,
    stage,
    whole_snapshot,
)
from support.lake import query
from support.lake import rows_of as all_rows

COUNTRIES = make_table({"id": "int(11)", "country": "varchar(9)", "note": "varchar(9)"}, ["id", "country"])
FIRST: list[Row] = [(1, "a"), (2, "b")]


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(open_store(str(tmp_path / "lake")), SYNC)


@pytest.fixture
def orders(sink: DeltaSink) -> DeltaTarget:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    return target


def merge(table: Capture, upserts: list[Row], deletes: list[Row] | None = None) -> Upsert:
    return Upsert(rows_of(table, upserts), keys_of(table, deletes or []))


def read(target: DeltaTarget) -> list[Row]:
    """The rows that delta-rs and DuckDB read, which agree."""
    found = all_rows(DeltaTable(target.uri))
    rows = in_order(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))
    assert rows == read_by_duckdb(target.uri)
    return rows


def publish(sink: DeltaSink, target: DeltaTarget, rows: list[Row], nonce: int = 1) -> None:
    """A resnapshot of the table, with these rows."""
    side = sink.target(ORDERS.id, generation=nonce)
    fresh = whole_snapshot(side, rows)
    files = side.staged()
    target.commit(
        1,
        lambda found: Commit(
            replace(fresh, commit_number=found.commit_number + 1, resnapshot_nonce=nonce, generation=nonce),
            Replace(files),
        ),
    )


def partition(target: DeltaTarget, table: Capture, by: str, rows: list[Row]) -> None:
    new = {"mode": "overwrite", "schema_mode": "overwrite", "partition_by": [by]}
    write_deltalake(target.uri, rows_of(table, rows), **new)  # type: ignore[call-overload]


Metadata = dict[str, Any]


def alter(target: DeltaTarget, change: Callable[[list[Metadata], dict[str, str]], None], *features: str) -> None:
    """Another program's entry that changes the schema's fields and the properties, and brings
    features."""
    view = target.path.view()
    assert view is not None
    schema, properties = json.loads(view.metadata["schemaString"]), dict(view.properties)
    change(schema["fields"], properties)
    metadata = {**view.metadata, "schemaString": json.dumps(schema), "configuration": properties}
    protocol = {k: [*v, *features] if isinstance(v, list) else v for k, v in view.protocol.items()}
    entry = entry_text([{"commitInfo": {}}, {"protocol": protocol}, {"metaData": metadata}])
    Path(target.uri, "_delta_log", f"{view.version + 1:020d}.json").write_text(entry)


def map_names(physical: dict[str, str]) -> Callable[[list[Metadata], dict[str, str]], None]:
    def change(fields: list[Metadata], properties: dict[str, str]) -> None:
        for number, field in enumerate(fields, 1):
            name = physical.get(field["name"], field["name"])
            mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
            field["metadata"] = mapped
        properties |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields))}

    return change


# -- partitions and names


def test_no_staged_file_goes_into_a_partitioned_table(sink: DeltaSink, orders: DeltaTarget, tmp_path: Path) -> None:
    """Readers take a partition column from the Delta log: its values in such a file would be NULLs
    to them."""
    partition(orders, ORDERS, "note", FIRST)
    writer = orders.writer(tmp_path)
    for work in (
        lambda: writer.commit(1, batch(1, stage(orders, ORDERS, [(3, "c")]))),
        lambda: publish(sink, orders, [(3, "c")]),
    ):
        with pytest.raises(PermanentError, match="the table is partitioned") as stopped:
            work()
        assert stopped.value.reason is Reason.SINK_CONFLICT
    assert read(orders) == FIRST
    writer.commit(1, batch(1, merge(ORDERS, [(1, "z/ä %"), (3, "c")], [(2,)])))
    writer.commit(1, batch(2, merge(ORDERS, [(1, "y")])))
    assert read(orders) == [(1, "y"), (3, "c")]
    with pytest.raises(PermanentError, match="partitioned by note"):
        content(orders)


@pytest.mark.parametrize("by", ["id", "country"])
def test_a_table_partitioned_by_its_key_stops(sink: DeltaSink, by: str) -> None:
    """Whether a key is there twice is seen in the files, which do not hold that column."""
    target, rows = sink.target(COUNTRIES.id), [(1, "de", "a"), (2, "fr", "b")]
    whole_snapshot(target, rows, COUNTRIES)
    partition(target, COUNTRIES, by, [*rows, (1, "de", "doubled")])
    for _ in range(2):
        with pytest.raises(PermanentError, match=f"key column '{by}' is not in its files") as stopped:
            target.commit(1, batch(1, merge(COUNTRIES, [(1, "de", "c")])))
        assert stopped.value.reason is Reason.SINK_CONFLICT
    assert len(read(target)) == 3


@pytest.mark.parametrize("physical", [{}, {"note": "col-7c1a0f8e"}])
def test_no_staged_file_goes_into_a_table_with_mapped_names(
    sink: DeltaSink, orders: DeltaTarget, tmp_path: Path, physical: dict[str, str]
) -> None:
    """A wave's column would be searched under another name; a publication left a schema that
    no reader could read."""
    alter(orders, map_names(physical), "columnMapping")
    before, writer = read(orders), orders.writer(tmp_path)
    for work in (
        lambda: writer.commit(1, batch(1, stage(orders, ORDERS, [(3, "c")]))),
        lambda: publish(sink, orders, [(3, "c")]),
        lambda: publish(sink, orders, [], 2),
    ):
        with pytest.raises(PermanentError, match=r"columnMapping\.mode=name") as stopped:
            work()
        assert stopped.value.reason is Reason.SINK_CONFLICT
        assert read(orders) == before
    writer.commit(1, batch(1, merge(ORDERS, [(1, "z"), (3, "c")], [(2,)])))
    assert read(orders) == [(1, "z"), (3, "c")]


def test_a_key_under_another_name_in_the_files_stops_a_merge(orders: DeltaTarget) -> None:
    alter(orders, map_names({"id": "col-1"}), "columnMapping")
    with pytest.raises(PermanentError, match="key column 'id' is not in its files"):
        orders.commit(1, batch(1, merge(ORDERS, [(1, "z")])))


# -- rules


@pytest.mark.parametrize(
    "features", [("rowTracking", "domainMetadata"), ("inCommitTimestamp",), ("catalogManaged",), ("clustering",)]
)
def test_a_table_with_a_feature_that_nobody_here_writes_stops_with_its_name(
    orders: DeltaTarget, tmp_path: Path, features: tuple[str, ...]
) -> None:
    """On a local disk as in an object store; other features that it has are not the reason."""
    alter(orders, lambda _, properties: properties.update({"delta.enableDeletionVectors": "false"}), *features)
    log = Path(orders.uri, "_delta_log")
    before = sorted(log.iterdir())
    for change in (merge(ORDERS, [(3, "secret")]), Replace(())):
        stops(lambda change=change: orders.writer(tmp_path).commit(1, batch(1, change)), ", ".join(sorted(features)))
    assert sorted(log.iterdir()) == before


def stops(work: Callable[[], object], words: str) -> None:
    """For good, and each time; without the values of the row, which all have a secret in them."""
    for _ in range(2):
        with pytest.raises(PermanentError, match=words) as stopped:
            work()
        assert stopped.value.reason is Reason.SINK_CONFLICT
        assert "secret" not in stopped.value.message


def test_rows_that_a_constraint_forbids_stop_the_table_and_are_not_shown(orders: DeltaTarget, tmp_path: Path) -> None:
    """It was retried forever, with the row in the resource's status."""
    DeltaTable(orders.uri).alter.add_constraint({"small": "id < 100"})
    writer = orders.writer(tmp_path)
    stops(lambda: writer.commit(1, batch(1, merge(ORDERS, [(100, "secret")]))), "CHECK constraints: small")
    writer.commit(1, batch(2, merge(ORDERS, [(99, "c")])))
    assert read(orders) == [*FIRST, (99, "c")]


def test_rows_that_a_rule_of_a_column_forbids_stop_the_table_and_are_not_shown(orders: DeltaTarget) -> None:
    rule = json.dumps({"expression": {"expression": "note <> 'secret'"}})
    alter(orders, lambda fields, _: fields[1]["metadata"].update({"delta.invariants": rule}))
    stops(lambda: orders.commit(1, batch(1, merge(ORDERS, [(3, "secret")]))), "a rule of the target table")
    assert read(orders) == FIRST


def test_a_table_to_which_rows_may_only_come_stops_when_one_changes_or_goes(
    sink: DeltaSink, orders: DeltaTarget, tmp_path: Path
) -> None:
    """It was taken for a race with another program and lost twenty times, then again."""
    DeltaTable(orders.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    writer = orders.writer(tmp_path)
    writer.commit(1, batch(1, merge(ORDERS, [(3, "c")], [(7,)])))
    for changed in (merge(ORDERS, [(1, "secret")]), merge(ORDERS, [], [(2,)])):
        stops(lambda changed=changed: writer.commit(1, batch(2, changed)), "appendOnly=true")  # type: ignore[misc]
    numbers = iter((1, 2))
    stops(lambda: publish(sink, orders, [(4, "d")], next(numbers)), "appendOnly=true")
    assert read(orders) == [*FIRST, (3, "c")]


def test_what_delta_rs_refuses_where_no_other_program_committed_is_no_race(
    orders: DeltaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(orders.uri).alter.add_constraint({"small": "id < 100"})

    def refusing(*args: object) -> None:
        raise CommitFailedError("The table\nhas a rule")

    monkeypatch.setattr(delta_merge, "merge", refusing)
    stops(
        lambda: orders.commit(1, batch(1, merge(ORDERS, [(3, "c")]))),
        "no other program committed: The table has a rule",
    )


# -- columns


def test_a_column_that_may_not_be_null_any_more_stops_the_table(
    sink: DeltaSink, orders: DeltaTarget, tmp_path: Path
) -> None:
    """Native commits do not check values, and readers count NULLs of such a column as none. A key
    is never NULL."""
    writer = orders.writer(tmp_path)
    alter(orders, lambda fields, _: fields[0].update({"nullable": False}))
    writer.commit(1, batch(1, merge(ORDERS, [(1, "z")])))
    alter(orders, lambda fields, _: fields[1].update({"nullable": False}))
    for work in (merge(ORDERS, [(1, None)]), merge(ORDERS, [(3, "c")])):
        stops(lambda work=work: writer.commit(1, batch(2, work)), "'note' was made NOT NULL")  # type: ignore[misc]
    assert read(orders) == [(1, "z"), (2, "b")]


def retyped(target: DeltaTarget) -> None:
    other = pa.table({"id": ["1"], "note": [7]})
    write_deltalake(target.uri, other, mode="overwrite", schema_mode="overwrite")


def dropped(target: DeltaTarget) -> None:
    write_deltalake(target.uri, pa.table({"id": [1]}), mode="overwrite", schema_mode="overwrite")


def filled(target: DeltaTarget) -> None:
    alter(target, lambda fields, _: fields[1].update({"nullable": False}))


@pytest.mark.parametrize("constrained", [False, True], ids=["by an entry of ours", "by delta-rs"])
@pytest.mark.parametrize("spoil", [retyped, dropped, filled])
def test_reading_a_table_again_heals_its_columns(
    sink: DeltaSink, orders: DeltaTarget, tmp_path: Path, spoil: Callable[[DeltaTarget], None], constrained: bool
) -> None:
    """The remedy that the refusal names: the publication writes the schema again and takes every
    file away."""
    writer = orders.writer(tmp_path)
    writer.commit(1, batch(1, merge(ORDERS, [(3, "c")], [(1,)])))
    if constrained:
        DeltaTable(orders.uri).alter.add_constraint({"any": "id is not null"})
    spoil(orders)
    stops(lambda: writer.commit(1, batch(2, merge(ORDERS, [(4, "d")]))), r"spec\.resnapshot")
    publish(sink, orders, [(1, "new"), (2, None)])
    assert content(orders) == read(orders) == [(1, "new"), (2, None)]
    writer.commit(1, batch(3, merge(ORDERS, [(2, "newer"), (5, None)], [(1,)])))
    assert bool(writer.status.fallback) == constrained
    assert content(orders) == read(orders) == [(2, "newer"), (5, None)]
    assert query(DeltaTable(orders.uri), "SELECT id FROM t WHERE note IS NULL").to_pylist() == [{"id": 5}]


def test_a_store_that_refuses_an_entry_for_no_reason_that_is_seen_is_tried_again(
    orders: DeltaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store answers 409 while another request to the same name is under way."""
    DeltaTable(orders.uri).alter.add_constraint({"any": "id IS NOT NULL"})
    write, failures = delta_rs._write, iter(range(2))

    def unlucky(*args: Any) -> None:
        if next(failures, None) is not None:
            raise CommitFailedError("Failed to commit transaction: 0")
        write(*args)

    monkeypatch.setattr(delta_rs, "_write", unlucky)
    orders.writer(tmp_path).commit(1, batch(1, merge(ORDERS, [(3, "c")])))
    assert read(orders) == [*FIRST, (3, "c")]
