"""DuckDB with its extension for Iceberg, as another program that reads tables by their metadata."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg


@cache
def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """One for the process; its extensions come from packages, never by the network."""
    settings = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    connection = duckdb.connect(config=settings)
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__path__[0]).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    return connection
