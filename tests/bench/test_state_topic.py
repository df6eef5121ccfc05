"""What a start of a run into Kafka costs after its sync has written for long.

    make bench ARGS='-k state_topic -s'

One state topic has five million states of a thousand tables, as a version that repeated nothing has
left it: the first run reads them all, once, and its bound is CPU time. The other has what this
program writes in a month for 200 tables, each with a state a minute: 43,200 transactions, by its
own code. Each start is that of a new process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.measured import show
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession
from contract.sinkcase import SYNC, first_state
from support.kafka import KafkaBroker

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]
STATES, TABLES, PER_TRANSACTION = 5_000_000, 1000, 1000
MINUTES, MONTHLY_TABLES = 30 * 24 * 60, 200
BOUND_SECONDS = 10.0


@dataclass(frozen=True)
class Start:
    seconds: float
    cpu: float
    read: int
    tables: int

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu:.1f} CPU s, {self.read:,} states read"


def test_five_million_states(kafka: KafkaBroker) -> None:
    name = f"states{os.getpid()}"
    record = _begun(kafka, name, {"cleanup.policy": "compact"})  # as it was made before
    _write(kafka, name, record)
    first, second = _start(kafka, name), _start(kafka, name)
    assert first.tables == second.tables == TABLES
    show(f"{STATES:,} states of {TABLES} tables: the first start {first}; the next one {second}")
    assert first.cpu < BOUND_SECONDS
    assert second.seconds < BOUND_SECONDS


def test_a_month_of_200_tables(kafka: KafkaBroker) -> None:
    name = f"month{os.getpid()}"
    record, tables = _begun(kafka, name), [f"shop.t{n}" for n in range(MONTHLY_TABLES)]
    session = _session(kafka.bootstrap, name)
    session.open()
    for minute in range(MINUTES):
        state = replace(record.state, commit_number=minute)
        assert session.transact(dict.fromkeys(tables, replace(record, state=state)), [])
    end = session.topics.end(session.state)
    found = _start(kafka, name)
    assert found.tables == MONTHLY_TABLES
    show(f"{MONTHLY_TABLES} tables with a state a minute for 30 days, offset {end:,}: a start {found}")
    assert found.seconds < BOUND_SECONDS


def _session(bootstrap: str, name: str, role: str = "stream") -> KafkaSession:
    return KafkaSession(KafkaSettings(bootstrap), SYNC, role, 1, f"{name}.state")


def _begun(kafka: KafkaBroker, name: str, state: dict[str, str] | None = None) -> TableRecord:
    """The record of an empty topic; a state topic with settings of its own is there."""
    session = _session(kafka.bootstrap, name)
    if state is not None:
        session.topics.make(session.state, 1, 1, state)
    session.topics.make(name, 1, 1, {})
    made = session.topics.made(name)
    return TableRecord(first_state(), made.name, made.id, made.partitions)


def _write(kafka: KafkaBroker, name: str, record: TableRecord) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "compression.type": "lz4"})
    producer.init_transactions(60)
    text = replace(record, state=replace(record.state, commit_number=12345)).to_json("before")
    for begin in range(0, STATES, PER_TRANSACTION):
        producer.begin_transaction()
        for number in range(begin, begin + PER_TRANSACTION):
            value = text.replace(b"12345", b"%d" % number)
            producer.produce(f"{name}.state", value, f"shop.t{number % TABLES}", partition=0)
        producer.commit_transaction(60)


def _start(kafka: KafkaBroker, name: str) -> Start:
    program = [sys.executable, __file__, kafka.bootstrap, name]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return Start(**json.loads(done.stdout.splitlines()[-1]))


def main(bootstrap: str, name: str) -> None:
    began, cpu = time.monotonic(), time.process_time()
    session = _session(bootstrap, name)
    session.open()
    seconds, used = time.monotonic() - began, time.process_time() - cpu
    sys.stdout.write(
        json.dumps(
            {
                "seconds": seconds,
                "cpu": used,
                "read": session.states_read,
                "tables": len(session.records()),
            }
        )
        + "\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
