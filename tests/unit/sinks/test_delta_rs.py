"""What delta-rs writes, and what is made durable after it."""

from __future__ import annotations

import pytest

from cdcsync_spark.sinks.delta.fallback.delta_rs import new_paths
from cdcsync_spark.sinks.delta.table.features import unwritable_features
from cdcsync_spark.sinks.delta.table.view import DeltaFile, TableView


def test_new_paths_are_those_of_files_vectors_and_change_data() -> None:
    """The z85 text of 16 zero bytes is 20 zeros: the uuid 00000000-..."""
    vector = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    view = TableView(files={"a": DeltaFile({"path": "a", "size": 1})})
    actions = [
        {"commitInfo": {}},
        {"remove": {"path": "a"}},
        {"add": {"path": "a", "deletionVector": vector}},
        {"add": {"path": "b%20b"}},
        {"cdc": {"path": "_change_data/c"}},
    ]
    name = "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    assert new_paths(view, actions) == ["_change_data/c", "b b", name]


@pytest.mark.parametrize(
    ("features", "unwritable"),
    [
        (["appendOnly", "deletionVectors", "v2Checkpoint"], []),
        (["rowTracking", "domainMetadata"], ["domainMetadata", "rowTracking"]),
        (["inCommitTimestamp"], ["inCommitTimestamp"]),
        (["clustering", "domainMetadata"], ["clustering", "domainMetadata"]),
        (["catalogManaged"], ["catalogManaged"]),
        (["coordinatedCommits-preview"], ["coordinatedCommits-preview"]),
    ],
)
def test_features_that_delta_rs_does_not_write(features: list[str], unwritable: list[str]) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": features}
    assert unwritable_features(TableView(protocol=protocol)) == unwritable
