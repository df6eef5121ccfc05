"""Tables of a SQL database that are committed together: a reader sees all of them or none, and what
stops one of them stops no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Build, Commit, Upsert
from cdcsync_spark.sinks.sql.dialects.dialect import SqlSession
from cdcsync_spark.sinks.sql.dialects.names import count, table_name
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.conftest import DATABASES, served
from contract.sinkcase import batch, content, in_order, keys_of, rows_of
from contract.three_tables import CHANGED, FIRST, TABLES, change, opened
from support.commit_cuts import cuts_to
from support.deaths import at_gate

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served(name, seldom=False) for name in DATABASES], indirect=True
)


def test_a_reader_sees_all_tables_of_a_batch_or_none(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """Another session, in READ COMMITTED, between the last statement and the COMMIT, and after."""
    targets = opened(sink)
    reader, seen = sink.dialect.open(), list[list[int]]()

    def read() -> None:
        seen.append([count(sink.dialect, reader, target.place.name) for target in targets])

    parts = [(target.writer(tmp_path), change(number, CHANGED)) for number, target in enumerate(targets)]
    with at_gate("sql-rows-written", read):
        states = list(sink.commit_all(1, parts))
    read()
    reader.close()
    assert seen == [[1, 1, 1], [2, 2, 2]]
    assert states == [target.last_commit() for target in targets]
    assert list(sink.commit_all(1, [])) == []


def test_a_table_that_is_refused_stops_alone(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """In its rows, which the first has; and a table that goes before it is opened."""
    targets = opened(sink)
    session = sink.dialect.open()
    session.run(f"CREATE UNIQUE INDEX single ON {table_name(sink.dialect, targets[0].place.name)} (note)")
    session.run(f"DROP TABLE {table_name(sink.dialect, targets[1].place.name)}")
    session.close()
    parts = [(target.writer(tmp_path), change(number, CHANGED)) for number, target in enumerate(targets)]
    twice = [(2, "first")]
    outcomes = list(sink.commit_all(1, [(parts[0][0], change(0, twice)), *parts[1:]]))
    assert isinstance(outcomes[0], PermanentError)
    assert "single" in str(outcomes[0])
    assert isinstance(outcomes[1], PermanentError)
    assert outcomes[2] == targets[2].last_commit()
    assert content(targets[2]) == CHANGED


def test_a_lost_race_of_one_table_decides_all_again(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """The other run's rows are of the same batch: nothing is left for that table."""
    targets, decided = opened(sink), list[int]()

    def noting(number: int) -> Build:
        build = change(number, CHANGED)

        def note(state: TableState) -> Commit | None:
            commit = build(state)
            if not decided:
                targets[0].commit(1, change(0, CHANGED))
            decided.append(number)
            return commit

        return note

    parts = [(target.writer(tmp_path), noting(number)) for number, target in enumerate(targets)]
    states = list(sink.commit_all(1, parts))
    assert decided == [0, 1, 2, 0, 1, 2]
    assert states == [target.last_commit() for target in targets]
    assert [content(target) for target in targets] == [CHANGED] * 3


def test_commits_whose_connection_breaks_in_them_are_made_once(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """The server has got the COMMIT, or not; a session that has made many before is none other."""
    dialect: Any = sink.dialect
    targets = opened(sink)
    first = targets[0].last_commit()
    assert first is not None
    with cuts_to(dialect.login.host, dialect.login.port) as relay:
        behind = replace(dialect, login=replace(dialect.login, port=relay.port))
        writers = [SqlSink(behind, sink.sync).target(table.id).writer(tmp_path) for table in TABLES]
        for number in range(1, 11):
            rows = [(1, f"by {number}"), (number + 1, "new")]
            if number not in range(3, 9):
                relay.cut(landed=number % 2 == 0)
            builds = [batch(number, Upsert(rows_of(t, rows), keys_of(t, []))) for t in TABLES]
            states = list(sink.commit_all(1, list(zip(writers, builds, strict=True))))
            assert states == [target.last_commit() for target in targets]
        assert relay.cuts == 4
    last = targets[0].last_commit()
    assert last is not None
    assert last.commit_number == first.commit_number + 10
    rows = in_order([(1, "by 10"), *((n, "new") for n in range(2, 12))])
    assert [content(target) for target in targets] == [rows] * 3


def test_many_tables_share_few_connections(sink: SqlSink, store: object, tmp_path: Path) -> None:
    targets = opened(sink)
    writers = [target.writer(tmp_path) for target in targets * 20]
    for writer in writers:
        assert writer.last_commit() is not None
        assert not writer.has_news()
    session = sink.dialect.open()
    statement = (
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
        if sink.dialect.alters_in_transactions
        else "SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"
    )
    ((connections,),) = session.fetch((int,), statement)
    session.close()
    assert connections <= 6


def test_what_comes_between_two_tables_of_a_batch_is_seen(
    sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger of the second table, which is created after the first one was checked."""
    targets, hold = opened(sink)[:2], SqlPlace.hold
    name, is_postgresql = table_name(sink.dialect, targets[1].place.name), sink.dialect.alters_in_transactions
    schema = sink.dialect.quoted(targets[1].place.name.schema)
    loud = (
        f"CREATE TRIGGER loud BEFORE UPDATE ON {name}"
        " FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        if is_postgresql
        else f"CREATE TRIGGER {schema}.loud BEFORE INSERT ON {name} FOR EACH ROW SET NEW.note = 'theirs'"
    )

    def late(self: SqlPlace, session: SqlSession) -> None:
        if self == targets[1].place:
            other = sink.dialect.open()
            other.run(loud)
            other.close()
        hold(self, session)

    monkeypatch.setattr(SqlPlace, "hold", late)
    parts = [(target.writer(tmp_path), change(number, CHANGED)) for number, target in enumerate(targets)]
    outcomes = list(sink.commit_all(1, parts))
    assert isinstance(outcomes[1], PermanentError), outcomes
    assert "trigger loud" in str(outcomes[1])
    assert [content(target) for target in targets] == [CHANGED, FIRST]
