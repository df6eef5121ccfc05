"""Schema changes of a source whose history is kept, on real servers: what leaves the published rows
as they are is followed, what would change them stops the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdcsync_core.errors import Reason
from cdcsync_core.tables.schema_change import Kind
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.sinks.delta.history.target import HistorySink, HistoryTarget
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import stamp
from support.compare import compare, source_rows
from support.deaths import Died, dying_at
from support.event_consumer import CheckingConsumer, Event
from support.fixtures import FreshDatabase, variants
from support.followed_copy import alter, last_change, write
from support.history import history_events
from support.lake import query
from support.schema_classes import CLASSES, TABLES
from support.servers import Server
from support.stepwise import Stepwise

pytestmark = pytest.mark.server
servers = variants("mariadb1011", also=("mariadb114", "mysql97_gtid", "mysql97_nogtid"))

APPENDED = FollowPolicy(follow=True, append_only=True)
#: those that leave every row as it is
FOLLOWED = {"add", "indexes", "reorder", "members", "charset", "charset-of-the-table", "convert", "longer", "nothing"}
_IN_ORDER = "SELECT * FROM t ORDER BY _cdc_seq, id"
DROPPED = "ALTER TABLE a DROP v, DROP dt"


@pytest.fixture
def copy(request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path) -> Stepwise:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(*TABLES, db=database)
    sink = HistorySink(open_store(str(tmp_path / "lake")), "test/stepwise")
    return Stepwise(server, database, tmp_path, sink=sink, policy=APPENDED)


def read(copy: Stepwise) -> Stepwise:
    copy.snapshot("a")
    copy.snapshot("b")
    return copy


def events(copy: Stepwise) -> list[Event]:
    target = copy.targets["a"]
    assert isinstance(target, HistoryTarget)
    return history_events(target.path)


def flows(copy: Stepwise) -> None:
    """No event is false, and folded they are the source's table."""
    found = {name: str(t.error) for name, t in copy.follow().items() if t.error}
    assert found == {}
    assert CheckingConsumer(("id",)).take(events(copy)).faults == []
    snapshot = copy.targets["a"].open_snapshot()
    captured = [c.name for c in snapshot.state.capture.captured]
    folded = snapshot.scan(captured).read_all()
    difference = compare("a", source_rows(copy.server, copy.database, "a", folded.schema), folded, ("id",))
    assert not difference, str(difference)


def stops(copy: Stepwise) -> None:
    """The table alone, and nothing that is published changes."""
    copy.follow()
    before = events(copy), copy.targets["a"].last_commit()
    write(copy, 50)
    found = {name: t.error for name, t in copy.follow().items() if t.error}
    assert {name: e.reason for name, e in found.items()} == {"a": Reason.SCHEMA_CHANGE_REFUSED}
    assert "published" in found["a"].found
    assert "resnapshot" in found["a"].remedy
    assert (events(copy), copy.targets["a"].last_commit()) == before


@servers
@pytest.mark.parametrize("name", CLASSES)
def test_what_changes_no_published_row_is_followed_and_nothing_else(copy: Stepwise, name: str) -> None:
    kind, statements = CLASSES[name]
    read(copy)
    write(copy, 10)
    alter(copy, *statements)
    write(copy, 20)
    if name == "drop":
        # with `keep`, which is the default: the columns stay, and are NULL from then on
        flows(copy)
        assert copy.targets["a"].open_snapshot().schema.names[-2:] == ["v", "dt"]
    elif name in FOLLOWED:
        flows(copy)
        assert last_change(copy).kind is kind
    else:
        stops(copy)


@servers
@pytest.mark.parametrize("name", ["add-default", "widen", "truncate"])
def test_before_the_snapshot_is_published_everything_is_followed(copy: Stepwise, name: str) -> None:
    """The statement is between LOW and HIGH: it changes the staged copy, and no row says so."""
    statements = CLASSES[name].statements
    copy.chunk_size = 1
    copy.snapshot("b")
    copy.snapshot("a", lambda split: alter(copy, *(statements if split == 2 else ())))
    write(copy, 10)
    flows(copy)
    assert last_change(copy).kind in (Kind.FILL, Kind.RESHAPE, Kind.EMPTY)


@servers
@pytest.mark.parametrize(
    ("gate", "count"), [("before-commit", 1), ("step-staged", 1), ("entry-written", 1), ("step-committed", 1)]
)
@pytest.mark.parametrize("statement", ["ALTER TABLE a ADD x INT FIRST", DROPPED], ids=["add", "drop"])
def test_a_run_that_dies_at_a_step_is_gone_on_from(copy: Stepwise, statement: str, gate: str, count: int) -> None:
    read(copy)
    write(copy, 10)
    copy.follow()
    alter(copy, statement)
    write(copy, 20)
    with dying_at(gate, count), pytest.raises(Died):
        copy.follow()
    flows(copy)


@servers
def test_a_column_with_a_metadata_columns_name_stops_the_table(copy: Stepwise) -> None:
    """The error has the remedy; nothing of the change is written."""
    read(copy)
    copy.follow()
    before = events(copy)
    alter(copy, "ALTER TABLE a ADD _CDC_seq INT")
    write(copy, 10)
    error = copy.follow()["a"].error
    assert error is not None
    assert (error.reason, "_CDC_seq has the name" in error.found) == (Reason.SPEC_INVALID, True)
    assert events(copy) == before


@servers
def test_files_of_all_definitions_are_gathered(copy: Stepwise, tmp_path: Path) -> None:
    """Into files of the newest one, and delta-rs reads what was there before."""
    few = MaintenancePolicy(gathered_files=3)
    copy.sink = HistorySink(open_store(str(tmp_path / "lake")), "test/stepwise", policy=few)
    read(copy)
    for number, statement in enumerate(("ALTER TABLE a ADD x INT FIRST", DROPPED, "ALTER TABLE a ADD y VARCHAR(9)")):
        write(copy, 10 * number + 10)
        copy.follow()
        alter(copy, statement)
    write(copy, 40)
    flows(copy)
    target = copy.targets["a"]
    assert isinstance(target, HistoryTarget)
    before = query(DeltaTable(target.path.store.uri), _IN_ORDER)
    writer = target.writer()
    writer.commit(1, stamp())
    assert "compact" in [writer.maintain() for _ in range(9)]
    after = query(DeltaTable(target.path.store.uri), _IN_ORDER)
    assert after.equals(before)
    flows(copy)
