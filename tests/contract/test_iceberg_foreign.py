"""Commits of other programs to an Iceberg table: a stream's question finds them, rows that they
changed are noted, and a branch that was taken back is refused until it is as we left it (R4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.state import SinkWrite
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, Json, LoadedTable, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, stamp, whole_snapshot
from support.folder_catalog import FolderCatalog, LocalStores

NAME = CatalogTableName(("shop",), "orders")
ROWS = [(1, "one"), (2, None)]
#: two small files are gathered
EAGER = MaintenancePolicy(gathered_files=2, smallest_class_bytes=2**20, peeled_bytes=1)


@dataclass(frozen=True)
class OvertakenCatalog(FolderCatalog):
    """Carries out `meanwhile` between the next commit and its answer, which is the newest table as
    Iceberg's REST handlers give it, or is `lost`."""

    lost: bool = False
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def commit(self, table: CatalogTableName, requirements: Sequence[Json], updates: Sequence[Json]) -> LoadedTable:
        landed = super().commit(table, requirements, updates)
        if not self.meanwhile:
            return landed
        self.meanwhile.pop()()
        if self.lost:
            raise OutcomeUnknown("the connection was cut")
        return self.load(table) or landed


class StreamedTable:
    """One of ours with a batch beyond its snapshot, and a stream's writer that has opened it."""

    def __init__(self, folder: Path, *, lost: bool = False, version: int = 3) -> None:
        self.catalog = OvertakenCatalog(str(folder / "lake"), lost)
        self.sink = IcebergSink(self.catalog, LocalStores(), SYNC, policy=EAGER, format_version=version)
        self.target: IcebergTarget = self.sink.target(ORDERS.id)
        whole_snapshot(self.target, ROWS)
        self.first = self.head["snapshot-id"]
        self.writer: Writer = self.target.writer(folder)
        self.commit(1)

    def commit(self, number: int) -> None:
        self.writer.commit(1, batch(number, Model(ORDERS).apply(ROWS[:1], [])))

    @property
    def metadata(self) -> Json:
        loaded = self.sink.catalog.load(NAME)
        assert loaded is not None
        return loaded.metadata

    @property
    def head(self) -> Json:
        number = self.metadata["current-snapshot-id"]
        return next(s for s in self.metadata["snapshots"] if s["snapshot-id"] == number)

    def set_main(self, snapshot: int) -> None:
        """As `rollback_to_snapshot` does."""
        update = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot}
        self.sink.catalog.commit(NAME, [], [update])

    def expire(self) -> None:
        """Leaves the newest snapshot alone, as `expire_snapshots` of a table that rested."""
        gone = [s["snapshot-id"] for s in self.metadata["snapshots"] if s != self.head]
        self.sink.catalog.commit(NAME, [], [{"action": "remove-snapshots", "snapshot-ids": gone}])

    def write_as_spark(self, operation: str) -> int:
        """A snapshot of another program with the files that are there; its sequence number."""
        number, parent = self.metadata["last-sequence-number"] + 1, self.head
        summary = {"operation": operation, "engine-name": "spark", "engine-version": "4.1.4"}
        its: dict[str, Any] = {
            **parent,
            "snapshot-id": number,
            "parent-snapshot-id": parent["snapshot-id"],
            "sequence-number": number,
            "summary": summary,
            **({"first-row-id": self.metadata["next-row-id"], "added-rows": 0} if "first-row-id" in parent else {}),
        }
        self.sink.catalog.commit(NAME, [], [{"action": "add-snapshot", "snapshot": its}])
        self.set_main(number)
        return int(number)


@pytest.fixture
def table(tmp_path: Path) -> StreamedTable:
    return StreamedTable(tmp_path)


@pytest.mark.parametrize("operation", ["append", "overwrite", "delete"])
def test_rows_that_another_program_changed_are_news_and_stay_noted(table: StreamedTable, operation: str) -> None:
    assert not table.writer.has_news()
    version = table.write_as_spark(operation)
    assert table.writer.has_news()
    state = table.target.last_commit()
    assert state is not None
    write = state.written
    assert write is not None
    assert write == SinkWrite(version, "spark 4.1.4", operation, write.at)
    table.commit(2)
    state = table.target.last_commit()
    assert state is not None
    assert (state.commit_number, state.written) == (3, write), "our next commit keeps the note"
    assert not table.writer.has_news()


def test_upkeep_of_another_program_is_no_change_of_rows(table: StreamedTable) -> None:
    before = table.target.last_commit()
    table.write_as_spark("replace")
    assert table.target.last_commit() == before
    table.commit(2)
    assert before is not None
    after = table.target.last_commit()
    assert after == replace(before, commit_number=3, position=after.position if after else None)


def test_a_branch_that_was_taken_back_is_refused_until_it_is_as_we_left_it(table: StreamedTable) -> None:
    ours, state = table.head["snapshot-id"], table.target.last_commit()
    table.set_main(table.first)
    assert table.writer.has_news()
    with pytest.raises(PermanentError) as found:
        table.target.last_commit()
    assert (found.value.reason, found.value.table) == (Reason.SINK_CONFLICT, str(ORDERS.id))
    with pytest.raises(PermanentError, match="taken back"):
        table.commit(2)
    assert table.head["snapshot-id"] == table.first, "nothing was committed onto older rows"
    table.set_main(ours)
    assert table.target.last_commit() == state


def test_a_branch_that_was_taken_back_is_refused_whatever_upkeep_follows(table: StreamedTable) -> None:
    table.set_main(table.first)
    table.write_as_spark("replace")
    table.expire()
    for _ in range(2):
        with pytest.raises(PermanentError, match="taken back"):
            table.commit(2)
    assert table.head["summary"]["engine-name"] == "spark"


def test_upkeep_that_expires_our_newest_snapshot_is_no_change_of_rows(table: StreamedTable) -> None:
    before = table.target.last_commit()
    table.write_as_spark("replace")
    table.expire()
    assert table.target.last_commit() == before


@pytest.mark.parametrize("unseen", ["overwrite", "replace"])
def test_rows_that_may_have_changed_unseen_stay_noted(table: StreamedTable, unseen: str) -> None:
    """The snapshot between ours and the one that is left may have changed rows."""
    table.write_as_spark(unseen)
    version = table.write_as_spark("replace")
    table.expire()
    state = table.target.last_commit()
    assert state is not None
    write = state.written
    assert write is not None
    assert (write.version, write.program) == (version, "")
    table.commit(2)
    table.write_as_spark("replace")
    table.expire()
    state = table.target.last_commit()
    assert state is not None
    assert (state.commit_number, state.written) == (3, write)


def write_as_newer_run(table: StreamedTable) -> None:
    table.target.commit(2, stamp(2))


def write_as_spark(table: StreamedTable) -> None:
    table.write_as_spark("overwrite")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("lost", [False, True], ids=["answered by the newest table", "answer lost"])
@pytest.mark.parametrize("write", [write_as_newer_run, write_as_spark])
def test_maintenance_does_not_undo_a_commit_that_came_before_our_answer(
    tmp_path: Path, write: Callable[[StreamedTable], None], lost: bool, version: int
) -> None:
    """The newest metadata that we have are of that commit, the files and the state are of ours."""
    table = StreamedTable(tmp_path, lost=lost, version=version)
    assert "remove orphans" in iter(table.writer.maintain, ""), "which opens the newest table"
    table.catalog.meanwhile.append(lambda: write(table))
    table.commit(2)
    theirs, state, rows = table.head, table.target.last_commit(), content(table.target)
    assert table.writer.has_news()
    assert table.writer.maintain() == ""
    assert (table.head, table.target.last_commit(), content(table.target)) == (theirs, state, rows)
