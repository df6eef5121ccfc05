"""Servers of SQL databases that are odd, or replicas, or whose account lacks rights: the rows are
exact, or nothing is written and the error has the reason."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions import question
from cdcsync_spark.sinks.contract.changes import Empty, Upsert
from cdcsync_spark.sinks.sql import sessions
from cdcsync_spark.sinks.sql.dialects.dialect import ConnectionLost
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.conftest import DATABASES, served
from contract.sinkcase import Row, batch, content, first_state, in_order, keys_of, make_table, rows_of, whole_snapshot
from support import sql_sink
from support.fixtures import FreshServer
from support.postgresql import PASSWORD, PostgresServer, postgres_server
from support.relay import relay_to
from support.servers import Server

TABLE = make_table(
    {
        "id": "int(11)",
        "note": "text",
        "raw": "blob",
        "amount": "decimal(12,4)",
        "at": "datetime(6)",
        "moment": "timestamp(6)",
    },
    ["id"],
)
NOON = datetime(2026, 3, 29, 2, 30, 0, 1, UTC)
ROWS: list[Row] = [
    (0, "back\\ quote' \" ü 😀", b"\\\x00\xff'", Decimal("-1.5000"), NOON.replace(tzinfo=None), NOON),
    (1, None, None, None, None, None),
]
CHANGE = Upsert(rows_of(TABLE, [(2, "\\N", b"\\N", Decimal(2), None, NOON)]), keys_of(TABLE, [(1,)]))
#: what a session of the product may find
ODD_POSTGRESQL = {
    "TimeZone": "'Asia/Tokyo'",
    "DateStyle": "'SQL, DMY'",
    "bytea_output": "'escape'",
    "client_encoding": "'LATIN1'",
    "default_transaction_isolation": "'serializable'",
    "extra_float_digits": "'-15'",
    "search_path": "'pg_catalog'",
    "standard_conforming_strings": "off",
    "statement_timeout": "'600s'",
}
ODD_MYSQL = {
    "time_zone": "'+09:00'",
    "sql_mode": "'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT'",
    "character_set_server": "'latin1'",
    "autocommit": "0",
    "sql_safe_updates": "1",
}
#: refuses tables without a key
KEYS_ONLY = {"mariadb": "innodb_force_primary_key", "mysql": "sql_require_primary_key"}
#: what an account needs in the schemas
RIGHTS = ("CREATE", "DROP", "ALTER", "INSERT", "SELECT", "UPDATE", "DELETE", "CREATE TEMPORARY TABLES", "TRIGGER")
SCHEMAS = ("cdcsync", "shop")
every_database = pytest.mark.parametrize(
    ("sink", "store"), [served(name, name == "mysql") for name in DATABASES], indirect=True
)
every_mysql = pytest.mark.parametrize(
    ("sink", "store"), [served("mariadb", seldom=False), served("mysql", seldom=True)], indirect=True
)


@contextmanager
def odd_defaults(sink: SqlSink, server: str) -> Iterator[None]:
    """Sets what a session gets that asks for nothing."""
    dialect, admin = sink.dialect, sink.dialect.open()
    if isinstance(dialect, PostgresDialect):
        for name, value in ODD_POSTGRESQL.items():
            admin.run(f"ALTER DATABASE {dialect.database} SET {name} = {value}")
        yield
    else:
        settings = ODD_MYSQL | {KEYS_ONLY[server]: "1"}
        names = ", ".join(f"'{name}'" for name in settings)
        before = admin.fetch((str, str), f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        try:
            for name, value in settings.items():
                admin.run(f"SET GLOBAL {name} = {value}")
            yield
        finally:
            for name, found in before:
                admin.run(f"SET GLOBAL {name} = %s", (found,))
    admin.close()


@every_database
def test_rows_do_not_hang_on_the_servers_time_zone_and_defaults(
    sink: SqlSink, store: object, request: pytest.FixtureRequest
) -> None:
    target = sink.target(TABLE.id)
    with odd_defaults(sink, request.node.callspec.params["sink"]):
        whole_snapshot(target, ROWS, TABLE)
        target.commit(1, batch(1, CHANGE))
        sessions.close_idle()
        rows = content(target)
    assert rows == in_order([ROWS[0], (2, "\\N", b"\\N", Decimal("2.0000"), None, NOON)])
    assert content(target) == rows


@every_mysql
def test_rows_do_not_hang_on_the_character_set_of_their_database(sink: SqlSink, store: object) -> None:
    target, session = sink.target(TABLE.id), sink.dialect.open()
    session.run(f"CREATE DATABASE {target.place.main.schema} CHARACTER SET latin1")
    session.close()
    whole_snapshot(target, ROWS, TABLE)
    assert content(target) == in_order(ROWS)


@pytest.mark.server
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_without_all_characters_is_refused(encoding: str, postgres: PostgresServer, tmp_path: Path) -> None:
    with sql_sink.postgresql(postgres, tmp_path) as dialect:
        assert isinstance(dialect, PostgresDialect)
        name = f"{dialect.database}_{encoding.lower()}"
        postgres.run(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        sink = SqlSink(replace(dialect, database=name), "shop/orders")
        try:
            with pytest.raises(CdcError, match=f"encoding {encoding}") as refused:
                sink.target(TABLE.id).prepare(first_state(TABLE))
            with postgres.connect(name) as connection:
                schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('cdcsync', 'shop')")
                assert schemas.fetchall() == []
        finally:
            postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
    assert refused.value.reason is Reason.SINK_CONFLICT


def poor_account(dialect: Any, folder: Path, name: str) -> Any:
    """The same server by another account."""
    files = folder / f"{name}_user", folder / f"{name}_password"
    for file, text in zip(files, (name, PASSWORD), strict=True):
        file.write_text(text)
    return replace(dialect, login=replace(dialect.login, username_file=files[0], password_file=files[1]))


@every_database
def test_a_refused_login_shows_nothing_of_its_secret(sink: SqlSink, store: object, tmp_path: Path) -> None:
    """Servers repeat the account's name, the beginning of one that is long; its key is not the
    usual one here, so it may be any secret."""
    hidden = "hunter2-" + "never-shown-" * 6
    with pytest.raises(CdcError) as refused:
        poor_account(sink.dialect, tmp_path, hidden).open()
    assert "***" in refused.value.message
    assert hidden[:8] not in "".join(traceback.format_exception(refused.value))


@every_mysql
def test_each_right_that_is_missing_is_named_before_a_table_is_created(
    sink: SqlSink, store: object, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Rights by a role count, but that to see triggers."""
    assert isinstance(sink.dialect, MySqlDialect)
    server: Server = request.getfixturevalue(DATABASES[request.node.callspec.params["sink"]][0])
    schema = sink.dialect.state_schema
    name, others = f"poor_{schema[-8:]}", ", ".join(RIGHTS[:-1])
    dialect = poor_account(replace(sink.dialect, database=schema), tmp_path, name)
    poor = SqlSink(dialect, sink.sync)
    server.run(
        f"CREATE DATABASE {schema}", f"CREATE ROLE {name}_role", f"CREATE USER {name} IDENTIFIED BY '{PASSWORD}'"
    )
    try:
        server.run(f"GRANT {others}, TRIGGER ON {schema}.* TO {name}")
        for right in RIGHTS:
            server.run(f"REVOKE {right} ON {schema}.* FROM {name}")
            with pytest.raises(CdcError, match=right) as refused:
                poor.target(TABLE.id).prepare(first_state(TABLE))
            assert refused.value.reason is Reason.PRIVILEGE_MISSING
            assert f"GRANT {right} ON" in refused.value.remedy
            assert [error.message for error in sql_sink.check(poor, TABLE.id).errors] == [refused.value.message]
            server.run(f"GRANT {right} ON {schema}.* TO {name}")
        assert server.query(f"SHOW TABLES FROM {schema}") == []
        server.run(
            f"REVOKE {others} ON {schema}.* FROM {name}",
            f"GRANT {others} ON {schema}.* TO {name}_role",
            f"GRANT {name}_role TO {name}",
            f"SET DEFAULT ROLE {name}_role {'FOR' if server.flavor == 'mariadb' else 'TO'} {name}",
        )
        whole_snapshot(poor.target(TABLE.id), ROWS, TABLE)
        assert len(content(poor.target(TABLE.id))) == len(ROWS)
    finally:
        sessions.forget(dialect)
        server.run(f"DROP USER {name}", f"DROP ROLE {name}_role")


@pytest.mark.server
def test_each_right_of_postgresql_that_is_missing_is_named_before_a_target_is_created(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with sql_sink.postgresql(postgres, tmp_path) as dialect:
        assert isinstance(dialect, PostgresDialect)
        name, database = f"poor_{dialect.database[-8:]}", f"DATABASE {dialect.database}"
        rights = [(f"TEMPORARY ON {database}", "TEMPORARY")]
        for schema in SCHEMAS:
            finding = f"may not create tables in {schema}"
            rights += [(f"{right} ON SCHEMA {schema}", finding) for right in ("USAGE", "CREATE")]
        tables = "SELECT relname FROM pg_class WHERE relnamespace = 'shop'::regnamespace"
        poor = SqlSink(poor_account(dialect, tmp_path, name), "shop/orders")
        target = poor.target(TABLE.id)
        with postgres.connect(dialect.database) as admin:
            run = partial(run_all, admin)
            run(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'", f"REVOKE TEMPORARY ON {database} FROM PUBLIC")
            run(
                *(f"CREATE SCHEMA {schema}" for schema in SCHEMAS), *(f"GRANT {right} TO {name}" for right, _ in rights)
            )
            for right, finding in rights:
                run(f"REVOKE {right} FROM {name}")
                with pytest.raises(CdcError, match=finding) as refused:
                    target.prepare(first_state(TABLE))
                sessions.close_idle()
                assert refused.value.reason is Reason.PRIVILEGE_MISSING, right
                assert [error.message for error in sql_sink.check(poor, TABLE.id).errors] == [refused.value.message]
                assert admin.execute(tables).fetchall() == [], right
                run(f"GRANT {right} TO {name}")
            whole_snapshot(target, ROWS, TABLE)
            assert content(target) == in_order(ROWS)
            sessions.close_idle()
            run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def run_all(connection: Any, *statements: str) -> None:
    """Each by itself, committed."""
    for statement in statements:
        connection.execute(statement)


@every_database
def test_a_replica_is_refused_whatever_the_account_may_do(sink: SqlSink, store: object) -> None:
    """A balancer may name one; an administrator's account could write there."""
    dialect: Any = sink.dialect
    admin = dialect.open()
    sessions.close_idle()
    on_mysql = isinstance(dialect, MySqlDialect)
    database = "" if on_mysql else f"ALTER DATABASE {dialect.database} SET default_transaction_read_only"
    admin.run("SET GLOBAL read_only = ON" if on_mysql else f"{database} = on")
    try:
        fresh = SqlSink(replace(dialect, state_schema=f"{dialect.state_schema}_2"), sink.sync)
        with pytest.raises(CdcError, match=r"read.only") as refused:
            fresh.target(TABLE.id).prepare(first_state(TABLE))
        assert refused.value.reason is Reason.SINK_UNREACHABLE
        assert [error.message for error in sql_sink.check(fresh, TABLE.id).errors] == [refused.value.message]
    finally:
        admin.run("SET GLOBAL read_only = OFF" if on_mysql else "SET default_transaction_read_only = off")
        admin.close()


@every_mysql
def test_a_server_that_becomes_read_only_is_left(sink: SqlSink, store: object) -> None:
    """A session of an administrator's account could go on writing there."""
    target, admin = sink.target(TABLE.id), sink.dialect.open()
    whole_snapshot(target, ROWS, TABLE)
    admin.run("SET GLOBAL read_only = ON")
    try:
        with pytest.raises(CdcError, match="read_only is") as refused:
            target.commit(1, batch(1, CHANGE))
    finally:
        admin.run("SET GLOBAL read_only = OFF")
        admin.close()
    assert refused.value.reason is Reason.SINK_UNREACHABLE
    assert not [idle for idle in sessions._idle if idle.dialect == sink.dialect]
    assert content(target) == in_order(ROWS)
    target.commit(1, batch(1, CHANGE))


@every_mysql
def test_a_server_whose_packets_are_dropped_is_left(
    sink: SqlSink, store: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is not sent what it has to do, and where it works, long before its time is over."""
    for name, seconds in {"_IDLE_SECONDS": 1, "_PROBE_SECONDS": 1, "_TAKEN_SECONDS": 3}.items():
        monkeypatch.setattr(question, name, seconds)
    dialect: Any = sink.dialect
    for work in ("COMMIT", "DO SLEEP(600)"):
        with relay_to(dialect.login.host, dialect.login.port) as relay:
            session = replace(dialect, login=replace(dialect.login, port=relay.port)).open()
            session.begin()
            dropped = threading.Timer(0 if work == "COMMIT" else 1, relay.drop_packets)
            dropped.start()
            if work == "COMMIT":
                dropped.join()
            with pytest.raises(ConnectionLost, match="timed out"):
                session.run(work)
            session.close()


@pytest.mark.server
@pytest.mark.parametrize("variant", ["mariadb1011", pytest.param("mysql97_nogtid", marks=pytest.mark.long)])
def test_a_replica_that_takes_writes_is_refused(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """MariaDB shows every account that it applies changes; of MySQL an account without the right to
    ask is warned of."""
    server = fresh_server(variant)
    on_mariadb = server.flavor == "mariadb"
    kind, thread = ("MASTER", "SLAVE") if on_mariadb else ("REPLICATION SOURCE", "REPLICA")
    host = kind.split()[-1]
    server.run(f"CHANGE {kind} TO {host}_HOST = '127.0.0.1', {host}_PORT = 1, {host}_USER = 'r'", f"START {thread}")
    server.create_user("poor", PASSWORD, [*RIGHTS])
    with sql_sink.mysql(server, tmp_path) as dialect:
        poor = poor_account(dialect, tmp_path, "poor")
        with pytest.raises(CdcError, match=r"replicates from 127\.0\.0\.1:1") as refused:
            SqlSink(dialect, "shop/orders").target(TABLE.id).prepare(first_state(TABLE))
        assert refused.value.reason is Reason.SINK_UNREACHABLE
        if on_mariadb:
            with pytest.raises(CdcError, match="replicates from another server"):
                poor.open()
        server.run(f"STOP {thread}")
        session = poor.open()
        privilege = "SLAVE MONITOR" if on_mariadb else "REPLICATION CLIENT"
        assert [privilege in text for text in dialect.unseen(session)] == [True]
        session.close()
        whole_snapshot(SqlSink(dialect, "shop/orders").target(TABLE.id), ROWS, TABLE)


@pytest.mark.server
def test_references_are_seen_where_names_have_no_case(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The catalog has them in lower case there."""
    server = fresh_server("mariadb1011", lower_case_table_names=1)
    table = make_table({"id": "int(11)"}, ["id"], name="Orders")
    with sql_sink.mysql(server, tmp_path) as dialect:
        sink = SqlSink(dialect, "shop/orders")
        target = sink.target(table.id)
        whole_snapshot(target, [(1,)], table)
        server.run(
            "CREATE TABLE child (o INT, CONSTRAINT parent FOREIGN KEY (o) REFERENCES Orders (id))",
            db=table.id.database,
        )
        with pytest.raises(CdcError, match=r"foreign key child\.parent"):
            target.commit(1, batch(1, Empty()))
        with pytest.raises(CdcError, match=r"foreign key child\.parent"):
            sql_sink.raise_first(sql_sink.check(sink, table.id))
        server.run("DROP TABLE child", db=table.id.database)
        target.commit(1, batch(1, Empty()))
        assert content(target) == []


@pytest.mark.server
@pytest.mark.long
def test_a_standby_and_a_subscribed_table_of_postgresql_are_refused(tmp_path: Path) -> None:
    with (
        postgres_server({"wal_level": "logical", "max_wal_senders": "4"}) as server,
        sql_sink.postgresql(server, tmp_path) as dialect,
    ):
        assert isinstance(dialect, PostgresDialect)
        target = SqlSink(dialect, "shop/orders").target(TABLE.id)
        whole_snapshot(target, ROWS, TABLE)
        server.create_database("origin")
        with server.connect("origin") as connection:
            connection.execute("CREATE SCHEMA shop")
            connection.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY)")
            connection.execute("CREATE PUBLICATION loud FOR TABLE shop.orders")
        origin = f"host=127.0.0.1 port={server.port} user=postgres dbname=origin password=''{PASSWORD}''"
        apart = "create_slot = false, enabled = false, slot_name = NONE"
        with server.connect(dialect.database) as connection:
            statement = f"CREATE SUBSCRIPTION loud CONNECTION '{origin}' PUBLICATION loud WITH ({apart})"
            connection.execute(statement.encode())
            with pytest.raises(CdcError, match="subscription") as filled:
                target.commit(1, batch(1, CHANGE))
            connection.execute("DROP SUBSCRIPTION loud")
        sessions.close_idle()
        server.kill()
        (server.data / "standby.signal").touch()
        server.start()
        with pytest.raises(CdcError, match="read-only") as standby:
            target.commit(1, batch(1, CHANGE))
        assert (filled.value.reason, standby.value.reason) == (Reason.SINK_CONFLICT, Reason.SINK_UNREACHABLE)
        server.kill()
        (server.data / "standby.signal").unlink()
        server.start()
        target.commit(1, batch(1, CHANGE))


@every_mysql
def test_what_a_server_of_the_protocol_may_lack(sink: SqlSink, store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collation of exact texts: a table with a text in its key is refused, before it is created,
    and no other; and its replication, of which `check` warns."""
    session: Any = sink.dialect.open()
    assert sink.dialect.unseen(session) == ()
    asked = type(session).named_rows
    monkeypatch.setattr(type(session), "named_rows", lambda self, _: asked(self, "SHOW WHAT NO SERVER HAS"))
    monkeypatch.setattr(type(session), "key_collation", "utf8mb4_of_another_server")
    sessions.close_idle()
    assert ["does not show it" in text for text in sink.dialect.unseen(session)] == [True]
    by_text = make_table({"name": "varchar(20)"}, ["name"], name="by_text")
    with pytest.raises(CdcError, match="utf8mb4_of_another_server") as refused:
        sink.target(by_text.id).prepare(first_state(by_text))
    assert refused.value.reason is Reason.TYPE_UNSUPPORTED
    created = "SELECT table_name FROM information_schema.tables WHERE table_name = 'by_text'"
    assert session.fetch((str,), created) == []
    session.close()
    target = sink.target(TABLE.id)
    whole_snapshot(target, ROWS, TABLE)
    assert content(target) == in_order(ROWS)


@every_database
def test_a_session_that_was_opened_long_ago_is_used_no_more(
    sink: SqlSink, store: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a host may lead to another server by now."""
    monkeypatch.setattr(sessions, "_OPEN_SECONDS", 0)
    whole_snapshot(sink.target(TABLE.id), ROWS, TABLE)
    assert not [idle for idle in sessions._idle if idle.dialect == sink.dialect]


@every_database
def test_the_check_names_a_table_that_a_sync_keeps_for_itself(sink: SqlSink, store: object) -> None:
    """And no other."""
    dialect: Any = sink.dialect
    places = [(dialect.state_schema, "states"), (dialect.state_schema, "helpers"), ("shop", f"copy_{'0' * 32}")]
    own = [TableId(*place) for place in places]
    checks = sql_sink.check(sink, *own, TABLE.id)
    assert [error.table for error in checks.errors] == [str(table) for table in own]
    assert {error.reason for error in checks.errors} == {Reason.SINK_CONFLICT}


@pytest.mark.server
@pytest.mark.long
def test_idle_sessions_end_with_their_process(postgres: PostgresServer, tmp_path: Path) -> None:
    """psycopg warns of one that is collected while it is open."""
    with sql_sink.postgresql(postgres, tmp_path) as dialect:
        program = (
            "import pathlib, sys\n"
            "from cdcsync_spark.sinks.sql import sessions\n"
            "from support import sql_sink\n"
            "folder, port, database, password = sys.argv[1:]\n"
            "from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect\n"
            "login = sql_sink.login(pathlib.Path(folder), 'spec.sink.postgresql', int(port), 'postgres', password)\n"
            "dialect = PostgresDialect(login, database)\n"
            "sessions.give_back(dialect, sessions.take(dialect))\n"
        )
        assert isinstance(dialect, PostgresDialect)
        words = [str(tmp_path), str(postgres.port), dialect.database, PASSWORD]
        command = [sys.executable, "-W", "always", "-c", program, *words]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert (ended.returncode, ended.stderr) == (0, "")
