"""Why no broker serves a client, by the words in which its library logs what failed. Pure.

Why it exists: a client tries again without end, and a question that waits for a broker only times
out. A listener that wants a login or TLS closes the connection of a client that comes without, or
stays silent, and what that means depends on how the client came. A line that no row matches is
shown as it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cdcsync_core.errors import Reason

_BOOTSTRAP = "spec.sink.kafka.bootstrapServers"


class Client(NamedTuple):
    """How it comes: by TLS, with a login."""

    tls: bool
    login: bool


class Obstacle(NamedTuple):
    reason: Reason
    found: str
    needed: str
    remedy: str


class _Row(NamedTuple):
    """An obstacle of the clients for which `tls` and `login` are so; None: of all. Texts may have
    {broker} and {mechanisms}."""

    pattern: str
    obstacle: Obstacle
    tls: bool | None = None
    login: bool | None = None


_BROKER = re.compile(r"^(?:\w+://)?(?P<broker>[A-Za-z0-9._:\[\]-]{1,270})/(?:bootstrap|\d+): ")
_MECHANISMS = re.compile(r"broker's supported mechanisms: ([A-Za-z0-9_,-]{1,200})")
_ENDED = r": Disconnected|: SSL connection closed by peer"
_ROWS = (
    _Row(
        r"Failed to resolve",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "the host of {broker} is not known to the name service",
            "names that can be resolved where the driver runs",
            f"correct {_BOOTSTRAP}; if the name is not there, the brokers name it: their advertised.listeners",
        ),
    ),
    _Row(
        r"failed: Connection refused",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "no program listens at {broker}",
            "brokers that are up, at their port",
            f"check the hosts and ports of {_BOOTSTRAP} and that the brokers are up; if the address is not there, "
            "the brokers name it: their advertised.listeners",
        ),
    ),
    _Row(
        r"not valid in current SASL state|broker's supported mechanisms: *(?:\(|$)",
        Obstacle(
            Reason.AUTHENTICATION_FAILED,
            "the listener {broker} takes no login, and spec.sink.kafka.sasl gives one",
            "the port of a listener with logins, or no sasl",
            f"correct the port in {_BOOTSTRAP}, or leave spec.sink.kafka.sasl out",
        ),
        login=True,
    ),
    _Row(
        r"Unsupported SASL mechanism",
        Obstacle(
            Reason.AUTHENTICATION_FAILED,
            "the listener {broker} does not have the mechanism of spec.sink.kafka.sasl",
            "one of its mechanisms: {mechanisms}",
            "correct spec.sink.kafka.sasl.mechanism",
        ),
        login=True,
    ),
    _Row(
        rf"connecting to a PLAINTEXT|wrong version number|(?:{_ENDED}|setup timed out).* in state SSL_HANDSHAKE\)$",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "{broker} does not answer to the beginning of TLS",
            "a listener with TLS, or tls.mode: disabled",
            f"correct the port in {_BOOTSTRAP}, or spec.sink.kafka.tls.mode",
        ),
        tls=True,
    ),
    _Row(
        rf"(?:{_ENDED}).* in state UP\)$",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "{broker} ends the connection at the first question of a client without a login, as a listener "
            "with logins does",
            "spec.sink.kafka.sasl, or the port of a listener without logins",
            f"give spec.sink.kafka.sasl, or correct the port in {_BOOTSTRAP}",
        ),
        login=False,
    ),
    _Row(
        rf"(?:{_ENDED}).* in state APIVERSION_QUERY\)$",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "{broker} ends the connection of a client without TLS, as a listener with TLS does",
            "spec.sink.kafka.tls, or the port of a listener without TLS",
            f"correct spec.sink.kafka.tls.mode, which is disabled, or the port in {_BOOTSTRAP}",
        ),
        tls=False,
    ),
    _Row(
        r"Invalid response size|Protocol parse failure|ApiArrayCnt .* out of range",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "{broker} answers with what is no answer of a Kafka broker",
            "the port of a Kafka broker, and tls as its listener has it",
            f"correct {_BOOTSTRAP} or spec.sink.kafka.tls.mode",
        ),
    ),
    _Row(
        r"Timed out \w+Request in flight|Request failed: Local: Timed out|Connection setup timed out",
        Obstacle(
            Reason.SINK_UNREACHABLE,
            "{broker} does not answer",
            "brokers that answer, and tls as their listener has it",
            f"check the hosts and ports of {_BOOTSTRAP}, spec.sink.kafka.tls.mode, network policies, and that the "
            "brokers are up",
        ),
    ),
)


def obstacle_of(line: str, client: Client) -> Obstacle | None:
    """What the line means; None where that is not known."""
    broker = _BROKER.match(line)
    if broker is None:
        return None
    mechanisms = _MECHANISMS.search(line)
    names = {"broker": broker["broker"], "mechanisms": mechanisms[1] if mechanisms else "unknown"}
    for row in _ROWS:
        meant = row.tls in (None, client.tls) and row.login in (None, client.login)
        if meant and re.search(row.pattern, line):
            reason, *texts = row.obstacle
            return Obstacle(reason, *(text.format(**names) for text in texts))
    return None
