"""Many tables that other sessions lock, as the catalog and the preflight see them: each is named,
for all of them together little time is spent, and no other table is held back (R5)."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.source_table import TableId
from cdcsync_core.spec import Spec
from cdcsync_mysql import session
from cdcsync_mysql.catalog import read_table, resolve
from cdcsync_mysql.connection import connect
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.preflight import preflight
from cdcsync_mysql.reach import fault_of_writing
from support.fixtures import FreshDatabase, usually_on
from support.locks import locked_for_ddl
from support.servers import Server
from support.source import connected, source_of

pytestmark = pytest.mark.timeout(600)
_LOCKED = [f"a{number}" for number in range(6)]


@pytest.fixture
def database(any_server: Server, fresh_database: FreshDatabase) -> str:
    """With six tables that are locked later and two others, the second with a trigger."""
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
    assert all("1205" in e.found or "3024" in e.found for n, e in errors.items() if n in busy and e is not None)
    assert errors["b"] is errors["c"] is None
    again = preflight(source_of(any_server), _spec(database), replica_id=3_000_000_001)
    assert {t.id.name for t in again.tables if t.error is not None} <= {"a_child"}, "nothing was renamed"


@usually_on("mariadb1011", "mysql97_gtid")
def test_no_answer_leaves_out_what_hangs_on_a_locked_table(
    any_server: Server, database: str, short_waits: None
) -> None:
    """MariaDB answers as if a locked table had no columns, keys and triggers."""
    b, child = TableId(database, "b"), TableId(database, "a_child")
    with connected(any_server) as (connection, _):
        assert "cascades" in fault_of_writing(connection, b, [child])
    with locked_for_ddl(any_server, database, ["a_child"]), connected(any_server) as (connection, _):
        with pytest.raises(CdcError) as found:
            read_table(connection, child)
        assert found.value.reason is Reason.TABLE_BUSY
        if any_server.flavor == "mysql":
            assert "cascades" in fault_of_writing(connection, b, [child])
            return
        with pytest.raises(CdcError) as found:
            fault_of_writing(connection, b, [child])
        assert found.value.reason is Reason.TABLE_BUSY


@usually_on("mariadb1011", "mysql97_gtid")
def test_locks_of_other_tables_leave_the_reach_of_a_change_known(
    any_server: Server, database: str, short_waits: None
) -> None:
    b, c, child = (TableId(database, name) for name in ("b", "c", "a_child"))
    with locked_for_ddl(any_server, database, _LOCKED[:2]), connected(any_server) as (connection, _):
        assert "cascades" in fault_of_writing(connection, b, [child, c])
        assert fault_of_writing(connection, c, [child]) == ""
