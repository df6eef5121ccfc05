"""R9 on real servers: what leaves a captured table as it is lets it flow, whatever else is done to
it stops it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from pymysql.err import MySQLError

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_spark.wire.binlog.definition import check_table_map
from cdcsync_spark.wire.binlog.facts import Fact, RowsEvent
from cdcsync_spark.wire.sql.changes.statement import may_change, may_define
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.definitions import CHANGES, KEYLESS, LOSING, NOTHING, OTHERS, STRICT, TRANS, DefinitionCase
from support.dump import log_end, read_log
from support.fixtures import FreshDatabase, variants
from support.servers import Server

pytestmark = pytest.mark.server

servers = variants("mariadb1011", "mysql97_gtid", also=("mariadb114",))


class LoggedTable:
    """A table `t` as a case wants it, and what is written to the binlog from then on."""

    def __init__(self, server: Server, database: str, case: DefinitionCase) -> None:
        self.server, self.database, self.case = server, database, case
        server.run("SET sql_mode = ''", *OTHERS, *case.table, db=database)
        with server.connect(db=database) as connection:
            self.table = read_table(connection, TableId(database, "t"), needs_key=False)
        self.start = log_end(server)

    def run(self) -> None:
        statements = [s.format(database=self.database) for s in (*self.case.before, *self.case.run)]
        self.server.run(*statements, db=self.database)

    def stops(self) -> list[str]:
        """The statements of the binlog for which the table stops."""
        return [f.sql for f in self.facts() if isinstance(f, Statement) and may_change(f, self.table)]

    def had_key(self, now: Capture) -> bool:
        """Whether `now` differs by its key only, and that was one before."""
        return now.columns == self.table.columns and now.key_index in (self.table.source.unique or ())

    def defining(self, now: Capture) -> list[str]:
        """The statements of the binlog before which the table may have been another than `now`."""
        return [f.sql for f in self.facts() if isinstance(f, Statement) and may_define(f, now)]

    def facts(self) -> list[Fact]:
        return read_log(self.server, self.start, wanted=lambda t: t == self.table.id)

    def rows(self) -> dict[Any, tuple[Any, ...]]:
        names = ", ".join(f"`{c.name}`" for c in self.table.columns)
        return {row[0]: row for row in self.server.query(f"SELECT {names} FROM t", db=self.database)}

    def definition(self) -> Capture:
        with self.server.connect(db=self.database) as connection:
            return read_table(connection, self.table.id, key=self.table.key, needs_key=bool(self.table.key))


@pytest.fixture
def logged(
    request: pytest.FixtureRequest, variant: str, case: DefinitionCase, fresh_database: FreshDatabase
) -> LoggedTable:
    server: Server = request.getfixturevalue(variant)
    if case.flavor not in ("", server.flavor):
        pytest.skip(f"for {case.flavor}")
    return LoggedTable(server, fresh_database(server), case)


@servers
@pytest.mark.parametrize("case", [*NOTHING, *KEYLESS], ids=str)
def test_what_leaves_the_table_as_it_is(logged: LoggedTable) -> None:
    assert bool(logged.table.key) is (logged.case not in KEYLESS)
    before = logged.rows()
    logged.run()
    assert logged.stops() == []
    after = logged.rows()
    assert {key: after.get(key) for key in before} == before
    assert logged.table.reads_as(logged.definition())
    logged.server.run("SET sql_mode = ''", "REPLACE INTO t (id) VALUES (29)", db=logged.database)
    rows = [fact for fact in logged.facts() if isinstance(fact, RowsEvent)]
    assert rows
    for event in rows:
        check_table_map(event.map, logged.table)


@servers
@pytest.mark.parametrize("mode", [STRICT, TRANS])
@pytest.mark.parametrize("case", [LOSING], ids=str)
@pytest.mark.parametrize(
    "column", ["tx TEXT", "l VARCHAR(20)", "v VARCHAR(10) NOT NULL", "ts TIMESTAMP NULL, MODIFY dt DATETIME NOT NULL"]
)
def test_strict_mode_refuses_what_would_lose_something(logged: LoggedTable, mode: str, column: str) -> None:
    """A column without a character set of its own gets the table's; NULLs have no place in NOT
    NULL."""
    with pytest.raises(MySQLError):
        logged.server.run(mode, f"ALTER TABLE t MODIFY {column}", db=logged.database)


@servers
@pytest.mark.parametrize("case", CHANGES, ids=str)
def test_what_changes_the_table(logged: LoggedTable) -> None:
    """Asked of the definition before it, and of the one after it."""
    try:
        logged.run()
    except MySQLError as e:
        if logged.stops():
            return
        pytest.skip(f"the server refuses it: {e.args[-1]}")
    assert logged.stops()
    with suppress(CdcError, MySQLError):
        now = logged.definition()
        assert now.reads_as(logged.table) or logged.had_key(now) or logged.defining(now)
    with suppress(MySQLError):
        logged.server.run(f"CREATE DATABASE IF NOT EXISTS {logged.database}")
