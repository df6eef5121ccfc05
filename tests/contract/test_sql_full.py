"""Servers of SQL databases whose disk is full: nothing of a commit is there, and it is made once
there is room."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.sql import sessions
from cdcsync_spark.sinks.sql.target import SqlSink, SqlTarget
from contract.sinkcase import Row, batch, content, in_order, keys_of, make_table, rows_of, whole_snapshot
from support import sql_sink
from support.fixtures import FreshServer
from support.postgresql import PostgresServer
from support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.long]
TABLE = make_table({"id": "int(11)", "raw": "blob"}, ["id"])
ROWS: list[Row] = [(0, b"first"), (1, None)]
SMALL = Upsert(rows_of(TABLE, [(2, b"new")]), keys_of(TABLE, [(1,)]))
#: rows of 100,000 bytes that no server makes shorter
LARGE = Upsert(
    rows_of(TABLE, [(n, random.Random(n).randbytes(100_000)) for n in range(10, 230)]), keys_of(TABLE, [(1,)])
)
#: bytes that the files of a server may have: enough for all but `LARGE`
MOST = 17 * 2**20 + 4096


def refusal(target: SqlTarget, change: Upsert) -> CdcError:
    """The error of a commit, which is tried again."""
    with pytest.raises(CdcError) as refused:
        target.commit(1, batch(1, change))
    sessions.close_idle()
    assert refused.value.reason is Reason.SINK_UNREACHABLE
    return refused.value


def committed(target: SqlTarget, change: Upsert) -> TableState:
    """The state of the same commit, made."""
    state = target.commit(1, batch(1, change))
    assert len(content(target)) == len(ROWS) + change.upserts.num_rows - change.deletes.num_rows
    return state


def test_a_full_disk_of_postgresql_is_waited_for(postgres: PostgresServer, tmp_path: Path) -> None:
    """A bound of the files of its processes, in the middle of a page, is a disk that takes a part
    of a write."""
    with sql_sink.postgresql(postgres, tmp_path) as dialect:
        target = SqlSink(dialect, "shop/orders").target(TABLE.id)
        whole_snapshot(target, ROWS, TABLE)
        sessions.close_idle()
        with postgres.short_files(MOST):
            assert "room" in refusal(target, LARGE).needed
        assert content(target) == in_order(ROWS)
        committed(target, LARGE)


def test_a_full_tablespace_of_mysql_is_waited_for(fresh_server: FreshServer, tmp_path: Path) -> None:
    bound = "ibdata1:12M:autoextend:max:24M"
    server = fresh_server("mysql97_nogtid", innodb_file_per_table=False, innodb_data_file_path=bound)
    with sql_sink.mysql(server, tmp_path) as dialect:
        target = SqlSink(dialect, "shop/orders").target(TABLE.id)
        whole_snapshot(target, ROWS, TABLE)
        error = refusal(target, LARGE)
        assert ("full" in error.found, "room" in error.needed) == (True, True)
        assert content(target) == in_order(ROWS)
        committed(target, SMALL)


def test_mariadb_ends_where_its_disk_is_full(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The server crashes, so the sync meets one that does not answer, whose log has the reason."""
    server = fresh_server("mariadb1011")
    with sql_sink.mysql(server, tmp_path) as dialect:
        target = SqlSink(dialect, "shop/orders").target(TABLE.id)
        whole_snapshot(target, ROWS, TABLE)
        subprocess.run(["prlimit", f"--pid={server.pid}", f"--fsize={MOST}:"], check=True)
        refusal(target, LARGE)
        eventually(lambda: not server.is_running())  # it writes what it was at before it ends
        error = refusal(target, SMALL)
        assert (dialect.address in error.found, "Connection refused" in error.found) == (True, True)
        server.kill()  # what is left of it
        server.start()
        assert content(target) == in_order(ROWS)
        committed(target, LARGE)
