"""Whether native commits may be written into a Delta table's log, and the protocol of the tables
that we make. Pure.

An entry of ours is only right while we know all that the table's protocol asks of a writer. Each
feature below is known, with the reason why our entries honour it; any other one, and every known
one that asks for more than we do, leaves the table to delta-rs, and the reason is shown. The list
for users is in docs/delta.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdcsync_spark.sinks.delta.table.view import Action, TableView

VECTORS = "deletionVectors"
TIMESTAMP_NTZ = "timestampNtz"
VECTORS_ENABLED = "delta.enableDeletionVectors"
CONSTRAINT = "delta.constraints."
#: writer feature -> why an entry of ours honours it
KNOWN = {
    VECTORS: "our entries are made of them",
    "appendOnly": "only with delta.appendOnly=true, which is checked",
    "invariants": "only with invariants in the schema, which is checked",
    "checkConstraints": "only with delta.constraints.*, which are checked",
    "columnMapping": "only with a mapping mode, which is checked",
    "changeDataFeed": "only with delta.enableChangeDataFeed=true, which is checked",
    "generatedColumns": "only with expressions in the schema, which are checked",
    "identityColumns": "only with identities in the schema, which are checked",
    TIMESTAMP_NTZ: "a type of columns: Parquet files hold it as they hold others",
    "variantType": "a type of columns that our tables do not have; delta-rs adds it to tables that it alters",
    "vacuumProtocolCheck": "about VACUUM, which is not ours",
}
#: reader features with which our reader is right: it knows deletion vectors, and the others change
#: nothing in our columns
READABLE = frozenset({VECTORS, TIMESTAMP_NTZ, "variantType", "vacuumProtocolCheck"})
#: the features that legacy writer versions bring with them
_LEGACY = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
#: features of writers that delta-rs commits to
_DELTA_RS = frozenset(
    (
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
        *("deletionVectors", "timestampNtz", "v2Checkpoint", "variantType", "vacuumProtocolCheck"),
    )
)
_FIELD_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.", "delta.columnMapping.")


def unsupported_reason(view: TableView) -> str:
    """Why an entry of ours would not be right for this table, as a phrase; empty where it is."""
    unknown = sorted(set(writer_features(view.protocol)) - KNOWN.keys())
    if unknown:
        return f"the table has the feature {', '.join(unknown)}"
    if view.partitions:
        return "the table is partitioned"
    properties = view.properties
    for name, idle in _IDLE.items():
        if properties.get(name, idle).lower() != idle:
            return f"the table has {name}={properties[name]}"
    if any(name.startswith(CONSTRAINT) for name in properties):
        return "the table has CHECK constraints"
    ruled = [name for name, f in view.fields.items() if any(k.startswith(_FIELD_RULES) for k in f["metadata"])]
    return f"the table's column {ruled[0]!r} has rules of its own" if ruled else ""


def unwritable_features(view: TableView) -> list[str]:
    """The features of the table that neither a native commit nor delta-rs honours."""
    return sorted(set(writer_features(view.protocol)) - _DELTA_RS)


def deletion_vectors_unavailable(view: TableView) -> str:
    """Why rows of this table may not be deleted by deletion vectors, as a phrase; empty where they
    may."""
    if view.properties.get(VECTORS_ENABLED, "true").lower() != "true":
        return f"the table has {VECTORS_ENABLED}=false"
    return unsupported_reason(view)


def unreadable_files_reason(view: TableView) -> str:
    """Why readers would misread a file that we staged, as a phrase; empty where they would not.
    They take a partition column's value from the Delta log, and look for other columns by the
    names, or numbers, of a mapping."""
    if view.partitions:
        return "the table is partitioned"
    mode = view.properties.get(_MAPPING, "none")
    return "" if mode.lower() == "none" else f"the table has {_MAPPING}={mode}"


def append_only(view: TableView) -> bool:
    """Whether rows may come and none may go."""
    return view.properties.get(_APPEND_ONLY, "false").lower() == "true"


def hidden_columns(view: TableView) -> set[str]:
    """Columns whose values are not in the files under the column's name."""
    mapped = (n for n, f in view.fields.items() if f["metadata"].get("delta.columnMapping.physicalName", n) != n)
    return {*view.partitions, *mapped}


def not_null_columns(view: TableView) -> list[str]:
    """Columns of which readers believe that they hold no NULL; a native commit checks no values."""
    return [name for name, field in view.fields.items() if not field.get("nullable", True)]


_MAPPING = "delta.columnMapping.mode"
_APPEND_ONLY = "delta.appendOnly"
_IDLE = {_APPEND_ONLY: "false", "delta.enableChangeDataFeed": "false", _MAPPING: "none"}


def writer_features(protocol: Mapping[str, Any]) -> list[str]:
    """The features of a protocol, whether it lists them or implies them by its version."""
    version = protocol["minWriterVersion"]
    if version >= 7:
        return list(protocol.get("writerFeatures") or ())
    return [f for v, features in _LEGACY.items() if v <= version for f in features]


def protocol_for(schema: str, *, vectors: bool, base: Mapping[str, Any] | None = None) -> Action:
    """The protocol that a table with this schema (Delta's JSON) needs, on top of what it has."""
    needed = {VECTORS} if vectors else set()
    if '"timestamp_ntz"' in schema:
        needed.add(TIMESTAMP_NTZ)
    reader = set((base or {}).get("readerFeatures") or ())
    writer = set(writer_features(base)) if base else {"appendOnly", "invariants"}
    if not needed | reader:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(reader | needed | (writer & {"columnMapping"})),
            "writerFeatures": sorted(writer | needed),
        }
    }


def upgrade(view: TableView, schema: str, configuration: Mapping[str, str], *, vectors: bool) -> list[Action]:
    """The actions that give a table a schema, its properties and the features for them; none where
    it has them all."""
    actions = []
    protocol = protocol_for(schema, vectors=vectors, base=view.protocol)["protocol"]
    missing = set(writer_features(protocol)) - set(writer_features(view.protocol))
    if missing:
        actions.append({"protocol": protocol})
    properties = {**view.properties, **configuration}
    same = json.loads(schema) == json.loads(view.metadata["schemaString"])
    if not same or properties != view.properties:
        actions.append({"metaData": {**view.metadata, "schemaString": schema, "configuration": properties}})
    return actions
