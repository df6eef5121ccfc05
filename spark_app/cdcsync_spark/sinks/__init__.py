"""Sinks: the code that writes targets. One folder each, unaware of each other; a new one is one row
in `_SINKS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdcsync_core.sink_spec import Delta, Kafka, SinkKind
from cdcsync_core.sink_spec import Sink as SinkSpec
from cdcsync_core.source_table import TableId
from cdcsync_core.topic_check import TopicChecks
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.sinks.delta.history_target import HistorySink
from cdcsync_spark.sinks.delta.policy import LEAVING_SMALL_FILES, POLICY
from cdcsync_spark.sinks.delta.sink import DeltaSink
from cdcsync_spark.sinks.delta.staging_table import DeltaStaging
from cdcsync_spark.sinks.lake.store_errors import of_the_run
from cdcsync_spark.sinks.lake.stores import store_at, store_errors

if TYPE_CHECKING:
    from cdcsync_spark.sinks.kafka.client import Security
    from cdcsync_spark.sinks.kafka.registry import Registry
    from cdcsync_spark.sinks.kafka.target import KafkaSink


@dataclass(frozen=True)
class Role:
    """Who uses a sink: the kind of run that writes, empty for who only reads. `followed`: a stream
    comes after the run, and gathers the small files that it leaves. `server_id` is the source's, 0
    for who does not ask it."""

    run: str = ""
    followed: bool = False
    server_id: int = 0


def sink_from_spec(sink: SinkSpec, secrets_dir: Path, sync: str, role: Role = Role()) -> Sink:
    """The sink of a manifest's `spec.sink` for the sync `namespace/name`;
    `<secrets_dir>/<secret>/<key>` hold its credentials.

    Opens nothing; raises `SpecInvalid` for a store that is not supported.
    """
    return _SINKS[type(sink.kind)](sink.kind, secrets_dir, sync, role)


def refuse_unready(sink: SinkSpec, secrets_dir: Path, sync: str) -> None:
    """The check that the operator cannot always make: the identity, or the folder, may be the
    driver's own, and brokers are reached from there. Raises CdcError."""
    for error in store_errors(Location.of(sink.kind.location(), secrets_dir)):
        raise of_the_run(error)
    for error in check_topics(sink, secrets_dir, sync, ()).errors:
        raise error


def check_topics(sink: SinkSpec, secrets_dir: Path, sync: str, tables: Sequence[TableId]) -> TopicChecks:
    """The brokers and the topics of `tables`; nothing of a sink that has none."""
    if not isinstance(sink.kind, Kafka):
        return TopicChecks()
    from cdcsync_spark.sinks.kafka.check import BrokerCheck

    found = _kafka(sink.kind, secrets_dir, sync, Role())
    return BrokerCheck(found.session, found.topics, found.registry).run(tables)


def _delta(sink: Delta, secrets_dir: Path, sync: str, role: Role) -> Sink:
    store, columns = store_at(Location.of(sink.location(), secrets_dir)), sink.event_columns()
    policy = LEAVING_SMALL_FILES if role.followed else POLICY
    if columns:
        return HistorySink(store, sync, columns, policy=policy)
    return DeltaSink(store, sync, sink.options.deletion_vectors, policy)


def _kafka(sink: Kafka, secrets_dir: Path, sync: str, role: Role) -> KafkaSink:
    """Its client is loaded by runs that use it only."""
    from cdcsync_spark.sinks.kafka.client import KafkaSettings
    from cdcsync_spark.sinks.kafka.target import KafkaSink
    from cdcsync_spark.sinks.kafka.topics import TopicSettings

    settings = KafkaSettings(
        sink.bootstrap_servers,
        tuple(sorted(sink.producer_config.items())),
        security=_security(sink, secrets_dir),
        exactly_once=sink.delivery == "exactly-once",
    )
    config = tuple(sorted(sink.topic_config.items()))
    topics = TopicSettings(sink.topic, sink.partitions, sink.replication_factor or -1, config)
    staging = DeltaStaging(store_at(Location.of(sink.location(), secrets_dir)), sync)
    registry = _registry(sink, secrets_dir)
    return KafkaSink(settings, topics, sink.form, sync, staging, role.run, registry=registry, server_id=role.server_id)


def _registry(sink: Kafka, secrets_dir: Path) -> Registry | None:
    from cdcsync_spark.sinks.kafka.registry import Registry

    if sink.schema_registry is None:
        return None
    found = sink.schema_registry
    account, ca = found.credentials_secret_ref, found.tls.ca_secret_ref if found.tls else None
    folder = secrets_dir / account.name if account else secrets_dir
    files = (folder / account.username_key, folder / account.password_key) if account else None
    return Registry(found.url, files, secrets_dir / ca.name / ca.key if ca else None)


def _security(sink: Kafka, secrets_dir: Path) -> Security:
    from cdcsync_spark.sinks.kafka.client import Security

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


_SINKS: dict[type[SinkKind], Callable[[Any, Path, str, Role], Sink]] = {Delta: _delta, Kafka: _kafka}
