"""A server of MySQL, MariaDB or PostgreSQL as another program reads it, and as it crashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
import pymysql

from support.postgresql import PostgresServer
from support.servers import Server


class TargetReader(Protocol):
    def read(self, sql: str) -> list[tuple[Any, ...]] | None:
        """The rows of one statement in READ COMMITTED; None where the server does not answer."""
        ...

    def crash(self) -> None:
        """Kills the server, and starts it again."""
        ...


@dataclass(frozen=True)
class MySqlReader:
    """See `TargetReader`."""

    server: Server

    def read(self, sql: str) -> list[tuple[Any, ...]] | None:
        try:
            with self.server.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.MySQLError, OSError):
            return None

    def crash(self) -> None:
        self.server.kill()
        self.server.start()


@dataclass(frozen=True)
class PostgresReader:
    """See `TargetReader`."""

    server: PostgresServer
    database: str

    def read(self, sql: str) -> list[tuple[Any, ...]] | None:
        try:
            with self.server.connect(self.database) as connection:
                connection.execute("SET default_transaction_isolation = 'read committed'")
                return connection.execute(sql.encode()).fetchall()
        except psycopg.OperationalError:
            return None

    def crash(self) -> None:
        self.server.kill()
        self.server.start()
