"""Sessions of PostgreSQL by psycopg, each answer within bounds of time and size."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Any

import psycopg
import pyarrow as pa

from cdcsync_core.errors import Reason, fail
from cdcsync_core.quoting import quoted as quoted_text
from cdcsync_spark.sinks.sql.dialects.answers import ROW_BYTES, STATEMENT_SECONDS, WHOLE, AnswerWatch, checked
from cdcsync_spark.sinks.sql.dialects.arrow_text import copy_text
from cdcsync_spark.sinks.sql.dialects.dialect import AlreadyThere, ConnectionLost, Kind
from cdcsync_spark.sinks.sql.dialects.errors import Fault, fault_error
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.portions import ROWS, bytes_of, next_portion, portions
from cdcsync_spark.sinks.sql.dialects.postgresql_login import Connection, LoginFailed, PostgresLogin

#: which would print a server's texts as they are
logging.getLogger("psycopg").disabled = True
#: a longer name is cut by the server, without an error
_NAME_BYTES = 63
#: a table that was filled for longer is given up (`states`)
COPY_SECONDS = 24 * 3600
_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET standard_conforming_strings = on",
    "SET lock_timeout = '60s'",
    # the locks of a client whose machine is gone end by then
    "SET idle_in_transaction_session_timeout = '10min'",
    # a server that is gone is noticed by the connection (tcp_user_timeout), any other by the clock
    "SET statement_timeout = 0",
    "SET synchronous_commit = on",
    "SET extra_float_digits = 3",
)
#: classes of SQLSTATE, and single ones: the longest that fits decides
_FAULTS = {
    "22": Fault.VALUE,
    "23": Fault.CONSTRAINT,
    "25006": Fault.READ_ONLY,
    "28": Fault.LOGIN,
    "2BP01": Fault.DEPENDENT,
    "3D000": Fault.LOGIN,
    "40": Fault.LOCKED,
    "42501": Fault.RIGHTS,
    "42703": Fault.GONE,
    "42P01": Fault.GONE,
    "53": Fault.FULL,
    "54": Fault.SHAPE,
    "55": Fault.LOCKED,
}
_EXISTS = ("23505", "42P07", "42P06", "42710")
_ENDED = ("08", "57P")
#: what psycopg raises at values that are none of their type
_UNINTELLIGIBLE = (ValueError, LookupError, TypeError, OverflowError)


#: rows that libpq hands over at once (from its version 17 on), unless so many before were large
_TOGETHER, _LARGE = (20 if psycopg.pq.version() >= 170_000 else 1), 2**20


class PostgresSession:
    """See `SqlSession`."""

    def __init__(self, login: SqlLogin, database: str) -> None:
        self._login = login
        self.opened_at = time.monotonic()
        self._connection = self._connected(database)
        self._watch = AnswerWatch(login.address, self._connection.fileno())
        try:
            for setting in _SETTINGS:
                self.run(setting)
        except BaseException:
            self.close()
            raise

    def _connected(self, database: str) -> Connection:
        user, password = self._login.credentials()
        self._refuse_nul({"the database": database, "the account": user, "the password": password})
        tls = self._login.tls
        # the password itself goes to no server that is not verified
        login: dict[str, Any] = {} if tls.verified or tls.allow_unverified else {"require_auth": "scram-sha-256"}
        parameters = {
            "host": self._login.host,
            "hostaddr": self._login.checked_address(),
            "port": self._login.port,
            "dbname": database,
            "user": user,
            "password": password,
            "application_name": "cdcsync",
            "sslmode": {"disabled": "disable", "required": "require", "verify-identity": "verify-full"}.get(
                tls.mode, tls.mode
            ),
            "sslrootcert": str(tls.ca) if tls.ca else ("system" if tls.mode == "verify-identity" else ""),
            "sslcert": str(tls.cert) if tls.cert else "",
            "sslkey": str(tls.key) if tls.key else "",
            **login,
            "keepalives_idle": 30,
            "tcp_user_timeout": 60_000,
        }
        try:
            return PostgresLogin(parameters).made()
        except LoginFailed as error:
            raise self._login.unreachable(quoted_text(self._login.without_account(str(error)))) from None

    def _refuse_nul(self, texts: Mapping[str, str]) -> None:
        """A character NUL would end libpq's parameters, and leave out TLS, which comes after."""
        if (name := next((name for name, text in texts.items() if "\0" in text), None)) is not None:
            raise fail(
                Reason.SPEC_INVALID,
                f"{self._login.field}: {name} has a character NUL",
                needed="texts without it, as PostgreSQL takes them",
                remedy="correct the database, or the Secret of credentialsSecretRef",
            )

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        return self._run(sql, values, STATEMENT_SECONDS)

    def copy(self, sql: str) -> None:
        self._run(sql, (), COPY_SECONDS)

    def _run(self, sql: str, values: Sequence[object], seconds: float) -> int:
        with self._mapped(), self._watch.within(seconds, WHOLE.bytes):
            return max(0, self._connection.execute(sql.encode(), values or None).rowcount)

    def fetch(self, kinds: Sequence[Kind], sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._mapped(), self._watch.within(STATEMENT_SECONDS, WHOLE.bytes), self._understood():
            cursor = self._connection.execute(sql.encode(), values or None)
            if cursor.pgresult is not None and cursor.pgresult.ntuples > WHOLE.packets:
                raise self._watch.beyond(f"an answer of more than {WHOLE.packets} rows")
            rows = cursor.fetchall()
        return checked(self._login.address, rows, kinds)

    def stream(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """Reads by a cursor of the transaction that is open."""
        cursor = f"rows_{uuid.uuid4().hex}"
        self.run(f"DECLARE {cursor} NO SCROLL CURSOR FOR {sql}")
        with closing(self._fetched(cursor)) as answer:
            while portion := next_portion(answer):
                yield portion
        self.run(f"CLOSE {cursor}")

    def _fetched(self, cursor: str) -> Generator[Sequence[tuple[Any, ...]], None, None]:
        largest, together = 0, 1
        while largest >= 0:
            largest = -1
            with closing(self._parts(f"FETCH FORWARD {ROWS} FROM {cursor}", together)) as parts:
                for part in parts:
                    largest = max(largest, bytes_of(part))
                    yield part
            together = _TOGETHER if largest < _LARGE else 1

    def _parts(self, sql: str, together: int) -> Generator[Sequence[tuple[Any, ...]], None, None]:
        """The rows of a FETCH as they come, so that libpq never has more than some `together`."""
        within = self._watch.within(STATEMENT_SECONDS, ROW_BYTES)
        with self._mapped(), within as answer, self._connection.cursor() as cursor:
            rows, number = cursor.stream(sql.encode(), size=together), 0
            while part := self._part(rows, together):
                number += len(part)
                if number > ROWS:
                    self.close()
                    raise self._watch.beyond(f"an answer of more than {ROWS} rows, which were asked for")
                try:
                    yield part
                except GeneratorExit:
                    self.close()  # psycopg would read the rest, however much that is
                    raise
                answer.renew()

    def _part(self, rows: Iterator[tuple[Any, ...]], together: int) -> Sequence[tuple[Any, ...]]:
        with self._understood():
            return list(islice(rows, together))

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Within it no values are made but those of the server's."""
        try:
            yield
        except _UNINTELLIGIBLE as error:
            self.close()
            finding = f"an answer that cannot be understood ({type(error).__name__})"
            raise self._watch.beyond(finding) from error

    def begin(self, *, snapshot: bool = False) -> None:
        level = "REPEATABLE READ READ ONLY" if snapshot else "READ COMMITTED"
        if snapshot:
            self.run("SET idle_in_transaction_session_timeout = 0")
        self.run(f"BEGIN ISOLATION LEVEL {level}")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        with suppress(Exception):
            self.run("ROLLBACK")

    def load(self, table: str, rows: pa.Table) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        into = f"COPY {table} ({names}) FROM STDIN".encode()
        within = self._watch.within(COPY_SECONDS, WHOLE.bytes)
        with self._mapped(), within, self._connection.cursor() as cursor, cursor.copy(into) as copy:
            for portion in portions(rows):
                copy.write(copy_text(portion))

    def close(self) -> None:
        if self._connection.lock.locked():
            self._watch.shut_down()  # beneath the thread that reads
        with suppress(psycopg.Error, OSError):
            self._connection.close()
        self._watch.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state in _EXISTS:
                raise AlreadyThere(error.diag.message_primary) from error
            if not state or state.startswith(_ENDED):
                raise ConnectionLost(quoted_text(str(error))) from error
            fault = _FAULTS.get(state, _FAULTS.get(state[:2], Fault.UNKNOWN))
            raise fault_error(fault, self._login.address, _message(error, fault), state) from error


def _message(error: psycopg.Error, fault: Fault) -> str:
    """The server's; its detail may have rows' values, unless it names what depends on a table."""
    texts = (error.diag.message_primary, error.diag.message_detail if fault is Fault.DEPENDENT else None)
    return ": ".join(filter(None, texts))


def stored(name: str) -> str:
    """A name of at most 63 bytes, which ends by a hash where it was longer."""
    data = name.encode()
    if len(data) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()[:12]
    return data[: _NAME_BYTES - 13].decode(errors="ignore") + "_" + digest


def quoted(name: str) -> str:
    return '"' + stored(name).replace('"', '""') + '"'
