"""What is left pending on databases that rename no table in a transaction: the state follows only a
new table that is found in the target's place, and what the catalog does not show is not absent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.contract.changes import Empty
from cdcsync_spark.sinks.sql.dialects import mysql_session
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.states import Pending, States
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.conftest import served
from contract.sinkcase import ORDERS, Row, batch, content, first_state, whole_snapshot
from support.deaths import Died, dying_at
from support.sql_sink import execute

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served("mariadb", seldom=False), served("mysql", seldom=True)], indirect=True
)
FIRST: list[Row] = [(n, "first") for n in range(4)]


def test_a_new_table_that_was_lost_is_never_taken_for_published(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """An administrator drops what a run that died has left; at the first creation, another's table
    gets the target's name, too. The remedy that is named creates the table again."""
    target, dialect = sink.target(ORDERS.id), sink.dialect
    name, remove = table_name(dialect, target.place.name), f"DELETE FROM {dialect.state_schema}.states"

    def lose_new_table() -> None:
        session = dialect.open()
        row = States(dialect, session).row(target.place.key)
        assert row is not None
        session.run(f"DROP TABLE {table_name(dialect, Pending.from_text(row.pending).new)}")
        session.close()

    for build, gate, foreign in (
        (None, "sql-committed", f"CREATE TABLE {name} (id BIGINT)"),
        (batch(1, Empty()), "sql-pending", ""),
    ):
        if build is not None:
            whole_snapshot(target, FIRST)
        with dying_at(gate), pytest.raises(Died):
            target.prepare(first_state()) if build is None else target.commit(1, build)
        lose_new_table()
        execute(sink, *filter(None, [foreign]))
        for attempt in (target.last_commit, lambda: target.prepare(first_state())):
            with pytest.raises(CdcError, match="at neither name") as refused:
                attempt()
            assert refused.value.reason is Reason.SINK_CONFLICT
            assert f"drop {target.place.name} and run {remove}" in refused.value.remedy
        if build is not None:
            session = dialect.open()
            assert session.fetch((int,), f"SELECT COUNT(*) FROM {name}") == [(len(FIRST),)]
            session.close()
        execute(sink, f"DROP TABLE {name}", f"{remove} WHERE target = '{target.place.key}'")
    whole_snapshot(target, FIRST)
    assert content(target) == FIRST


def test_a_table_whose_definition_is_locked_is_not_absent(
    sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB answers without it, and with a warning."""
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    brief = "SET SESSION lock_wait_timeout = 1"
    monkeypatch.setattr(mysql_session, "_SETTINGS", (*mysql_session._SETTINGS, brief))
    name = table_name(sink.dialect, target.place.name)
    reader, renamer = sink.dialect.open(), sink.dialect.open()
    execute(sink, f"CREATE TABLE {sink.dialect.state_schema}.zzz (id INT)")
    reader.begin()
    reader.run(f"SELECT * FROM {sink.dialect.state_schema}.zzz")
    renamer.run("SET SESSION lock_wait_timeout = 600")
    ((number,),) = renamer.fetch((int,), "SELECT CONNECTION_ID()")
    moves = (
        f"{name} TO {sink.dialect.state_schema}.zz1, {sink.dialect.state_schema}.zzz TO {sink.dialect.state_schema}.zz2"
    )
    with ThreadPoolExecutor(1) as pool:
        renaming = pool.submit(renamer.run, f"RENAME TABLE {moves}")
        watcher = sink.dialect.open()
        waiting = (
            f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number} AND state LIKE '%metadata lock%'"
        )
        try:
            while watcher.fetch((int,), waiting) != [(1,)]:
                assert not renaming.done()
            for question in (sink.dialect.columns, sink.dialect.obstacles, sink.dialect.mark):
                with suppress(CdcError):
                    assert question(watcher, target.place.name)
        finally:
            watcher.run(f"KILL QUERY {number}")
            assert renaming.exception() is not None
            for session in (watcher, reader, renamer):
                session.close()
    assert content(target) == FIRST


def test_a_view_that_cannot_be_read_stops_no_table_beside_it(sink: SqlSink, store: object) -> None:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    schema = sink.dialect.quoted(target.place.name.schema)
    execute(sink, f"CREATE TABLE {schema}.gone (id INT)", f"CREATE VIEW {schema}.broken AS SELECT * FROM {schema}.gone")
    execute(sink, f"DROP TABLE {schema}.gone")
    target.commit(1, batch(1, Empty()))
    assert content(target) == []
