"""The sections of tables in the databases of SQL servers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from cdcsync_core.resource.connection_spec import AccountUse, CredentialsRef, TlsPart, is_loopback, joined
from cdcsync_core.resource.sinks.kind import Endpoint, Nouns, SinkKind, StoreUse
from cdcsync_core.resource.spec_part import Host, Whole
from cdcsync_core.tables.event_columns import EventColumns

#: a schema or a database that a resource may name, as the statements' text has it
_NAME = r"^([A-Za-z_][A-Za-z0-9_]*)?$"
Port = Annotated[Whole, Field(ge=1, le=65535)]
DatabaseName = Annotated[str, Field(strict=True, pattern=_NAME, max_length=64)]
StateName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]


class SqlDatabase(SinkKind):
    """Tables of a database server, whose states are in the same server."""

    host: Host
    tls: TlsPart
    credentials_secret_ref: CredentialsRef

    @model_validator(mode="before")
    @classmethod
    def _tls_by_host(cls, data: Any) -> Any:
        """Verified unless the server is this machine."""
        if not isinstance(data, dict) or not isinstance(data.get("tls", {}), dict):
            return data
        tls = data.get("tls", {})
        local = is_loopback(str(data.get("host"))) and not tls.get("caSecretRef")
        return data | {"tls": {"mode": "disabled" if local else "verify-identity"} | tls}

    @property
    def keeps_events(self) -> bool:
        return False

    @property
    def refuses_declared_key(self) -> str:
        return ""

    def event_columns(self) -> EventColumns | None:
        return None

    def stores(self) -> tuple[StoreUse, ...]:
        return ()

    def secrets(self) -> dict[str, set[str]]:
        return joined(self.tls.secrets(), self.credentials_secret_ref.secrets())

    @property
    def field(self) -> str:
        """The path of the section in the resource."""
        return f"spec.sink.{type(self).__name__.lower()}"

    def servers(self) -> tuple[Endpoint, ...]:
        return (Endpoint(f"{self.field}.host", self.host),)

    @property
    def nouns(self) -> Nouns:
        return Nouns("database")

    def accounts(self) -> tuple[AccountUse, ...]:
        tls = self.tls
        return (AccountUse(self.field, self.credentials_secret_ref, tls.authority, tls.allow_unverified),)

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        pair = self.tls.client_cert_secret_ref
        return dict.fromkeys([self.credentials_secret_ref.name, *([pair.name] if pair else [])], (self.host,))


class MySql(SqlDatabase):
    """MySQL and MariaDB; without a `database` the tables of a source's database are in the one of
    its name."""

    port: Port = 3306
    database: DatabaseName = ""
    state_database: StateName = "cdcsync"


class PostgreSql(SqlDatabase):
    """The `database` of a PostgreSQL server; without a `schema_name` the tables of a source's
    database are in the schema of its name."""

    port: Port = 5432
    database: Annotated[str, Field(strict=True, min_length=1, max_length=63)]
    schema_name: Annotated[str, Field(strict=True, pattern=_NAME, max_length=63, alias="schema")] = ""
    state_schema: StateName = "cdcsync"
