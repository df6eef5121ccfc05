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

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.tables.logical_type import DECIMAL
from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn
from cdcsync_spark.rows.arrow_types import in_arrow
from cdcsync_spark.sinks.sql.arrow_text import copy_text
from cdcsync_spark.sinks.sql.dialect import AlreadyThere, ConnectionLost, SqlName, SqlSession
from cdcsync_spark.sinks.sql.errors import Fault, fault_error
from cdcsync_spark.sinks.sql.login import SqlLogin
from cdcsync_spark.sinks.sql.portions import in_portions, portions

#: a longer name is cut by the server, without an error
_NAME_BYTES = 63
_CONNECT_SECONDS = 10
_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET standard_conforming_strings = on",
    "SET lock_timeout = '60s'",
    # the locks of a client whose machine is gone end by then
    "SET idle_in_transaction_session_timeout = '10min'",
    # a server that is gone is noticed by the connection (tcp_user_timeout)
    "SET statement_timeout = 0",
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
    "54": Fault.SHAPE,
    "55": Fault.LOCKED,
}
_OF_TABLE = (
    "SELECT t.oid FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE nspname = %s AND t.relname = %s"
)
_OBSTACLES = (
    f"WITH this AS ({_OF_TABLE})"
    " SELECT 'trigger', tgname FROM pg_trigger, this WHERE tgrelid = this.oid AND NOT tgisinternal"
    " UNION ALL SELECT 'rule', rulename FROM pg_rewrite, this WHERE ev_class = this.oid"
    " UNION ALL SELECT 'foreign key', conname FROM pg_constraint, this"
    " WHERE contype = 'f' AND this.oid IN (conrelid, confrelid)"
    " UNION ALL SELECT 'unique index', i.relname FROM pg_index JOIN pg_class i ON i.oid = indexrelid, this"
    " WHERE indrelid = this.oid AND (indisunique OR indisexclusion) AND NOT indisprimary"
    " UNION ALL SELECT 'inheritance', inhparent::regclass::text FROM pg_inherits, this WHERE this.oid IN (inhrelid, inhparent)"
    " UNION ALL SELECT 'row security', relname FROM pg_class JOIN this USING (oid) WHERE relrowsecurity"
    " UNION ALL SELECT 'unlogged table', relname FROM pg_class JOIN this USING (oid) WHERE relpersistence <> 'p'"
    " UNION ALL SELECT 'kind of table', relkind::text FROM pg_class JOIN this USING (oid) WHERE relkind <> 'r'"
)
#: declared types, as the catalog has them
_SHOWN = {
    "timestamp(6)": "timestamp(6) without time zone",
    "timestamptz(6)": "timestamp(6) with time zone",
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
            cursor.execute(sql.encode())
            yield from in_portions(cursor.fetchmany)

    def begin(self, *, snapshot: bool = False) -> None:
        level = "REPEATABLE READ READ ONLY" if snapshot else "READ COMMITTED"
        if snapshot:
            self.run("SET idle_in_transaction_session_timeout = 0")
        self.run(f"BEGIN ISOLATION LEVEL {level}")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        with suppress(psycopg.Error):
            self._connection.execute("ROLLBACK")

    def load(self, table: str, rows: pa.Table) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        into = f"COPY {table} ({names}) FROM STDIN".encode()
        with self._mapped(), self._connection.cursor() as cursor, cursor.copy(into) as copy:
            for portion in portions(rows):
                copy.write(copy_text(portion))

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
                raise AlreadyThere(error.diag.message_primary) from error
            if not state and not hasattr(self, "_connection"):
                raise self._login.unreachable(str(error)) from error
            if not state or state.startswith(_ENDED):
                raise ConnectionLost(str(error)) from error
            fault = _FAULTS.get(state, _FAULTS.get(state[:2], Fault.UNKNOWN))
            # the rest of the message may have rows' values
            raise fault_error(fault, self._login.address, error.diag.message_primary or "", state) from error


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
        """Texts of the key are compared by their bytes, as the copy compares keys."""
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

    def definitions(self, session: SqlSession, table: SqlName) -> dict[str, str]:
        rows = session.fetch(
            "SELECT attname, format_type(atttypid, atttypmod), collname, attgenerated <> '' OR attidentity <> ''"
            f" FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation WHERE attrelid = ({_OF_TABLE})"
            " AND attnum > 0 AND NOT attisdropped",
            (table.schema, table.table),
        )
        return {
            name: kind + (f' collate "{collation}"' if collation else "") + (" generated" if generated else "")
            for name, kind, collation, generated in rows
        }

    def is_defined(self, declared: str, shown: str) -> bool:
        plain = declared.lower().replace(", ", ",").replace('collate "c"', 'collate "C"')
        plain = _SHOWN.get(plain, plain)
        return shown == plain or shown.startswith(f"{plain} collate ")

    def obstacles(self, session: SqlSession, table: SqlName) -> list[tuple[str, str]]:
        rows = session.fetch(_OBSTACLES, (table.schema, table.table))
        return [(str(kind), str(name)) for kind, name in rows]

    def refuse_server(self, session: SqlSession, schemas: Sequence[str]) -> None:
        ((encoding, read_only, may_create),) = session.fetch(
            "SELECT current_setting('server_encoding'), current_setting('transaction_read_only') = 'on',"
            " has_database_privilege(current_database(), 'TEMPORARY')"
        )
        if encoding != "UTF8":
            raise _unfit(
                Reason.SINK_CONFLICT,
                f"the database {self.database} has the encoding {encoding}",
                "one in UTF8, which has all characters",
                "create it with ENCODING 'UTF8'",
            )
        if read_only:
            raise fault_error(Fault.READ_ONLY, self.address, "transactions are read-only", "transaction_read_only")
        if not may_create:
            raise _unfit(
                Reason.PRIVILEGE_MISSING,
                f"the account may not create temporary tables in {self.database}",
                "TEMPORARY on the database",
                "GRANT it",
            )
        lacking = session.fetch(
            "SELECT name FROM unnest(%s::text[]) name WHERE CASE WHEN to_regnamespace(quote_ident(name)) IS NULL"
            " THEN NOT has_database_privilege(current_database(), 'CREATE')"
            " ELSE NOT (has_schema_privilege(to_regnamespace(quote_ident(name))::oid, 'CREATE')"
            " AND has_schema_privilege(to_regnamespace(quote_ident(name))::oid, 'USAGE')) END",
            (list(dict.fromkeys(schemas)),),
        )
        if lacking:
            names = ", ".join(name for (name,) in lacking)
            raise _unfit(
                Reason.PRIVILEGE_MISSING,
                f"the account may not create tables in {names}",
                "USAGE and CREATE on each schema, or CREATE on the database where it is missing",
                "GRANT them",
            )

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

    def hold(self, table: str) -> str:
        return f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE"

    def swap(self, session: SqlSession, new: SqlName, to: SqlName, old: SqlName | None) -> None:
        """What depends on the table, such as a view, refuses the DROP, and so the transaction."""
        if old is not None:
            session.run(f"DROP TABLE {quoted(to.schema)}.{quoted(to.table)}")
        session.run(f"ALTER TABLE {quoted(new.schema)}.{quoted(new.table)} RENAME TO {quoted(to.table)}")


def _unfit(reason: Reason, finding: str, needed: str, remedy: str) -> CdcError:
    return fail(reason, finding, needed=needed, remedy=f"{remedy}, {RUN_AGAIN}")


def stored(name: str) -> str:
    """A name of at most 63 bytes, which ends by a hash where it was longer."""
    data = name.encode()
    if len(data) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()[:12]
    return data[: _NAME_BYTES - 13].decode(errors="ignore") + "_" + digest


def quoted(name: str) -> str:
    return '"' + stored(name).replace('"', '""') + '"'
