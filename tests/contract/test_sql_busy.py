"""A table of a SQL database that is busy, as by another session's lock, holds up none of those that
are committed with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason, TableBusyError
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Empty, Upsert
from cdcsync_spark.sinks.sql import sessions
from cdcsync_spark.sinks.sql.dialects import mysql_session, postgresql_session
from cdcsync_spark.sinks.sql.dialects.dialect import SqlSession
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.target import SqlSink, SqlTarget
from contract.conftest import DATABASES, served
from contract.sinkcase import batch, content, keys_of, rows_of
from contract.three_tables import CHANGED, FIRST, TABLES, change, opened

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served(name, name != "mariadb") for name in DATABASES], indirect=True
)
BRIEF = {
    postgresql_session: "SET lock_timeout = '1s'",
    mysql_session: "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1",
}


def brief_locks(patch: pytest.MonkeyPatch) -> None:
    """Sessions wait a second for a lock."""
    for module, setting in BRIEF.items():
        patch.setattr(module, "_SETTINGS", (*module._SETTINGS, setting))
    sessions.close_idle()


def locks_of(sink: SqlSink, table: str) -> list[tuple[str, str]]:
    """Statements that begin and end another session's lock of a table: of its rows, and of all."""
    if sink.dialect.alters_in_transactions:
        modes = ("EXCLUSIVE", "ACCESS EXCLUSIVE")
        return [(f"BEGIN; LOCK TABLE {table} IN {mode} MODE", "ROLLBACK") for mode in modes]
    return [(f"BEGIN; DELETE FROM {table}", "ROLLBACK"), (f"LOCK TABLES {table} WRITE", "UNLOCK TABLES")]


@contextmanager
def locked(sink: SqlSink, lock: str, end: str) -> Iterator[None]:
    holder = sink.dialect.open()
    try:
        for statement in lock.split("; "):
            holder.run(statement)
        yield
        holder.run(end)
    finally:
        holder.close()


def test_a_table_that_another_session_locks_waits_alone(
    sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows, or the table; in a batch, and where a new table is to take its place."""
    targets = opened(sink)
    brief_locks(monkeypatch)
    others = [targets[0], targets[2]]
    writers = [target.writer(tmp_path) for target in targets]
    locks = locks_of(sink, table_name(sink.dialect, targets[1].place.name))
    for number, (lock, end) in enumerate([*locks, locks[1]], 1):
        rows = [(1, f"change {number}")]
        builds = [batch(number, Upsert(rows_of(table, rows), keys_of(table, []))) for table in TABLES]
        if number == 3:
            builds[1] = batch(number, Empty())
        before = targets[1].last_commit()
        with locked(sink, lock, end):
            assert opened_again(targets[1]) in (before, Reason.TABLE_BUSY), lock
            outcomes = list(sink.commit_all(1, list(zip(writers, builds, strict=True))))
        busy = outcomes.pop(1)
        assert isinstance(busy, CdcError), lock
        assert (busy.reason, busy.table) == (Reason.TABLE_BUSY, "shop.t1"), busy
        assert outcomes == [target.last_commit() for target in others]
        assert [content(target) for target in others] == [rows] * 2
        assert content(targets[1]) == FIRST
    writers[1].commit(1, builds[1])
    assert content(targets[1]) == []


def opened_again(target: SqlTarget) -> TableState | Reason | None:
    """The state that a run finds, or the reason why it finds none."""
    try:
        return target.last_commit()
    except CdcError as error:
        return error.reason


def test_a_table_of_an_error_that_is_not_known_waits_alone(
    sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = opened(sink)
    session = sink.dialect.open()
    session.run(f"DROP TABLE {table_name(sink.dialect, targets[1].place.name)}")
    session.close()
    for module in BRIEF:
        monkeypatch.setattr(module, "_FAULTS", {})
    monkeypatch.setattr("cdcsync_spark.sinks.sql.place.SqlPlace.refuse_altered", lambda *_: None)
    parts = [(target.writer(tmp_path), change(number, CHANGED)) for number, target in enumerate(targets)]
    outcomes = list(sink.commit_all(1, parts))
    busy = outcomes.pop(1)
    assert isinstance(busy, CdcError)
    assert (busy.reason, busy.table) == (Reason.TABLE_BUSY, "shop.t1")
    assert [content(targets[0]), content(targets[2])] == [CHANGED] * 2


@pytest.mark.long
def test_a_deadlock_with_another_session_ends_in_commits_of_all(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """The server may choose the whole transaction, with its savepoints, to be rolled back."""
    targets = opened(sink)
    names = [table_name(sink.dialect, target.place.name) for target in targets]
    holder, watcher = sink.dialect.open(), sink.dialect.open()
    holder.begin()
    for number in range(2, 200):  # what has changed more rows is not chosen
        holder.run(f"INSERT INTO {names[1]} (id, note) VALUES ({1000 + number}, 'held')")
    holder.run(f"UPDATE {names[1]} SET note = 'held'")

    def close_the_circle() -> None:
        while not waits_for_lock(sink, watcher):
            time.sleep(0.2)  # InnoDB's list is as old as its last reading, within 0.1 s
        with suppress(TableBusyError):  # it may be the one that is chosen
            holder.run(f"UPDATE {names[0]} SET note = 'held'")
        holder.rollback()

    thread = threading.Thread(target=close_the_circle)
    thread.start()
    parts = [(target.writer(tmp_path), change(number, CHANGED)) for number, target in enumerate(targets)]
    outcomes = list(sink.commit_all(1, parts))
    thread.join()
    holder.close()
    watcher.close()
    for number, (writer, build) in enumerate(parts):
        outcome = outcomes[number]
        if isinstance(outcome, CdcError):
            assert (number, outcome.reason) == (1, Reason.TABLE_BUSY)
            writer.commit(1, build)
    assert [content(target) for target in targets] == [CHANGED] * 3


def waits_for_lock(sink: SqlSink, session: SqlSession) -> bool:
    """Whether a session of the server waits for rows of another one."""
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        if sink.dialect.alters_in_transactions
        else "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    )
    return bool(session.fetch((int,), waiting))
