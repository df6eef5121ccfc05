"""What a target database answers: whatever it is, it ends as a fault of that sink, in bounded time
and memory, and with none of its text beyond a quotation."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions import connection as connections
from cdcsync_mysql.sessions import pymysql_adapter
from cdcsync_mysql.sessions.question import AnswerLimits
from cdcsync_spark.sinks.sql.dialects import mysql_session, postgresql_login, postgresql_session
from cdcsync_spark.sinks.sql.dialects.dialect import ConnectionLost, Dialect, SqlSession
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from cdcsync_spark.sinks.sql.states import States
from cdcsync_spark.sinks.sql.target import SqlSink
from support import hostile, hostile_postgresql, sql_sink
from support.hostile import COLUMN, END, Hostile
from support.hostile_postgresql import READY, answering, before_the_login, column, done, error, message, notice, row
from support.sql_sink import login

pytestmark = pytest.mark.timeout(240)
Ask = Callable[[SqlSession], object]
_SECONDS = 0.5
#: of an answer without end: a server sends 20 MiB from one look of the watch to the next, and a
#: loaded machine delays the look
_MOST_SENT = 256 * 2**20
_ROWS = row(b"x") * 1000
_PARAMETERS = b"".join(message(b"S", b"parameter%d\0v\0" % number) for number in range(2000))
#: answers of PostgreSQL's protocol that never end, by what comes again and again
_ENDLESS = {
    "rows": (column(), _ROWS),
    "notices": (b"", notice(b"x" * 60_000)),
    "notifications": (b"", message(b"A", b"\0\0\0\1channel\0text\0") * 1000),
    "parameters": (b"", _PARAMETERS),
    "a value of a gigabyte": (column() + message(b"D", b"\0\1\x40\0\0\0", length=2**30), bytes(2**20)),
    "an error of a gigabyte": (message(b"E", length=2**30), b"x" * 2**20),
}
#: answers that are none to a SELECT of a text
_WRONG = {
    "no rows": done(b"SELECT 1"),
    "another type": column(20) + row(b"7") + done(b"SELECT 1"),
    "no value of its type": column(20) + row(b"seven") + done(b"SELECT 1"),
    "two columns": column(count=2) + row(b"a", b"b") + done(b"SELECT 1"),
    "fewer values than columns": column(count=2) + row(b"a") + done(b"SELECT 1"),
    "columns that are cut": message(b"T", b"\xff\xff") + done(b"SELECT 1"),
    "no characters": column() + row(b"\xff\xfe") + done(b"SELECT 1"),
    "rows to be sent": message(b"G", b"\0\0\0"),
    "a replication": message(b"W", b"\0\0\0"),
    "no protocol": b"\xff" * 200,
}


@contextmanager
def _postgresql(way: hostile_postgresql.Way, folder: Path) -> Iterator[tuple[Hostile, PostgresDialect]]:
    server = Hostile(way)
    with server.listening() as port:
        try:
            yield server, PostgresDialect(login(folder, "spec.sink.postgresql", port, "sync", "the password"), "d")
        finally:
            server.ending.set()


def _fault(dialect: Dialect, ask: Ask, begin: Callable[[], None] = lambda: None) -> CdcError:
    """What a writer of the sink raises for it; `begin` is called once the session is open."""
    session: SqlSession | None = None
    try:
        session = dialect.open()
        begin()
        ask(session)
    except ConnectionLost as lost:
        return SqlSink(dialect, "shop/orders").target(TableId("shop", "orders")).place.lost_error(lost)
    except CdcError as fault:
        return fault
    finally:
        if session is not None:
            session.close()
    raise AssertionError("no fault")


def _hasten(patch: pytest.MonkeyPatch) -> None:
    for module in (postgresql_session, mysql_session):
        patch.setattr(module, "STATEMENT_SECONDS", _SECONDS)
    patch.setattr(postgresql_session, "COPY_SECONDS", _SECONDS)


def _read(session: SqlSession) -> object:
    return session.fetch((str,), "SELECT name")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bounds of size."""
    monkeypatch.setattr(postgresql_session, "ROW_BYTES", 2 * 2**20)
    monkeypatch.setattr(postgresql_session, "WHOLE", AnswerLimits(1000, 2 * 2**20))


@pytest.mark.parametrize(("first", "repeated"), _ENDLESS.values(), ids=_ENDLESS)
@pytest.mark.usefixtures("small")
def test_an_answer_of_postgresql_without_end_is_bounded(first: bytes, repeated: bytes, tmp_path: Path) -> None:
    for ask in (_read, lambda session: session.run("UPDATE t")):
        with _postgresql(answering(first, repeated=repeated), tmp_path) as (server, dialect):
            fault = _fault(dialect, ask)
            assert fault.reason is Reason.SINK_UNREACHABLE
            assert "more than 2097152 bytes" in fault.found
            assert server.sent < _MOST_SENT
    assert "answer" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.usefixtures("small")
def test_rows_of_postgresql_that_are_read_as_they_come_are_bounded(tmp_path: Path) -> None:
    """A FETCH has its number of rows, and each row its size."""
    declared = message(b"C", b"DECLARE CURSOR\0")
    rows = column() + row(b"x") * 5001 + done(b"FETCH 5001")
    endless = column() + message(b"D", b"\0\1\x10\0\0\0", length=2**28)
    for answer, repeated, excerpt in (
        (rows, b"", "more than 5000 rows"),
        (column(), _ROWS, "more than 5000 rows"),
        (endless, bytes(2**20), "more than 2097152 bytes"),
    ):
        way = hostile_postgresql.by_statement({b"DECLARE": (declared + READY, b""), b"FETCH": (answer, repeated)})
        with _postgresql(way, tmp_path) as (server, dialect):
            fault = _fault(dialect, lambda session: sum(map(len, session.stream("SELECT name"))))
            assert (fault.reason, excerpt in fault.found) == (Reason.SINK_UNREACHABLE, True), fault
            assert server.sent < _MOST_SENT


def test_a_server_of_postgresql_that_hangs_or_drips_ends_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"text": ["x" * 1000] * 20_000})
    cases: list[tuple[hostile_postgresql.Way, Ask]] = [
        (answering(b""), _read),
        (answering(b""), lambda session: session.commit()),
        (answering(b""), lambda session: session.copy("INSERT INTO t SELECT * FROM u")),
        (answering(message(b"T", length=2**20), drips=True), _read),
        (hostile_postgresql.unread(message(b"G", b"\0\0\0")), lambda session: session.load("t", rows)),
    ]
    for way, ask in cases:
        with monkeypatch.context() as patch, _postgresql(way, tmp_path) as (_, dialect):
            fault = _fault(dialect, ask, partial(_hasten, patch))
            assert fault.reason is Reason.SINK_UNREACHABLE
            assert f"no whole answer within {_SECONDS} s" in fault.found


def test_a_login_to_postgresql_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_login, "LOGIN_SECONDS", _SECONDS)
    cases: list[tuple[hostile_postgresql.Way, str]] = [
        (hostile.silence, "no login within"),
        (before_the_login(message(b"R", length=1000), drips=True), "no login within"),
    ]
    for way, excerpt in cases:
        with _postgresql(way, tmp_path) as (_, dialect):
            fault = _fault(dialect, _read)
            assert (fault.reason, excerpt in fault.found) == (Reason.SINK_UNREACHABLE, True), fault
    monkeypatch.undo()
    for repeated in (_PARAMETERS, notice(b"x" * 20_000)):
        with _postgresql(before_the_login(hostile_postgresql.LOGGED_IN, repeated=repeated), tmp_path) as (_, dialect):
            assert "more than 1048576 bytes before the login" in _fault(dialect, _read).found


@pytest.mark.parametrize("kind", [3, 5])
def test_a_server_of_postgresql_that_is_not_verified_gets_no_password(kind: int, tmp_path: Path) -> None:
    for consent in (False, True):
        received: list[bytes] = []
        with _postgresql(hostile_postgresql.asking_for_a_password(kind, received), tmp_path) as (_, dialect):
            tls = replace(dialect.login.tls, allow_unverified=consent)
            fault = _fault(replace(dialect, login=replace(dialect.login, tls=tls)), _read)
            assert fault.reason == Reason.SINK_UNREACHABLE
        assert any(received) is consent, "with the Secret's consent it is sent"
        assert "the password" not in str(fault)


#: opens the dialect of its input, and prints the fault
_LOGIN = """
import pickle, sys
from cdcsync_core.errors import CdcError
from cdcsync_spark.sinks.sql.dialects import postgresql_login

postgresql_login.LOGIN_SECONDS = 1.0
try:
    pickle.load(sys.stdin.buffer).open()
except CdcError as error:
    print(error.reason.value, error.found)
"""


def test_a_hash_of_a_password_that_takes_libpq_half_an_hour_is_a_login_that_is_late(tmp_path: Path) -> None:
    """The process of the run ends, too, although the hash is still being computed."""
    with _postgresql(hostile_postgresql.scram(rounds=2_000_000_000), tmp_path) as (_, dialect):
        process = subprocess.run(
            [sys.executable, "-c", _LOGIN], input=pickle.dumps(dialect), capture_output=True, timeout=200, check=False
        )
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout.startswith(b"SinkUnreachable ")
    assert b"no login within" in process.stdout


def test_the_rest_of_an_answer_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan is left at its first rows; the server has no end of them."""
    monkeypatch.setattr(connections, "apply_profile", lambda *_: None)
    monkeypatch.setattr(mysql_session.MySqlSession, "_begin", lambda _: None)
    declared = message(b"C", b"DECLARE CURSOR\0") + READY
    wide = column() + row(b"x" * 100_000) * 170
    ways: list[tuple[hostile_postgresql.Way, type[MySqlDialect] | None]] = [
        (hostile_postgresql.by_statement({b"DECLARE": (declared, b""), b"FETCH": (wide, _ROWS)}), None),
        (hostile.endless_rows, MySqlDialect),
    ]
    for way, mysql in ways:
        with _postgresql(way, tmp_path) as (server, dialect):
            session = (mysql(dialect.login) if mysql else dialect).open()
            scan: Any = session.stream("SELECT name")
            assert next(scan)
            scan.close()
            assert server.sent < _MOST_SENT
            session.close()


@pytest.mark.parametrize("answer", _WRONG.values(), ids=_WRONG)
def test_a_wrong_answer_of_postgresql_is_the_sinks_fault(answer: bytes, tmp_path: Path) -> None:
    with _postgresql(answering(answer), tmp_path) as (_, dialect):
        fault = _fault(dialect, _read)
    assert fault.reason is Reason.SINK_UNREACHABLE
    assert "\\xff\\xfe" not in fault.found


def test_a_servers_texts_are_quoted_and_short(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the connection breaks, and nothing of them is printed."""
    text = b"\x1b[2Jno\n" + b"y" * 1_000_000
    fatal = message(b"E", b"SFATAL\0VFATAL\0C57P01\0M" + text + b"\0\0")
    short = message(b"E", b"SFATAL\0VFATAL\0C57P01\0M" + text[:20_000] + b"\0\0")
    ways = [answering(error(text) + READY), answering(fatal + READY), before_the_login(short)]
    ways.append(answering(notice(text) + error(b"no", b"00000") + READY))
    for way in ways:
        with _postgresql(way, tmp_path) as (_, dialect):
            fault = _fault(dialect, _read)
        assert fault.reason is Reason.SINK_UNREACHABLE
        assert fault.found.isprintable()
        assert len(fault.found) < 1000
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("database", ["postgresql://other.example/x", "x' host='other.example", "x\\' sslmode=disable"])
def test_texts_of_a_spec_are_no_parameters_of_a_connection(database: str, tmp_path: Path) -> None:
    got = list[bytes]()
    with _postgresql(lambda _, client: got.append(client.recv(65536)), tmp_path) as (_, dialect):
        assert _fault(PostgresDialect(dialect.login, database), _read).reason is Reason.SINK_UNREACHABLE
    assert b"database\0" + database.encode() + b"\0" in got[0]


@pytest.mark.parametrize("which", ["database", "username", "password"])
def test_a_nul_leaves_no_parameter_out(which: str, tmp_path: Path) -> None:
    """libpq takes what is before it, and the settings of TLS come last."""
    with _postgresql(hostile.silence, tmp_path) as (server, dialect):
        if which == "database":
            dialect = PostgresDialect(dialect.login, "d\0e")
        else:
            (tmp_path / which).write_text("a\0b")
        fault = _fault(dialect, _read)
        assert (fault.reason, "NUL" in fault.found) == (Reason.SPEC_INVALID, True)
        assert not server.met.acquire(blocking=False)


@pytest.mark.parametrize("state", ["7", "[", "[" * 100_000, "{}", '{"v": 3}', "null"])
def test_a_state_that_is_none_stops_the_table(state: str) -> None:
    class Session:
        def fetch(self, *_: object) -> list[tuple[str, str]]:
            return [(state, "")]

    dialect, session = PostgresDialect(SqlLogin("f", "h", 1, Path("u"), Path("p"), sql_sink.PLAIN), "d"), Session()
    with pytest.raises(CdcError) as caught:
        States(dialect, cast(Any, session)).row("target")
    assert caught.value.reason is Reason.SINK_CONFLICT


def test_answers_of_a_mysql_target_are_bounded_as_those_of_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its faults are the sink's, and name its fields."""
    monkeypatch.setattr(connections, "apply_profile", lambda *_: None)
    monkeypatch.setattr(pymysql_adapter, "_MOST", AnswerLimits(5000, 2**20))
    monkeypatch.setattr(mysql_session, "ROW_BYTES", 2**20)
    monkeypatch.setattr(mysql_session.MySqlSession, "_begin", lambda _: None)
    streamed: Ask = lambda session: sum(map(len, session.stream("SELECT name")))  # noqa: E731
    cases: list[tuple[hostile_postgresql.Way, Ask, str]] = [
        (hostile.endless_rows, _read, "more than 5000 rows"),
        (hostile.one_endless_value, _read, "more than 1048576 bytes"),
        (hostile.one_endless_value, streamed, "a row of more than 1048576 bytes"),
        (hostile.answering(b"\x01", COLUMN, END, drips=True), streamed, "no whole answer within 0.5 s"),
        (hostile.answering(b"\xfb/etc/hostname"), _read, "cannot be understood"),
        (hostile.answering(b"\x02", COLUMN, COLUMN, END, b"\x01a\x01b", END), _read, "2 values (str, str)"),
        (hostile.endless_packets, _read, "before the login"),
    ]
    for way, ask, excerpt in cases:
        server = Hostile(way)
        with server.listening() as port:
            dialect = MySqlDialect(login(tmp_path, "spec.sink.mysql", port, "sync", "the password"))
            with monkeypatch.context() as patch:
                fault = _fault(dialect, ask, partial(_hasten, patch) if "within" in excerpt else lambda: None)
            server.ending.set()
        assert (fault.reason, excerpt in fault.found) == (Reason.SINK_UNREACHABLE, True), fault
        assert "spec.source" not in str(fault)
        assert server.sent < _MOST_SENT
