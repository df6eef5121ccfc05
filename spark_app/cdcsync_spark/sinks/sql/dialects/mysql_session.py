"""A session of MySQL or MariaDB as a sink, by PyMySQL, and how rows get there.

The fastest load is LOAD DATA LOCAL, where the server takes it (`local_infile`). The client sends
what it has in its hands, in answer to its own statement: no name that the server sends is used for
anything, and a request for a file in another answer breaks the connection. With LOCAL the server
makes a warning of what would be an error and leaves rows out, so a warning or another number of
rows is an error here. Other servers get INSERT statements of many rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted as quoted_text
from cdcsync_mysql.sessions.connection import Connection, Source, connect
from cdcsync_mysql.sessions.protocol import LoadedRows, answered_within, load_local
from cdcsync_spark.sinks.sql.dialects import mysql_role
from cdcsync_spark.sinks.sql.dialects.answers import ROW_BYTES, STATEMENT_SECONDS, checked, one_row
from cdcsync_spark.sinks.sql.dialects.arrow_text import insert_values, load_text
from cdcsync_spark.sinks.sql.dialects.dialect import AlreadyThere, ConnectionLost, Kind
from cdcsync_spark.sinks.sql.dialects.errors import Fault, fault_error
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.portions import next_portion, portions

#: of one statement: below the smallest default of max_allowed_packet (MariaDB 16 MiB, MySQL 64)
_STATEMENT_BYTES = 1024 * 1024
_SETTINGS = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
    # which refuse deletes by a join
    "SET SESSION sql_safe_updates = 0",
    "SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60",
    # the locks of a client whose machine is gone end by then
    "SET SESSION wait_timeout = 600",
    # tables have transactions whatever the server's default is
    "SET SESSION default_storage_engine = InnoDB, default_tmp_storage_engine = InnoDB",
)
_FAULTS = {
    **dict.fromkeys((1021, 1114, 1041, 1037), Fault.FULL),
    **dict.fromkeys((1036, 1290, 1792, 1836, 1874, 3100, 3989), Fault.READ_ONLY),
    **dict.fromkeys((1205, 1213, 1412), Fault.LOCKED),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), Fault.RIGHTS),
    **dict.fromkeys((1264, 1265, 1292, 1366, 1406, 1411, 1441, 3140), Fault.VALUE),
    **dict.fromkeys((1048, 1364, 1216, 1217, 1451, 1452, 1785, 3819, 4025), Fault.CONSTRAINT),
    **dict.fromkeys((1049, 1051, 1054, 1146), Fault.GONE),
    3730: Fault.DEPENDENT,
    **dict.fromkeys((1060, 1071, 1113, 1117, 1118, 1173, 1273, 1709, 3750), Fault.SHAPE),
    1153: Fault.TOO_LARGE,
    1045: Fault.LOGIN,
}
#: of LOAD DATA LOCAL: off at the server, or not known to what is before it
_NO_LOADS = (1047, 1148, 1235, 3948, 4166)
_EXISTS = (1050, 1062)
#: the connection's own errors (2xxx), a server that ends, a session that was killed
_ENDED = (1053, 1077, 1079, 1317, 1927, 4031)


class MySqlSession:
    """See `SqlSession`."""

    def __init__(self, login: SqlLogin) -> None:
        self._login = login
        self.opened_at = time.monotonic()
        source = Source(login.host, login.port, login.username_file, login.password_file, login.tls)
        try:
            self._connection: Connection = connect(source, max_seconds=STATEMENT_SECONDS, loads=True)
        except CdcError as error:
            raise _of_the_sink(error, login.field) from error
        cast(Any, self._connection).row_bytes = ROW_BYTES
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        for setting in _SETTINGS:
            self.run(setting)
        if not self.is_mariadb:  # whose catalog has no transactions: MySQL's would be of the first SELECT in one
            self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        (self._most_bytes,) = one_row(self._login.address, self.fetch((int,), "SELECT @@max_allowed_packet"))
        variables = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('local_infile', 'innodb_read_only')"
        shown: dict[str, str] = dict(self.fetch((str, str), variables))
        self._loads = shown.get("local_infile") == "ON"
        if shown.get("innodb_read_only") == "ON":
            raise self._role_error(Fault.READ_ONLY, "innodb_read_only is ON", "innodb_read_only")
        self._refuse_read_only()
        if origin := mysql_role.origin(self, mariadb=self.is_mariadb):
            raise self._role_error(Fault.REPLICA, f"the server replicates from {origin}", "replica status")

    def _refuse_read_only(self) -> None:
        """Asks, because an account with administrators' rights could write to a replica, too."""
        answer = self.fetch((int | str,), "SELECT @@GLOBAL.read_only")
        (read_only,) = one_row(self._login.address, answer)
        if str(read_only) not in ("0", "OFF"):
            raise self._role_error(Fault.READ_ONLY, f"read_only is {read_only}", "read_only")

    def _role_error(self, fault: Fault, finding: str, code: str) -> CdcError:
        return fault_error(fault, self._login.address, finding, code)

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in str(cast(Any, self._connection).server_version).lower()

    @property
    def key_collation(self) -> str:
        """One by which texts are equal if their bytes are, blanks at the end included."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        with self._mapped(), self._connection.cursor() as cursor:
            return int(cursor.execute(sql, tuple(values) or None))

    def copy(self, sql: str) -> None:
        """Within the hour of any statement: the server ends it then."""
        self.run(sql)

    def fetch(self, kinds: Sequence[Kind], sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._mapped(), self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(values) or None)
            return checked(self._login.address, list(cursor.fetchall()), kinds)

    def named_rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a SHOW statement whose columns differ between servers, by their names."""
        with self._mapped(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            names = [str(column[0]) for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def stream(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        with self._mapped(), self._connection.cursor(SSCursor) as cursor:
            with answered_within(self._connection, STATEMENT_SECONDS):
                cursor.execute(sql)
            while portion := self._portion(cursor):
                try:
                    yield portion
                except GeneratorExit:
                    cast(Any, self._connection).give_up()  # PyMySQL would read the rest, however much that is
                    raise

    def _portion(self, cursor: SSCursor) -> list[tuple[Any, ...]]:
        with answered_within(self._connection, STATEMENT_SECONDS):
            return next_portion([row] for row in iter(cursor.fetchone, None))

    def begin(self, *, snapshot: bool = False) -> None:
        if not snapshot:
            self._refuse_read_only()
        else:
            self.run("SET SESSION wait_timeout = 28800")
            self.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT" if snapshot else "START TRANSACTION")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        with suppress(pymysql.MySQLError, OSError, CdcError):
            self._connection.rollback()

    def load(self, table: str, rows: pa.Table) -> None:
        if rows.num_rows and not (self._loads and self._load_local(table, rows)):
            self._insert_all(table, rows)

    def _load_local(self, table: str, rows: pa.Table) -> bool:
        """False where the server does not take the statement, as one behind a proxy may not."""
        statement = _load_statement(table, rows.schema)
        with self._mapped():
            try:
                loaded = load_local(self._connection, statement, self._packets(rows))
            except pymysql.MySQLError as error:
                if error.args[0] not in _NO_LOADS:
                    raise
                self._loads = False
                return False
        if loaded.warnings or loaded.rows != rows.num_rows:
            self._refuse_changed(loaded, rows.num_rows)
        return True

    def _packets(self, rows: pa.Table) -> Iterator[memoryview]:
        size = max(1, min(_STATEMENT_BYTES, self._most_bytes // 2))
        for portion in portions(rows):
            text = memoryview(load_text(portion))
            for first in range(0, len(text), size):
                yield text[first : first + size]

    def _refuse_changed(self, loaded: LoadedRows, rows: int) -> None:
        """Raises the error that the first warning would be in another statement."""
        warnings = self.fetch((str, int, str), "SHOW WARNINGS LIMIT 1")
        code, message = warnings[0][1:] if warnings else (0, f"{loaded.warnings} warnings")
        message = f"{loaded.rows} of {rows} rows as they are: {message}"
        raise fault_error(_FAULTS.get(code, Fault.VALUE), self._login.address, message, code)

    def _insert_all(self, table: str, rows: pa.Table) -> None:
        head = f"INSERT INTO {table} ({', '.join(quoted(name) for name in rows.schema.names)}) VALUES "
        for portion in portions(rows):
            for values in _statements(insert_values(portion)):
                self._insert(head + ",".join(values))

    def _insert(self, statement: str) -> None:
        """A server closes the connection at a statement that is too long, which would look like a
        network's fault."""
        size = len(statement.encode())
        if size >= self._most_bytes:
            message = f"max_allowed_packet is {self._most_bytes} bytes, and a row needs a statement of {size}"
            raise fault_error(Fault.TOO_LARGE, self._login.address, message, "max_allowed_packet")
        self.run(statement)

    def close(self) -> None:
        with suppress(Exception):
            cast(Any, self._connection)._force_close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except CdcError as error:
            raise _of_the_sink(error, self._login.field) from error
        except (pymysql.MySQLError, OSError) as error:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            if code in _EXISTS:
                raise AlreadyThere(str(error)) from error
            if isinstance(error, pymysql.err.InterfaceError | OSError) or code in _ENDED or 2000 <= code < 3000:
                raise ConnectionLost(quoted_text(str(error))) from error
            fault = _FAULTS.get(code, Fault.UNKNOWN)
            raise fault_error(fault, self._login.address, str(error.args[-1]), code) from error


def _load_statement(table: str, schema: pa.Schema) -> str:
    """Binary columns come as hexadecimal digits."""
    binary = {field.name: f"@cdcsync_{n}" for n, field in enumerate(schema) if pa.types.is_binary(field.type)}
    fields = ", ".join(binary.get(name, quoted(name)) for name in schema.names)
    given = ", ".join(f"{quoted(name)} = UNHEX({variable})" for name, variable in binary.items())
    return (
        f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET utf8mb4"
        r" FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
        f" ({fields})" + (f" SET {given}" if given else "")
    )


def _statements(rows: list[str]) -> Iterator[list[str]]:
    """The rows in lists that are no longer than a statement, or are one row."""
    size, values = 0, list[str]()
    for row in rows:
        if values and size + len(row) > _STATEMENT_BYTES:
            yield values
            size, values = 0, []
        size += len(row)
        values.append(row)
    if values:
        yield values


def _of_the_sink(error: CdcError, section: str) -> CdcError:
    """An error of a connection that is a source's elsewhere."""
    reason = Reason.SINK_UNREACHABLE if error.reason is Reason.SOURCE_UNREACHABLE else error.reason
    texts = {name: getattr(error, name).replace("spec.source", section) for name in ("found", "needed", "remedy")}
    return fail(reason, texts["found"], needed=texts["needed"], remedy=texts["remedy"])


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
