"""The check of brokers and topics: what can be known without writing anything.

Why it exists: brokers that are away, a right that is missing, or a foreign topic should be
reported before a snapshot is read. Why it is right: it only asks; what a run is allowed to do is
what the brokers say that this client may do. What no request shows is documented: the rights on
transactional ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.topic_names import shared_topic
from cdcsync_core.runs.sink_check import Checks, TopicCheck
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.kafka.connection.brokers import error_of, is_forbidden
from cdcsync_spark.sinks.kafka.connection.client import TRANSACTION_SECONDS
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.kafka.connection.rights import RIGHTS, On
from cdcsync_spark.sinks.kafka.connection.topics import Topic, TopicSettings
from cdcsync_spark.sinks.kafka.state.state_topic import STATE_CONFIG, missing_config
from cdcsync_spark.sinks.kafka.transactions.conflicts import check_topic, expiring_state, foreign_topic, missing_right
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession

_AT_ONCE = 200
_LONGEST = "transaction.max.timeout.ms"
_COPIES = "transaction.state.log.replication.factor"


@dataclass(frozen=True)
class _Found:
    """A topic that is there, and what this client may do with it (None: brokers without rights)."""

    topic: Topic
    rights: frozenset[str] | None


@dataclass
class BrokerCheck:
    """Checks the brokers for the sync whose topics are `topics`, and its schema registry; `session`
    has no role. It is `run` once, which raises no CdcError."""

    session: KafkaSession
    topics: TopicSettings
    registry: Registry | None = None
    _errors: list[CdcError] = field(default_factory=list)
    _warnings: list[str] = field(default_factory=list)

    def run(self, tables: Sequence[TableId]) -> Checks:
        brokers, checked = "", list[TopicCheck]()
        try:
            names = self._names(tables)
            brokers = self._cluster()
            checked = self._topics(names)
        except CdcError as error:
            self._errors.append(error)
        try:
            if self.registry is not None:
                self.registry.check()
        except CdcError as error:
            self._errors.append(error)
        return Checks(brokers, tuple(checked), tuple(self._errors), tuple(self._warnings))

    def _names(self, tables: Sequence[TableId]) -> dict[str, str]:
        """Table -> topic, of the tables that have one of their own."""
        names: dict[str, str] = {}
        taken: dict[str, str] = {}
        for table in tables:
            try:
                topic = self.topics.name(self.session.sync, table)
                if topic in taken:
                    raise shared_topic(str(table), topic, taken[topic])
                taken[topic] = str(table)
                names[str(table)] = topic
            except CdcError as error:
                self._errors.append(error)
        return names

    # -- the brokers

    def _cluster(self) -> str:
        """What answered."""
        admin, timeout = self.session.topics.admin, self.session.settings.timeout
        try:
            cluster = admin.describe_cluster(request_timeout=timeout).result()
        except KafkaException as error:
            raise self.session.brokers.error(error, "asking for the brokers") from None
        brokers = len(cluster.nodes)
        if self.session.settings.exactly_once:
            self._transactions(str(cluster.nodes[0].id), brokers)
        return f"{brokers} broker{'s' if brokers > 1 else ''} of the cluster {cluster.cluster_id}"

    def _transactions(self, broker: str, brokers: int) -> None:
        """Whether the brokers' settings allow the transactions that a run makes."""
        settings = self._settings(broker)
        if settings is None:
            self._warnings.append(
                "the brokers' settings may not be asked for (DESCRIBE_CONFIGS on the cluster): whether transactions "
                f"of {TRANSACTION_SECONDS:.0f} s are allowed is not known"
            )
            return
        longest, copies = int(settings.get(_LONGEST) or 0), int(settings.get(_COPIES) or 0)
        if 0 < longest < TRANSACTION_SECONDS * 1000:
            self._errors.append(
                fail(
                    Reason.SPEC_INVALID,
                    f"the brokers allow transactions of {longest / 1000:g} s ({_LONGEST})",
                    needed=f"{TRANSACTION_SECONDS:.0f} s",
                    remedy=f"set {_LONGEST} of the brokers to at least {TRANSACTION_SECONDS * 1000:.0f}",
                )
            )
        if copies > brokers and self.session.topics.find("__transaction_state") is None:
            self._errors.append(
                fail(
                    Reason.SPEC_INVALID,
                    f"the brokers can make no transaction: {_COPIES} is {copies}, and there are {brokers} brokers",
                    needed="as many brokers, or fewer copies",
                    remedy=f"set {_COPIES} and transaction.state.log.min.isr of the brokers, or start more brokers",
                )
            )

    def _settings(self, broker: str) -> dict[str, str | None] | None:
        """None where they may not be asked for."""
        asked = ConfigResource(ConfigResource.Type.BROKER, broker)
        try:
            timeout = self.session.settings.timeout
            entries = self.session.topics.admin.describe_configs([asked], request_timeout=timeout)[asked].result()
        except KafkaException as error:
            if is_forbidden(error):
                return None
            raise self.session.brokers.error(error, "asking for the brokers' settings") from None
        return {name: entry.value for name, entry in entries.items()}

    # -- the topics

    def _topics(self, names: dict[str, str]) -> list[TopicCheck]:
        state = self.session.state
        there = self._described([state, *names.values()])
        if state in there:
            self._check_state(there[state])
            self.session.refresh()
        checked = []
        for table, name in names.items():
            described = there.get(name)
            try:
                self._check_table(table, name, described)
            except CdcError as error:
                self._errors.append(error)
            partitions = described.topic.partitions if described else self.topics.partitions
            checked.append(TopicCheck(table, name, partitions, described is not None))
        new = {t.topic: t.table for t in checked if not t.exists}
        self._check_new({**({} if state in there else {state: ""}), **new})
        return checked

    def _check_new(self, tables: dict[str, str]) -> None:
        """Asks the brokers whether they would make these topics; what they refuse of all of them is
        one error."""
        answers: dict[str, Callable[[], None]] = {}
        for start in range(0, len(tables), _AT_ONCE):
            names = list(tables)[start : start + _AT_ONCE]
            answers |= self.session.topics.would_make([self._new(name) for name in names])
        refused: dict[Reason, CdcError] = {}
        for name, answer in answers.items():
            try:
                answer()
            except CdcError as error:
                if error.reason is Reason.PRIVILEGE_MISSING:
                    on = On.STATE if name == self.session.state else On.TOPICS
                    self._errors.append(missing_right(name, "CREATE", on, tables[name]))
                else:
                    refused.setdefault(error.reason, error)
        self._errors.extend(refused.values())

    def _new(self, name: str) -> NewTopic:
        if name == self.session.state:
            return NewTopic(name, 1, self.session.replication, config=STATE_CONFIG)
        topics = self.topics
        return NewTopic(name, topics.partitions, topics.replication, config=dict(topics.config))

    def _check_table(self, table: str, name: str, described: _Found | None) -> None:
        """Raises CdcError for a topic that a run would refuse."""
        record = self.session.records().get(table)
        if described is not None and described.rights == frozenset():
            pass  # nothing else is known of it
        elif record is not None:
            check_topic(
                table, record, described.topic if described and name == record.topic else self._other(record.topic)
            )
        elif described is not None and not self.session.topics.is_empty(described.topic):
            raise foreign_topic(table, name)
        if described is not None:
            self._refuse_missing(described, On.TOPICS, table)

    def _check_state(self, described: _Found) -> None:
        self._refuse_missing(described, On.STATE, "")
        missing = missing_config(self.session.topics.config(described.topic.name))
        if "cleanup.policy" in missing and _lacking(described, ("ALTER_CONFIGS",)):
            self._errors.append(expiring_state(described.topic.name))
        elif missing:
            changes = ", ".join(f"{name}={value}" for name, value in missing.items())
            self._warnings.append(f"the state topic {described.topic.name} needs {changes}, which a run sets if it may")

    def _other(self, name: str) -> Topic | None:
        """A table's topic keeps its name when the template changes."""
        return self.session.topics.find(name)

    def _refuse_missing(self, described: _Found, on: On, table: str) -> None:
        """What `verify` alone needs is a warning. A topic that is there is not created."""
        for right in (right for right in RIGHTS if right.on is on and not right.optional):
            missing = _lacking(described, [o for o in right.operations if o != "CREATE"])
            operations, name = " and ".join(missing), described.topic.name
            if missing and right.of_runs:
                self._errors.append(missing_right(name, operations, on, table))
            elif missing:
                self._warnings.append(f"this client may not {operations} the topic {name}, which {right.purpose} needs")

    def _described(self, names: Sequence[str]) -> dict[str, _Found]:
        """The topics that are there."""
        topics: dict[str, _Found] = {}
        for start in range(0, len(names), _AT_ONCE):
            topics |= self._some(names[start : start + _AT_ONCE])
        return topics

    def _some(self, names: Sequence[str]) -> dict[str, _Found]:
        admin, timeout = self.session.topics.admin, self.session.settings.timeout
        try:
            asked = admin.describe_topics(
                TopicCollection(list(names)), include_authorized_operations=True, request_timeout=timeout
            )
            return dict(self._answers(asked))
        except KafkaException as error:
            raise self.session.brokers.error(error, "asking for topics") from None

    def _answers(self, asked: dict[str, Any]) -> Iterator[tuple[str, _Found]]:
        for name, answer in asked.items():
            try:
                answered = answer.result()
            except KafkaException as error:
                if is_forbidden(error):
                    yield name, _Found(Topic(name, "", self.topics.partitions), frozenset())
                elif error_of(error).name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
                continue
            rights = answered.authorized_operations
            topic = Topic(name, str(answered.topic_id), len(answered.partitions))
            yield name, _Found(topic, None if rights is None else frozenset(right.name for right in rights))


def _lacking(described: _Found, operations: Iterable[str]) -> list[str]:
    return [o for o in operations if described.rights is not None and o not in described.rights]
