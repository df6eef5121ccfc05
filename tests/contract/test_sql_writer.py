"""The writer of SQL databases: it dies between any two of its steps, or the answer to its COMMIT is
lost, and the run that comes next ends in the rows that a table with the same changes would have."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Build, Commit, Empty, Upsert
from cdcsync_spark.sinks.sql.dialects import mysql_session
from cdcsync_spark.sinks.sql.dialects.dialect import ConnectionLost, Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.states import StateRow, States
from cdcsync_spark.sinks.sql.target import SqlSink, SqlTarget
from contract.conftest import DATABASES, served
from contract.sinkcase import (
    ORDERS,
    Row,
    batch,
    content,
    first_state,
    keys_of,
    make_table,
    rows_of,
    stamp,
    whole_snapshot,
    with_table,
)
from support import sql_sink
from support.deaths import Died, at_gate, dying_at
from support.sql_sink import execute

FIRST: list[Row] = [(n, "first") for n in range(4)]
CHANGE = Upsert(rows_of(ORDERS, [(1, "changed"), (90, "new")]), keys_of(ORDERS, [(2,)]))
CHANGED: list[Row] = [(0, "first"), (1, "changed"), (3, "first"), (90, "new")]

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served(name, name == "mysql") for name in DATABASES], indirect=True
)


def emptied(number: int) -> Build:
    """A commit that puts an empty table in the target's place."""
    return batch(number, Empty())


def test_a_table_of_others_keeps_its_name_and_rows(sink: SqlSink, store: object) -> None:
    """There before, or created while the target's own is being filled. `check` names it, too."""
    target = sink.target(ORDERS.id)
    name = table_name(sink.dialect, target.place.name)
    with dying_at("sql-table-filled"), pytest.raises(Died):
        target.prepare(first_state())  # leaves the schema
    foreign = (f"CREATE TABLE {name} (theirs INT)", f"INSERT INTO {name} VALUES (7)")
    with at_gate("sql-table-filled", lambda: execute(sink, *foreign)), pytest.raises(CdcError, match="no sync") as late:
        target.prepare(first_state())
    with pytest.raises(CdcError, match="no sync") as there:
        target.prepare(first_state())
    assert {late.value.reason, there.value.reason} == {Reason.SINK_CONFLICT}
    (named,) = sql_sink.check(sink, target.place.table).errors
    assert named.message == there.value.message
    session = sink.dialect.open()
    assert session.fetch((int,), f"SELECT theirs FROM {name}") == [(7,)]
    session.close()
    execute(sink, f"DROP TABLE {name}")
    assert target.prepare(first_state()) == first_state()
    assert content(target) == []


def lose_the_answer_of_commit(patch: pytest.MonkeyPatch, dialect: Dialect, *, landed: bool) -> None:
    """The next COMMIT's connection breaks, after the server has made it or before."""
    opened = dialect.open()
    opened.close()
    session: Any = type(opened)
    commit, waiting = session.commit, ["once"]

    def lost(self: SqlSession) -> None:
        if not waiting:
            commit(self)
            return
        waiting.clear()
        if landed:
            commit(self)
        self.close()
        raise ConnectionLost("server closed the connection unexpectedly")

    patch.setattr(session, "commit", lost)


@pytest.mark.parametrize("landed", [False, True])
def test_a_commit_without_an_answer_is_made_once(
    landed: bool, sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    writer = target.writer(tmp_path)
    before = writer.last_commit()
    assert before is not None
    lose_the_answer_of_commit(monkeypatch, sink.dialect, landed=landed)
    state = writer.commit(1, batch(1, CHANGE))
    writer.close()
    assert state.commit_number == before.commit_number + 1
    assert target.last_commit() == state
    assert content(target) == CHANGED


def test_a_new_table_in_the_targets_place_is_in_a_snapshot_with_its_state(
    sink: SqlSink, store: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the moment of the snapshot's transaction, before the table is held."""
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)
    waiting, row = [lambda: sink.target(ORDERS.id).commit(1, emptied(1))], States.row
    opened = sink.dialect.open()
    begin = type(opened).begin
    opened.close()

    def begun(self: SqlSession, *, snapshot: bool = False) -> None:
        begin(cast(Any, self), snapshot=snapshot)
        if snapshot and waiting:
            monkeypatch.setattr(States, "row", row_then_commit)

    def row_then_commit(self: States, name: str) -> StateRow | None:
        monkeypatch.setattr(States, "row", row)
        read = row(self, name)
        waiting.pop()()
        return read

    monkeypatch.setattr(type(opened), "begin", begun)
    snapshot = target.open_snapshot()
    assert not waiting
    assert snapshot.state == target.last_commit()
    assert snapshot.scan().read_all().num_rows == 0


def test_a_longer_text_of_the_source_is_taken(sink: SqlSink, store: object) -> None:
    """Its type in the target's schema is the same; the database's is not."""
    longer = make_table({"id": "bigint(20)", "note": "varchar(200)"}, ["id"])
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST)

    def lengthen(state: TableState) -> Commit:
        commit = stamp()(state)
        assert commit is not None
        return replace(commit, state=with_table(commit.state, longer))

    target.commit(1, lengthen)
    long = (7, "ü" * 200)
    target.commit(1, batch(1, Upsert(rows_of(longer, [long]), keys_of(longer, []))))
    assert content(target) == [*FIRST, long]


def test_an_index_that_comes_while_a_run_writes_merges_no_rows(sink: SqlSink, store: object, tmp_path: Path) -> None:
    target = sink.target(ORDERS.id)
    whole_snapshot(target, FIRST[:1])
    writer = target.writer(tmp_path)
    writer.last_commit()
    execute(sink, f"CREATE UNIQUE INDEX single ON {table_name(sink.dialect, target.place.name)} (note)")
    twice = Upsert(rows_of(ORDERS, [(8, "first"), (9, "new")]), keys_of(ORDERS, []))
    with pytest.raises(CdcError, match="single") as refused:
        writer.commit(1, batch(1, twice))
    writer.close()
    assert refused.value.reason is Reason.SINK_CONFLICT
    name = table_name(sink.dialect, target.place.name)
    schema = sink.dialect.quoted(target.place.name.schema)
    execute(
        sink, f"DROP INDEX {schema}.single" if sink.dialect.alters_in_transactions else f"DROP INDEX single ON {name}"
    )
    target.commit(1, batch(1, twice))
    assert content(target) == [(0, "first"), (8, "first"), (9, "new")]


def test_a_key_and_a_transaction_do_not_hang_on_the_servers_defaults(
    sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table engine without transactions; a TIMESTAMP that changes with its row."""
    odd = "SET SESSION default_storage_engine = MyISAM, explicit_defaults_for_timestamp = OFF"
    monkeypatch.setattr(mysql_session, "_SETTINGS", (odd, *mysql_session._SETTINGS))
    table = make_table({"at": "timestamp(6)", "note": "varchar(20)"}, ["at"])
    at = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    target = sink.target(table.id)
    whole_snapshot(target, [(at, "first")], table)
    change = batch(1, Upsert(rows_of(table, [(at, "changed")]), keys_of(table, [])))
    with dying_at("sql-rows-written"), pytest.raises(Died):
        target.commit(1, change)
    assert content(target) == [(at, "first")]
    target.commit(1, change)
    assert content(target) == [(at, "changed")]


def test_a_table_that_a_commit_took_is_never_given_up(sink: SqlSink, store: object, tmp_path: Path) -> None:
    target, dialect = sink.target(ORDERS.id), sink.dialect
    whole_snapshot(target, FIRST)
    listed = table_name(dialect, SqlName(dialect.state_schema, "helpers"))
    age = f"UPDATE {listed} SET created = '2020-01-01 00:00:00'"
    maintain = target.writer(tmp_path).maintain
    taking = "sql-rows-written" if dialect.alters_in_transactions else "sql-pending"
    for gate, dropped in (("sql-table-filled", 2), (taking, 1)):
        with dying_at(gate), pytest.raises(Died):
            target.commit(1, emptied(1))
        execute(sink, age)
        names = 2 if dialect.alters_in_transactions else dropped
        assert [maintain() for _ in range(4)] == ["drop table"] * names + [""] * (4 - names)
    assert content(target) == ([] if taking == "sql-pending" else FIRST)


def helpers(target: SqlTarget) -> int:
    """The tables that were created beside the target and are still listed."""
    session = target.place.dialect.open()
    try:
        return len(States(target.place.dialect, session).helpers(target.place.key))
    finally:
        session.close()


def tables_there(sink: SqlSink) -> list[str]:
    """All tables of the sync's but those of states and helpers."""
    session = sink.dialect.open()
    try:
        rows = session.fetch(
            (str,),
            "SELECT table_name FROM information_schema.tables WHERE table_schema IN (%s, 'shop')",
            (sink.dialect.state_schema,),
        )
    finally:
        session.close()
    return sorted(name for (name,) in rows if name not in ("states", "helpers"))


def test_a_discarded_copy_leaves_no_table(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """Its creation was left half done, or a new table in its place; the run that discards it dies,
    and maintenance of another table's writer ends its work."""
    main, copy = sink.target(ORDERS.id), sink.target(ORDERS.id, generation=1)
    whole_snapshot(main, FIRST)
    taken = "sql-rows-written" if sink.dialect.alters_in_transactions else "sql-pending"
    listed = table_name(sink.dialect, SqlName(sink.dialect.state_schema, "helpers"))

    def create() -> None:
        with dying_at("sql-committed"), pytest.raises(Died):
            copy.prepare(first_state(nonce=1))

    def fill() -> None:
        copy.prepare(first_state(nonce=1))
        copy.commit(1, stamp())

    def empty() -> None:
        fill()
        with dying_at(taken), pytest.raises(Died):
            copy.commit(1, lambda state: replace(stamp()(state), change=Empty()))  # type: ignore[type-var]

    for left in (create, fill, empty):
        left()
        sink.discard(ORDERS.id, 1)
        execute(sink, f"UPDATE {listed} SET created = '2020-01-01 00:00:00'")
        while main.writer(tmp_path).maintain():
            pass
        assert tables_there(sink) == ["orders"], left
        left()
        with dying_at("sql-state-removed"), pytest.raises(Died):
            sink.discard(ORDERS.id, 1)
        execute(sink, f"UPDATE {listed} SET created = '2020-01-01 00:00:00'")
        while main.writer(tmp_path).maintain():
            pass
        assert tables_there(sink) == ["orders"], left
    assert content(main) == FIRST


def test_a_death_at_each_gate_leaves_the_old_rows_or_the_new(sink: SqlSink, store: object, tmp_path: Path) -> None:
    target = sink.target(ORDERS.id)
    with dying_at("sql-table-filled"), pytest.raises(Died):
        target.prepare(first_state())
    assert target.last_commit() is None
    with dying_at("sql-committed"), pytest.raises(Died):
        target.prepare(first_state())
    assert target.last_commit() == first_state()
    whole_snapshot(target, FIRST)

    with dying_at("sql-rows-written"), pytest.raises(Died):
        target.writer(tmp_path).commit(1, batch(1, CHANGE))
    assert content(target) == FIRST
    with dying_at("sql-committed"), pytest.raises(Died):
        target.writer(tmp_path).commit(1, batch(1, CHANGE))
    assert content(target) == CHANGED

    replacing = ("sql-table-filled", "sql-rows-written", "sql-committed")
    pending = ("sql-table-filled", "sql-pending", "sql-swapped", "sql-committed")
    for number, gate in enumerate(replacing if sink.dialect.alters_in_transactions else pending, 2):
        before = content(target)
        with dying_at(gate), pytest.raises(Died):
            target.writer(tmp_path).commit(1, emptied(2 * number))
        done = gate not in ("sql-table-filled", "sql-rows-written")
        assert content(target) == ([] if done else before), gate
        refilled = target.commit(1, batch(2 * number + 1, CHANGE))
        assert target.last_commit() == refilled
        assert (1, "changed") in content(target)

    with dying_at("sql-state-removed"), pytest.raises(Died):
        target.discard()
    assert target.last_commit() is None
    target.discard()
    assert helpers(target) == 0
    assert target.prepare(first_state()) == first_state()
    assert content(target) == []
