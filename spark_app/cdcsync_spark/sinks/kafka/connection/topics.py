"""Topics: their names, how they are made, and whether one is still the one that was made.

A topic that is there already is taken if it is empty: then nothing in it can be mistaken for ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from cdcsync_core.errors import RUN_AGAIN, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.topic_names import topic_name
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers, error_of, is_forbidden

#: of a topic that was just made: no leader is known yet, or brokers disagree about its epoch
_NO_LEADER = frozenset(
    (
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PART",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
    )
)
#: settings of a new topic, also by the brokers' own policy
_REFUSED = frozenset(("INVALID_CONFIG", "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "POLICY_VIOLATION"))
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Topic:
    name: str
    id: str
    partitions: int


class Setting(NamedTuple):
    """A setting of a topic; `own`: it was set for this one, else it is the brokers'."""

    value: str
    own: bool


@dataclass(frozen=True)
class TopicSettings:
    """`template` names a table's topic; `replication` -1: the broker's default."""

    template: str
    partitions: int = 1
    replication: int = -1
    config: tuple[tuple[str, str], ...] = ()

    def name(self, sync: str, table: TableId) -> str:
        """Raises SpecInvalid where no topic can be called so."""
        return topic_name(self.template, sync, table)


@dataclass
class Topics:
    """The brokers' topics, as one process asks for them."""

    brokers: Brokers
    _admin: AdminClient | None = field(default=None, init=False)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            admin = self.brokers.admin()
            self.brokers.reach(admin)
            self._admin = admin
        self._admin.poll(0)  # what it logged and reported since would stay in memory
        return self._admin

    @property
    def timeout(self) -> float:
        return self.brokers.settings.timeout

    def make(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Unless it is there."""
        self._create([NewTopic(name, partitions, replication, config=dict(config))])[name]()

    def would_make(self, new: Collection[NewTopic]) -> dict[str, Callable[[], None]]:
        """As the brokers would answer now: raises by each name what `make` would raise."""
        return self._create(new, validate_only=True)

    def _create(self, new: Collection[NewTopic], *, validate_only: bool = False) -> dict[str, Callable[[], None]]:
        asked = self.admin.create_topics(
            list(new), operation_timeout=self.timeout, request_timeout=self.timeout, validate_only=validate_only
        )
        return {name: partial(self._take_creation, name, answer) for name, answer in asked.items()}

    def _take_creation(self, name: str, answer: Future[None]) -> None:
        try:
            answer.result()
        except KafkaException as error:
            if error_of(error).name() == "TOPIC_ALREADY_EXISTS":
                return
            if error_of(error).name() in _REFUSED:
                raise _refused(name, error) from None
            raise self.brokers.error(error, f"making the topic {name}") from None

    def config(self, name: str) -> dict[str, Setting] | None:
        """The settings of a topic that is there; None where they may not be asked for."""
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        try:
            entries = self.admin.describe_configs([asked], request_timeout=self.timeout)[asked].result()
        except KafkaException as error:
            if is_forbidden(error):
                return None
            raise self.brokers.error(error, f"asking for the settings of the topic {name}") from None
        return {
            n: Setting(e.value or "", e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value) for n, e in entries.items()
        }

    def configure(self, name: str, config: Mapping[str, str]) -> bool:
        """False where that is not allowed."""
        changes = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in config.items()]
        changed = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
        try:
            self.admin.incremental_alter_configs([changed], request_timeout=self.timeout)[changed].result()
        except KafkaException as error:
            if is_forbidden(error):
                return False
            raise self.brokers.error(error, f"changing the settings of the topic {name}") from None
        return True

    def made(self, name: str) -> Topic:
        """One that was just made, or was there: brokers may learn of it a moment later."""
        until = time.monotonic() + self.timeout
        while (topic := self.find(name)) is None:
            if time.monotonic() > until:
                raise _not_seen(name)
            time.sleep(_PAUSE_SECONDS)
        return topic

    def find(self, name: str) -> Topic | None:
        """None where there is none."""
        return self.find_all([name]).get(name)

    def find_all(self, names: Collection[str]) -> dict[str, Topic]:
        """The topics that are there, by one question."""
        asked = self.admin.describe_topics(TopicCollection(list(names)), request_timeout=self.timeout)
        answers = {name: self._described(name, answer) for name, answer in asked.items()}
        return {name: topic for name, topic in answers.items() if topic is not None}

    def rights(self, names: Collection[str]) -> dict[str, frozenset[str]]:
        """The operations that are allowed on those that are there: none on one that may not be
        described. Not of brokers that ask for no rights."""
        asked = self.admin.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=self.timeout
        )
        rights: dict[str, frozenset[str]] = {}
        for name, answer in asked.items():
            try:
                operations = answer.result().authorized_operations
            except KafkaException as error:
                if is_forbidden(error):
                    rights[name] = frozenset()
                continue
            if operations is not None:
                rights[name] = frozenset(operation.name for operation in operations)
        return rights

    def _described(self, name: str, answer: Future[TopicDescription]) -> Topic | None:
        try:
            description = answer.result()
        except KafkaException as error:
            if error_of(error).name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise self.brokers.error(error, f"asking for the topic {name}") from None
        return Topic(name, str(description.topic_id), len(description.partitions))

    def is_empty(self, topic: Topic) -> bool:
        return self.begins(topic.name, topic.partitions) == self.ends(topic.name, topic.partitions)

    def begins(self, topic: str, partitions: int) -> tuple[int, ...]:
        """The first offset that each partition still has."""
        return tuple(self._offsets(_places(topic, partitions), OffsetSpec.earliest()))

    def ends(self, topic: str, partitions: int) -> tuple[int, ...]:
        """The offset behind all records of each partition, those of open transactions included."""
        return tuple(self._offsets(_places(topic, partitions), OffsetSpec.latest()))

    def end(self, topic: str) -> int:
        """The offset behind all records of partition 0, those of open transactions included."""
        return self.ends(topic, 1)[0]

    def _offsets(self, places: list[TopicPartition], which: OffsetSpec) -> list[int]:
        """A topic that was made just now may have no leader yet: asked again within a bound."""
        until = time.monotonic() + self.timeout
        while True:
            try:
                answers = self.admin.list_offsets(
                    dict.fromkeys(places, which),
                    isolation_level=IsolationLevel.READ_UNCOMMITTED,
                    request_timeout=self.timeout,
                )
                return [answers[place].result().offset for place in places]
            except KafkaException as error:
                if error_of(error).name() not in _NO_LEADER or time.monotonic() > until:
                    raise self.brokers.error(error, f"asking where the topic {places[0].topic} ends") from None
            time.sleep(_PAUSE_SECONDS)


def _places(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in range(partitions)]


def _refused(name: str, error: KafkaException) -> Exception:
    return fail(
        Reason.SPEC_INVALID,
        f"the brokers do not make the topic {name}: {error_of(error).name()}: {quoted(error_of(error).str())}",
        needed="partitions, replicationFactor and topicConfig as the brokers take them",
        remedy=f"correct them in spec.sink.kafka, {RUN_AGAIN}",
    )


def _not_seen(name: str) -> Exception:
    return fail(
        Reason.SINK_UNREACHABLE,
        f"the topic {name} was made, and the brokers do not list it",
        needed="brokers that are up",
        remedy="check the brokers",
    )
