"""Sinks: the code that writes targets. One folder a kind; a new one is one row in `_DRIVERS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.sinks.delta import Delta
from cdcsync_core.resource.sinks.iceberg import Iceberg
from cdcsync_core.resource.sinks.kafka import Kafka
from cdcsync_core.resource.sinks.kind import SinkKind, StoreUse
from cdcsync_core.resource.sinks.sql_database import MySql, PostgreSql, SqlDatabase
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.contract.driver import READER, Role, SinkDriver
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.driver import DeltaDriver
from cdcsync_spark.sinks.delta.replica.staging_table import DeltaStaging
from cdcsync_spark.sinks.lake.storage.errors import of_the_run
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import store_at, store_errors


def sink_from_spec(sink: SinkSpec, secrets_dir: Path, sync: str, role: Role = READER) -> Sink:
    """The sink of a manifest's `spec.sink` for the sync `namespace/name`;
    `<secrets_dir>/<secret>/<key>` hold its credentials.

    Opens nothing; raises `SpecInvalid` for a store that is not supported.
    """
    return _driver(sink, secrets_dir, sync).open(role)


def refuse_unready(sink: SinkSpec, secrets_dir: Path, sync: str) -> None:
    """The check that the operator cannot always make: the identity, or the folder, may be the
    driver's own, and the sink's servers are reached from there. Raises CdcError."""
    for store in sink.kind.stores():
        for error in store_errors(Location.of(store, secrets_dir)):
            raise of_the_run(error)
    for error in check_servers(sink, secrets_dir, sync, ()).errors:
        raise error


def check_servers(sink: SinkSpec, secrets_dir: Path, sync: str, tables: Sequence[TableId]) -> Checks:
    """See `SinkDriver.check`."""
    return _driver(sink, secrets_dir, sync).check(tables)


def _driver(sink: SinkSpec, secrets_dir: Path, sync: str) -> SinkDriver:
    return _DRIVERS[type(sink.kind)](sink.kind, secrets_dir, sync)


def _delta(section: Delta, secrets_dir: Path, sync: str) -> SinkDriver:
    return DeltaDriver(section, _store(section.stores(), secrets_dir), sync)


def _iceberg(section: Iceberg, secrets_dir: Path, sync: str) -> SinkDriver:
    """Loaded by runs that use it only."""
    from cdcsync_spark.sinks.iceberg.driver import IcebergDriver

    return IcebergDriver(section, secrets_dir, sync)


def _kafka(section: Kafka, secrets_dir: Path, sync: str) -> SinkDriver:
    """Its client is loaded by runs that use it only."""
    from cdcsync_spark.sinks.kafka.driver import KafkaDriver

    return KafkaDriver(section, secrets_dir, sync, DeltaStaging(_store(section.stores(), secrets_dir), sync))


def _sql(section: SqlDatabase, secrets_dir: Path, sync: str) -> SinkDriver:
    """Its clients are loaded by runs that use them only."""
    from cdcsync_spark.sinks.sql.driver import SqlDriver

    return SqlDriver(section, secrets_dir, sync)


def _store(stores: tuple[StoreUse, ...], secrets_dir: Path) -> Store:
    """The store of a kind that has one."""
    (store,) = stores
    return store_at(Location.of(store, secrets_dir))


_DRIVERS: dict[type[SinkKind], Callable[[Any, Path, str], SinkDriver]] = {
    Delta: _delta,
    Iceberg: _iceberg,
    Kafka: _kafka,
    MySql: _sql,
    PostgreSql: _sql,
}
