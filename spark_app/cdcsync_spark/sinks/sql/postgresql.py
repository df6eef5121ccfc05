"""PostgreSQL as a sink, by psycopg: tables are created and renamed within transactions, and rows
are loaded by COPY."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from cdcsync_core.tables.logical_type import DECIMAL
from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn
from cdcsync_spark.rows.arrow_types import in_arrow
from cdcsync_spark.sinks.sql.arrow_text import copy_text
from cdcsync_spark.sinks.sql.dialect import READ_ROWS, AlreadyThere, ConnectionLost, SqlName, SqlSession
from cdcsync_spark.sinks.sql.errors import Fault, fault_error
from cdcsync_spark.sinks.sql.login import SqlLogin

#: a longer name is cut by the server, without an error
_NAME_BYTES = 63
_CONNECT_SECONDS = 10
_LOADED_ROWS = 50_000
_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET standard_conforming_strings = on",
    "SET lock_timeout = '60s'",
    "SET idle_in_transaction_session_timeout = 0",
    "SET statement_timeout = '1h'",
    "SET synchronous_commit = on",
    "SET extra_float_digits = 3",
)
_TYPES = {
    "bool": "BOOLEAN",
    "int8": "SMALLINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "string": "TEXT",
    "binary": "BYTEA",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP(6)",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ(6)",
    "list<item: float>": "REAL[]",
}
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
    "55": Fault.LOCKED,
}
_EXISTS = ("23505", "42P07", "42P06", "42710")
_ENDED = ("08", "57P")


class PostgresSession:
    """See `SqlSession`."""

    def __init__(self, login: SqlLogin, database: str) -> None:
        self._login, self._database = login, database
        with self._mapped():
            self._connection = self._connected()
            for setting in _SETTINGS:
                self._connection.execute(setting.encode())

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        user, password = self._login.credentials()
        tls = self._login.tls
        # the password itself goes to no server that is not verified
        login: dict[str, Any] = {} if tls.verified or tls.allow_unverified else {"require_auth": "scram-sha-256"}
        return psycopg.connect(
            host=self._login.host,
            hostaddr=self._login.checked_address(),
            port=self._login.port,
            dbname=self._database,
            user=user,
            password=password,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            application_name="cdcsync",
            sslmode={"disabled": "disable", "required": "require", "verify-identity": "verify-full"}.get(
                tls.mode, tls.mode
            ),
            sslrootcert=str(tls.ca) if tls.ca else ("system" if tls.mode == "verify-identity" else ""),
            sslcert=str(tls.cert) if tls.cert else "",
            sslkey=str(tls.key) if tls.key else "",
            **login,
            keepalives_idle=30,
            tcp_user_timeout=60_000,
        )

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        with self._mapped():
            return max(0, self._connection.execute(sql.encode(), values or None).rowcount)

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._mapped():
            return self._connection.execute(sql.encode(), values or None).fetchall()

    def stream(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """Reads by a cursor of the transaction that is open."""
        with self._mapped(), self._connection.cursor(f"rows_{uuid.uuid4().hex}") as cursor:
            cursor.itersize = READ_ROWS
            cursor.execute(sql.encode())
            while rows := cursor.fetchmany(READ_ROWS):
                yield rows

    def begin(self, *, snapshot: bool = False) -> None:
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if snapshot else "BEGIN")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        with suppress(psycopg.Error):
            self._connection.execute("ROLLBACK")

    def load(self, table: str, rows: pa.Table) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        into = f"COPY {table} ({names}) FROM STDIN".encode()
        with self._mapped(), self._connection.cursor() as cursor, cursor.copy(into) as copy:
            for first in range(0, rows.num_rows, _LOADED_ROWS):
                copy.write(copy_text(rows.slice(first, _LOADED_ROWS)))

    def close(self) -> None:
        with suppress(psycopg.Error, OSError):
            self._connection.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state in _EXISTS:
                raise AlreadyThere(str(error)) from error
            if not state and not hasattr(self, "_connection"):
                raise self._login.unreachable(str(error)) from error
            if not state or state.startswith(_ENDED):
                raise ConnectionLost(str(error)) from error
            fault = _FAULTS.get(state, _FAULTS.get(state[:2], Fault.UNKNOWN))
            raise fault_error(fault, self._login.address, str(error), state) from error


@dataclass(frozen=True)
class PostgresDialect:
    """See `Dialect`. `schema` is where all targets are; empty: each in a schema that is called as
    its database."""

    login: SqlLogin
    database: str
    schema: str = ""
    state_schema: str = "cdcsync"
    alters_in_transactions = True

    @property
    def address(self) -> str:
        return self.login.address

    def open(self) -> SqlSession:
        return PostgresSession(self.login, self.database)

    def place(self, table: TableId) -> SqlName:
        return SqlName(stored(self.schema or table.database), stored(table.name))

    def stored(self, name: str) -> str:
        return stored(name)

    def quoted(self, name: str) -> str:
        return quoted(name)

    def create_schema(self, session: SqlSession, schema: str) -> None:
        """Asks first: who may not create schemas can use those that are there."""
        if not session.fetch("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)):
            with suppress(AlreadyThere):
                session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")

    def bookkeeping(self) -> Sequence[str]:
        schema = quoted(self.state_schema)
        states = (
            'target TEXT COLLATE "C" PRIMARY KEY, number BIGINT NOT NULL, epoch BIGINT NOT NULL, state TEXT NOT NULL,'
            " pending TEXT NOT NULL"
        )
        helpers = (
            'helper_table TEXT COLLATE "C" PRIMARY KEY, helper_schema TEXT NOT NULL, target TEXT COLLATE "C" NOT NULL,'
            " created TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP"
        )
        return [
            f"CREATE TABLE IF NOT EXISTS {schema}.{name} ({columns})"
            for name, columns in (("states", states), ("helpers", helpers))
        ]

    def column_types(
        self, session: SqlSession, columns: Sequence[tuple[TargetColumn, SourceType | None]], key: Sequence[str]
    ) -> list[str]:
        """Texts of the key are compared by their bytes, as the copy tells keys apart."""
        return [
            f"NUMERIC({c.type.precision}, {c.type.scale})"
            if c.type.name == DECIMAL
            else _TYPES[c.type.name] + (' COLLATE "C"' if c.type.name == "string" and c.name in key else "")
            for c, _ in columns
        ]

    def literal(self, value: Value) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bytes):
            return f"'\\x{value.hex()}'::bytea"
        text = str(value).replace("'", "''")
        return f"'{text}'"

    def with_digits(self, number: str, digits: int) -> str:
        point = f"strpos({number}, '.')"
        given = f"(CASE WHEN {point} = 0 THEN 0 ELSE length({number}) - {point} END)"
        return f"(CASE WHEN {point} = 0 THEN {number} || '.' ELSE {number} END || repeat('0', {digits} - {given}))"

    def read_expression(self, column: TargetColumn) -> str:
        return quoted(column.name)

    def to_arrow(self, column: TargetColumn, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, in_arrow(column.type))

    def columns(self, session: SqlSession, table: SqlName) -> list[str]:
        rows = session.fetch(
            "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relname = %s"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table.schema, table.table),
        )
        return [name for (name,) in rows]

    def refuse_obstacles(self, session: SqlSession, table: SqlName) -> None:
        """A second unique index is no obstacle: ON CONFLICT names the key."""

    def temporary(self, name: str) -> str:
        return f"pg_temp.{name}"

    def temporary_tables(self, name: str, columns: str) -> tuple[str, str]:
        return f"DROP TABLE IF EXISTS pg_temp.{name}", f"CREATE TEMPORARY TABLE {name} ({columns})"

    def merge(self, table: str, rows: str, names: Sequence[str], key: Sequence[str]) -> str:
        columns = ", ".join(map(quoted, names))
        changed = ", ".join(f"{quoted(n)} = EXCLUDED.{quoted(n)}" for n in names if n not in key)
        action = f"DO UPDATE SET {changed}" if changed else "DO NOTHING"
        conflict = ", ".join(map(quoted, key))
        return f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows} ON CONFLICT ({conflict}) {action}"

    def delete(self, table: str, keys: str, key: Sequence[str]) -> str:
        same = " AND ".join(f"t.{quoted(name)} = k.{quoted(name)}" for name in key)
        return f"DELETE FROM {table} t USING {keys} k WHERE {same}"

    def swap(self, session: SqlSession, new: SqlName, to: SqlName, old: SqlName | None) -> None:
        """What depends on the table, such as a view, refuses the DROP, and so the transaction."""
        if old is not None:
            session.run(f"DROP TABLE {quoted(to.schema)}.{quoted(to.table)}")
        session.run(f"ALTER TABLE {quoted(new.schema)}.{quoted(new.table)} RENAME TO {quoted(to.table)}")


def stored(name: str) -> str:
    """A name of at most 63 bytes, which ends by a hash where it was longer."""
    data = name.encode()
    if len(data) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()[:12]
    return data[: _NAME_BYTES - 13].decode(errors="ignore") + "_" + digest


def quoted(name: str) -> str:
    return '"' + stored(name).replace('"', '""') + '"'
