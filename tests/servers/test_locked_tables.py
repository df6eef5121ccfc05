"""Many tables that other sessions lock, as the catalog and the preflight see them: each is named,
for all of them together little time is spent, and no other table is held back (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql import lock_budget
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.readiness.preflight import preflight
from cdcsync_mysql.readiness.reach import Cascades, cascades_to, fault_of_reading, fault_of_writing
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.selected_tables import Resolved, resolve
from cdcsync_mysql.sessions import session
from cdcsync_mysql.sessions.connection import Connection, connect, fetch
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from support.fixtures import FreshDatabase, usually_on
from support.locks import locked, locked_for_ddl
from support.semisync import until
from support.servers import Server
from support.source import connected, source_of

pytestmark = pytest.mark.timeout(600)
_ON_MARIADB = pytest.mark.parametrize("any_server", ["mariadb1011"], indirect=True)
_LOCKED = [f"a{number}" for number in range(6)]


@pytest.fixture
def database(any_server: Server, fresh_database: FreshDatabase) -> str:
    """A database of six tables that are locked later and two others, the second with a trigger."""
    name = fresh_database(any_server)
    tables = [f"CREATE TABLE {t} (id INT PRIMARY KEY)" for t in (*_LOCKED, "b", "c")]
    child = "CREATE TABLE a_child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES b (id) ON DELETE CASCADE)"
    any_server.run(*tables, child, db=name)
    return name


def _spec(database: str) -> Spec:
    return Spec.model_validate(
        {
            "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}},
            "tables": {"include": [rf"{database}\..*"]},
            "sink": {"delta": {"path": "/lake"}},
        }
    )


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LOCK_SECONDS", 1)
    monkeypatch.setattr(LockBudget, "seconds", 2.0)


@usually_on("mariadb1011", "mysql97_gtid")
def test_tables_are_listed_without_a_wait_for_those_that_are_locked(any_server: Server, database: str) -> None:
    spec = _spec(database)
    with locked_for_ddl(any_server, database, _LOCKED), connect(source_of(any_server), max_seconds=12) as connection:
        found = resolve(connection, spec.tables.selection).tables
    assert {t.name for t in found} == {*_LOCKED, "a_child", "b", "c"}


@usually_on("mariadb1011", "mysql97_gtid")
def test_a_preflight_names_all_that_are_locked_and_passes_the_others(
    any_server: Server, database: str, short_waits: None
) -> None:
    with locked_for_ddl(any_server, database, _LOCKED):
        found = preflight(source_of(any_server), _spec(database), replica_id=3_000_000_001)
    assert found.failures == ()
    errors = {t.id.name: t.error for t in found.tables}
    busy = {name for name, e in errors.items() if e is not None and e.reason is Reason.TABLE_BUSY}
    assert busy == set(_LOCKED)
    assert all("1205" in e.found for n, e in errors.items() if n in busy and e is not None)
    assert errors["b"] is errors["c"] is None
    again = preflight(source_of(any_server), _spec(database), replica_id=3_000_000_001)
    assert {t.id.name for t in again.tables if t.error is not None} <= {"a_child"}, "nothing was renamed"


@usually_on("mariadb1011", "mysql97_gtid")
def test_no_answer_leaves_out_what_hangs_on_a_locked_table(
    any_server: Server, database: str, short_waits: None
) -> None:
    """MariaDB answers as if a locked table had no columns, keys and triggers."""
    b, c, child = (TableId(database, name) for name in ("b", "c", "a_child"))
    with connected(any_server) as (connection, _):
        assert "cascades" in _fault(connection, b, [child])
    with locked_for_ddl(any_server, database, ["a_child"]), connected(any_server) as (connection, _):
        with pytest.raises(CdcError) as found:
            read_table(connection, child)
        assert found.value.reason is Reason.TABLE_BUSY
        if any_server.flavor == "mysql":
            assert "cascades" in _fault(connection, b, [child])
            return
        locked = cascades_to(connection, [child, c], LockBudget()).locked
        assert {table: error.reason for table, error in locked.items()} == {child: Reason.TABLE_BUSY}


@usually_on("mariadb1011", "mysql97_gtid")
def test_locks_of_other_tables_leave_the_reach_of_a_change_known(
    any_server: Server, database: str, short_waits: None
) -> None:
    b, c, child = (TableId(database, name) for name in ("b", "c", "a_child"))
    with locked_for_ddl(any_server, database, _LOCKED[:2]), connected(any_server) as (connection, _):
        assert "cascades" in _fault(connection, b, [child, c])
        assert _fault(connection, c, [child]) == ""


def _fault(connection: Connection, written: TableId, captured: list[TableId]) -> str:
    cascades = cascades_to(connection, captured, LockBudget())
    assert not cascades.locked
    return fault_of_writing(connection, written, cascades)


@_ON_MARIADB
def test_nothing_that_mariadb_answers_without_a_wait_names_the_triggers_of_a_locked_table(
    any_server: Server, database: str, short_waits: None
) -> None:
    """So what a change of the table reaches is unknown until the DDL ends."""
    any_server.run("CREATE TRIGGER reaches_a0 AFTER INSERT ON b FOR EACH ROW DELETE FROM a0", db=database)
    assert _catalog_tables_naming(any_server, "reaches_a0") == {("information_schema", "TRIGGERS")}
    with locked_for_ddl(any_server, database, ["b"]):
        assert _catalog_tables_naming(any_server, "reaches_a0") == set()
        for ask in (fault_of_reading, partial(fault_of_writing, cascades=Cascades())):
            with connected(any_server) as (connection, _), pytest.raises(CdcError) as found:
                ask(connection, TableId(database, "b"))
            assert found.value.reason is Reason.TABLE_BUSY
            assert f"a change in statement format of `{database}`.`b`" in found.value.found


def _catalog_tables_naming(server: Server, text: str) -> set[tuple[str, str]]:
    schemas = "('information_schema', 'mysql', 'performance_schema')"
    listed = server.query(
        f"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA IN {schemas}"
        " AND TABLE_NAME <> 'ALL_PLUGINS'"  # reads a folder that the server may lack
    )
    assert len(listed) > 100
    session = "SET STATEMENT lock_wait_timeout = 0 FOR SELECT * FROM"
    return {
        (schema, table)
        for schema, table in listed
        if any(text in str(value) for row in server.query(f"{session} `{schema}`.`{table}`") for value in row)
    }


@_ON_MARIADB
def test_an_alter_that_waits_for_readers_hides_no_triggers(any_server: Server, database: str) -> None:
    """Only its last moment does, for which it waits."""
    b, child = TableId(database, "b"), TableId(database, "a_child")
    with any_server.connect(db=database) as reader, reader.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM b")
        with ThreadPoolExecutor(1) as pool:
            altering = pool.submit(any_server.run, "ALTER TABLE b ADD n INT, ALGORITHM=COPY", db=database)
            waits = (
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%%metadata lock%%' AND DB = %s"
            )
            until(lambda: any_server.query(waits, database) == [(1,)], "the ALTER that waits")
            try:
                with connected(any_server) as (connection, _):
                    fetch(connection, "SET SESSION lock_wait_timeout = 0")
                    assert "cascades" in _fault(connection, b, [child])
                assert not altering.done()
            finally:
                cursor.execute("COMMIT")


@contextmanager
def _listing(server: Server, warnings: int) -> Iterator[None]:
    """New sessions inherit how many warnings the server lists."""
    ((before,),) = server.query("SELECT @@GLOBAL.max_error_count")
    server.run(f"SET GLOBAL max_error_count = {warnings}")
    try:
        yield
    finally:
        server.run(f"SET GLOBAL max_error_count = {before}")


@usually_on("mariadb1011", "mysql97_gtid")
def test_a_split_of_a_locked_table_is_waited_for_briefly_where_others_were_locked(
    any_server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the profile says, which would be longer than this test has."""
    monkeypatch.setattr(session, "_LOCK_SECONDS", 3600)
    with connected(any_server) as (connection, facts):
        table = read_table(connection, TableId(database, "b"))
        low = LowMark(source_of(any_server), facts).take()
    reader = SplitReader(source_of(any_server), facts.lineage, table, Split(), low, 7200, briefly=True)
    with locked(any_server, database, ["b"]), pytest.raises(CdcError) as found:
        list(reader.batches())
    assert found.value.reason is Reason.TABLE_BUSY


@pytest.fixture
def no_time(short_waits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockBudget, "seconds", 0.0)
    monkeypatch.setattr(LockBudget, "more_seconds", 0.0)


@usually_on("mariadb1011", "mysql97_gtid")
def test_a_table_that_is_not_waited_for_has_the_words_of_a_lock(
    any_server: Server, database: str, no_time: None
) -> None:
    locks = LockBudget()
    with locked_for_ddl(any_server, database, _LOCKED), connected(any_server) as (connection, _):
        for name in _LOCKED[:3]:
            with pytest.raises(CdcError) as found, locks.asking(connection, TableId(database, name)):
                read_table(connection, TableId(database, name))
            assert (found.value.reason, "SHOW PROCESSLIST" in found.value.remedy) == (Reason.TABLE_BUSY, True)


@usually_on("mariadb1011", "mysql97_gtid")
def test_a_table_that_is_dropped_behind_locked_ones_is_its_own_failure(
    any_server: Server, database: str, no_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the tables were listed."""
    monkeypatch.setattr(lock_budget, "_OPENING_MILLISECONDS", 60_000)
    listed = [TableId(database, name) for name in (*_LOCKED[:2], "gone", "b")]
    monkeypatch.setattr("cdcsync_mysql.readiness.preflight.resolve", lambda *_: Resolved(tuple(listed)))
    with locked_for_ddl(any_server, database, _LOCKED):
        found = preflight(source_of(any_server), _spec(database), replica_id=3_000_000_001)
    assert found.failures == ()
    errors = {t.id.name: t.error for t in found.tables}
    assert errors["gone"] is not None
    assert errors["gone"].reason is Reason.NO_SUCH_TABLE
    assert errors["b"] is None


@_ON_MARIADB
def test_a_server_that_lists_no_warnings_hides_no_locked_table(
    any_server: Server, database: str, short_waits: None
) -> None:
    child = TableId(database, "a_child")
    with (
        _listing(any_server, 0),
        connected(any_server) as (connection, _),
        locked_for_ddl(any_server, database, ["a_child"]),
    ):
        with pytest.raises(CdcError) as found:
            read_table(connection, child)
        assert found.value.reason is Reason.TABLE_BUSY
        assert child in cascades_to(connection, [child], LockBudget()).locked


@_ON_MARIADB
def test_many_other_warnings_hide_no_locked_table(any_server: Server, database: str, short_waits: None) -> None:
    """Broken views before it in the alphabet have a warning each."""
    views = [f"CREATE VIEW a0{n:03d} AS SELECT * FROM gone" for n in range(100)]
    any_server.run("CREATE TABLE gone (id INT)", *views, "DROP TABLE gone", db=database)
    columns = f"SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{database}'"
    with connected(any_server) as (connection, _):
        assert ("a_child", "id") in fetch(connection, columns)
    with locked_for_ddl(any_server, database, ["a_child"]), connected(any_server) as (connection, _):
        with pytest.raises(CdcError) as found:
            fetch(connection, columns)
        assert found.value.reason is Reason.TABLE_BUSY


def test_an_answer_whose_warnings_are_not_all_listed_is_refused(any_server: Server) -> None:
    """MariaDB alone answers so: MySQL waits for what it answers from, and lists what its settings
    say."""
    with connected(any_server) as (connection, _):
        assert fetch(connection, "SELECT CAST('x' AS SIGNED)") == [(0,)]
        fetch(connection, "SET SESSION max_error_count = 0")
        if any_server.flavor == "mysql":
            assert fetch(connection, "SELECT CAST('x' AS SIGNED)") == [(0,)]
            return
        with pytest.raises(CdcError, match="1 warnings, of which the server lists 0"):
            fetch(connection, "SELECT CAST('x' AS SIGNED)")
