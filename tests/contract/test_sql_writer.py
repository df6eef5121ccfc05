"""The writer of SQL databases: it dies between any two of its steps, or the answer to its COMMIT is
lost, and whoever comes next ends in the rows that a table with the same changes would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.contract.changes import Build, Empty, Upsert
from cdcsync_spark.sinks.sql.dialect import ConnectionLost, Dialect, SqlSession
from cdcsync_spark.sinks.sql.names import table_name
from cdcsync_spark.sinks.sql.states import States
from cdcsync_spark.sinks.sql.target import SqlSink, SqlTarget
from contract.conftest import DATABASES, served
from contract.sinkcase import ORDERS, Row, batch, content, first_state, keys_of, rows_of, whole_snapshot
from support.deaths import Died, at_gate, dying_at

FIRST: list[Row] = [(n, "first") for n in range(4)]
CHANGE = Upsert(rows_of(ORDERS, [(1, "changed"), (90, "new")]), keys_of(ORDERS, [(2,)]))
CHANGED: list[Row] = [(0, "first"), (1, "changed"), (3, "first"), (90, "new")]

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served(name, name == "mysql") for name in DATABASES], indirect=True
)


def emptied(number: int) -> Build:
    """A commit that puts an empty table in the target's place."""
    return batch(number, Empty())


def execute(sink: SqlSink, *statements: str) -> None:
    session = sink.dialect.open()
    try:
        for statement in statements:
            session.run(statement)
    finally:
        session.close()


def test_a_table_of_others_keeps_its_name_and_rows(sink: SqlSink, store: object) -> None:
    """There before, or created while the target's own is being filled."""
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
    session = sink.dialect.open()
    assert session.fetch(f"SELECT theirs FROM {name}") == [(7,)]
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


def helpers(target: SqlTarget) -> int:
    """The tables that were created beside the target and are still listed."""
    session = target.place.dialect.open()
    try:
        return len(States(target.place.dialect, session).helpers(target.place.key))
    finally:
        session.close()


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
