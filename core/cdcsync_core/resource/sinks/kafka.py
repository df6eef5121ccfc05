"""The section of Kafka topics."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cdcsync_core.resource.connection_spec import AccountUse, CaRef, CredentialsRef, TlsPart, is_loopback, joined
from cdcsync_core.resource.sinks.kind import Endpoint, Nouns, SinkKind, StoreUse
from cdcsync_core.resource.sinks.lake_parts import LakePath, SinkCredentialsRef, StoreOptions
from cdcsync_core.resource.spec_part import Part, Text, Url, Whole, in_quotes
from cdcsync_core.resource.topic_names import check_template
from cdcsync_core.tables.event_columns import EventColumns

#: host:port, separated by commas
_SERVERS = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(,([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})*$"
#: forms of records of tables without a key
_WITHOUT_KEY = ("debezium-json", "changelog-json")
#: what may be set of the producer: how it sends, never what it guarantees or whom it reaches
PRODUCER_CONFIG = frozenset(
    ("batch.size", "compression.type", "compression.level", "linger.ms", "message.max.bytes", "batch.num.messages")
)


class StagingSpec(Part):
    """Where the copies of snapshots are kept until they are sent: a lake."""

    path: LakePath
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: StoreOptions = StoreOptions()


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

    url: Url
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

    @property
    def account_use(self) -> AccountUse | None:
        account, authority = self.credentials_secret_ref, self.tls.ca_secret_ref.name if self.tls else ""
        return AccountUse("spec.sink.kafka.schemaRegistry", account, authority) if account else None

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
    topic_config: Annotated[dict[Text, Text], BeforeValidator(in_quotes), Field(max_length=100)] = Field(
        default_factory=dict
    )
    producer_config: Annotated[dict[Text, Text], BeforeValidator(in_quotes), AfterValidator(_check_producer)] = Field(
        default_factory=dict
    )
    staging: StagingSpec

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

    def accounts(self) -> tuple[AccountUse, ...]:
        registry = self.schema_registry.account_use if self.schema_registry else None
        return tuple(filter(None, (self._login_use(), registry)))

    def _login_use(self) -> AccountUse | None:
        if self.sasl is None:
            return None
        authority = self.tls.authority if self.sasl.mechanism == "PLAIN" else ""
        return AccountUse("spec.sink.kafka", self.sasl.credentials_secret_ref, authority, self.tls.allow_unverified)

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        pair = self.tls.client_cert_secret_ref
        names = [self.sasl.credentials_secret_ref.name] if self.sasl else []
        hosts_by_secret = dict.fromkeys([*names, *([pair.name] if pair else [])], self.hosts)
        registry = self.schema_registry
        if registry is not None and registry.credentials_secret_ref is not None:
            account = registry.credentials_secret_ref.name
            hosts_by_secret[account] = (*hosts_by_secret.get(account, ()), registry.host)
        return hosts_by_secret
