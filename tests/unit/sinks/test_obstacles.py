"""What a client of the brokers logs is named by what the client asked for, or not at all."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import Reason
from cdcsync_spark.sinks.kafka.connection.obstacles import Client, obstacle_of

PLAIN, TLS, LOGIN, BOTH = Client(False, False), Client(True, False), Client(False, True), Client(True, True)
ENDED = "Disconnected: connection closed by peer: receive 0 after POLLIN (after 3ms in state {})"
ENDED_TLS = "Disconnected: SSL connection closed by peer (after 3ms in state {})"


@pytest.mark.parametrize(
    ("client", "text", "found"),
    [
        (PLAIN, ENDED.format("UP"), "a client without a login"),
        (TLS, ENDED_TLS.format("UP"), "a client without a login"),
        (PLAIN, ENDED.format("APIVERSION_QUERY"), "a client without TLS"),
        (LOGIN, ENDED.format("APIVERSION_QUERY"), "a client without TLS"),
        (TLS, ENDED_TLS.format("SSL_HANDSHAKE"), "the beginning of TLS"),
        (PLAIN, "Receive failed: Invalid response size 1213486160 (0..100000000)", "no answer of a Kafka broker"),
        (PLAIN, "Timed out MetadataRequest in flight (after 3002ms, timeout #0)", "does not answer"),
    ],
)
def test_a_line_means_what_the_client_lacks(client: Client, text: str, found: str) -> None:
    for broker in ("kafka.example:9092", "[fd00::1]:9092"):
        for line in (f"{broker}/bootstrap: {text}", f"sasl_ssl://{broker}/3: {text}"):
            obstacle = obstacle_of(line, client)
            assert obstacle is not None
            assert obstacle.reason is Reason.SINK_UNREACHABLE
            assert broker in obstacle.found
            assert found in obstacle.found


@pytest.mark.parametrize(
    ("client", "line"),
    [
        (LOGIN, "b:1/1: " + ENDED.format("UP")),  # a broker that restarts
        (BOTH, "b:1/1: " + ENDED_TLS.format("APIVERSION_QUERY")),
        (TLS, "b:1/1: SSL handshake failed: alert certificate required (after 3ms in state SSL_HANDSHAKE)"),
        (PLAIN, "Failed while waiting for controller: Local: Timed out"),
        (PLAIN, 'a"b\x1b[2J:1/1: Failed to resolve'),
        (PLAIN, ""),
    ],
)
def test_what_is_not_known_is_not_guessed(client: Client, line: str) -> None:
    assert obstacle_of(line, client) is None


@pytest.mark.parametrize(
    ("offered", "needed"), [("PLAIN,SCRAM-SHA-512 (after 1ms", "PLAIN,SCRAM-SHA-512"), (" (after 1ms", "no sasl")]
)
def test_the_mechanisms_of_a_listener(offered: str, needed: str) -> None:
    line = f"b:1/bootstrap: Broker: Unsupported SASL mechanism: broker's supported mechanisms: {offered} in state X)"
    obstacle = obstacle_of(line, LOGIN)
    assert obstacle is not None
    assert obstacle.reason is Reason.AUTHENTICATION_FAILED
    assert needed in obstacle.needed
