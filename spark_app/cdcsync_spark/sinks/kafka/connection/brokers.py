"""A process's clients of the brokers, and what their errors mean.

Why it exists: a client that cannot log in, or trusts no server, tries again without end, and what
it was asked only times out. What it reports meanwhile is the cause, and becomes the error.

Every wait on a broker is bounded: one that hangs is `SinkUnreachable`, which is tried again. Text
of a broker or of librdkafka is quoted, and none of it holds a secret: librdkafka shows none of its
settings, and what a broker may repeat of the login is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import resnapshot
from cdcsync_core.resource.networks import networks_of_the_run
from cdcsync_spark.sinks.kafka.connection.checked_names import Resolver, guard, resolver
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.obstacles import Obstacle, obstacle_of
from cdcsync_spark.sinks.kafka.connection.rights import is_refusal, is_unneeded, needed_where

Client = TypeVar("Client", AdminClient, Producer, Consumer)
_LOST_TOPICS = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"))
_TOO_LARGE = frozenset(("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"))
_FENCED = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"))
#: what a client reports of its own accord; the first ones say more
_CAUSES = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "_RESOLVE", "_TRANSPORT", "_BAD_MSG")
_ALL_AWAY = "_ALL_BROKERS_DOWN"
_UNAUTHENTICATED, _REFUSALS = _CAUSES[:2], _CAUSES[:3]
#: by what it calls them in its log: connections, questions without an answer, answers that make no
#: sense
_FAILED = frozenset(("FAIL", "REQTMOUT", "PROTOERR"))
#: seconds that brokers are given to listen, and between two times that reports are taken
_REACH_SECONDS, _REACH_STEP = 2.0, 0.1
#: of a question that got no answer
_UNANSWERED = frozenset(
    ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_ALL_BROKERS_DOWN", "_WAIT_COORD", *_CAUSES)
)


@dataclass
class _Failures:
    """Notes the last line that a client logs of a connection or a question that failed; most of
    them it does not report."""

    at: float = 0.0
    line: str = ""

    def log(self, level: int, form: str, facility: str, client: str, line: str) -> None:
        """As of a `logging.Logger`."""
        if facility in _FAILED and "retry-queued" not in line:  # a sum of the lines before
            self.at, self.line = time.monotonic(), line.partition("]: ")[2] or line


@dataclass
class _Refusals:
    """Notes the last address that the operator's policy refuses, and when. It holds no client,
    because the resolver that calls it lives as long as the process."""

    last: tuple[float, CdcError] | None = None

    def note(self, error: CdcError) -> None:
        self.last = time.monotonic(), error


@dataclass
class Brokers:
    """Makes clients, and errors of theirs. Of one process; its clients may be in several
    threads."""

    settings: KafkaSettings
    _polled: list[AdminClient | Producer] = field(default_factory=list)
    #: by name: when, and what
    _reported: dict[str, tuple[float, KafkaError]] = field(default_factory=dict)
    _refusals: _Refusals = field(default_factory=_Refusals)
    _failures: _Failures = field(default_factory=_Failures)

    def admin(self) -> AdminClient:
        admin = self._made(AdminClient, {**self.settings.admin(), "logger": self._failures})
        self._polled.append(admin)
        return admin

    def producer(self, transactional_id: str = "") -> Producer:
        """A producer of transactions; where there is no id, one without transactions."""
        settings = self.settings.transactional(transactional_id) if transactional_id else self.settings.plain()
        producer = self._made(Producer, settings)
        self._polled.append(producer)
        return producer

    def consumer(self, isolation: str) -> Consumer:
        return self._made(Consumer, self.settings.consumer(isolation))

    def _made(self, kind: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
        """Raises SpecInvalid for settings that the client refuses."""
        servers = settings.pop("bootstrap.servers") if (refused := networks_of_the_run()) else ""
        try:
            client = kind({**settings, "error_cb": self._note})
        except KafkaException as error:
            raise fail(
                Reason.SPEC_INVALID,
                f"a client of the brokers cannot be made: {_text(error_of(error))}",
                needed="settings, certificates and keys that it can read",
                remedy=f"correct spec.sink.kafka, or the Secrets that it names, {RUN_AGAIN}",
            ) from None
        if refused:
            guard(client, servers, self._resolver)
        return client

    @cached_property
    def _resolver(self) -> Resolver:
        return resolver(networks_of_the_run, self._refusals.note)

    def _note(self, error: KafkaError) -> None:
        self._reported[error.name()] = (time.monotonic(), error)

    def reach(self, admin: AdminClient) -> None:
        """Waits for a broker that answers. A client tries again without end, so what it reports
        meanwhile is raised once none of the brokers is left: a login or a certificate that is
        refused at once, that no address answers after `_REACH_SECONDS`."""
        answer = admin.describe_cluster(request_timeout=self.settings.timeout)
        begun = time.monotonic()
        while not answer.done():
            admin.poll(_REACH_STEP)
            refused = any(name in self._reported for name in _REFUSALS)
            waited = refused or time.monotonic() - begun > _REACH_SECONDS
            waited = waited or self._refusal() is not None
            if waited and _ALL_AWAY in self._reported and not answer.done():
                raise self._unanswered(None, "asking for the brokers")
        try:
            answer.result()
        except KafkaException as error:
            raise self.error(error, "asking for the brokers") from None

    def error(self, error: KafkaException, doing: str, table: str = "") -> CdcError:
        """What it means for a run, or for its table."""
        kafka_error = self._without_account(error_of(error))
        return (
            self._unanswered(kafka_error, doing)
            if kafka_error.name() in _UNANSWERED
            else sink_error(kafka_error, doing, table)
        )

    def timeout(self, doing: str) -> CdcError:
        return self._unanswered(None, doing)

    def _unanswered(self, last: KafkaError | None, doing: str) -> CdcError:
        refusal, self._refusals.last = self._refusal(), None
        if refusal is not None:
            return refusal
        cause = self._cause() or (last if last is not None and last.name() in _CAUSES else None)
        cause = cause and self._without_account(cause)
        if cause is not None and cause.name() == "_SSL" and "verif" in cause.str():
            return _untrusted(doing, cause)
        line = self._last_failure() if cause is None else cause.str()
        obstacle = obstacle_of(line, self.settings.kind)
        if obstacle is not None:
            return _obstructed(doing, obstacle, line)
        if cause is not None and cause.name() in _UNAUTHENTICATED:
            return sink_error(cause, doing)
        words = line or ("" if last is None else last.str())
        return _unreachable(doing, quoted(words) if words else f"no answer within {self.settings.timeout:.0f} s")

    def _cause(self) -> KafkaError | None:
        """The first of `_CAUSES` that was reported lately, while a question could have waited."""
        for client in self._polled:
            client.poll(0)
        reported = (self._reported.get(name) for name in _CAUSES)
        return next((error for at, error in filter(None, reported) if self._is_recent(at)), None)

    def _refusal(self) -> CdcError | None:
        last = self._refusals.last
        return last[1] if last is not None and self._is_recent(last[0]) else None

    def _last_failure(self) -> str:
        line = self._failures.line if self._is_recent(self._failures.at) else ""
        return self.settings.security.without_account(line)

    def _without_account(self, error: KafkaError) -> KafkaError:
        return KafkaError(error.code(), self.settings.security.without_account(error.str()))

    def _is_recent(self, at: float) -> bool:
        return at >= time.monotonic() - 2 * self.settings.timeout


def error_of(error: KafkaException) -> KafkaError:
    cause = error.args[0]
    assert isinstance(cause, KafkaError)
    return cause


def is_fenced(error: KafkaException) -> bool:
    """A later producer has our transactional id, or the brokers ended the transaction."""
    return error_of(error).name() in _FENCED


def is_too_large(error: KafkaException) -> bool:
    return error_of(error).name() in _TOO_LARGE


def is_unanswered(error: KafkaException) -> bool:
    return error_of(error).name() in _UNANSWERED


def passes(error: KafkaException) -> bool:
    """Whether a consumer goes on: what it tries again by itself is bounded by who waits, and what
    was refused may be of no use."""
    return is_unanswered(error) or is_unneeded(error_of(error).name())


def is_lost_topic(error: KafkaException) -> bool:
    return error_of(error).name() in _LOST_TOPICS


def is_forbidden(error: KafkaException) -> bool:
    return is_refusal(error_of(error).name())


def sink_error(error: KafkaError, doing: str, table: str = "") -> CdcError:
    """The error that an answer of the brokers means."""
    name, text = error.name(), f"{doing}: {_text(error)}"
    if name in _TOO_LARGE:
        return too_large(table, _text(error))
    if name in _LOST_TOPICS:
        return fail(
            Reason.SINK_CONFLICT,
            text,
            needed="the topics that this sync made",
            remedy=resnapshot(table) if table else RUN_AGAIN,
            table=table,
        )
    if is_refusal(name):
        return fail(
            Reason.PRIVILEGE_MISSING,
            f"a right is missing: {text}",
            needed=needed_where(name),
            remedy=f"grant it to the account of spec.sink.kafka.sasl, {RUN_AGAIN}",
            table=table,
        )
    if name in _UNAUTHENTICATED:
        return fail(
            Reason.AUTHENTICATION_FAILED,
            f"the brokers refuse the login: {text}",
            needed="an account that the brokers know, and its mechanism",
            remedy=f"correct spec.sink.kafka.sasl or its Secret, {RUN_AGAIN}",
            table=table,
        )
    return _unreachable(doing, _text(error), table)


def _unreachable(doing: str, problem: str, table: str = "") -> CdcError:
    return fail(
        Reason.SINK_UNREACHABLE,
        f"{doing}: {problem}",
        needed="brokers that answer",
        remedy=(
            "check spec.sink.kafka.bootstrapServers and tls, sasl where the listener has logins, "
            "and that the brokers are up"
        ),
        table=table,
    )


def _obstructed(doing: str, obstacle: Obstacle, line: str) -> CdcError:
    remedy = obstacle.remedy if obstacle.reason.retried else f"{obstacle.remedy}, {RUN_AGAIN}"
    return fail(obstacle.reason, f"{doing}: {obstacle.found}: {quoted(line)}", needed=obstacle.needed, remedy=remedy)


def _untrusted(doing: str, error: KafkaError) -> CdcError:
    return fail(
        Reason.AUTHENTICATION_FAILED,
        f"{doing}: the certificate of the brokers is refused: {_text(error)}",
        needed="a certificate by the authority of spec.sink.kafka.tls.caSecretRef that names the host",
        remedy=f"correct the Secret, the hosts of bootstrapServers, or tls.mode: verify-ca for other names, {RUN_AGAIN}",
    )


def too_large(table: str, size: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"a record is larger than the topic takes: {size}",
        needed="a topic that takes the largest row with both images",
        remedy=(
            "raise the topic's max.message.bytes and spec.sink.kafka.producerConfig message.max.bytes, "
            f"or leave the column out (columns.exclude), {RUN_AGAIN}"
        ),
        table=table,
    )


def _text(error: KafkaError) -> str:
    return quoted(error.str())
