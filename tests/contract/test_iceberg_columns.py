"""What another program does to the columns of an Iceberg table by a schema alone, without a
snapshot.

Readers find columns by field ids, so a name and a type do not say whose values a column has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.schema_change import Filled, Kept, Origin
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistorySink
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, first_state, make_table, step, whole_snapshot
from support.folder_catalog import iceberg_sink

NAME = CatalogTableName(("shop",), "orders")
#: two columns of one type
TABLE = make_table({"id": "bigint(20)", "low": "int(11)", "high": "int(11)"}, ["id"])
ROWS = [(1, 10, 20), (2, 30, 40)]
OTHER = {"name": "other", "required": False}
POLICY = MaintenancePolicy(gathered_files=2, retry_seconds=0)


class AlteredTable:
    """One of ours with a batch beyond its snapshot, and a stream's writer that has opened it."""

    def __init__(self, folder: Path) -> None:
        self.sink: IcebergSink = iceberg_sink(open_store(str(folder / "lake")), SYNC, policy=POLICY)
        self.target: IcebergTarget = self.sink.target(TABLE.id)
        whole_snapshot(self.target, ROWS, TABLE)
        self.writer: Writer = self.target.writer(folder)
        self.commit(1)

    def commit(self, number: int) -> None:
        self.writer.commit(1, batch(number, Model(TABLE).apply(ROWS[:1], [])))

    def compacts(self) -> bool:
        """Whether maintenance, all that is due, has a compaction."""
        return "compact" in list(iter(self.writer.maintain, ""))

    @property
    def schemas(self) -> list[Any]:
        loaded = self.sink.catalog.load(NAME)
        assert loaded is not None
        return list(loaded.metadata["schemas"])

    @property
    def field_ids(self) -> dict[str, int]:
        """The ids of the columns in the first schema."""
        return {field["name"]: field["id"] for field in self.schemas[0]["fields"]}

    def alter(self, ids: Mapping[str, int], kind: str = "string") -> None:
        """Gives the columns these field ids, as `ALTER TABLE` of another program does; one of
        another name is added, of the type `kind`."""
        first, number = self.schemas[0], max(s["schema-id"] for s in self.schemas) + 1
        named = {field["name"]: field for field in first["fields"]}
        fields = [{**named.get(name, OTHER | {"type": kind}), "id": field_id} for name, field_id in ids.items()]
        schema = {**first, "schema-id": number, "fields": fields}
        updates = [
            {"action": "add-schema", "schema": schema},
            {"action": "set-current-schema", "schema-id": number},
        ]
        self.sink.catalog.commit(NAME, [], updates)


@pytest.mark.parametrize("change", ["dropped and added again", "names swapped"])
def test_a_column_with_the_field_id_of_another_is_refused_and_written_to_no_file(tmp_path: Path, change: str) -> None:
    """Its values are those of another column, or NULL: a commit would go on beside them, and
    compaction would make them the only ones."""
    table = AlteredTable(tmp_path)
    before, ids = content(table.target), table.field_ids
    others = {"low": 9} if change == "dropped and added again" else {"low": ids["high"], "high": ids["low"]}
    table.alter(ids | others)
    assert table.writer.has_news()
    assert table.writer.last_commit() is not None
    assert not table.compacts()
    with pytest.raises(PermanentError, match=f"column 'low' is another: its field id was {ids['low']}, and is "):
        table.commit(2)
    with pytest.raises(PermanentError, match="column 'low' is another"):  # a verification, for one
        content(table.target)
    table.alter(ids)
    table.commit(2)
    assert table.compacts()
    assert content(table.target) == before


def test_log_and_status_say_that_a_column_of_another_program_ends_compaction(tmp_path: Path) -> None:
    """Its values, of a type that no column of ours has, would be forgotten; and each batch leaves a
    file for good."""
    table = AlteredTable(tmp_path)
    ids = table.field_ids
    table.alter(ids | {"other": 9}, "uuid")
    with capture_logs() as logs:
        for number in range(2, 6):
            table.commit(number)
            assert not table.compacts()
    (warning,) = (line for line in logs if line["log_level"] == "warning")
    assert (warning["step"], warning["table"]) == ("compact", str(TABLE.id))
    refusal = "would forget the values of the target's column 'other'"
    assert refusal in warning["error"]
    assert refusal in table.writer.status.uncompacted
    table.alter(ids)
    table.commit(6)
    assert table.compacts()
    assert not table.writer.status.uncompacted
    assert content(table.target) == ROWS


@pytest.mark.parametrize("origins", [(Kept("id"), Kept("note")), (Kept("id"), Filled("x"))], ids=["name", "values"])
def test_what_a_history_has_published_keeps_its_names_and_values(tmp_path: Path, origins: tuple[Origin, ...]) -> None:
    """Replicas follow such a change by field ids, without a file that is written again."""
    tables = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC)
    renamed = make_table({"id": "bigint(20)", "other": "varchar(20)"}, ["id"])
    target = IcebergHistorySink(tables).target(ORDERS.id)
    state = whole_snapshot(target, [(1, "one")])
    with pytest.raises(PermanentError, match="rows that stay as they are") as refused:
        target.commit(1, step(1, renamed, origins))
    assert refused.value.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert target.last_commit() == state


@pytest.mark.parametrize("history", [False, True], ids=["replica", "history"])
def test_a_column_with_the_name_of_a_metadata_column_is_refused(tmp_path: Path, history: bool) -> None:
    """Spark cannot read such a table: it is not made, nor does a table get such a column."""
    tables = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC)
    sink: Sink = IcebergHistorySink(tables) if history else tables
    taken = make_table({"id": "bigint(20)", "note": "varchar(20)", "_Pos": "int(11)"}, ["id"])
    with pytest.raises(PermanentError, match="column _Pos has the name of a metadata column") as error:
        sink.target(taken.id).prepare(first_state(taken))
    assert (error.value.reason, error.value.table) == (Reason.SPEC_INVALID, str(taken.id))
    assert tables.catalog.load(NAME) is None
    target = tables.target(ORDERS.id)
    state = whole_snapshot(target, [(1, "one")])
    with pytest.raises(PermanentError, match="column _Pos has the name of a metadata column"):
        target.commit(1, step(1, taken, (Kept("id"), Kept("note"), Filled(None))))
    with pytest.raises(PermanentError, match="column _Pos has the name of a metadata column"):
        tables.target(taken.id, generation=1).prepare(first_state(taken, nonce=1))
    assert (target.last_commit(), content(target)) == (state, [(1, "one")])
