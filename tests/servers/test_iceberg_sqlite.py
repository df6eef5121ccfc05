"""The catalog in a file of SQLite: it makes of a commit what Iceberg's own server makes of it, and
that server reads and changes what it wrote."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_spark.sinks.iceberg.catalog.metadata_updates import LOGGED_PROPERTY
from cdcsync_spark.sinks.iceberg.catalog.port import (
    Catalog,
    CatalogTableName,
    CommitLost,
    Json,
    NewTable,
    OutcomeUnknown,
)
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.catalog.sqlite import SqliteCatalog
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.iceberg.table.expiry import MOST_AGE
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, whole_snapshot
from support.folder_catalog import LocalStores
from support.iceberg_catalog import IcebergCatalog

FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "tags", "required": False, "type": {"type": "list", "element-id": 3, "element": "string", "element-required": False}},
]  # fmt: skip
NEW = NewTable(
    {"type": "struct", "schema-id": 0, "fields": FIELDS, "identifier-field-ids": [1]},
    3,
    {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true", "p": "1"},
)
ADDED = {"id": 4, "name": "n", "required": False, "type": "int", "initial-default": 7, "write-default": 7}
#: of each catalog alone
OWN = ("table-uuid", "location", "last-updated-ms", "metadata-log", "snapshot-log")


def snapshot(number: int, parent: int | None, rows: int, first: int) -> Json:
    """Its time is filled in when it is committed."""
    return {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": number,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            "sequence-number": number,
            "manifest-list": f"/snap-{number}.avro",
            "first-row-id": first,
            "added-rows": rows,
            "schema-id": 0,
            "summary": {"operation": "append", "cdcsync.number": str(number)},
        },
    }


def moved(ref: str, number: int) -> Json:
    return {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": number}


def at(ref: str, number: int | None) -> Json:
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": number}


def schema_at(number: int) -> Json:
    return {"type": "assert-current-schema-id", "current-schema-id": number}


def last_id(number: int) -> Json:
    return {"type": "assert-last-assigned-field-id", "last-assigned-field-id": number}


SET = {"action": "set-properties", "updates": {"s": "1"}}
WIDER = {"type": "struct", "schema-id": 1, "fields": [*FIELDS, ADDED], "identifier-field-ids": [1]}
COMMITS: list[tuple[Sequence[Json], Sequence[Json]]] = [
    ([at("main", None)], [snapshot(1, None, 10, 0), moved("main", 1), SET]),
    ([at("main", 1), at("copy", None)], [snapshot(2, None, 5, 10), moved("copy", 2)]),
    ([at("main", 1), at("copy", 2)], [snapshot(3, 1, 0, 15), moved("main", 3)]),
    (
        [last_id(3), schema_at(0)],
        [
            {"action": "add-schema", "schema": WIDER, "last-column-id": 4},
            {"action": "set-current-schema", "schema-id": 1},
            snapshot(4, 3, 2, 15),
            moved("main", 4),
            {"action": "remove-snapshot-ref", "ref-name": "copy"},
            {"action": "remove-properties", "removals": ["s"]},
        ],
    ),
    ([at("main", 4), at("copy", None)], [{"action": "remove-snapshots", "snapshot-ids": [1, 2]}]),
]


#: what format version 2 has not
ROW_IDS, DEFAULTS = ("first-row-id", "added-rows"), ("initial-default", "write-default")


def timed(updates: Sequence[Json], version: int = 3) -> list[Json]:
    now = {"timestamp-ms": time.time_ns() // 1_000_000}
    return [
        without_row_ids({**u, "snapshot": {**u["snapshot"], **now}} if "snapshot" in u else u, version) for u in updates
    ]


def without_row_ids(update: Json, version: int) -> Json:
    """As format version 2 has it, if that is the version."""
    if version == 3:
        return update
    gone = (*ROW_IDS, *DEFAULTS)
    text = json.dumps(update)
    return json.loads(text, object_hook=lambda found: {n: v for n, v in found.items() if n not in gone})


LOST: list[Sequence[Json]] = [
    [at("main", 3)],
    [at("main", None)],
    [at("copy", 2)],
    [schema_at(0)],
    [last_id(3)],
    [{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}],
]


def sqlite_in(folder: Path) -> SqliteCatalog:
    warehouse = str(folder / "warehouse")
    return SqliteCatalog(str(folder / "catalog.db"), warehouse, TableStores(folder=warehouse))


def shared(metadata: Json) -> dict[str, Any]:
    found = {name: value for name, value in metadata.items() if name not in OWN}
    # what each library adds by itself
    found["properties"] = {n: v for n, v in metadata["properties"].items() if not n.startswith("write.parquet.")}
    found["snapshot-log"] = [entry["snapshot-id"] for entry in metadata["snapshot-log"]]
    return json.loads(json.dumps(found))


@pytest.mark.parametrize("version", [2, 3])
def test_both_catalogs_make_the_same_of_the_same_commits(
    iceberg_catalog: IcebergCatalog, tmp_path: Path, version: int
) -> None:
    table = CatalogTableName((f"n{uuid.uuid4().hex}", "b"), "orders")
    catalogs: list[Catalog] = [RestCatalog(RestSettings(iceberg_catalog.uri, seconds=120)), sqlite_in(tmp_path)]
    new = replace(NEW, format_version=version)
    made = [catalog.create(table, new).metadata for catalog in catalogs]
    assert shared(made[0]) == shared(made[1])
    for requirements, untimed in COMMITS:
        updates = timed(untimed, version)
        after = [catalog.commit(table, requirements, updates).metadata for catalog in catalogs]
        assert shared(after[0]) == shared(after[1])
    for requirements in LOST:
        for catalog in catalogs:
            with pytest.raises(CommitLost):
                catalog.commit(table, requirements, [{"action": "set-properties", "updates": {"lost": "1"}}])
    loaded = [catalog.load(table) for catalog in catalogs]
    assert loaded[0] is not None
    assert loaded[1] is not None
    assert shared(loaded[0].metadata) == shared(loaded[1].metadata) == shared(after[1])
    files = {path.name for path in Path(after[1]["location"], "metadata").iterdir()}
    named = {Path(entry["metadata-file"]).name for entry in after[1]["metadata-log"]}
    assert len(named) == 2
    assert named < files
    assert len(files) == 3


class LossyCatalog(SqliteCatalog):
    """Its file of SQLite gives no answer to a commit: that is made, or not."""

    landing = False

    def move(self, table: CatalogTableName, before: str, after: Json, location: str) -> bool:
        if self.landing:
            super().move(table, before, after, location)
        raise OutcomeUnknown("the disk is full")


@pytest.mark.parametrize("landing", [False, True])
def test_metadata_files_that_the_catalog_cannot_name_any_more_go_when_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landing: bool
) -> None:
    """A run that dies in a commit leaves one, and so does a commit without an answer. Where a
    program was stopped in its commit for long, that may still land: its file has the next
    number."""
    catalog = sqlite_in(tmp_path)
    sink = IcebergSink(catalog, LocalStores(), SYNC, properties=((MOST_AGE, "0"), (LOGGED_PROPERTY, "2")))
    target, table = sink.target(ORDERS.id), CatalogTableName((ORDERS.id.database,), ORDERS.id.name)
    whole_snapshot(target, [(1, "one")])
    lossy = LossyCatalog(catalog.database, catalog.warehouse, catalog.stores)
    monkeypatch.setattr(LossyCatalog, "landing", landing)
    for n in range(3):
        with pytest.raises(OutcomeUnknown):
            lossy.commit(table, [], [{"action": "set-properties", "updates": {"value": str(n)}}])
    newest = catalog.newest(table)
    assert newest is not None
    folder, number = Path(newest).parent, int(Path(newest).name[:5])
    stopped = folder / f"{number + 9:05d}-{uuid.uuid4()}.metadata.json"
    stopped.write_text("{}")
    foreign = folder / "v1.metadata.json"
    foreign.write_text("{}")
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    with closing(target.writer(tmp_path)) as writer:
        writer.commit(1, batch(1, Model(ORDERS).apply([(2, "new")], [])))
        assert "remove orphans" in list(iter(writer.maintain, ""))
    loaded = catalog.load(table)
    assert loaded is not None
    logged = {Path(entry["metadata-file"]).name for entry in loaded.metadata["metadata-log"]}
    young = {Path(str(catalog.newest(table))).name}
    assert {file.name for file in folder.glob("*.metadata.json")} == logged | young | {stopped.name, foreign.name}
    assert content(target) == [(1, "one"), (2, "new")]


class MovingCatalog(SqliteCatalog):
    """Another program commits, and removes the metadata of before, each time that this one has
    asked which are the newest."""

    commits = 0

    def newest(self, table: CatalogTableName) -> str | None:
        location = super().newest(table)
        if location is not None and self.commits:
            MovingCatalog.commits -= 1
            other = SqliteCatalog(self.database, self.warehouse, self.stores)
            other.commit(table, [], [{"action": "set-properties", "updates": {"left": str(self.commits)}}])
            Path(location).unlink()
        return location


def test_metadata_that_go_while_they_are_loaded_are_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, table = sqlite_in(tmp_path), CatalogTableName(("shop",), "orders")
    catalog.create(table, NEW)
    monkeypatch.setattr(MovingCatalog, "commits", 2)
    loaded = MovingCatalog(catalog.database, catalog.warehouse, catalog.stores).load(table)
    assert loaded is not None
    assert loaded.metadata["properties"]["left"] == "0"
    Path(str(catalog.newest(table))).unlink()
    with pytest.raises(PermanentError, match="cannot be read"):
        catalog.load(table)


def write_with_a_clock_behind(catalog: SqliteCatalog, folder: Path, patch: pytest.MonkeyPatch) -> Json:
    """A stream's driver comes to a node whose clock is five minutes behind: the metadata."""
    target, clock = IcebergSink(catalog, LocalStores(), SYNC).target(ORDERS.id), time.time_ns
    whole_snapshot(target, [(1, "one")])
    patch.setattr(time, "time_ns", lambda: clock() - 300 * 10**9)
    with closing(target.writer(folder)) as writer:
        for number in range(1, 6):
            writer.commit(1, batch(number, Model(ORDERS).apply([(number, "new")], [])))
    patch.undo()
    loaded = catalog.load(CatalogTableName((ORDERS.id.database,), ORDERS.id.name))
    assert loaded is not None
    return loaded.metadata


def test_iceberg_itself_reads_and_changes_the_tables_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those whose commits a clock says to be older than the ones before: it refuses snapshots
    whose times go back."""
    ours, table = sqlite_in(tmp_path), CatalogTableName(("shop",), "order s")
    made = ours.create(table, NEW).metadata
    ours.commit(table, COMMITS[0][0], timed(COMMITS[0][1]))
    behind = write_with_a_clock_behind(ours, tmp_path, monkeypatch)
    for times in ("snapshots", "snapshot-log", "metadata-log"):
        milliseconds = [entry["timestamp-ms"] for entry in behind[times]]
        assert milliseconds == sorted(set(milliseconds)), f"{times} with two of one time, or in another order"
    (tmp_path / "server").mkdir()
    server = IcebergCatalog(tmp_path / "server", database=tmp_path / "catalog.db").start()
    try:
        theirs = RestCatalog(RestSettings(server.uri, seconds=120))
        assert theirs.has_namespace(("shop",))
        loaded = theirs.load(table)
        assert loaded is not None
        assert (loaded.metadata["table-uuid"], loaded.metadata["current-snapshot-id"]) == (made["table-uuid"], 1)
        assert loaded.metadata["next-row-id"] == 10
        assert theirs.load(CatalogTableName((ORDERS.id.database,), ORDERS.id.name)) is not None
        theirs.commit(table, COMMITS[1][0], timed(COMMITS[1][1]))
        assert shared(ours.commit(table, COMMITS[2][0], timed(COMMITS[2][1])).metadata)["snapshot-log"] == [1, 3]
        ours.drop(table)
        assert theirs.load(table) is None
    finally:
        server.kill()
