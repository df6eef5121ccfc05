"""PostgreSQL as a sink, by psycopg: tables are created and renamed within transactions, and rows
are loaded by COPY."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.tables.logical_type import DECIMAL, LogicalType
from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn
from cdcsync_spark.rows.arrow_types import in_arrow
from cdcsync_spark.sinks.sql.dialects.answers import one_row
from cdcsync_spark.sinks.sql.dialects.dialect import AlreadyThere, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.errors import Fault, fault_error
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.postgresql_session import PostgresSession, quoted, stored

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
    " UNION ALL SELECT 'primary key', attname FROM pg_index JOIN this ON indrelid = this.oid"
    " JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey[0:indnkeyatts - 1]) WHERE indisprimary"
    " UNION ALL SELECT 'primary key', 'deferrable' FROM pg_index, this"
    " WHERE indrelid = this.oid AND indisprimary AND NOT indimmediate"
    " UNION ALL SELECT 'inheritance', inhparent::regclass::text FROM pg_inherits, this WHERE this.oid IN (inhrelid, inhparent)"
    " UNION ALL SELECT 'subscription', srsubid::text FROM pg_subscription_rel, this WHERE srrelid = this.oid"
    " UNION ALL SELECT 'row security', relname FROM pg_class JOIN this USING (oid) WHERE relrowsecurity"
    " UNION ALL SELECT 'unlogged table', relname FROM pg_class JOIN this USING (oid) WHERE relpersistence <> 'p'"
    " UNION ALL SELECT 'kind of table', relkind::text FROM pg_class JOIN this USING (oid) WHERE relkind <> 'r'"
)
#: declared types, as the catalog has them
_SHOWN = {
    "timestamp(6)": "timestamp(6) without time zone",
    "timestamptz(6)": "timestamp(6) with time zone",
}


@dataclass(frozen=True)
class PostgresDialect:
    """See `Dialect`. `schema` is where all targets are; empty: each in a schema that is called as
    its database."""

    login: SqlLogin
    database: str
    schema: str = ""
    state_schema: str = "cdcsync"
    alters_in_transactions = True
    row_number = ()

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
        if not session.fetch((int,), "SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)):
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
        collated = {c.name for c, _ in columns if c.type.name == "string" and c.name in key}
        return [declared_type(c.type) + (' COLLATE "C"' if c.name in collated else "") for c, _ in columns]

    def literal(self, value: Value) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bytes):
            return f"'\\x{value.hex()}'::bytea"
        text = str(value).replace("'", "''")
        return f"'{text}'"

    def with_digits(self, number: str, digits: int) -> str:
        text = f"{number}::text"
        point = f"strpos({text}, '.')"
        given = f"(CASE WHEN {point} = 0 THEN 0 ELSE length({text}) - {point} END)"
        return f"(CASE WHEN {point} = 0 THEN {text} || '.' ELSE {text} END || repeat('0', {digits} - {given}))"

    def read_expression(self, column: TargetColumn) -> str:
        return quoted(column.name)

    def to_arrow(self, column: TargetColumn, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, in_arrow(column.type))

    def marked(self, mark: str) -> str:
        return ""

    def mark(self, session: SqlSession, table: SqlName) -> str:
        return ""

    def columns(self, session: SqlSession, table: SqlName) -> list[str]:
        rows = session.fetch(
            (str,),
            "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relname = %s"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table.schema, table.table),
        )
        return [name for (name,) in rows]

    def definitions(self, session: SqlSession, table: SqlName) -> dict[str, str]:
        rows = session.fetch(
            (str, str, str | None, bool),
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
        return shown == plain or (shown.startswith(f'{plain} collate "') and shown.endswith('"'))

    def obstacles(self, session: SqlSession, table: SqlName) -> list[tuple[str, str]]:
        rows = session.fetch((str, str), _OBSTACLES, (table.schema, table.table))
        return [(kind, name) for kind, name in rows]

    def references(self, session: SqlSession, schema: str, tables: Collection[str]) -> dict[str, list[str]]:
        return {table: [] for table in tables}

    def unseen(self, session: SqlSession) -> Sequence[str]:
        return ()

    def refuse_server(self, session: SqlSession, schemas: Sequence[str]) -> None:
        encoding, read_only, may_create = one_row(
            self.address,
            session.fetch(
                (str, bool, bool),
                "SELECT current_setting('server_encoding'), current_setting('transaction_read_only') = 'on',"
                " has_database_privilege(current_database(), 'TEMPORARY')",
            ),
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
            (str,),
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


def declared_type(kind: LogicalType) -> str:
    return f"NUMERIC({kind.precision}, {kind.scale})" if kind.name == DECIMAL else _TYPES[kind.name]


def _unfit(reason: Reason, finding: str, needed: str, remedy: str) -> CdcError:
    return fail(reason, finding, needed=needed, remedy=f"{remedy}, {RUN_AGAIN}")
