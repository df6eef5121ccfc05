"""Sinks into SQL databases of the tests' own servers, each test with databases of its own, and what
`cdcsync check` asks of one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pymysql

from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId, quote
from cdcsync_mysql.sessions.connection import Tls
from cdcsync_spark.sinks import check_servers
from cdcsync_spark.sinks.sql.dialects.dialect import Dialect
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from cdcsync_spark.sinks.sql.target import SqlSink
from support.postgresql import PASSWORD, PostgresServer
from support.servers import Server

PLAIN = Tls("disabled", allow_unverified=True)


def login(folder: Path, field: str, port: int, user: str, password: str) -> SqlLogin:
    files = folder / "username", folder / "password"
    for file, text in zip(files, (user, password), strict=True):
        file.write_text(text)
    return SqlLogin(field, "127.0.0.1", port, *files, PLAIN)


def execute(sink: SqlSink, *statements: str) -> None:
    """The statements on a session of the sink's own."""
    session = sink.dialect.open()
    try:
        for statement in statements:
            session.run(statement)
    finally:
        session.close()


@contextmanager
def postgresql(server: PostgresServer, folder: Path) -> Iterator[Dialect]:
    """In a new database."""
    name = f"sink_{uuid.uuid4().hex}"
    server.create_database(name)
    try:
        yield PostgresDialect(login(folder, "spec.sink.postgresql", server.port, "postgres", PASSWORD), name)
    finally:
        server.run(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def mysql(server: Server, folder: Path) -> Iterator[Dialect]:
    """Names an account of its own; what it created goes with it."""
    account = f"sink_{uuid.uuid4().hex[:12]}"
    server.create_user(account, PASSWORD)
    before = _databases(server)
    assert server.port is not None
    try:
        yield MySqlDialect(login(folder, "spec.sink.mysql", server.port, account, PASSWORD), state_schema=account)
    finally:
        sessions = server.query(f"SELECT id FROM information_schema.processlist WHERE user = '{account}'")
        with suppress(pymysql.MySQLError):  # of a test that failed: they keep the databases; or one is gone by now
            server.run(*(f"KILL {session}" for (session,) in sessions))
        server.run(*(f"DROP DATABASE {quote(name)}" for name in _databases(server) - before), f"DROP USER {account}")


def check(sink: SqlSink, *tables: TableId) -> Checks:
    """What `cdcsync check` asks the server, by a manifest's section of this sink."""
    secrets = _login_of(sink).username_file.parent / "secrets"
    secrets.mkdir(exist_ok=True)
    if not (secrets / "serving").exists():
        (secrets / "serving").symlink_to(secrets.parent)
    return check_servers(SinkSpec.model_validate(_section(sink)), secrets, sink.sync, tables)


def raise_first(checks: Checks) -> None:
    """Raises the error that `check` would show first, if there is one."""
    for error in checks.errors:
        raise error


def _section(sink: SqlSink) -> dict[str, object]:
    dialect, login = sink.dialect, _login_of(sink)
    account = {
        "name": "serving",
        "usernameKey": login.username_file.name,
        "passwordKey": login.password_file.name,
    }
    server = {"host": login.host, "port": login.port, "credentialsSecretRef": account}
    if isinstance(dialect, MySqlDialect):
        databases = {"database": dialect.database, "stateDatabase": dialect.state_schema}
        return {"mysql": server | databases}
    assert isinstance(dialect, PostgresDialect)
    schemas = {"schema": dialect.schema, "stateSchema": dialect.state_schema}
    return {"postgresql": server | {"database": dialect.database} | schemas}


def _login_of(sink: SqlSink) -> SqlLogin:
    assert isinstance(sink.dialect, MySqlDialect | PostgresDialect)
    return sink.dialect.login


def _databases(server: Server) -> set[str]:
    return {name for (name,) in server.query("SELECT schema_name FROM information_schema.schemata")}
