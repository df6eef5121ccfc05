"""Brokers that hang, lie, and send too much: a start ends with its own reason, in time, and with
memory that they do not choose. Those that send without end are a round of their own, so that the
clients of the others get their answers in time; each round is a process, whose memory is
measured."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from cdcsync_core.errors import CdcError
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession
from support.hostile_broker import BEHAVIOURS, UNKNOWN_HOST, hostile_broker

pytestmark = pytest.mark.timeout(600)
#: of a question to the brokers, and of a transaction; an answer of one broker is given ten seconds
TIMEOUT_SECONDS, TRANSACTION_SECONDS = 60.0, 15.0
FLOODING = ("of_two_gibibytes", "of_a_hundred_megabytes")
ROUNDS = (tuple(BEHAVIOURS.keys() - set(FLOODING)), FLOODING)
#: two answers of the largest size that a client takes, of which one broker sends one after another,
#: and what the clients need themselves
MEMORY_BYTES = 300 << 20
SILENT, SENSELESS = "{address} does not answer", "{address} answers with what is no answer of a Kafka broker"
FOUND = {
    "silent": SILENT,
    "closing": "{address} ends the connection of a client without TLS",
    "garbage": SENSELESS,
    "of_two_gibibytes": SENSELESS,
    "of_a_hundred_megabytes": SILENT,
    "dripping": SILENT,
    "hanging_later": SILENT,
    "lying": SENSELESS,
    "counting_too_far": SENSELESS,
    "naming_another": f"the host of {UNKNOWN_HOST}:9092 is not known to the name service",
}


class EndOfStart(NamedTuple):
    """How the start of a run ended."""

    reason: str
    found: str
    seconds: float


@pytest.fixture(scope="module")
def starts() -> tuple[dict[str, tuple[str, EndOfStart]], int]:
    """The broker's address and how its start ended, by behaviour; by how many bytes the process of
    a round grew at most."""
    ends: dict[str, tuple[str, EndOfStart]] = {}
    grown = [_round(behaviours, ends) for behaviours in ROUNDS]
    return ends, max(grown)


def _round(behaviours: tuple[str, ...], ends: dict[str, tuple[str, EndOfStart]]) -> int:
    """Adds to `ends`; by how many bytes the process grew."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(hostile_broker(BEHAVIOURS[name])) for name in behaviours]
        done = subprocess.run(
            [sys.executable, __file__, *addresses],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
            timeout=280,
        )
    grown, *found = json.loads(done.stdout.splitlines()[-1])
    for name, address, end in zip(behaviours, addresses, found, strict=True):
        ends[name] = address, EndOfStart(*end)
    return int(grown)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_start_ends_with_its_own_reason(
    starts: tuple[dict[str, tuple[str, EndOfStart]], int], behaviour: str
) -> None:
    address, end = starts[0][behaviour]
    assert end.reason == "SinkUnreachable"
    assert FOUND[behaviour].format(address=address) in end.found
    assert end.seconds < 4 * TIMEOUT_SECONDS


def test_its_memory_is_not_theirs_to_choose(starts: tuple[dict[str, tuple[str, EndOfStart]], int]) -> None:
    assert starts[1] < MEMORY_BYTES


def main(*addresses: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(len(addresses)) as pool:
        ends = list(pool.map(_start, addresses))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    sys.stdout.write(json.dumps([grown, *ends]) + "\n")


def _start(address: str) -> EndOfStart:
    settings = KafkaSettings(address, timeout=TIMEOUT_SECONDS, transaction=TRANSACTION_SECONDS)
    session = KafkaSession(settings, "shop/orders", "stream", 1, "orders.state")
    begun = time.monotonic()
    try:
        session.open()
    except CdcError as error:
        return EndOfStart(error.reason.value, error.found, time.monotonic() - begun)
    return EndOfStart("", "opened", time.monotonic() - begun)


if __name__ == "__main__":
    main(*sys.argv[1:])
