"""Topics, as `spec.sink.kafka` describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.resource.sinks.kafka import Kafka
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.driver import READER, Role
from cdcsync_spark.sinks.contract.staging import Staging
from cdcsync_spark.sinks.kafka.check import BrokerCheck
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings, Security
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.kafka.connection.topics import TopicSettings
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink


@dataclass(frozen=True)
class KafkaDriver:
    """See `SinkDriver`; `<secrets_dir>/<secret>/<key>` hold the credentials, `staging` has the
    staged copies."""

    section: Kafka
    secrets_dir: Path
    sync: str
    staging: Staging

    def check(self, tables: Sequence[TableId]) -> Checks:
        sink = self.open(READER)
        return BrokerCheck(sink.session, sink.topics, sink.registry).run(tables)

    def open(self, role: Role) -> KafkaSink:
        section, staging = self.section, self.staging
        topics = TopicSettings(
            section.topic,
            section.partitions,
            section.replication_factor or -1,
            tuple(sorted(section.topic_config.items())),
        )
        registry = _registry(section, self.secrets_dir)
        return KafkaSink(
            self._settings(),
            topics,
            section.form,
            self.sync,
            staging,
            role.run,
            registry=registry,
            server_id=role.server_id,
        )

    def _settings(self) -> KafkaSettings:
        section = self.section
        return KafkaSettings(
            section.bootstrap_servers,
            tuple(sorted(section.producer_config.items())),
            security=_security(section, self.secrets_dir),
            exactly_once=section.delivery == "exactly-once",
        )


def _registry(sink: Kafka, secrets_dir: Path) -> Registry | None:
    if sink.schema_registry is None:
        return None
    registry = sink.schema_registry
    account, ca = registry.credentials_secret_ref, registry.tls.ca_secret_ref if registry.tls else None
    folder = secrets_dir / account.name if account else secrets_dir
    files = (folder / account.username_key, folder / account.password_key) if account else None
    return Registry(registry.url, files, secrets_dir / ca.name / ca.key if ca else None)


def _security(sink: Kafka, secrets_dir: Path) -> Security:
    tls, sasl, ca, pair = sink.tls, sink.sasl, sink.tls.ca_secret_ref, sink.tls.client_cert_secret_ref
    account = sasl.credentials_secret_ref if sasl else None
    return Security(
        tls.mode != "disabled",
        tls.verified,
        tls.mode == "verify-identity",
        ca=secrets_dir / ca.name / ca.key if ca else None,
        cert=secrets_dir / pair.name / "tls.crt" if pair else None,
        key=secrets_dir / pair.name / "tls.key" if pair else None,
        mechanism=sasl.mechanism if sasl else "",
        username=secrets_dir / account.name / account.username_key if account else None,
        password=secrets_dir / account.name / account.password_key if account else None,
    )
