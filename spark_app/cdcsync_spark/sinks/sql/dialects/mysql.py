"""MySQL and MariaDB as a sink.

Statements that create and rename tables end a transaction there, but one RENAME is atomic. Only
what MySQL's protocol and both manuals document is used.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdcsync_core.errors import Reason, fail
from cdcsync_core.tables.logical_type import DECIMAL
from cdcsync_core.tables.schema_change import Value
from cdcsync_core.tables.source_table import SourceType, TableId
from cdcsync_core.tables.target_schema import TargetColumn
from cdcsync_spark.rows.arrow_types import in_arrow
from cdcsync_spark.sinks.sql.dialects import mysql_role
from cdcsync_spark.sinks.sql.dialects.answers import one_row
from cdcsync_spark.sinks.sql.dialects.dialect import SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.mysql_rights import refuse_rights
from cdcsync_spark.sinks.sql.dialects.mysql_session import MySqlSession, quoted

#: an index of InnoDB has at most 3072 bytes, a character of utf8mb4 four
_KEY_BYTES = 3072
_CHARACTER_BYTES = 4
#: a longer text is a LONGTEXT, and so are all if their sum comes near to the 65,535 bytes of a row
_VARCHAR, _ROW_BYTES = 1024, 32_768
_TIMESTAMP = "timestamp[us, tz=UTC]"
_TYPES = {
    "bool": "TINYINT(1)",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "LONGTEXT",
    "binary": "LONGBLOB",
    "date32[day]": "DATE",
    "timestamp[us]": "DATETIME(6)",
    _TIMESTAMP: "TIMESTAMP(6)",
}
#: of a TIMESTAMP that is NOT NULL: without one, a server whose explicit_defaults_for_timestamp is
#: off changes it at each update of the row
_TIMESTAMP_DEFAULT = " DEFAULT '2000-01-01 00:00:00'"
_OF_TABLE = "table_schema = %s AND table_name = %s"
_OBSTACLES = (
    f"SELECT 'unique index', index_name FROM information_schema.statistics WHERE {_OF_TABLE}"
    " AND non_unique = 0 AND seq_in_index = 1 AND index_name <> 'PRIMARY'"
    " UNION ALL SELECT 'primary key', column_name FROM information_schema.statistics"
    f" WHERE {_OF_TABLE} AND index_name = 'PRIMARY'"
    " UNION ALL SELECT 'primary key', CONCAT('only the first ', sub_part, ' of ', column_name)"
    f" FROM information_schema.statistics WHERE {_OF_TABLE} AND index_name = 'PRIMARY' AND sub_part IS NOT NULL"
    " UNION ALL SELECT 'trigger', trigger_name FROM information_schema.triggers"
    " WHERE event_object_schema = %s AND event_object_table = %s"
    " UNION ALL SELECT 'foreign key', constraint_name FROM information_schema.table_constraints"
    f" WHERE {_OF_TABLE} AND constraint_type = 'FOREIGN KEY'"
    f" UNION ALL SELECT 'engine', engine FROM information_schema.tables WHERE {_OF_TABLE} AND engine <> 'InnoDB'"
)
_REFERENCES = (
    "SELECT referenced_table_name, CONCAT(table_name, '.', constraint_name)"
    " FROM information_schema.referential_constraints WHERE constraint_schema = %s AND unique_constraint_schema = %s"
)
#: of whole numbers, which some servers show
_WIDTH = re.compile(r"^(tinyint|smallint|int|bigint)\(\d+\)")


@dataclass(frozen=True)
class MySqlDialect:
    """See `Dialect`. `database` is where all targets are; empty: each in a database that is called
    as its source's."""

    login: SqlLogin
    database: str = ""
    state_schema: str = "cdcsync"
    alters_in_transactions = False
    row_number = ("`cdcsync row` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY",)

    @property
    def address(self) -> str:
        return self.login.address

    def open(self) -> SqlSession:
        return MySqlSession(self.login)

    def place(self, table: TableId) -> SqlName:
        return SqlName(self.database or table.database, table.name)

    def stored(self, name: str) -> str:
        return name

    def quoted(self, name: str) -> str:
        return quoted(name)

    def create_schema(self, session: SqlSession, schema: str) -> None:
        """Asks first: who may not create databases can use those that are there. The session gets
        it as its default, without which MariaDB takes no DELETE with an alias."""
        if not session.fetch((int,), "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (schema,)):
            session.run(f"CREATE DATABASE IF NOT EXISTS {quoted(schema)} CHARACTER SET utf8mb4")
        session.run(f"USE {quoted(schema)}")

    def bookkeeping(self) -> Sequence[str]:
        schema, kind = quoted(self.state_schema), "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
        states = (
            f"target VARCHAR(700) {kind} PRIMARY KEY, number BIGINT NOT NULL, epoch BIGINT NOT NULL,"
            f" state LONGTEXT {kind}, pending LONGTEXT {kind}"
        )
        helpers = (
            f"helper_table VARCHAR(64) {kind} PRIMARY KEY, helper_schema VARCHAR(64) {kind}, target VARCHAR(700) {kind},"
            " created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), KEY (target)"
        )
        tables = (("states", states), ("helpers", helpers))
        return [f"CREATE TABLE IF NOT EXISTS {schema}.{name} ({columns}) ENGINE=InnoDB" for name, columns in tables]

    def column_types(
        self, session: SqlSession, columns: Sequence[tuple[TargetColumn, SourceType | None]], key: Sequence[str]
    ) -> list[str]:
        assert isinstance(session, MySqlSession)
        return declared_types(columns, key, session.key_collation)

    def literal(self, value: Value) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if isinstance(value, dt.datetime):
            value = value.replace(tzinfo=None)  # the session is in UTC, and MariaDB takes no offset
        text = str(int(value) if isinstance(value, bool) else value)
        for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0")):
            text = text.replace(plain, escaped)
        return f"'{text}'"

    def with_digits(self, number: str, digits: int) -> str:
        point = f"LOCATE('.', {number})"
        given = f"IF({point} = 0, 0, CHAR_LENGTH({number}) - {point})"
        return f"CONCAT({number}, IF({point} = 0, '.', ''), REPEAT('0', {digits} - {given}))"

    def read_expression(self, column: TargetColumn) -> str:
        """A FLOAT is printed with six digits."""
        name = quoted(column.name)
        return f"CAST({name} AS DOUBLE)" if column.type.name == "float" else name

    def to_arrow(self, column: TargetColumn, values: Sequence[Any]) -> pa.Array:
        kind = in_arrow(column.type)
        if column.type.name == "bool":
            return pa.array([None if value is None else bool(value) for value in values], kind)
        return pa.array(values, kind)

    def marked(self, mark: str) -> str:
        return f" COMMENT = {self.literal(mark)}"

    def mark(self, session: SqlSession, table: SqlName) -> str:
        sql = f"SELECT table_comment FROM information_schema.tables WHERE {_OF_TABLE}"
        rows = session.fetch((str | None,), sql, (table.schema, table.table))
        return (rows[0][0] or "") if rows else ""

    def columns(self, session: SqlSession, table: SqlName) -> list[str]:
        rows = session.fetch(
            (str,),
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position",
            (table.schema, table.table),
        )
        return [name for (name,) in rows]

    def definitions(self, session: SqlSession, table: SqlName) -> dict[str, str]:
        rows = session.fetch(
            (str, str, str | None, str | None, str | None),
            "SELECT column_name, column_type, character_set_name, collation_name, extra"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (table.schema, table.table),
        )
        return {
            name: _shown_type(kind)
            + (f" character set {texts} collate {collation}" if texts else "")
            + _extra(more or "")
            for name, kind, texts, collation, more in rows
        }

    def is_defined(self, declared: str, shown: str) -> bool:
        plain = _shown_type(declared.removesuffix(_TIMESTAMP_DEFAULT))
        return bool(re.fullmatch(rf"{re.escape(plain)}( collate \w+)?", shown))

    def obstacles(self, session: SqlSession, table: SqlName) -> list[tuple[str, str]]:
        """ON DUPLICATE KEY goes by any unique index; a foreign key may change rows by itself. Each
        question is of one table, since MariaDB opens all others else."""
        rows = session.fetch((str, str), _OBSTACLES, (table.schema, table.table) * (1 + _OBSTACLES.count("UNION ALL")))
        return [(kind, name) for kind, name in rows]

    def references(self, session: SqlSession, schema: str, tables: Collection[str]) -> dict[str, list[str]]:
        """Asks for those of tables in the same database, all of which MariaDB opens for it. Where
        names have no case the catalog has them in lower case."""
        (caseless,) = one_row(self.address, session.fetch((int,), "SELECT @@lower_case_table_names"))
        spelled, keys = str.lower if caseless else str, defaultdict[str, list[str]](list)
        for table, key in session.fetch((str, str), _REFERENCES, (schema, schema)):
            keys[spelled(table)].append(key)
        return {table: keys[spelled(table)] for table in tables}

    def unseen(self, session: SqlSession) -> Sequence[str]:
        assert isinstance(session, MySqlSession)
        cause = mysql_role.hidden_by(session, mariadb=session.is_mariadb)
        return (f"whether {self.address} is a replica that takes writes: {cause}",) if cause else ()

    def refuse_server(self, session: SqlSession, schemas: Sequence[str]) -> None:
        for schema in dict.fromkeys(schemas):
            refuse_rights(session, schema)

    def temporary(self, name: str) -> str:
        return f"{quoted(self.state_schema)}.{quoted(name)}"

    def temporary_tables(self, name: str, columns: str) -> tuple[str, str]:
        own = self.temporary(name)
        return f"DROP TEMPORARY TABLE IF EXISTS {own}", f"CREATE TEMPORARY TABLE {own} ({columns})"

    def merge(self, table: str, rows: str, names: Sequence[str], key: Sequence[str]) -> str:
        columns = ", ".join(map(quoted, names))
        changed = ", ".join(f"{quoted(n)} = VALUES({quoted(n)})" for n in names if n not in key)
        same = f"{quoted(key[0])} = VALUES({quoted(key[0])})"
        return f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows} ON DUPLICATE KEY UPDATE {changed or same}"

    def delete(self, table: str, keys: str, key: Sequence[str]) -> str:
        same = " AND ".join(f"t.{quoted(name)} = k.{quoted(name)}" for name in key)
        return f"DELETE t FROM {table} t JOIN {keys} k ON {same}"

    def hold(self, table: str) -> str:
        return f"SELECT 1 FROM {table} LIMIT 0 FOR UPDATE"

    def swap(self, session: SqlSession, new: SqlName, to: SqlName, old: SqlName | None) -> None:
        names = [(to, old)] if old is not None else []
        pairs = (f"{_named(a)} TO {_named(b)}" for a, b in (*names, (new, to)) if b is not None)
        session.run(f"RENAME TABLE {', '.join(pairs)}")


def declared_types(
    columns: Sequence[tuple[TargetColumn, SourceType | None]], key: Sequence[str], key_collation: str
) -> list[str]:
    """See `Dialect.column_types`. `key_collation` compares texts of the key by their bytes, as the
    copy compares keys."""
    lengths = {c.name: _length(c, source) for c, source in columns}
    _refuse_long_key([(c, lengths[c.name]) for c, _ in columns if c.name in key])
    short = sum(_CHARACTER_BYTES * n for n in lengths.values() if n <= _VARCHAR) <= _ROW_BYTES
    return [_type(c, lengths[c.name], short, key_collation if c.name in key else "") for c, _ in columns]


def _type(column: TargetColumn, length: int, short: bool, key_collation: str) -> str:
    """`key_collation` is empty for a column that is not of the key."""
    kind = column.type
    if kind.name == DECIMAL:
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind.name in ("string", "binary") and (key_collation or (short and length <= _VARCHAR)):
        if kind.name == "binary":
            return f"VARBINARY({length})"
        return f"VARCHAR({length}) CHARACTER SET utf8mb4" + (f" COLLATE {key_collation}" if key_collation else "")
    if kind.name not in _TYPES:
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"column {column.name!r} is of the type {kind}, for which MySQL and MariaDB have no common one",
            needed="columns with a type in both",
            remedy="leave the column out (tables.overrides[].columns)",
        )
    if key_collation and kind.name == _TIMESTAMP:
        return _TYPES[kind.name] + _TIMESTAMP_DEFAULT
    return _TYPES[kind.name] + (" CHARACTER SET utf8mb4" if kind.name == "string" else "")


def _shown_type(kind: str) -> str:
    """A type as a server may show it, in one form."""
    return _WIDTH.sub(r"\1", kind.lower().replace(", ", ","))


def _extra(text: str) -> str:
    """Words for what gives a column values by itself, of what a catalog adds to it."""
    return "".join(
        f" {word}" for word in ("on update", "generated") if word in text.lower().replace("default_generated", "")
    )


def _length(column: TargetColumn, source: SourceType | None) -> int:
    """The characters or bytes that a text or binary column may have at most; far more than a
    VARCHAR's where that is not known."""
    unbounded = 2**31
    if source is None or column.type.name not in ("string", "binary"):
        return unbounded
    if source.base in ("char", "varchar", "binary", "varbinary"):
        return max(1, source.size)
    if source.base in ("enum", "set"):
        lengths = [len(member) for member in source.members]
        return max(1, max(lengths, default=0) if source.base == "enum" else sum(lengths) + len(lengths))
    return {"tinytext": 255, "tinyblob": 255, "bit": 8, "uuid": 36, "inet6": 39, "inet4": 15, "time": 17}.get(
        source.base, 70 if source.base == "decimal" else unbounded
    )


def _refuse_long_key(columns: Sequence[tuple[TargetColumn, int]]) -> None:
    size = {"string": _CHARACTER_BYTES, "binary": 1}
    used = sum(size[c.type.name] * length if c.type.name in size else 16 for c, length in columns)
    if used > _KEY_BYTES:
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"the key ({', '.join(c.name for c, _ in columns)}) may have {used} bytes in utf8mb4",
            needed=f"a key of at most {_KEY_BYTES} bytes, the most that an index of InnoDB has",
            remedy="leave the table out (tables.exclude), or use a sink without that bound",
        )


def _named(table: SqlName) -> str:
    return f"{quoted(table.schema)}.{quoted(table.table)}"
