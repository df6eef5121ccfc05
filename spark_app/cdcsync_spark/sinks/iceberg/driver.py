"""Iceberg tables of a catalog, as `spec.sink.iceberg` describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.iceberg_spec import IcebergCatalog
from cdcsync_core.resource.sinks.iceberg import Iceberg
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.driver import READER, Role
from cdcsync_spark.sinks.iceberg.catalog.glue import GlueCatalog, GlueSettings
from cdcsync_spark.sinks.iceberg.catalog.login import Bearer, Login, OAuth2
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4
from cdcsync_spark.sinks.iceberg.catalog.sqlite import SqliteCatalog
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistorySink
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.policy import LEAVING_SMALL_FILES, POLICY

if TYPE_CHECKING:
    from cdcsync_spark.sinks.iceberg.catalog.hive import HiveCatalog

#: what `check` says of a catalog that has answered
_KINDS = {
    "rest": "has Iceberg's REST protocol",
    "jdbc": "is a file of SQLite, which the first run makes where it is missing",
    "hive": "is a Hive metastore",
    "glue": "has AWS Glue's interface",
}


@dataclass(frozen=True)
class IcebergDriver:
    """See `SinkDriver`; `<secrets_dir>/<secret>/<key>` hold the credentials."""

    section: Iceberg
    secrets_dir: Path
    sync: str

    def check(self, tables: Sequence[TableId]) -> Checks:
        """The catalog's answer, and what keeps a table that it has already from being ours."""
        errors, sink = list[CdcError](), self.open(READER)
        try:
            self._catalog().check()
        except CdcError as error:
            return Checks(errors=(error,))
        for table in tables:
            try:
                sink.target(table).last_commit()
            except CdcError as error:
                errors.append(error)
        return Checks(f"{self.section.catalog.uri} {_KINDS[self.section.catalog.type]}", errors=tuple(errors))

    def open(self, role: Role) -> IcebergSink | IcebergHistorySink:
        section, columns = self.section, self.section.event_columns()
        namespace = tuple(section.namespace.split(".")) if section.namespace else ()
        tables = IcebergSink(
            self._catalog(),
            self._stores(),
            self.sync,
            namespace,
            tuple(sorted(section.properties.items())),
            LEAVING_SMALL_FILES if role.followed else POLICY,
            format_version=section.format_version,
        )
        return IcebergHistorySink(tables, columns) if columns else tables

    def _catalog(self) -> SqliteCatalog | HiveCatalog | GlueCatalog | RestCatalog:
        catalog = self.section.catalog
        if catalog.type == "jdbc":
            return SqliteCatalog(catalog.database, catalog.warehouse, self._stores())
        if catalog.type == "hive":
            from cdcsync_spark.sinks.iceberg.catalog.hive import HiveCatalog  # loads Hive's whole interface

            authority = _authority(catalog, self.secrets_dir)
            return HiveCatalog(catalog.uri, catalog.warehouse, self._stores(), authority=authority)
        if catalog.type == "glue":
            return self._glue(catalog)
        return _rest(catalog, self.secrets_dir)

    def _glue(self, catalog: IcebergCatalog) -> GlueCatalog:
        login = _login(catalog, self.secrets_dir)
        assert isinstance(login, SigV4), "the spec has no other for this type"
        settings = GlueSettings(catalog.uri, login, _authority(catalog, self.secrets_dir))
        return GlueCatalog(settings, catalog.warehouse, self._stores())

    def _stores(self) -> TableStores:
        section, secret = self.section, self.section.store_secret
        return TableStores(
            section.options.endpoint,
            section.options.region,
            str(self.secrets_dir / secret) if secret else "",
            section.catalog.warehouse_place,
        )


def _rest(catalog: IcebergCatalog, secrets_dir: Path) -> RestCatalog:
    login, authority = _login(catalog, secrets_dir), _authority(catalog, secrets_dir)
    return RestCatalog(RestSettings(catalog.uri, catalog.warehouse, login, authority))


def _authority(catalog: IcebergCatalog, secrets_dir: Path) -> Path | None:
    ca = catalog.tls.ca_secret_ref if catalog.tls else None
    return secrets_dir / ca.name / ca.key if ca else None


def _login(catalog: IcebergCatalog, secrets_dir: Path) -> Login | None:
    account = catalog.credentials_secret_ref
    if account is None:
        return None
    folder = secrets_dir / account.name
    if catalog.authentication == "token":
        return Bearer(folder / account.password_key)
    if catalog.sigv4 is not None:
        signed = catalog.sigv4
        return SigV4(folder / account.username_key, folder / account.password_key, signed.region, signed.service)
    oauth2 = catalog.oauth2
    return OAuth2(folder / account.username_key, folder / account.password_key, oauth2.server_uri, oauth2.scope)
