"""The sinks whose programs are killed: in a store Delta tables, and Iceberg tables of the catalog
in a file of SQLite; and tables of a database."""

from __future__ import annotations

from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.iceberg.catalog.sqlite import SqliteCatalog
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.sinkcase import SYNC

#: the format versions of Iceberg tables, by the kind of sink
FORMAT_VERSIONS = {"iceberg": 3, "iceberg-v2": 2}


#: where the tables of a sink are
Place = Store | MySqlDialect | PostgresDialect


def sink_of(kind: str, place: Place) -> Sink:
    """`kind` counts in a store only."""
    if isinstance(place, MySqlDialect | PostgresDialect):
        return SqlSink(place, SYNC)
    if kind == "delta":
        return DeltaSink(place, SYNC)
    folder = place.local_folder
    assert folder is not None
    stores = TableStores(folder=str(folder))
    catalog = SqliteCatalog(f"{folder}/catalog.db", str(folder), stores)
    return IcebergSink(catalog, stores, SYNC, format_version=FORMAT_VERSIONS[kind])
