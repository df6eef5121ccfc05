"""A broker that was honest when the run began and lies from then on: the run ends with its sync's
own reason, in time, and with memory that the broker does not choose. Each lie has a process of its
own, all at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.formats.json_records import Records
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, TopicRecords
from contract.sinkcase import SYNC, first_state
from support.kafka import KafkaBroker
from support.lying_broker import LIES, lying_broker

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(900)]
NAME = "shop.orders"
UNREACHABLE, DONE, SIGNALLED = Reason.SINK_UNREACHABLE.value, "", "a signal"
#: what else may be: a connection that is open leads to the broker still; and librdkafka may end the
#: process by a signal: it aborts where it cannot allocate as many entries as an answer announces
#: (`rd_malloc`), and reads zeros as an answer. On a cluster that ends the pod, which the operator
#: names
ALSO = {
    "moved": {(DONE, UNREACHABLE)},
    "counting_too_far": {(SIGNALLED, SIGNALLED)},
    "without_end": {(SIGNALLED, SIGNALLED)},
}
#: of a question to the brokers, and of a transaction: while the broker is honest and all processes
#: start at once, and from its lie on
HONEST_SECONDS, LYING_SECONDS = 240.0, 15.0
#: answers of the largest size that a client takes, for its connections, and what the process needs
#: itself
MEMORY_BYTES = 800 << 20


class EndAfterLie(NamedTuple):
    """How a transaction after the lie ended, and the next start; the most memory of the process."""

    first: str
    next: str
    seconds: float
    memory: int


@pytest.fixture(scope="module")
def ends(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, EndAfterLie]:
    folder = tmp_path_factory.mktemp("lies")
    with ThreadPoolExecutor(len(LIES)) as pool:
        return dict(zip(LIES, pool.map(lambda lie: _end(kafka.bootstrap, lie, folder), LIES), strict=True))


def _end(bootstrap: str, lie: str, folder: Path) -> EndAfterLie:
    with (folder / lie).open("w+") as out, (folder / f"{lie}.err").open("w+") as errors:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, __file__, bootstrap, lie]
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        lines, said = out.read().splitlines(), errors.read()
    memory = usage.ru_maxrss << 10
    if process.returncode < 0:
        return EndAfterLie(SIGNALLED, SIGNALLED, 0.0, memory)
    assert process.returncode == 0, f"{lie}: {said[-4000:]}"
    return EndAfterLie(*json.loads(lines[-1]), memory)


@pytest.mark.parametrize("lie", LIES)
def test_a_run_ends_with_its_own_reason(ends: dict[str, EndAfterLie], lie: str) -> None:
    end = ends[lie]
    assert (end.first, end.next) in {(UNREACHABLE, UNREACHABLE), *ALSO.get(lie, ())}
    assert end.seconds < 200
    assert end.memory < MEMORY_BYTES


def main(bootstrap: str, lie: str) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    with lying_broker(bootstrap) as broker:
        session = _session(broker.address, name, HONEST_SECONDS)
        session.open()
        session.topics.make(name, 1, 1, {})
        topic = session.topics.made(name)
        record = TableRecord(first_state(), topic.name, topic.id, topic.partitions)
        piece = TopicRecords(NAME, name, Records(pa.array([b"k"]), pa.array([b"1"])))
        assert session.transact({NAME: record}, [piece])
        session.settings = session.brokers.settings = _settings(broker.address, LYING_SECONDS)
        begun = time.monotonic()
        broker.lie = LIES[lie]
        first = _reason(lambda: session.transact({NAME: record}, [piece]))
        following = _reason(_session(broker.address, name, LYING_SECONDS).open)
        seconds = time.monotonic() - begun
        sys.stdout.write(json.dumps([first, following, seconds]) + "\n")
        sys.stdout.flush()
        os._exit(0)  # the clients would wait for the broker


def _settings(address: str, seconds: float) -> KafkaSettings:
    return KafkaSettings(address, timeout=seconds, transaction=seconds)


def _session(address: str, name: str, seconds: float) -> KafkaSession:
    return KafkaSession(_settings(address, seconds), SYNC, "stream", 1, f"{name}.state")


def _reason(use: object) -> str:
    try:
        use()  # type: ignore[operator]
    except CdcError as error:
        return error.reason.value
    return DONE


if __name__ == "__main__":
    main(*sys.argv[1:])
