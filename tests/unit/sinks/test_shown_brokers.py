"""What a broker repeats of a login is in no error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings, Security

TEXT = "hunter2-name has not the password hunter2"


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    (tmp_path / "other").write_text("hunter2-name")
    (tmp_path / "password").write_text("hunter2")
    login = Security(mechanism="PLAIN", username=tmp_path / "other", password=tmp_path / "password")
    return Brokers(KafkaSettings("127.0.0.1:1", security=login))


def judged(error: CdcError, reason: Reason) -> None:
    assert error.reason is reason
    assert "*** has not the password ***" in error.message
    assert "hunter2" not in error.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError._AUTHENTICATION, Reason.AUTHENTICATION_FAILED),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Reason.AUTHENTICATION_FAILED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reason.PRIVILEGE_MISSING),
        (KafkaError.UNKNOWN, Reason.SINK_UNREACHABLE),
    ],
)
def test_an_answer_without_them(brokers: Brokers, code: int, reason: Reason) -> None:
    judged(brokers.error(KafkaException(KafkaError(code, TEXT)), "asking"), reason)


def test_what_a_client_reports_without_them(brokers: Brokers) -> None:
    brokers._note(KafkaError(KafkaError._AUTHENTICATION, TEXT))
    judged(brokers.timeout("asking"), Reason.AUTHENTICATION_FAILED)


def test_what_a_client_logs_without_them(brokers: Brokers) -> None:
    brokers._failures.at, brokers._failures.line = time.monotonic(), TEXT
    judged(brokers.timeout("asking"), Reason.SINK_UNREACHABLE)
