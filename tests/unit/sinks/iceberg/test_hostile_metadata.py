"""Metadata of a catalog that lies: whatever it writes into a table's metadata is that table's named
error, before anything is decided by it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.iceberg.catalog.metadata_updates import new_metadata
from cdcsync_spark.sinks.iceberg.replica.format import branch_schema
from cdcsync_spark.sinks.iceberg.table.avro import BROKEN
from cdcsync_spark.sinks.iceberg.table.avro_schemas import MANIFEST_FILE
from cdcsync_spark.sinks.iceberg.table.expiry import dead, expired, others_have_branches
from cdcsync_spark.sinks.iceberg.table.manifests import FILES, read_list
from cdcsync_spark.sinks.iceberg.table.metadata import MAIN, TableMetadata, checked_metadata
from cdcsync_spark.sinks.iceberg.table.schema import field_ids, new_schema
from cdcsync_spark.sinks.iceberg.table.state import event_names, our_branches
from contract.sinkcase import make_table

WIDE = make_table({"a": "int(11)", "b": "decimal(9,2)", "c": "varchar(9)"}, ["a"])
Change = Callable[[dict[str, Any]], object]


def honest() -> dict[str, Any]:
    """A table with two snapshots, a tag, and a column of another program that nests."""
    schema = new_schema(TargetSchema.of(WIDE), 0, 0).to_dict()
    nested = {"type": "list", "element-id": 5, "element": "string", "element-required": False}
    schema["fields"].append({"id": 4, "name": "tags", "required": False, "type": nested})
    found = new_metadata(schema, 3, {"a": "b"}, "s3://lake/t", "u")
    snapshots = [_snapshot(1, 7, None), _snapshot(2, 9, 7)]
    refs = {MAIN: {"type": "branch", "snapshot-id": 9}, "kept": {"type": "tag", "snapshot-id": 7}}
    return found | {"snapshots": snapshots, "refs": refs, "last-sequence-number": 2, "next-row-id": 20}


def _snapshot(number: int, identity: int, parent: int | None) -> dict[str, Any]:
    before = {} if parent is None else {"parent-snapshot-id": parent}
    rows = {"first-row-id": 10 * (number - 1), "added-rows": 10}
    about = {"timestamp-ms": 1_700_000_000_000, "manifest-list": f"s3://lake/t/metadata/{number}", "schema-id": 0}
    return {
        "snapshot-id": identity,
        **before,
        "sequence-number": number,
        **about,
        **rows,
        "summary": {"operation": "x"},
    }


def used(metadata: TableMetadata) -> None:
    """Does with the metadata what a run does before it reads or writes a file."""
    for ref in (*metadata.refs, MAIN, "none"):
        list(metadata.ancestors(metadata.head(ref)))
        field_ids(branch_schema(metadata, ref, MAIN) if ref in metadata.refs else metadata.current_schema)
    expired(metadata, 10**13)
    dead({}, metadata, 10**13)
    others_have_branches(metadata)
    our_branches(metadata)
    assert metadata.last_sequence_number + 1 > max((s.number for s in metadata.snapshots.values()), default=0)
    assert metadata.partitioned in (True, False)


def test_metadata_of_an_honest_catalog_pass() -> None:
    metadata = checked_metadata(honest(), "t")
    used(metadata)
    assert (metadata.next_row_id, sorted(metadata.snapshots), event_names(metadata)) == (20, [7, 9], set())


def _set(*path: str | int, to: Any) -> Change:
    def change(found: dict[str, Any]) -> None:
        part: Any = found
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = to

    return change


def _without(*path: str | int) -> Change:
    def change(found: dict[str, Any]) -> None:
        part: Any = found
        for step in path[:-1]:
            part = part[step]
        del part[path[-1]]

    return change


def _nested(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "list", "element-id": 5, "element": kind, "element-required": False}
    return kind


FIELD = ("schemas", 0, "fields", 1)
LIES: dict[str, Change] = {
    "no sequence number": _without("last-sequence-number"),
    "a sequence number of text": _set("last-sequence-number", to="2"),
    "a sequence number that is true": _set("last-sequence-number", to=True),
    "a sequence number below a snapshot's": _set("last-sequence-number", to=1),
    "a sequence number without a next one": _set("last-sequence-number", to=2**63 - 1),
    "a negative number": _set("snapshots", 0, "sequence-number", to=-1),
    "a number with a fraction": _set("snapshots", 0, "sequence-number", to=0.5),
    "a huge number": _set("snapshots", 0, "snapshot-id", to=10**400),
    "a time after all years": _set("last-updated-ms", to=2**62),
    "a snapshot's time of text": _set("snapshots", 1, "timestamp-ms", to="now"),
    "no next row id": _without("next-row-id"),
    "a next row id that rows have": _set("next-row-id", to=5),
    "a last column id that is taken": _set("last-column-id", to=2),
    "a last column id that is reserved": _set("last-column-id", to=2**31 - 1),
    "snapshots that are none": _set("snapshots", to={"a": 1}),
    "a snapshot that is none": _set("snapshots", 0, to=7),
    "a snapshot without its list": _without("snapshots", 1, "manifest-list"),
    "a snapshot without a name": _without("snapshots", 1, "snapshot-id"),
    "a snapshot twice": _set("snapshots", 1, "snapshot-id", to=7),
    "a parent that is none": _set("snapshots", 1, "parent-snapshot-id", to=[7]),
    "a summary of numbers": _set("snapshots", 1, "summary", to={"operation": 5}),
    "branches that are none": _set("refs", to=[MAIN]),
    "a branch that is none": _set("refs", MAIN, to=9),
    "a branch of another kind": _set("refs", MAIN, "type", to="twig"),
    "a branch without its snapshot": _set("refs", MAIN, "snapshot-id", to=8),
    "a tag without its snapshot": _set("refs", "kept", "snapshot-id", to=8),
    "properties that are none": _set("properties", to="a"),
    "a property of another type": _set("properties", "cdcsync.state", to=5),
    "no schema": _set("schemas", to=[]),
    "no current schema": _without("current-schema-id"),
    "a current schema that is not there": _set("current-schema-id", to=3),
    "a current schema of another type": _set("current-schema-id", to=[0]),
    "a field id twice": _set(*FIELD, "id", to=1),
    "a field id of a list's element": _set(*FIELD, "id", to=5),
    "a field id of text": _set(*FIELD, "id", to="2"),
    "a name twice": _set(*FIELD, "name", to="a"),
    "a field without a type": _without(*FIELD, "type"),
    "a type of no kind": _set(*FIELD, "type", to={"type": "cloud"}),
    "a type that is a number": _set(*FIELD, "type", to=5),
    "a type that nests without end": _set(*FIELD, "type", to=_nested(900)),
    "a list without an element id": _set(*FIELD, "type", to={"type": "list", "element": "int"}),
    "required of another type": _set(*FIELD, "required", to="yes"),
    "a default of another type": _set(*FIELD, "initial-default", to={"a": 1}),
    "a default that is no number": _set(*FIELD, "initial-default", to="two"),
    "identifiers that are none": _set("schemas", 0, "identifier-field-ids", to=["a", 1]),
    "an identifier that is not there": _set("schemas", 0, "identifier-field-ids", to=[99]),
    "partitions that are none": _set("partition-specs", to=[7]),
    "partition fields that are none": _set("partition-specs", to=[{"fields": 7}]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_the_tables_named_error(lie: str) -> None:
    found = honest()
    LIES[lie](found)
    with pytest.raises(CdcError) as stopped:
        checked_metadata(found, "shop.orders")
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert '"the metadata of shop.orders" cannot be read' in stopped.value.found
    assert len(stopped.value.message) < 1000


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for step, below in steps for p in ((*path, step), *_places(below, (*path, step)))]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(place=st.sampled_from(_places(honest())), junk=JUNK)
def test_whatever_stands_in_one_place_is_refused_or_used(place: tuple[str | int, ...], junk: Any) -> None:
    found = copy.deepcopy(honest())
    _set(*place, to=junk)(found)
    with suppress(CdcError):
        used(checked_metadata(found, "t"))


def test_a_row_of_a_manifest_list_that_could_not_be_written_again_is_refused() -> None:
    other = json.loads(json.dumps(MANIFEST_FILE))
    for field in other["fields"]:
        if field["name"] == "sequence_number":
            field["type"] = "string"
    row = {"manifest_path": "m", "manifest_length": 5, "partition_spec_id": 0, "content": 0, "sequence_number": "one"}
    counts = ("added_files_count", "existing_files_count", "deleted_files_count", "added_rows_count")
    numbers = dict.fromkeys((*counts, "existing_rows_count", "deleted_rows_count", "min_sequence_number"), 0)
    encoder = type(FILES)(other)
    content = encoder.container({}, [encoder.encoded(row | numbers | {"added_snapshot_id": 1, "partitions": []})])
    with pytest.raises(BROKEN):
        read_list(content, 2**20)
