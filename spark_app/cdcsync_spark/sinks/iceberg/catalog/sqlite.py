"""A catalog in a file of SQLite, with the tables of Iceberg's JDBC catalog, so that every engine
with that one finds what is written here: no server, no JVM.

Why it is right: a commit writes the next `metadata.json`, durably and under a name that was never
used, and then moves the table's row to it if the row still names the file that the commit was
decided on: a compare-and-set of SQLite, which is durable when it returns. Dying between the two
leaves a file that nothing names. Requirements are checked on the metadata of that same file.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.quoting import quoted
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.iceberg.catalog.metadata_updates import check_requirements, new_metadata, updated
from cdcsync_spark.sinks.iceberg.catalog.port import (
    CatalogTableName,
    CommitLost,
    Json,
    LoadedTable,
    NewTable,
    OutcomeUnknown,
)
from cdcsync_spark.sinks.lake.layout import segment
from cdcsync_spark.sinks.lake.storage.store import Store

#: engines name the catalog so, because its rows begin with it
NAME = "cdcsync"
#: seconds for another program's transaction
_BUSY = 60.0
#: of the memory, for a table's metadata once they are parsed
_SHARE = 4
_FOLDER = "metadata"
_DELETES = "write.metadata.delete-after-commit.enabled"
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


class _Stores(Protocol):
    def at(self, location: str) -> Store: ...


@dataclass(frozen=True)
class SqliteCatalog:
    """See `Catalog`. The file is `database`; tables lie below `warehouse`."""

    database: str
    warehouse: str
    stores: _Stores

    def load(self, table: CatalogTableName) -> LoadedTable | None:
        location = self._location(table)
        return None if location is None else LoadedTable(self._read(table, location))

    def vended(self, table: CatalogTableName) -> Mapping[str, str]:
        """A file has none."""
        return {}

    def create(self, table: CatalogTableName, new: NewTable) -> LoadedTable:
        """In a folder that no table had before: of one that was removed its files stay."""
        name, identity = ".".join(table.namespace), str(uuid.uuid4())
        folder = "/".join(map(segment, (*table.namespace, table.name)))
        place = f"{_rooted(self.warehouse)}/{folder}-{identity[:8]}"
        metadata = new_metadata(new.schema, new.format_version, new.properties, place, identity)
        metadata["last-updated-ms"] = _milliseconds()
        location = self._write(table, metadata, 0)
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
            self._delete(table, place, location)
            raise CommitLost("the table is there already") from None
        except OutcomeUnknown as unknown:
            raise self._error(table, str(unknown)) from None
        return LoadedTable(metadata)

    def commit(self, table: CatalogTableName, requirements: Sequence[Json], updates: Sequence[Json]) -> LoadedTable:
        location = self._location(table)
        if location is None:
            raise CommitLost("the table is not there any more")
        before = self._read(table, location)
        check_requirements(before, requirements)
        after = updated(before, updates, _milliseconds(), location)
        written = self._write(table, after, _number(location) + 1)
        with self._transaction(table) as connection:
            moved = connection.execute(
                f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
                f"WHERE {_OF} AND metadata_location = ?",
                (written, location, *_key(table), location),
            )
        if moved.rowcount != 1:
            self._delete(table, after["location"], written)
            raise CommitLost("another commit came first")
        self._delete_old(table, before, after)
        return LoadedTable(after)

    def drop(self, table: CatalogTableName) -> None:
        if Path(self.database).exists():
            with self._transaction(table) as connection:
                connection.execute(f"DELETE FROM iceberg_tables WHERE {_OF}", _key(table))

    # -- the file of SQLite

    def _location(self, table: CatalogTableName) -> str | None:
        """The `metadata.json` of a table; None where there is no table."""
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

    # -- files

    def _store(self, place: str) -> Store:
        return self.stores.at(place)

    def _read(self, table: CatalogTableName, location: str) -> dict[str, Any]:
        place, _, name = location.rpartition(f"/{_FOLDER}/")
        if not place or "/" in name:
            raise self._unreadable(table, location)
        store = self._store(place)
        with store.translating_errors(_shown(table), "reading the metadata"):
            content = store.read(f"{_FOLDER}/{name}")
        try:
            metadata = parse_json(content or b"", most=memory_limit() // _SHARE)
        except ValueError:
            metadata = None
        if not isinstance(metadata, dict) or str(metadata.get("location")).rstrip("/") != place:
            raise self._unreadable(table, location)
        return metadata

    def _write(self, table: CatalogTableName, metadata: Json, number: int) -> str:
        place, name = metadata["location"].rstrip("/"), f"{number:05d}-{uuid.uuid4()}.metadata.json"
        store = self._store(place)
        with (
            store.translating_errors(_shown(table), "writing the metadata"),
            store.new_file(f"{_FOLDER}/{name}") as local,
        ):
            local.write_text(json.dumps(metadata, separators=(",", ":")), encoding="utf-8")
        return f"{place}/{_FOLDER}/{name}"

    def _delete(self, table: CatalogTableName, place: str, location: str) -> None:
        """What became of a commit is decided already, so a file that stays is no error."""
        store = self._store(place)
        with suppress(CdcError), store.translating_errors(_shown(table), "removing metadata"):
            store.delete(f"{_FOLDER}/{location.rpartition('/')[2]}")

    def _delete_old(self, table: CatalogTableName, before: Json, after: Json) -> None:
        """The files that the metadata do not name any more, where the table's properties say so."""
        if after["properties"].get(_DELETES) != "true":
            return
        named = {entry["metadata-file"] for entry in after["metadata-log"]}
        folder = f"{after['location'].rstrip('/')}/{_FOLDER}/"
        for entry in before.get("metadata-log", []):
            if entry["metadata-file"] not in named and entry["metadata-file"].startswith(folder):
                self._delete(table, after["location"], entry["metadata-file"])

    # -- errors

    def _error(self, table: CatalogTableName, found: str) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the catalog {self.database} cannot be used for the table {_shown(table)}: {quoted(found)}",
            needed="a file of SQLite that this process may write, in a folder on a local disk",
            remedy="check spec.sink.iceberg.catalog.uri, and that no other program holds the file",
        )

    def _unreadable(self, table: CatalogTableName, location: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the metadata of the table {_shown(table)} are not at {quoted(location)}, or cannot be read",
            needed=f"a table's metadata in the folder {_FOLDER} of its location",
            remedy="restore the file; or remove the table from the catalog, then resnapshot it",
        )


def _key(table: CatalogTableName) -> tuple[str, str, str]:
    return NAME, ".".join(table.namespace), table.name


def _rooted(warehouse: str) -> str:
    return warehouse.removeprefix("file://").rstrip("/")


def _number(location: str) -> int:
    """How many versions came before the one in this file."""
    text = location.rpartition("/")[2].partition("-")[0]
    return int(text) if text.isdecimal() else 0


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _shown(table: CatalogTableName) -> str:
    return quoted(".".join((*table.namespace, table.name)))
