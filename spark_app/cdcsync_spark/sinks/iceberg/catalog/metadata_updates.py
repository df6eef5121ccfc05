"""What the requirements and updates of a commit make of a table's metadata, for a catalog that is a
file and has no server to do it. Pure.

Source: Iceberg's REST specification (`TableRequirement`, `TableUpdate`) and `TableMetadata.Builder`
of its library, whose server makes the same of the same commit
(`tests/servers/test_iceberg_sqlite.py`). What this sink never asks for is refused, not guessed.
What other programs wrote into the metadata stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdcsync_spark.sinks.iceberg.catalog.port import CommitLost, Json

Metadata = dict[str, Any]
MAIN = "main"
#: the default of Iceberg's library
_LOGGED = 100
#: the format version from which rows have ids
_ROW_IDS = 3
#: as format version 2 has it
_NO_SNAPSHOT = {"current-snapshot-id": -1}
LOGGED_PROPERTY = "write.metadata.previous-versions-max"


def new_metadata(
    schema: Json, format_version: int, properties: Mapping[str, str], location: str, uuid: str
) -> Metadata:
    """The metadata of a table without a snapshot; `location` has no slash at its end."""
    return {
        "format-version": format_version,
        "table-uuid": uuid,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": max((field_ids(schema)), default=0),
        "current-schema-id": 0,
        "schemas": [{**schema, "schema-id": 0}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": dict(properties),
        **({"current-snapshot-id": None, "next-row-id": 0} if format_version >= _ROW_IDS else _NO_SNAPSHOT),
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def field_ids(schema: Any) -> list[int]:
    """All ids in a schema, those of nested fields among them."""
    if isinstance(schema, Mapping):
        own = [schema[name] for name in ("id", "element-id", "key-id", "value-id") if isinstance(schema.get(name), int)]
        return own + [n for value in schema.values() for n in field_ids(value)]
    if isinstance(schema, list):
        return [n for value in schema for n in field_ids(value)]
    return []


def check_requirements(metadata: Json, requirements: Sequence[Json]) -> None:
    """Raises CommitLost, and ValueError for a requirement that is not known."""
    for requirement in requirements:
        kind = str(requirement["type"])
        if kind not in _REQUIREMENTS:
            raise ValueError(f"the requirement {kind}")
        value, needed = _REQUIREMENTS[kind](metadata, requirement)
        if value != needed:
            raise CommitLost(f"{kind}: the table has {value}, the commit needs {needed}")


def _ref(metadata: Json, requirement: Json) -> tuple[Any, Any]:
    ref = metadata.get("refs", {}).get(requirement["ref"])
    return ref and ref["snapshot-id"], requirement.get("snapshot-id")


def _field(in_metadata: str, in_requirement: str) -> Callable[[Json, Json], tuple[Any, Any]]:
    return lambda metadata, requirement: (metadata.get(in_metadata), requirement[in_requirement])


_REQUIREMENTS: Mapping[str, Callable[[Json, Json], tuple[Any, Any]]] = {
    "assert-table-uuid": _field("table-uuid", "uuid"),
    "assert-ref-snapshot-id": _ref,
    "assert-current-schema-id": _field("current-schema-id", "current-schema-id"),
    "assert-last-assigned-field-id": _field("last-column-id", "last-assigned-field-id"),
}


def updated(metadata: Json, updates: Sequence[Json], milliseconds: int, location: str) -> Metadata:
    """The metadata after all updates; those of before are in the file at `location`. Raises
    ValueError for updates that do not fit them, and CommitLost where another program's snapshot
    without a branch, or its tag, came since the commit was decided: no requirement names them."""
    after = copy.deepcopy(dict(metadata))
    for update in updates:
        action = str(update["action"])
        if action not in _UPDATES:
            raise ValueError(f"the update {action}")
        _UPDATES[action](after, update)
    logged = {"timestamp-ms": metadata["last-updated-ms"], "metadata-file": location}
    most = max(1, int(after["properties"].get(LOGGED_PROPERTY, _LOGGED)))
    after["metadata-log"] = [*metadata.get("metadata-log", []), logged][-most:]
    if all(update["action"] != "add-snapshot" for update in updates):  # which brings its time
        after["last-updated-ms"] = max(milliseconds, metadata["last-updated-ms"])
    return after


def _add_schema(after: Metadata, update: Json) -> None:
    schema = update["schema"]
    if any(schema_before["schema-id"] == schema["schema-id"] for schema_before in after["schemas"]):
        raise ValueError(f"the schema {schema['schema-id']} twice")
    after["schemas"].append(copy.deepcopy(dict(schema)))
    after["last-column-id"] = max(after["last-column-id"], *field_ids(schema), update.get("last-column-id") or 0)


def _set_current_schema(after: Metadata, update: Json) -> None:
    number = update["schema-id"]
    number = after["schemas"][-1]["schema-id"] if number == -1 else number
    if all(schema["schema-id"] != number for schema in after["schemas"]):
        raise ValueError(f"the schema {number}, which the table does not have")
    after["current-schema-id"] = number


def _add_snapshot(after: Metadata, update: Json) -> None:
    snapshot = copy.deepcopy(dict(update["snapshot"]))
    number = snapshot["sequence-number"]
    if number <= after["last-sequence-number"]:
        raise CommitLost(f"the sequence number {number} after {after['last-sequence-number']}")
    if any(s["snapshot-id"] == snapshot["snapshot-id"] for s in after["snapshots"]):
        raise CommitLost(f"the snapshot {snapshot['snapshot-id']} twice")
    if after["format-version"] >= _ROW_IDS:
        _give_row_ids(after, snapshot)
    after["snapshots"].append(snapshot)
    after["last-sequence-number"] = number
    after["last-updated-ms"] = snapshot["timestamp-ms"]


def _give_row_ids(after: Metadata, snapshot: Json) -> None:
    first = snapshot["first-row-id"]
    if first < after["next-row-id"]:
        raise CommitLost(f"row ids from {first} after {after['next-row-id']}")
    after["next-row-id"] += snapshot["added-rows"]


def _set_ref(after: Metadata, update: Json) -> None:
    ref = {name: value for name, value in update.items() if name not in ("action", "ref-name")}
    named = [s for s in after["snapshots"] if s["snapshot-id"] == ref["snapshot-id"]]
    if not named:
        raise ValueError(f"the snapshot {ref['snapshot-id']}, which the table does not have")
    after["refs"][update["ref-name"]] = ref
    if update["ref-name"] == MAIN:
        after["current-snapshot-id"] = ref["snapshot-id"]
        entry = {"timestamp-ms": named[0]["timestamp-ms"], "snapshot-id": ref["snapshot-id"]}
        after["snapshot-log"] = [*after.get("snapshot-log", []), entry]


def _remove_ref(after: Metadata, update: Json) -> None:
    after["refs"].pop(update["ref-name"], None)
    if update["ref-name"] == MAIN:
        raise ValueError("main, which stays")


def _remove_snapshots(after: Metadata, update: Json) -> None:
    gone = set(update["snapshot-ids"])
    if held := gone & {ref["snapshot-id"] for ref in after["refs"].values()}:
        raise CommitLost(f"the snapshots {sorted(held)}, which branches or tags name")
    after["snapshots"] = [s for s in after["snapshots"] if s["snapshot-id"] not in gone]
    for name in ("statistics", "partition-statistics"):
        after[name] = [s for s in after.get(name, []) if s.get("snapshot-id") not in gone]
    log = after.get("snapshot-log", [])
    last = max((n for n, entry in enumerate(log) if entry["snapshot-id"] in gone), default=-1)
    after["snapshot-log"] = log[last + 1 :]


def _set_properties(after: Metadata, update: Json) -> None:
    after["properties"] = {**after.get("properties", {}), **update["updates"]}


def _remove_properties(after: Metadata, update: Json) -> None:
    gone = update["removals"]
    after["properties"] = {name: value for name, value in after.get("properties", {}).items() if name not in gone}


_UPDATES: Mapping[str, Callable[[Metadata, Json], None]] = {
    "add-schema": _add_schema,
    "set-current-schema": _set_current_schema,
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshot-ref": _remove_ref,
    "remove-snapshots": _remove_snapshots,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
}
