"""Topics under fire: whatever is written meanwhile and whatever is killed, no record is false,
missing or there twice (promise 3).

A round is one of `stress_round`, into Kafka topics: the faults hit the staged copy, its publication
and the transactions of the stream. At its end a consumer checks every committed record: it refuses
an insert of a key that is there, and a before image that is not the row that is there. Then the
keys that are left are the source's, `cdcsync verify` compares their values, and the counter walk is
what the writers recorded.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.runs.run import ExitCode
from cdcsync_spark.sinks.kafka.transactions.session import state_topic
from support.crash_points import TOPIC_PLANS, TOPIC_POINTS, Plan
from support.event_consumer import CheckingConsumer, Row
from support.kafka import KafkaBroker
from support.kafka import Record as KafkaRecord
from support.kafka_syncs import kafka_spec, new_name
from support.servers import Server
from support.stress_round import SECONDS, SEED, StressRound, plans
from support.topic_events import debezium_events
from support.workload import Pace
from support.workload_tables import KEYS, WALK

PACE = Pace(rows=20_000, writers=16, per_second=120)

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 3600)
@pytest.mark.parametrize("variant", TOPIC_PLANS)
def test_no_record_is_false_after_any_crash(
    variant: str, request: pytest.FixtureRequest, kafka: KafkaBroker, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(variant)
    deadline = time.monotonic() + SECONDS
    for number, plan in enumerate(plans(variant, TOPIC_PLANS[variant], TOPIC_POINTS)):
        began = time.monotonic()
        database, folder = server.create_database(), tmp_path / str(number)
        TopicRound(server, database, plan, folder, kafka, SEED + number).run()
        server.drop_database(database)
        shutil.rmtree(folder)
        if time.monotonic() + (time.monotonic() - began) > deadline:
            return


class TopicRound(StressRound):
    """One that is checked record by record."""

    def __init__(
        self,
        server: Server,
        database: str,
        plan: Plan,
        folder: Path,
        kafka: KafkaBroker,
        seed: int,
    ) -> None:
        self.kafka, self.name, self.spec = kafka, new_name(), kafka_spec(kafka)
        super().__init__(server, database, plan, seed, folder, PACE, SECONDS)

    def _begin_stream(self) -> None:
        """All snapshots are sent, so that the faults hit transactions of changes."""
        self.sync.start("forever")
        self.sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == len(self.workload.tables))
        self.sync.kill_all()

    def _check(self) -> None:
        generations = self._generations()
        print(f"  generations of topics: {sorted({len(found) for found in generations.values()})}")
        for table in self.workload.tables:
            rows, faults = self._consumed(table, generations[f"{self.database}.{table}"])
            assert not faults, "\n".join([f"{table} has {len(faults)} false records", *faults[:5]])
            ((expected,),) = self.server.query(f"SELECT COUNT(*) FROM `{self.database}`.`{table}`")
            assert len(rows) == expected, table
            if table == WALK:
                walks = self._walks({row["id"]: row["counter"] for row in rows})
                assert not walks, "\n".join(["the topic is not what was committed", *walks[:20]])
        verified = self.sync.command("verify", "-o", "json", timeout=600)
        assert verified.returncode == ExitCode.DONE, verified.stdout + verified.stderr

    def _generations(self) -> dict[str, list[Sequence[int]]]:
        """Where each snapshot of each table begins in the partitions of its topic."""
        found: dict[str, list[Sequence[int]]] = {}
        for record in self.kafka.read(state_topic(f"default/{self.name}")):
            begins = json.loads(record.value or b"{}").get("begins")
            known = found.setdefault((record.key or b"").decode(), [])
            if begins and (not known or known[-1] != begins):
                known.append(begins)
        return found

    def _consumed(self, table: str, begins: Sequence[Sequence[int]]) -> tuple[list[Row], list[str]]:
        """The rows that the newest snapshot and its changes leave, and the faults of all of them. A
        consumer begins again at each snapshot."""
        records = self.kafka.read(f"{self.name}.{self.database}.{table}")
        first = [begins[0][record.partition] <= record.offset for record in records]
        assert begins, f"{table} has no snapshot"
        assert all(first), f"{table} has records before its snapshot"
        faults, rows = list[str](), list[Row]()
        for begin, end in pairwise([*begins, None]):
            assert begin is not None
            found = [r for r in records if begin[r.partition] <= r.offset and (not end or r.offset < end[r.partition])]
            consumer = CheckingConsumer(KEYS[table]).take(debezium_events(_in_order(found)))
            faults, rows = [*faults, *consumer.faults], list(consumer.rows.values())
        return rows, faults


def _in_order(records: Sequence[KafkaRecord]) -> Iterator[tuple[Any, Any]]:
    """Keys and values; the rows of a snapshot are before the changes of their partition."""
    changed = set[int]()
    for record in records:
        value = None if record.value is None else json.loads(record.value)
        if value is None or value["op"] != "r":
            changed.add(record.partition)
        else:
            assert record.partition not in changed, f"a row of the snapshot after a change: {value}"
        yield json.loads(record.key or b""), value
