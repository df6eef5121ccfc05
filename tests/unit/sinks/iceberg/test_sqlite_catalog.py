"""The catalog in a file of SQLite: what no requirement of a commit names, and a power cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdcsync_spark.sinks.iceberg.catalog.metadata_updates import new_metadata, updated
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost
from cdcsync_spark.sinks.iceberg.catalog.sqlite import SqliteCatalog
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}


def added(number: int, parent: int | None, first: int) -> dict[str, Any]:
    before = {} if parent is None else {"parent-snapshot-id": parent}
    numbers = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": number, **before}
    return {"action": "add-snapshot", "snapshot": {**numbers, "first-row-id": first, "added-rows": 5}}


@pytest.mark.parametrize(
    "update",
    [added(2, 1, 5), added(9, 1, 3), {"action": "remove-snapshots", "snapshot-ids": [1]}],
    ids=["a snapshot without a branch", "row ids", "a tag"],
)
def test_what_came_since_a_commit_was_decided_is_a_lost_race(update: dict[str, Any]) -> None:
    first = {"action": "set-snapshot-ref", "ref-name": "theirs", "type": "tag", "snapshot-id": 1}
    found = new_metadata(SCHEMA, 3, {}, "/t", "u")
    found = updated(found, [added(1, None, 0), first, added(2, 1, 5)], 1, "/t/metadata/0.json")
    with pytest.raises(CommitLost):
        updated(found, [update], 2, "/t/metadata/1.json")


def test_a_commit_outlives_a_power_cut(tmp_path: Path) -> None:
    """EXTRA: the removal of the journal, which is the commit, is durable, too."""
    catalog = SqliteCatalog(str(tmp_path / "catalog.db"), str(tmp_path), TableStores(folder=str(tmp_path)))
    with catalog._transaction(CatalogTableName(("shop",), "orders")) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
