"""The sink section of the resource: exactly one kind of sink, each a model of its own.

Why it exists: what the operator needs of a sink (its stores and servers, which Secrets it
names, what its pods must mount) is the same question for every kind. So each kind answers it here,
and nothing outside asks which kind it is. A new kind is a class, a field of `Sink`, and the field's
schema in the CRD.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cdcsync_core.resource.connection_spec import CaRef, CredentialsRef, TlsPart, is_loopback, joined
from cdcsync_core.resource.iceberg_spec import FormatVersion, IcebergCatalog, Namespace, check_properties
from cdcsync_core.resource.spec_part import Flag, Part, SecretName, Text, Whole
from cdcsync_core.resource.topic_names import check_template
from cdcsync_core.tables.event_columns import EventColumns

#: host:port, separated by commas
_SERVERS = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(,([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})*$"
#: forms of records of tables without a key
_WITHOUT_KEY = ("debezium-json", "changelog-json")
#: a schema or a database that a resource may name, as the statements' text has it
_NAME = r"^([A-Za-z_][A-Za-z0-9_]*)?$"
Host = Annotated[str, Field(strict=True, pattern=r"^([A-Za-z0-9._-]+|[0-9A-Fa-f:.]+)$", max_length=253)]
Port = Annotated[Whole, Field(ge=1, le=65535)]
DatabaseName = Annotated[str, Field(strict=True, pattern=_NAME, max_length=64)]
StateName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]
#: what the columns of events are called where the resource does not say
NAMES = EventColumns()


@dataclass(frozen=True)
class Endpoint:
    """A server that the resource names: the path of the field, and the host."""

    field: str
    host: str


@dataclass(frozen=True)
class StoreUse:
    """A store of files that a sink uses, and how it is reached. `field` is the path of its section
    in the resource, for messages, and `path_field` that of the path, below it; `secret` names the
    Secret with the credentials, empty where the identity of the process serves."""

    field: str
    path: str
    endpoint: str = ""
    region: str = ""
    secret: str = ""
    path_field: str = "path"

    @property
    def is_folder(self) -> bool:
        """Whether all pods of a run must mount the same volume at the path: a folder is each pod's
        own."""
        return "://" not in self.path

    @property
    def server(self) -> Endpoint:
        """The host is empty where the endpoint has none, or is no URL."""
        try:
            url = self.endpoint if "://" in self.endpoint else f"//{self.endpoint}"
            host = urlsplit(url).hostname or ""
        except ValueError:
            host = ""
        return Endpoint(f"{self.field}.options.endpoint", host)


@dataclass(frozen=True)
class Nouns:
    """What messages call a sink's servers and its targets."""

    servers: str = "servers"
    targets: str = "tables"


class SinkKind(Part, ABC):
    """What every kind of sink answers about its section."""

    @abstractmethod
    def stores(self) -> tuple[StoreUse, ...]:
        """The stores of files, none where all is in a server."""

    def servers(self) -> tuple[Endpoint, ...]:
        """The servers that the section names beside the stores'. Their client belongs to the Spark
        side, and only drivers ask them."""
        return ()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """All servers that the section names, those of stores first."""
        return (*(store.server for store in self.stores() if store.endpoint), *self.servers())

    @property
    def nouns(self) -> Nouns:
        return Nouns()

    @abstractmethod
    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys that must be in it; none where only the Secret must be there."""

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        """Secret name -> the hosts that get it, of those Secrets that may be for some hosts
        only."""
        return {}

    def unverified_secrets(self) -> tuple[str, ...]:
        """The names of Secrets whose password may be sent to a server that is not verified."""
        return ()

    @abstractmethod
    def event_columns(self) -> EventColumns | None:
        """The columns that targets have beside the source's; None where they keep no events."""

    @property
    @abstractmethod
    def keeps_events(self) -> bool:
        """Whether targets have every change in order, so that a resnapshot begins them again."""

    @property
    def needs_row_key(self) -> bool:
        """Whether a target tells rows apart by a key, so that a table without one is refused."""
        return not self.keeps_events

    @property
    def topics(self) -> str:
        """The template of the names of topics; empty where targets are none."""
        return ""


class SinkCredentialsRef(Part):
    """A Secret whose keys are the object store's usual variables (AWS_ACCESS_KEY_ID, ...)."""

    name: SecretName


class StagingOptions(Part):
    endpoint: Text = ""
    region: Text = ""


class DeltaOptions(Part):
    """`deletion_vectors` false: every MERGE rewrites the files that it touches, for readers that do
    not know deletion vectors."""

    endpoint: Text = ""
    region: Text = ""
    deletion_vectors: Flag = True


ColumnName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]


class HistoryColumns(Part):
    """The names of the columns that a history table has beside the source's (`EventColumns`)."""

    op: ColumnName = NAMES.op
    ts: ColumnName = NAMES.ts
    seq: ColumnName = NAMES.seq
    position: ColumnName = NAMES.position
    gtid: ColumnName = NAMES.gtid

    @model_validator(mode="after")
    def _distinct(self) -> HistoryColumns:
        if len({name.lower() for name in self.names.names}) != len(self.names.names):
            raise ValueError("historyColumns are different names")
        return self

    @property
    def names(self) -> EventColumns:
        return EventColumns(self.op, self.ts, self.seq, self.position, self.gtid)


class TableMode(StrEnum):
    """What a table of the lake holds."""

    REPLICA = "replica"
    HISTORY = "history"


def _check_path(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    if not path or (separator and (not scheme or not rest)):
        raise ValueError("a folder or a URL like s3://bucket/prefix")
    if separator and ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise ValueError("a URL without credentials; give them by credentialsSecretRef")
    return path


class Delta(SinkKind):
    path: Annotated[str, Field(strict=True, min_length=1, max_length=1024), AfterValidator(_check_path)]
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: DeltaOptions = DeltaOptions()
    mode: TableMode = TableMode.REPLICA
    history_columns: HistoryColumns = HistoryColumns()

    @model_validator(mode="after")
    def _publishable(self) -> Delta:
        if self.mode is TableMode.HISTORY and not self.options.deletion_vectors:
            raise ValueError("mode history needs options.deletionVectors: its snapshot is published with them")
        return self

    @property
    def keeps_events(self) -> bool:
        return self.mode is TableMode.HISTORY

    def event_columns(self) -> EventColumns | None:
        return self.history_columns.names if self.mode is TableMode.HISTORY else None

    def stores(self) -> tuple[StoreUse, ...]:
        secret = self.credentials_secret_ref.name if self.credentials_secret_ref else ""
        return (StoreUse("spec.sink.delta", self.path, self.options.endpoint, self.options.region, secret),)

    def secrets(self) -> dict[str, set[str]]:
        """Its keys are the object store's business."""
        return {self.credentials_secret_ref.name: set()} if self.credentials_secret_ref else {}


class Staging(Part):
    """Where the copies of snapshots are kept until they are sent: a lake."""

    path: Annotated[str, Field(strict=True, min_length=1, max_length=1024), AfterValidator(_check_path)]
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: StagingOptions = StagingOptions()


#: what may be set of the producer: how it sends, never what it guarantees or whom it reaches
PRODUCER_CONFIG = frozenset(
    ("batch.size", "compression.type", "compression.level", "linger.ms", "message.max.bytes", "batch.num.messages")
)


def _in_quotes(config: Any) -> Any:
    """A number or a truth value is another type in YAML."""
    for name, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, int | float):
            shown = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(f'a text: write {name}: "{shown}", in quotes')
    return config


def _check_producer(config: dict[str, str]) -> dict[str, str]:
    refused = sorted(config.keys() - PRODUCER_CONFIG)
    if refused:
        raise ValueError(f"other keys than {', '.join(refused)}; allowed: {', '.join(sorted(PRODUCER_CONFIG))}")
    return config


class Sasl(Part):
    """A login. Only PLAIN sends the password itself."""

    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"] = "SCRAM-SHA-512"
    credentials_secret_ref: CredentialsRef


class RegistryTls(Part):
    """The authority that the registry's certificate is by, instead of those that the machine
    knows; the certificate names the url's host."""

    ca_secret_ref: CaRef


class SchemaRegistry(Part):
    """A registry with Confluent's API; the account is sent with each request. An https url is
    verified always."""

    url: Annotated[str, Field(strict=True, pattern=r"^https?://[^/@?#\s]+(/[^?#\s]*)?$", max_length=2048)]
    tls: RegistryTls | None = None
    credentials_secret_ref: CredentialsRef | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @model_validator(mode="after")
    def _not_openly(self) -> SchemaRegistry:
        openly = self.url.startswith("http:")
        if openly and self.tls:
            raise ValueError("an https url, because tls is given")
        if openly and self.credentials_secret_ref and not is_loopback(self.host):
            raise ValueError("an https url, because the account's password is sent with each request")
        return self

    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys."""
        account, ca = self.credentials_secret_ref, self.tls.ca_secret_ref if self.tls else None
        return joined(account.secrets() if account else {}, {ca.name: {ca.key}} if ca else {})


def _hosts(servers: str) -> tuple[str, ...]:
    return tuple(server.rpartition(":")[0].strip("[]") for server in servers.split(","))


class Kafka(SinkKind):
    """Every change as a record of a topic for each table."""

    bootstrap_servers: Annotated[str, Field(strict=True, pattern=_SERVERS, max_length=2048)]
    tls: TlsPart
    sasl: Sasl | None = None
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    format: Literal["debezium-json", "changelog-json", "canal-json", "upsert-json", "debezium-avro"] = "debezium-json"
    compatible: Literal["envelope", "exact"] = "envelope"
    schema_registry: SchemaRegistry | None = None
    topic: Annotated[str, Field(strict=True, max_length=249), AfterValidator(check_template)] = (
        "{name}.{database}.{table}"
    )
    partitions: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    replication_factor: Annotated[Whole, Field(ge=1, le=32767)] | None = None
    topic_config: Annotated[dict[Text, Text], BeforeValidator(_in_quotes), Field(max_length=100)] = Field(
        default_factory=dict
    )
    producer_config: Annotated[dict[Text, Text], BeforeValidator(_in_quotes), AfterValidator(_check_producer)] = Field(
        default_factory=dict
    )
    staging: Staging

    @model_validator(mode="before")
    @classmethod
    def _tls_by_hosts(cls, data: Any) -> Any:
        """Verified unless all brokers are this machine."""
        if not isinstance(data, dict) or not isinstance(data.get("tls", {}), dict):
            return data
        tls = data.get("tls", {})
        local = all(map(is_loopback, _hosts(str(data.get("bootstrapServers"))))) and not tls.get("caSecretRef")
        return data | {"tls": {"mode": "disabled" if local else "verify-identity"} | tls}

    @model_validator(mode="after")
    def _password_to_known_brokers(self) -> Kafka:
        if self.sasl is None or self.sasl.mechanism != "PLAIN" or self.tls.verified:
            return self
        if self.tls.mode == "disabled":
            raise ValueError(
                "sasl.mechanism is PLAIN, which sends the password itself, and tls.mode is disabled; needed: "
                "tls.mode: verify-identity (or verify-ca), or mechanism: SCRAM-SHA-512, if the brokers have it"
            )
        if not self.tls.allow_unverified:
            raise ValueError(
                "sasl.mechanism is PLAIN, which sends the password itself, and tls.mode required verifies no broker; "
                "needed: brokers that are verified, by tls.mode: verify-identity or tls.caSecretRef, "
                "or tls.allowUnverified: true"
            )
        return self

    @model_validator(mode="after")
    def _registry_of_avro(self) -> Kafka:
        if (self.format == "debezium-avro") is not (self.schema_registry is not None):
            raise ValueError("schemaRegistry with the format debezium-avro, and with no other")
        return self

    @model_validator(mode="after")
    def _exact_by_format(self) -> Kafka:
        if self.compatible == "exact" and self.format != "debezium-json":
            raise ValueError("compatible exact with the format debezium-json, and with no other")
        return self

    @property
    def form(self) -> str:
        """The form of the records, of all that a resource can name."""
        return f"{self.format}, exact" if self.compatible == "exact" else self.format

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the brokers to begin with; those that they name are theirs."""
        return _hosts(self.bootstrap_servers)

    @property
    def needs_row_key(self) -> bool:
        """Records of changes, each sent once, can do without keys; in the other forms a record
        stands for its key, or has it, and only a key shows which record was sent twice. A compacted
        topic takes no record without one."""
        changes = self.format in _WITHOUT_KEY and self.compatible == "envelope"
        compacted = "compact" in self.topic_config.get("cleanup.policy", "")
        return not changes or compacted or self.delivery != "exactly-once"

    @property
    def keeps_events(self) -> bool:
        return True

    @property
    def topics(self) -> str:
        return self.topic

    def event_columns(self) -> EventColumns | None:
        """What a record has beside the row is its format's."""
        return None

    def stores(self) -> tuple[StoreUse, ...]:
        staging, options = self.staging, self.staging.options
        secret = staging.credentials_secret_ref.name if staging.credentials_secret_ref else ""
        return (StoreUse("spec.sink.kafka.staging", staging.path, options.endpoint, options.region, secret),)

    def secrets(self) -> dict[str, set[str]]:
        """The keys of the staging's are the object store's business."""
        store, account = self.staging.credentials_secret_ref, self.sasl
        return joined(
            {store.name: set()} if store else {},
            self.tls.secrets(),
            account.credentials_secret_ref.secrets() if account else {},
            self.schema_registry.secrets() if self.schema_registry else {},
        )

    def servers(self) -> tuple[Endpoint, ...]:
        registry = self.schema_registry
        named = (Endpoint("spec.sink.kafka.schemaRegistry.url", registry.host),) if registry else ()
        return (*(Endpoint("spec.sink.kafka.bootstrapServers", host) for host in self.hosts), *named)

    @property
    def nouns(self) -> Nouns:
        return Nouns("brokers", "topics")

    def unverified_secrets(self) -> tuple[str, ...]:
        return (self.sasl.credentials_secret_ref.name,) if self.sasl and self.tls.allow_unverified else ()

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        pair = self.tls.client_cert_secret_ref
        names = [self.sasl.credentials_secret_ref.name] if self.sasl else []
        found = dict.fromkeys([*names, *([pair.name] if pair else [])], self.hosts)
        registry = self.schema_registry
        if registry is not None and registry.credentials_secret_ref is not None:
            account = registry.credentials_secret_ref.name
            found[account] = (*found.get(account, ()), registry.host)
        return found


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
        dict[Text, Text], BeforeValidator(_in_quotes), AfterValidator(check_properties), Field(max_length=100)
    ] = Field(default_factory=dict)
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: StagingOptions = StagingOptions()

    @model_validator(mode="after")
    def _plain_warehouse(self) -> Iceberg:
        if self.catalog.warehouse_place:
            _check_path(self.catalog.warehouse_place)
        return self

    @property
    def keeps_events(self) -> bool:
        return self.mode is TableMode.HISTORY

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
    def nouns(self) -> Nouns:
        return Nouns("catalog")

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        account = self.catalog.credentials_secret_ref
        return {account.name: self.catalog.hosts} if account else {}


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

    def unverified_secrets(self) -> tuple[str, ...]:
        return (self.credentials_secret_ref.name,) if self.tls.allow_unverified else ()

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


class Sink(Part):
    """One of its kinds; `type` may name it, for people."""

    type: Literal["delta", "iceberg", "kafka", "mysql", "postgresql"] = "delta"
    delta: Delta | None = None
    iceberg: Iceberg | None = None
    kafka: Kafka | None = None
    mysql: MySql | None = None
    postgresql: PostgreSql | None = None

    @model_validator(mode="before")
    @classmethod
    def _type_by_section(cls, data: Any) -> Any:
        given = [name for name in cls._kinds() if isinstance(data, dict) and name in data]
        return {"type": given[0], **data} if len(given) == 1 else data

    @model_validator(mode="after")
    def _exactly_one(self) -> Sink:
        given = [name for name in self._kinds() if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one kind of sink: {' or '.join(self._kinds())}")
        if self.type != given[0]:
            raise ValueError(f"type {given[0]}, or none, because the section is {given[0]}")
        return self

    @classmethod
    def _kinds(cls) -> list[str]:
        return [name for name in cls.model_fields if name != "type"]

    @property
    def kind(self) -> SinkKind:
        """The section that is given."""
        (given,) = (getattr(self, name) for name in self._kinds() if getattr(self, name) is not None)
        return cast(SinkKind, given)
