"""Tables without a key: history tables take them, from one view as of an exact position, beside
writers of equal rows; whoever needs a key refuses them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from cdcsync_core.errors import CdcError, Reason, TransientError
from cdcsync_core.positions.position import Position
from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.confirmation import contradictions
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions import view
from cdcsync_mysql.readiness.preflight import preflight
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source, fetch
from cdcsync_spark.rows.changes import KIND, ChangeKind
from cdcsync_spark.snapshot.splits import exact_view
from cdcsync_spark.snapshot.splits.exact_view import ExactView
from cdcsync_spark.stream.confirmation import CatalogTable, ask_catalog
from cdcsync_spark.wire.binlog.facts import RowsEvent
from cdcsync_spark.wire.binlog.rows import batches
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.bag_writers import BagWriters, bag_of, create_bag
from support.fixtures import FreshDatabase, usually_on
from support.servers import Server
from support.source import source_of
from support.sync_process import Gate, Sync

HISTORY = {"sink": {"delta": {"mode": "history"}}}
TOPICS = {"bootstrapServers": "b:9092", "staging": {"path": "/lake"}}
COLUMNS = ("a", "word", "v")
Row = tuple[object, ...]


def _bag_after(history: list[dict[str, object]]) -> Counter[Row]:
    """The rows that are left; each that goes was there."""
    rows: Counter[Row] = Counter()
    for event in sorted(history, key=lambda e: e["_cdc_seq"]):  # type: ignore[arg-type, return-value]
        row = tuple(event[name] for name in COLUMNS)
        rows[row] += 1 if str(event["_cdc_op"]).startswith("+") else -1
        assert rows[row] >= 0, event
    return +rows


def _history(sync: Sync, database: str) -> list[dict[str, object]]:
    """Nothing while there is no table."""
    table = f"{database}.bag"
    return sync.target(table).to_pylist() if sync.has_version(table) else []


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
@usually_on("mysql97_gtid")
def test_a_history_of_a_table_without_a_key(any_server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """Each change once, after a snapshot without a false row, though equal rows are written and
    a run is killed behind the view."""
    database = fresh_database(any_server)
    create_bag(any_server, database)
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec=HISTORY) as sync:
        with BagWriters(any_server, database) as writers:
            sync.start("forever", Gate("view-opened"))
            sync.wait_fired()
            sync.kill_all()
            sync.start("forever")
            sync.wait_until(lambda: {"-U", "-D"} <= {e["_cdc_op"] for e in _history(sync, database)}, "changes")
            assert writers.changes
        end = bag_of(any_server, database)
        sync.wait_until(lambda: _bag_after(_history(sync, database)) == end, "all that was written")
        assert "no key" in sync.command("verify", "-o", "json").stdout


@usually_on("mariadb1011", "mysql97_gtid")
def test_a_view_that_is_called_exact_is(any_server: Server, fresh_database: FreshDatabase) -> None:
    """The rows that it has, and what the binlog has behind its position, are the table."""
    database = fresh_database(any_server)
    create_bag(any_server, database)
    table, source = TableId(database, "bag"), source_of(any_server)
    with BagWriters(any_server, database, xa_part=0) as writers:
        views = [_read_view(source, table, writers) for _ in range(8)]
    end = bag_of(any_server, database)
    for position, rows in views:
        changes = _changes_after(source, table, position)
        assert changes, "they were written beside the views"
        rows.update(row for row, count in changes.items() for _ in range(max(count, 0)))
        rows.subtract({row: -count for row, count in changes.items() if count < 0})
        assert +rows == end, position


def _read_view(source: Source, table: TableId, writers: BagWriters) -> tuple[Position, Counter[Row]]:
    with open_session(source) as session:
        lineage = session.facts.lineage
        connection = session.proved(lineage)
        position = _open(ExactView(source, lineage, session.facts, table, seconds=20), connection, writers)
        before = writers.changes
        while writers.changes < before + 3:
            time.sleep(0.01)
        return position, Counter(fetch(connection, f"SELECT a, word, v FROM {table.quoted}"))


def _open(view: ExactView, connection: pymysql.Connection, writers: BagWriters) -> Position:
    """Writers that leave no moment to a slow machine write half as often from then on."""
    while True:
        try:
            return view.open(connection)
        except TransientError as e:
            if e.reason is not Reason.TABLE_BUSY:
                raise
            writers.pause *= 2


def _changes_after(source: Source, table: TableId, position: Position) -> Counter[Row]:
    """How many of each row the binlog adds behind the position."""
    with open_session(source) as session:
        facts = session.facts
        definition = read_table(session.proved(facts.lineage), table, needs_key=False)
    read = ExactView(source, facts.lineage, facts, table).facts_after(position)
    events = [fact for fact in read if isinstance(fact, RowsEvent)]
    counts: Counter[Row] = Counter()
    for decoded in batches(definition, events, [0] * len(events)):
        for image in pa.table(decoded.batch).to_pylist():
            added = image[KIND] in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)
            counts[tuple(image[name] for name in COLUMNS)] += 1 if added else -1
    return counts


def test_the_catalog_confirms_a_table_without_a_key(mariadb1011: Server, fresh_database: FreshDatabase) -> None:
    """As after each change of its definition."""
    database = fresh_database(mariadb1011)
    create_bag(mariadb1011, database)
    table, source = TableId(database, "bag"), source_of(mariadb1011)
    with open_session(source) as session:
        lineage = session.facts.lineage
        definition = read_table(session.proved(lineage), table, needs_key=False)
    shown = ask_catalog(source, lineage, {"bag": definition}).tables["bag"]
    assert isinstance(shown, CatalogTable)
    assert contradictions(definition, shown.capture) == []


def test_a_statement_behind_the_view(
    any_server: Server, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view still shows the rows of a partition until it is dropped: such a view is given up."""
    database = fresh_database(any_server)
    create_bag(any_server, database)
    by_a = "PARTITION BY RANGE (a) (PARTITION low VALUES LESS THAN (4), PARTITION high VALUES LESS THAN (99))"
    any_server.run(f"ALTER TABLE bag {by_a}", db=database)
    opened, statements = exact_view.open_view, ["ALTER TABLE bag DROP PARTITION low"]

    def open_and_drop(connection: Connection, facts: ServerFacts, floor: Position) -> view.View:
        shown = opened(connection, facts, floor)
        while statements:
            any_server.run(statements.pop(), db=database)
        return shown

    monkeypatch.setattr(exact_view, "open_view", open_and_drop)
    table, source = TableId(database, "bag"), source_of(any_server)
    with open_session(source) as session:
        lineage = session.facts.lineage
        connection = session.proved(lineage)
        exact = ExactView(source, lineage, session.facts, table, seconds=120)
        position = exact.open(connection)
        assert Counter(fetch(connection, f"SELECT a, word, v FROM {table.quoted}")) == bag_of(any_server, database)
        behind = [fact.sql for fact in exact.facts_after(position) if isinstance(fact, Statement)]
    assert not [sql for sql in behind if "DROP PARTITION" in sql]


@pytest.mark.parametrize("writes", [1, 1000], ids=["once", "each time"])
def test_a_change_beside_the_view(
    any_mysql: Server, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """MySQL does not name a view's position: a change between the two makes the next view, and
    one beside each of them ends with the reason, and with what would help."""
    database = fresh_database(any_mysql)
    create_bag(any_mysql, database)
    left, begin = [writes], view._begin

    def write_and_begin(connection: Connection) -> None:
        if left[0]:
            left[0] -= 1
            any_mysql.run("INSERT INTO bag VALUES (1, 'beside', 1)", db=database)
        begin(connection)

    monkeypatch.setattr(view, "_begin", write_and_begin)
    source = source_of(any_mysql)
    with open_session(source) as session:
        lineage = session.facts.lineage
        connection = session.proved(lineage)
        exact = ExactView(source, lineage, session.facts, TableId(database, "bag"), seconds=120 if writes == 1 else 0)
        if writes == 1:
            exact.open(connection)
            assert fetch(connection, f"SELECT COUNT(*) FROM {database}.bag WHERE word = 'beside'") == [(1,)]
            return
        with pytest.raises(CdcError) as refused:
            exact.open(connection)
    assert refused.value.reason is Reason.TABLE_BUSY
    assert "ADD PRIMARY KEY" in refused.value.remedy


@pytest.mark.parametrize(
    "sink",
    [
        {"delta": {"path": "/lake"}},
        {"delta": {"path": "/lake", "mode": "history"}},
        {"kafka": TOPICS},
        {"kafka": TOPICS | {"format": "changelog-json"}},
        {"kafka": TOPICS | {"compatible": "exact"}},
        {"kafka": TOPICS | {"format": "canal-json"}},
        {"kafka": TOPICS | {"format": "upsert-json"}},
    ],
    ids=["replica", "history", "debezium", "changelog", "exact", "canal", "upsert"],
)
def test_who_needs_a_key_refuses_the_table(
    mariadb1011: Server, fresh_database: FreshDatabase, sink: dict[str, Any]
) -> None:
    database = fresh_database(mariadb1011)
    create_bag(mariadb1011, database)
    reference = {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}}
    spec = {"source": reference, "tables": {"include": [rf"{database}\..*"]}, "sink": sink}
    [table] = preflight(source_of(mariadb1011), Spec.model_validate(spec)).tables
    topics = sink.get("kafka", {})
    changes = topics.get("format", "debezium-json") in ("debezium-json", "changelog-json")
    if "mode" in sink.get("delta", {}) or (topics and changes and "compatible" not in topics):
        assert table.error is None
        assert (table.splits, "one SELECT" in table.warnings[0]) == (1, True)
    else:
        assert table.error is not None
        assert table.error.reason is Reason.NO_PRIMARY_KEY
