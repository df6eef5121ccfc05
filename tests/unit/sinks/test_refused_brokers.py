"""An address that the operator's policy refuses: the reason of a question that waits, and of none
that waits long afterwards; all clients of a process share what checks addresses."""

from __future__ import annotations

import time

import pytest

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.networks import VARIABLE
from cdcsync_spark.sinks.kafka.connection import checked_names
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings

SETTINGS = KafkaSettings("127.0.0.1:1")


def refused() -> CdcError:
    return fail(Reason.SPEC_INVALID, "the broker is at 127.0.0.1, which is refused", needed="another")


@pytest.mark.parametrize(
    ("age", "reason"), [(0.0, Reason.SPEC_INVALID), (3 * SETTINGS.timeout, Reason.SINK_UNREACHABLE)]
)
def test_a_refused_address_is_the_reason_of_what_waits_now(age: float, reason: Reason) -> None:
    brokers = Brokers(SETTINGS)
    brokers._refusals.last = time.monotonic() - age, refused()
    assert brokers.timeout("asking for the brokers").reason is reason
    assert brokers.timeout("asking for the brokers").reason is Reason.SINK_UNREACHABLE


def test_clients_share_one_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1/32")
    brokers, before = Brokers(SETTINGS), len(checked_names._RESOLVERS)
    clients = [brokers.admin(), brokers.consumer("read_committed"), brokers.producer()]
    assert len(checked_names._RESOLVERS) == before + 1
    del clients
