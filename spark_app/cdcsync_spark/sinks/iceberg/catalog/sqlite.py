"""A catalog in a file of SQLite, with the tables of Iceberg's JDBC catalog, so that every engine
with that one finds what is written here: no server, no JVM.

Why it is right: a commit (`pointer`) moves the table's row to the next `metadata.json` if the row
still names the one that the commit was decided on: a compare-and-set of SQLite, which is durable
when it returns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_spark.sinks.iceberg.catalog.metadata_files import MetadataStores
from cdcsync_spark.sinks.iceberg.catalog.pointer import PointerCatalog
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, Json, OutcomeUnknown

#: engines name the catalog so, because its rows begin with it
NAME = "cdcsync"
#: seconds for another program's transaction
_BUSY = 60.0
#: Iceberg's `JdbcUtil`, with the columns of its schema version V1
_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, "
        "table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), "
        "previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5), "
        "PRIMARY KEY (catalog_name, table_namespace, table_name))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, "
        "namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255), property_value VARCHAR(1000), "
        "PRIMARY KEY (catalog_name, namespace, property_key))"
    ),
)
_OF = "catalog_name = ? AND table_namespace = ? AND table_name = ?"


@dataclass(frozen=True)
class SqliteCatalog(PointerCatalog):
    """See `Catalog`. The file is `database`; tables lie below `warehouse`."""

    database: str
    warehouse: str
    stores: MetadataStores

    def check(self) -> None:
        """Reads the file, where there is one. Raises CdcError."""
        self.newest(CatalogTableName((), ""))

    def insert(self, table: CatalogTableName, metadata: Json, location: str) -> None:
        name = ".".join(table.namespace)
        try:
            with self._transaction(table) as connection:
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute(
                    "INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', 'true')", (NAME, name)
                )
                connection.execute(
                    "INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')", (NAME, name, table.name, location)
                )
        except sqlite3.IntegrityError:
            self.files.delete(table, metadata["location"], location)
            raise CommitLost("the table is there already") from None
        except OutcomeUnknown as unknown:
            raise self._error(table, str(unknown)) from None

    def move(self, table: CatalogTableName, before: str, after: Json, location: str) -> bool:
        with self._transaction(table) as connection:
            moved = connection.execute(
                f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
                f"WHERE {_OF} AND metadata_location = ?",
                (location, before, *_key(table), before),
            )
        return moved.rowcount == 1

    def drop(self, table: CatalogTableName) -> None:
        if Path(self.database).exists():
            with self._transaction(table) as connection:
                connection.execute(f"DELETE FROM iceberg_tables WHERE {_OF}", _key(table))

    # -- the file of SQLite

    def newest(self, table: CatalogTableName) -> str | None:
        if not Path(self.database).exists():
            return None
        with self._connected(table) as connection:
            has_tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchone()
            question = f"SELECT metadata_location FROM iceberg_tables WHERE {_OF}"
            row = connection.execute(question, _key(table)).fetchone() if has_tables else None
        return None if row is None else str(row[0])

    @contextmanager
    def _connected(self, table: CatalogTableName) -> Iterator[sqlite3.Connection]:
        try:
            Path(self.database).parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.database, timeout=_BUSY, isolation_level=None)) as connection:
                yield connection
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise self._error(table, str(error)) from None

    @contextmanager
    def _transaction(self, table: CatalogTableName) -> Iterator[sqlite3.Connection]:
        """Raises OutcomeUnknown where only its end failed."""
        with self._connected(table) as connection:
            # by FULL a power cut may take the commit back: the journal's removal is not durable
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise OutcomeUnknown(f"{self.database}: {error}") from None

    # -- errors

    def _error(self, table: CatalogTableName, found: str) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the catalog {self.database} cannot be used{f' for the table {table.shown}' if table.name else ''}:"
            f" {quoted(found)}",
            needed="a file of SQLite that this process may write, in a folder on a local disk",
            remedy="check spec.sink.iceberg.catalog.uri, and that no other program holds the file",
        )


def _key(table: CatalogTableName) -> tuple[str, str, str]:
    return NAME, ".".join(table.namespace), table.name
