"""What a target database may have that would make other rows of ours, or lose them, is named before
a row is written; so is a server that takes no writes, and an account without rights."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Filled, Kept
from cdcsync_spark.sinks.contract.changes import Empty, Upsert
from cdcsync_spark.sinks.sql.dialects import mysql_session, postgresql_session
from cdcsync_spark.sinks.sql.dialects.dialect import SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.states import States
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
    step,
    whole_snapshot,
)
from support import sql_sink
from support.lost_copies import read_again

TABLE = make_table({"name": "varchar(20)", "amount": "decimal(12,4)", "at": "datetime(6)"}, ["name"])
FIRST: list[Row] = [("a", None, None), ("A", None, None), ("a ", None, None)]
CHANGE = batch(1, Upsert(rows_of(TABLE, [("b", None, None)]), keys_of(TABLE, [])))

WIDER = make_table({"name": "varchar(20)", "amount": "decimal(12,4)", "at": "datetime(6)", "more": "int"}, ["name"])
WIDENED = step(1, WIDER, [Kept("name"), Kept("amount"), Kept("at"), Filled(None)])

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served(name, name == "mysql") for name in DATABASES], indirect=True
)

CASCADING = (
    "CREATE TABLE {s}.parent LIKE {t}; INSERT INTO {s}.parent SELECT * FROM {t}; "
    "ALTER TABLE {t} ADD CONSTRAINT parent FOREIGN KEY (name) REFERENCES {s}.parent (name) ON DELETE CASCADE"
)
#: what another program does to the table `{t}` of `{s}`, what the error names, how it is taken back
ON_MYSQL = [
    ("CREATE UNIQUE INDEX single ON {t} (amount)", "unique index single", "DROP INDEX single ON {t}"),
    (
        "CREATE TRIGGER {s}.loud BEFORE INSERT ON {t} FOR EACH ROW SET NEW.amount = 0",
        "trigger loud",
        "DROP TRIGGER {s}.loud",
    ),
    ("ALTER TABLE {t} MODIFY amount DECIMAL(12,2)", "amount", "ALTER TABLE {t} MODIFY amount DECIMAL(12,4)"),
    ("ALTER TABLE {t} MODIFY at DATETIME", "column at", "ALTER TABLE {t} MODIFY at DATETIME(6)"),
    (
        CASCADING,
        "foreign key parent",
        "ALTER TABLE {t} DROP FOREIGN KEY parent; DROP TABLE {s}.parent",
    ),
    ("ALTER TABLE {t} ENGINE = MyISAM", "engine MyISAM|1785", "ALTER TABLE {t} ENGINE = InnoDB"),
]
ON_POSTGRESQL = [
    ("CREATE UNIQUE INDEX single ON {t} (amount)", "unique index single", "DROP INDEX {s}.single"),
    ("CREATE RULE loud AS ON INSERT TO {t} DO INSTEAD NOTHING", "rule loud", "DROP RULE loud ON {t}"),
    (
        "CREATE TRIGGER loud BEFORE UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "trigger loud",
        "DROP TRIGGER loud ON {t}",
    ),
    (
        "ALTER TABLE {t} ALTER amount TYPE NUMERIC(12,2)",
        "column amount",
        "ALTER TABLE {t} ALTER amount TYPE NUMERIC(12,4)",
    ),
    ("ALTER TABLE {t} ALTER at TYPE TIMESTAMP(0)", "column at", "ALTER TABLE {t} ALTER at TYPE TIMESTAMP(6)"),
    (
        'ALTER TABLE {t} ALTER name TYPE TEXT COLLATE "default"',
        "column name",
        'ALTER TABLE {t} ALTER name TYPE TEXT COLLATE "C"',
    ),
    ("ALTER TABLE {t} SET UNLOGGED", "unlogged", "ALTER TABLE {t} SET LOGGED"),
    ("ALTER TABLE {t} ENABLE ROW LEVEL SECURITY", "row security", "ALTER TABLE {t} DISABLE ROW LEVEL SECURITY"),
    (
        "ALTER TABLE {t} ADD CONSTRAINT parent FOREIGN KEY (name) REFERENCES {t} (name)",
        "foreign key parent",
        "ALTER TABLE {t} DROP CONSTRAINT parent",
    ),
]

#: what another program makes of the primary key `id` of the table `{t}`, and what the error names
KEYS_ON_MYSQL = [
    ("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, at)", r"primary key .* is \(at, id\)"),
    ("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id(3))", "only the first 3 of id"),
    ("ALTER TABLE {t} DROP PRIMARY KEY", "primary key .* is gone"),
]
KEYS_ON_POSTGRESQL = [
    ("ALTER TABLE {t} DROP CONSTRAINT {k}, ADD CONSTRAINT {k} PRIMARY KEY (id, at)", r"primary key .* is \(at, id\)"),
    (
        "ALTER TABLE {t} DROP CONSTRAINT {k}, ADD CONSTRAINT {k} PRIMARY KEY (id) DEFERRABLE",
        r"is \(deferrable, id\)",
    ),
    ("ALTER TABLE {t} DROP CONSTRAINT {k}", "primary key .* is gone"),
]


def refusal(target: SqlTarget) -> CdcError:
    """The error of the next commit, which changes a row that is there."""
    with pytest.raises(CdcError) as refused:
        target.commit(1, batch(1, Upsert(rows_of(TABLE, FIRST[:1]), keys_of(TABLE, []))))
    return refused.value


def check(sink: SqlSink, table: Capture = TABLE) -> None:
    """Raises what `cdcsync check` names first."""
    sql_sink.raise_first(sql_sink.check(sink, table.id))


def run_all(session: SqlSession, statements: str) -> None:
    for statement in statements.split("; "):
        session.run(statement)


def test_what_changes_rows_by_itself_is_named_before_a_row_is_written(
    sink: SqlSink, store: object, tmp_path: Path
) -> None:
    """A commit names it, also one that copies or empties the table, the opening of a run, and
    `check`."""
    target = sink.target(TABLE.id)
    whole_snapshot(target, FIRST, TABLE)
    place, writer = target.place, target.writer(tmp_path)
    names = {"t": table_name(sink.dialect, place.name), "s": sink.dialect.quoted(place.name.schema)}
    session = sink.dialect.open()
    for statement, finding, undo in ON_POSTGRESQL if sink.dialect.alters_in_transactions else ON_MYSQL:
        run_all(session, statement.format(**names))
        commits = [partial(target.commit, 1, build) for build in (CHANGE, batch(1, Empty()), WIDENED)]
        for attempt in (writer.last_commit, partial(check, sink), *commits):
            with pytest.raises(CdcError, match=finding) as refused:
                attempt()
            assert refused.value.reason is Reason.SINK_CONFLICT, statement
        run_all(session, undo.format(**names))
        assert len(content(target)) == len(FIRST), statement
    assert States(sink.dialect, session).helpers(place.key) == []
    session.close()
    target.commit(1, CHANGE)
    assert len(content(target)) == len(FIRST) + 1


def test_a_text_column_that_is_generated_by_now_is_named(
    sink: SqlSink, store: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a row is written; and the server's refusal has the same reason."""
    table = make_table({"id": "int(11)", "note": "varchar(20)"}, ["id"], name="noted")
    target, session = sink.target(table.id), sink.dialect.open()
    whole_snapshot(target, [(1, "first")], table)
    generate = (
        "ALTER TABLE {t} DROP note, ADD note TEXT GENERATED ALWAYS AS ('x') STORED"
        if sink.dialect.alters_in_transactions
        else "ALTER TABLE {t} MODIFY note VARCHAR(20) CHARACTER SET utf8mb4 GENERATED ALWAYS AS ('x') STORED"
    )
    session.run(generate.format(t=table_name(sink.dialect, target.place.name)))
    change = batch(1, Upsert(rows_of(table, [(2, "new")]), keys_of(table, [])))
    for attempt in (partial(target.commit, 1, change), partial(check, sink, table)):
        with pytest.raises(CdcError, match=r"the column note .* generated") as refused:
            attempt()
        assert refused.value.reason is Reason.SINK_CONFLICT
    session.close()
    monkeypatch.setattr("cdcsync_spark.sinks.sql.place.SqlPlace.refuse_altered", lambda *_: None)
    with pytest.raises(CdcError, match="note") as refused:
        target.commit(1, change)
    assert refused.value.reason is Reason.SINK_CONFLICT
    assert [row[0] for row in content(target)] == [1]


def test_a_collation_that_would_merge_two_keys_is_named(sink: SqlSink, store: object) -> None:
    target = sink.target(TABLE.id)
    whole_snapshot(target, FIRST[:1], TABLE)
    loose = (
        'ALTER TABLE {t} ALTER name TYPE TEXT COLLATE "loose"'
        if sink.dialect.alters_in_transactions
        else "ALTER TABLE {t} MODIFY name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
    )
    session = sink.dialect.open()
    if sink.dialect.alters_in_transactions:
        session.run("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    session.run(loose.format(t=table_name(sink.dialect, target.place.name)))
    for attempt in (partial(target.commit, 1, CHANGE), partial(check, sink)):
        with pytest.raises(CdcError, match="the column name") as refused:
            attempt()
        assert refused.value.reason is Reason.SINK_CONFLICT
    session.close()


def key_name(session: SqlSession, place: SqlPlace) -> str:
    """The primary key's constraint; in MySQL and MariaDB each is called so."""
    named = (
        "SELECT constraint_name FROM information_schema.table_constraints"
        " WHERE table_schema = %s AND table_name = %s AND constraint_type = 'PRIMARY KEY'"
    )
    ((name,),) = session.fetch((str,), named, (place.name.schema, place.name.table))
    return str(name)


def test_another_primary_key_is_named(sink: SqlSink, store: object) -> None:
    """A row whose other columns change would be there twice by it; the key comes back, and the rows
    follow."""
    table = make_table({"id": "varchar(20)", "at": "datetime(6)"}, ["id"])
    target, on_postgresql = sink.target(table.id), sink.dialect.alters_in_transactions
    whole_snapshot(target, [("a", datetime(2026, 1, 1))], table)
    session, place = sink.dialect.open(), target.place
    names = {"t": table_name(sink.dialect, place.name), "k": sink.dialect.quoted(key_name(session, place))}
    for number, (statement, finding) in enumerate(KEYS_ON_POSTGRESQL if on_postgresql else KEYS_ON_MYSQL, 1):
        run_all(session, statement.format(**names))
        changed = [("a", datetime(2026, 1, 1 + number))]
        change = batch(number, Upsert(rows_of(table, changed), keys_of(table, [])))
        for attempt in (partial(target.commit, 1, change), partial(check, sink, table)):
            with pytest.raises(CdcError, match=finding) as refused:
                attempt()
            assert refused.value.reason is Reason.SINK_CONFLICT, statement
        assert content(target) == [("a", datetime(2026, 1, number))]
        drop, add = ("DROP CONSTRAINT {k}", "CONSTRAINT {k}") if on_postgresql else ("DROP PRIMARY KEY", "")
        dropped = "" if "gone" in finding else f"{drop}, "
        session.run(f"ALTER TABLE {{t}} {dropped}ADD {add} PRIMARY KEY (id)".format(**names))
        target.commit(1, change)
        assert content(target) == changed
    session.close()


def test_a_resnapshot_mends_an_altered_table(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """As the error says. What may have a purpose of its own is left where it is."""
    target, on_postgresql = sink.target(ORDERS.id), sink.dialect.alters_in_transactions
    whole_snapshot(target, [(1, "old"), (2, "old")])
    session, name = sink.dialect.open(), table_name(sink.dialect, target.place.name)
    constraint = sink.dialect.quoted(key_name(session, target.place))
    key = f"CONSTRAINT {constraint}" if on_postgresql else "PRIMARY KEY"
    session.run(f"ALTER TABLE {name} DROP {key}, DROP COLUMN note")
    session.run(f"CREATE UNIQUE INDEX single ON {name} (id)")
    copy = read_again(sink, tmp_path)
    with pytest.raises(CdcError, match="unique index single"):
        copy.publish(2)
    session.run(
        f"DROP INDEX {sink.dialect.quoted(target.place.name.schema)}.single"
        if on_postgresql
        else f"DROP INDEX single ON {name}"
    )
    session.close()
    copy.publish(2)
    assert content(target) == [(1, "new")]
    assert target.writer(tmp_path).last_commit() == target.last_commit()


def test_a_table_that_others_refer_to_keeps_its_place(sink: SqlSink, store: object) -> None:
    """MySQL would let them refer to the rows of before; PostgreSQL's rows are refused, too."""
    target, session = sink.target(TABLE.id), sink.dialect.open()
    whole_snapshot(target, FIRST, TABLE)
    place = target.place
    parent = table_name(sink.dialect, place.name)
    child = table_name(sink.dialect, SqlName(place.name.schema, "child"))
    session.run(
        f"CREATE TABLE {child} " + (f"(LIKE {parent})" if sink.dialect.alters_in_transactions else f"LIKE {parent}")
    )
    session.run(f"ALTER TABLE {child} ADD CONSTRAINT parent FOREIGN KEY (name) REFERENCES {parent} (name)")
    with pytest.raises(CdcError, match=r"foreign key (child\.)?parent") as refused:
        target.commit(1, batch(1, Empty()))
    assert refused.value.reason is Reason.SINK_CONFLICT
    if not sink.dialect.alters_in_transactions:
        with pytest.raises(CdcError, match=r"foreign key child\.parent"):
            check(sink)
    assert len(content(target)) == len(FIRST)
    session.run(f"DROP TABLE {child}")
    session.close()
    target.commit(1, batch(1, Empty()))
    assert content(target) == []


def test_two_tables_of_one_name_are_named_where_they_share_a_database(sink: SqlSink, store: object) -> None:
    """The one that is copied has the target, else the first."""
    databases = [f"{sink.dialect.place(TABLE.id).schema}_{n}" for n in (1, 2)]
    first, second = (make_table({"id": "int"}, ["id"], database) for database in databases)
    dialect: Any = sink.dialect
    field = "schema" if dialect.alters_in_transactions else "database"
    together = SqlSink(replace(dialect, **{field: dialect.state_schema}), sink.sync)

    def refused() -> list[str]:
        return [error.table for error in sql_sink.check(together, first.id, second.id, TABLE.id).errors]

    assert refused() == [str(second.id), str(TABLE.id)]
    whole_snapshot(together.target(second.id), [(1,)], second)
    assert refused() == [str(first.id), str(TABLE.id)]
    with pytest.raises(CdcError) as prepared:
        together.target(first.id).prepare(first_state(first))
    assert prepared.value.reason is Reason.SINK_CONFLICT
    assert sql_sink.check(together, second.id).errors == ()


def test_a_syncs_own_tables_are_never_captured(sink: SqlSink, store: object) -> None:
    own = [
        make_table(
            {"target": "text", "number": "bigint", "epoch": "bigint", "state": "text", "pending": "text"},
            ["target"],
            "cdcsync",
            "states",
        ),
        make_table({"id": "int"}, ["id"], "shop", f"cdcsync_{'0' * 32}"),
    ]
    for table in own:
        with pytest.raises(CdcError, match="a sync keeps for itself") as refused:
            sink.target(table.id).prepare(first_state(table))
        assert refused.value.reason is Reason.SINK_CONFLICT


def test_a_server_without_writes_and_rows_that_are_locked_are_tried_again(
    sink: SqlSink, store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sink.target(TABLE.id)
    whole_snapshot(target, FIRST, TABLE)
    is_postgresql = sink.dialect.alters_in_transactions
    module: Any = postgresql_session if is_postgresql else mysql_session
    holder = sink.dialect.open()
    holder.begin()
    name = table_name(sink.dialect, target.place.name)
    holder.run(f"LOCK TABLE {name} IN EXCLUSIVE MODE" if is_postgresql else f"DELETE FROM {name}")
    brief = "SET lock_timeout = '1s'" if is_postgresql else "SET SESSION innodb_lock_wait_timeout = 1"
    reading = "SET default_transaction_read_only = on" if is_postgresql else "SET SESSION TRANSACTION READ ONLY"
    settings, fresh = module._SETTINGS, replace(sink.dialect, login=replace(sink.dialect.login, field="another"))
    for setting, field, reason in (
        (brief, "brief", Reason.TABLE_BUSY),
        (reading, "reading", Reason.SINK_UNREACHABLE),
    ):
        monkeypatch.setattr(module, "_SETTINGS", (*settings, setting))
        other = SqlSink(replace(fresh, login=replace(fresh.login, field=field)), sink.sync)
        refused = refusal(other.target(TABLE.id))
        assert refused.reason is reason, refused
    monkeypatch.setattr(module, "_SETTINGS", settings)
    holder.rollback()
    holder.close()
    assert len(content(target)) == len(FIRST)


def test_an_account_without_rights_writes_nothing(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """The error has what is missing; the account that may see tables alone may not see triggers."""
    dialect: Any = sink.dialect
    session = dialect.open()
    account, password = f"poor_{tmp_path.name}"[-20:].lower().replace("-", "_"), "only for a test"
    on_mysql = isinstance(dialect, MySqlDialect)
    session.run(
        f"CREATE USER {account} IDENTIFIED BY '{password}'"
        if on_mysql
        else f"CREATE ROLE {account} LOGIN PASSWORD '{password}'"
    )
    files = tmp_path / "poor_user", tmp_path / "poor_password"
    for file, text in zip(files, (account, password), strict=True):
        file.write_text(text)
    poor = replace(dialect, login=replace(dialect.login, username_file=files[0], password_file=files[1]))
    try:
        with pytest.raises(CdcError) as refused:
            SqlSink(poor, sink.sync).target(TABLE.id).prepare(first_state(TABLE))
        assert refused.value.reason is Reason.PRIVILEGE_MISSING
        (named,) = sql_sink.check(SqlSink(poor, sink.sync), TABLE.id).errors
        assert named.reason is Reason.PRIVILEGE_MISSING
    finally:
        session.run(f"DROP USER {account}" if on_mysql else f"DROP ROLE {account}")
        session.close()
