"""A shadow shows one version of a table; what is committed there becomes an entry of ours, with our
state (R4, R8)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_spark.sinks.delta.delta_spark import spark_error
from cdcsync_spark.sinks.delta.log import STATE_KEY, completed, own_state
from cdcsync_spark.sinks.delta.shadow import new_paths, shadowed
from cdcsync_spark.sinks.delta.view import LiveFile, TableView, entry_text
from contract.sinkcase import ORDERS, first_state


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table at version 3 with a file, a folder of vectors and a checkpoint."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_vectors").mkdir()
    (tmp_path / "a.parquet").write_text("rows of a")
    for version in range(4):
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(str(version))
    (tmp_path / "_delta_log" / f"{1:020d}.checkpoint.parquet").write_text("checkpoint")
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text("{}")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_shadow_shows_one_version_and_is_gone_afterwards(root: Path) -> None:
    with shadowed(root, 2) as shadow:
        assert names(shadow.folder) == ["_delta_log", "_vectors", "a.parquet"]
        assert names(shadow.folder / "_delta_log") == [
            *(f"{v:020d}{s}" for v, s in ((0, ".json"), (1, ".checkpoint.parquet"), (1, ".json"), (2, ".json"))),
        ]
        assert (shadow.folder / "a.parquet").read_text() == "rows of a"
        assert shadow.committed() == []
    assert names(root) == ["_delta_log", "_vectors", "a.parquet"]
    assert (root / "a.parquet").read_text() == "rows of a"


def test_new_files_are_moved_and_old_ones_stay(root: Path) -> None:
    """In a folder that is a link the file is in its place already; a new folder comes with its
    file."""
    with shadowed(root, 3) as shadow:
        (shadow.folder / "b.parquet").write_text("b")
        (shadow.folder / "p=1").mkdir()
        (shadow.folder / "p=1" / "c.parquet").write_text("c")
        (shadow.folder / "_vectors" / "d.bin").write_text("d")
        (shadow.folder / "not-named.parquet").write_text("x")
        shadow.publish(["b.parquet", "p=1/c.parquet", "_vectors/d.bin"])
    assert sorted(p.name for p in root.rglob("*.*") if p.parent.name != "_delta_log") == [
        "a.parquet",
        "b.parquet",
        "c.parquet",
        "d.bin",
    ]


def test_a_shadow_of_a_killed_run_is_removed_after_a_day(root: Path) -> None:
    old, young = root / ".spark-old", root / ".spark-young"
    for folder in (old, young):
        (folder / "_delta_log").mkdir(parents=True)
        (folder / "a.parquet").symlink_to(root / "a.parquet")
    os.utime(old, (time.time() - 90_000,) * 2)
    with shadowed(root, 3):
        assert (old.exists(), young.exists()) == (False, True)
    assert (root / "a.parquet").exists()


def test_new_paths_are_those_of_files_vectors_and_change_data() -> None:
    """The z85 text of 16 zero bytes is 20 zeros: the uuid 00000000-..."""
    vector = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    view = TableView(files={"a": LiveFile({"path": "a", "size": 1})})
    actions = [
        {"commitInfo": {}},
        {"remove": {"path": "a"}},
        {"add": {"path": "a", "deletionVector": vector}},
        {"add": {"path": "b%20b"}},
        {"cdc": {"path": "_change_data/c"}},
    ]
    name = "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    assert new_paths(view, actions) == ["_change_data/c", "b b", name]


def test_an_entry_is_completed_by_our_state_and_transaction() -> None:
    state = first_state(ORDERS)
    app = state.identity.app_id
    theirs = [
        {"commitInfo": {"operation": "MERGE", "inCommitTimestamp": 7}},
        {"txn": {"appId": app, "version": 99}},
        {"txn": {"appId": "another", "version": 5}},
        {"add": {"path": "b"}},
    ]
    made = completed(theirs, state, 1000)
    assert {k: v for k, v in made[0]["commitInfo"].items() if k != STATE_KEY} == theirs[0]["commitInfo"]
    assert own_state(entry_text(made)) == state
    assert [a["txn"] for a in made if "txn" in a] == [
        {"appId": app, "version": state.commit_number, "lastUpdated": 1000},
        {"appId": "another", "version": 5},
    ]
    assert made[-1] == theirs[-1]
    assert json.loads(entry_text(made).split("\n")[0]).keys() == {"commitInfo"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Job aborted\n Caused by: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK", Reason.SINK_CONFLICT),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] t.note", Reason.SINK_CONFLICT),
        ("java.lang.OutOfMemoryError: Java heap space", Reason.SINK_UNREACHABLE),
        ("java.io.IOException: No space left on device", Reason.SINK_UNREACHABLE),
    ],
)
def test_what_spark_says_is_about_the_table_or_worth_a_retry(text: str, reason: Reason) -> None:
    assert spark_error(text, "shop.orders").reason is reason
