"""Where a topic ends: brokers that do not know the leader of a new topic are asked again, all other
errors are the answer."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.topics import Topics


class FailingAdmin:
    """An admin client that fails with each of `errors` before it answers that a partition ends at
    7."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.polls = 0

    def poll(self, _: float) -> int:
        self.polls += 1
        return 0

    def list_offsets(self, places: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(places, answer)


def topics(answers: FailingAdmin) -> Topics:
    made = Topics(Brokers(KafkaSettings("127.0.0.1:1")))
    made._admin = answers
    return made


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_a_topic_without_a_known_leader_is_asked_again(error: int) -> None:
    assert topics(FailingAdmin(error, error)).ends("orders", 2) == (7, 7)


def test_what_the_client_logs_is_taken_each_time_that_it_is_asked() -> None:
    answers = FailingAdmin()
    asked = topics(answers)
    for times in (1, 2, 3):
        asked.end("orders")
        assert answers.polls == times


def test_another_error_is_not_asked_again() -> None:
    answers = FailingAdmin(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(CdcError) as found:
        topics(answers).ends("orders", 1)
    assert found.value.reason is Reason.PRIVILEGE_MISSING
    assert answers.errors == []
