"""The section of Iceberg tables."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cdcsync_core.resource.connection_spec import AccountUse, joined
from cdcsync_core.resource.iceberg_spec import FormatVersion, IcebergCatalog, Namespace, check_properties
from cdcsync_core.resource.sinks.kind import Endpoint, Nouns, SinkKind, StoreUse
from cdcsync_core.resource.sinks.lake_parts import (
    HistoryColumns,
    SinkCredentialsRef,
    StoreOptions,
    TableMode,
    check_path,
)
from cdcsync_core.resource.spec_part import Text, in_quotes
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.reserved_columns import ICEBERG


class Iceberg(SinkKind):
    """Iceberg tables of a catalog; without a namespace those of a database are in the one of its
    name. Their folders are the catalog's choice, so a store is known beforehand only where the
    warehouse is one."""

    catalog: IcebergCatalog
    namespace: Namespace = ""
    format_version: FormatVersion = 3
    mode: TableMode = TableMode.REPLICA
    history_columns: HistoryColumns = HistoryColumns()
    properties: Annotated[
        dict[Text, Text], BeforeValidator(in_quotes), AfterValidator(check_properties), Field(max_length=100)
    ] = Field(default_factory=dict)
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: StoreOptions = StoreOptions()

    @model_validator(mode="after")
    def _plain_warehouse(self) -> Iceberg:
        if self.catalog.warehouse_place:
            check_path(self.catalog.warehouse_place)
        return self

    @model_validator(mode="after")
    def _namespace_of_a_metastore(self) -> Iceberg:
        if self.catalog.type in ("hive", "glue") and not re.fullmatch("[A-Za-z0-9_]*", self.namespace):
            raise ValueError(
                f"a namespace of letters, digits and _ for type {self.catalog.type}, whose databases have one level"
            )
        return self

    @property
    def reserved_columns(self) -> frozenset[str]:
        return ICEBERG

    @property
    def keeps_events(self) -> bool:
        return self.mode is TableMode.HISTORY

    @property
    def refuses_declared_key(self) -> str:
        return "a history table, which needs no key," if self.mode is TableMode.HISTORY else ""

    def event_columns(self) -> EventColumns | None:
        return self.history_columns.names if self.mode is TableMode.HISTORY else None

    @property
    def store_secret(self) -> str:
        """The Secret for the tables' files; empty where the identity of the process serves."""
        return self.credentials_secret_ref.name if self.credentials_secret_ref else ""

    def stores(self) -> tuple[StoreUse, ...]:
        """The account may be kept out of a bucket but for its tables, so that a bucket is checked
        where it is the warehouse of a catalog of our own. The folder of that one is another
        store."""
        place, options = self.catalog.warehouse_place, self.options
        if not place or (self.catalog.type == "rest" and "://" in place and not place.startswith("file:")):
            return ()
        field = "spec.sink.iceberg"
        tables = StoreUse(field, place, options.endpoint, options.region, self.store_secret, "catalog.warehouse")
        folder = self.catalog.database.rpartition("/")[0] or "/"
        return (tables, StoreUse(field, folder, path_field="catalog.uri")) if self.catalog.type == "jdbc" else (tables,)

    def secrets(self) -> dict[str, set[str]]:
        """The keys for the store are the object store's business."""
        return joined({self.store_secret: set()} if self.store_secret else {}, self.catalog.secrets())

    def servers(self) -> tuple[Endpoint, ...]:
        if self.catalog.type == "jdbc":
            return ()
        named = {
            "catalog.uri": self.catalog.host,
            "catalog.oauth2.serverUri": self.catalog.oauth2.host,
            "options.endpoint": StoreUse("", "", self.options.endpoint).server.host,
        }
        return tuple(Endpoint(f"spec.sink.iceberg.{field}", host) for field, host in named.items() if host)

    @property
    def asked_field(self) -> str:
        return "spec.sink.iceberg.catalog.uri"

    @property
    def nouns(self) -> Nouns:
        return Nouns("catalog")

    def accounts(self) -> tuple[AccountUse, ...]:
        use = self.catalog.account_use
        return (use,) if use else ()

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        account = self.catalog.credentials_secret_ref
        return {account.name: self.catalog.hosts} if account else {}
