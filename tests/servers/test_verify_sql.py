"""`verify` finds what another program changed in the tables of a SQL database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.verification import DifferenceKind, verdict
from support.fixtures import FreshDatabase
from support.key_tables import KEYS, create_key_tables, table_of_rows
from support.postgresql import PostgresServer
from support.servers import Server
from support.small_sync import PASSWORD, USER, SmallSync
from support.verified import verify

#: the source of each kind of target
SOURCES = {"postgresql": "mariadb1011", "mariadb1011": "mysql97_gtid", "mysql97_nogtid": "mariadb1011"}
#: runs statements in the database of the targets
Run = Callable[..., None]


@pytest.fixture
def copied(request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path) -> Any:
    """Makes a sync of a new database of the source, into one of the server `kind`."""

    def copy(kind: str, create: Callable[[Server, str], object]) -> tuple[SmallSync, Run]:
        source: Server = request.getfixturevalue(SOURCES[kind])
        database = fresh_database(source)
        create(source, database)
        opened = _in_postgresql if kind == "postgresql" else _in_mysql
        server = request.getfixturevalue("postgres" if kind == "postgresql" else kind)
        sink, run = opened(server, database if kind == "postgresql" else fresh_database(server))
        sync = SmallSync(source, database, tmp_path, sql=sink)
        sync.copy()
        sync.catch_up()
        return sync, run

    return copy


def _login(port: int | None) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "credentialsSecretRef": {"name": "source"}}


def _in_postgresql(server: PostgresServer, database: str) -> tuple[dict[str, Any], Run]:
    server.create_database(database)
    server.create_account(USER, PASSWORD)

    def run(*statements: str) -> None:
        with server.connect(database) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    return {"postgresql": {**_login(server.port), "database": database, "schema": "public"}}, run


def _in_mysql(server: Server, database: str) -> tuple[dict[str, Any], Run]:
    server.create_user(USER, PASSWORD)

    def run(*statements: str) -> None:
        server.run(*statements, db=database)

    return {"mysql": {**_login(server.port), "database": database, "stateDatabase": database}}, run


def every_target(*, thin: bool) -> pytest.MarkDecorator:
    marks = {kind: [] if thin and kind == "postgresql" else [pytest.mark.long] for kind in SOURCES}
    return pytest.mark.parametrize("kind", [pytest.param(kind, marks=marks[kind]) for kind in SOURCES])


@every_target(thin=True)
def test_a_changed_a_missing_and_an_extra_row_are_found(kind: str, copied: Any) -> None:
    """And nothing else: also a text with a space more, and a zero of the other sign, which MariaDB
    does not store."""
    sync, run = copied(kind, lambda server, database: table_of_rows(server, database, 60))
    result = verify(sync)["t"]
    assert (result.source_rows, result.target_rows, result.equal) == (60, 60, True)
    run(
        "UPDATE t SET number = 1.501 WHERE id = 1",
        "UPDATE t SET text_ = 'a ' WHERE id = 2",
        "UPDATE t SET real_ = '-0' WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
        "INSERT INTO t (id) VALUES (1000)",
    )
    result = verify(sync)["t"]
    zero = {} if kind == "mariadb1011" else {3: (DifferenceKind.DIFFERENT, ["real_"])}
    assert {int(d.key["id"]): (d.kind, list(d.columns)) for d in result.keys} == {
        1: (DifferenceKind.DIFFERENT, ["number"]),
        2: (DifferenceKind.DIFFERENT, ["text_"]),
        **zero,
        4: (DifferenceKind.MISSING, []),
        1000: (DifferenceKind.EXTRA, []),
    }
    assert verdict([result]) is ExitCode.DIFFERENCES


@every_target(thin=False)
def test_they_are_found_by_every_type_of_key(kind: str, copied: Any) -> None:
    sync, run = copied(kind, create_key_tables)
    assert {table: result.equal for table, result in verify(sync).items()} == dict.fromkeys([*KEYS, "seed"], True)
    for table in KEYS:
        run(
            f"UPDATE {table} SET v = '' WHERE second = 3",
            f"DELETE FROM {table} WHERE second = 4",
            f"INSERT INTO {table} SELECT k, 1000, v FROM {table} WHERE second = 5",
        )
    results = verify(sync)
    once = (DifferenceKind.DIFFERENT, DifferenceKind.MISSING, DifferenceKind.EXTRA)
    each = {difference.value: 1 for difference in once}
    assert {table: results[table].counts for table in KEYS} == dict.fromkeys(KEYS, each)
    assert results["seed"].equal
