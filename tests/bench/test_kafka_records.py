"""What a change costs from decoded images to records that a Kafka broker has acknowledged.

    make bench ARGS='-k kafka_records -s'

The client process's CPU with all its threads, a transaction each 10,000 updates with both images:
first the form alone, then form and producer together. The topic is read at the end: it must have a
record for each change.

The whole way, from the binlog to acknowledged records, is compared with Debezium's engine and
Kafka's own client, each as a process with all that it starts. What a start costs is not in the
figures: both send a small backlog and large ones in turns, and the difference is counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from confluent_kafka import Producer

from bench import customers
from bench.debezium import debezium
from bench.delta_tables import TABLE
from bench.measured import Figures, contender, show
from bench.topics import prepare, send_backlog, sink_in
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Source, Tls
from cdcsync_spark.rows.changes import KIND, TRANSACTION
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro
from cdcsync_spark.sinks.formats.json_records import FORMS, Form, Origin, Records
from support.debezium import BinlogPlace
from support.fixtures import FreshDatabase
from support.history_updates import CHANGES, updates
from support.kafka import KafkaBroker
from support.servers import Server
from support.throughput import account

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
BATCHES, WARM_UP, COLUMNS = 10, 2, 18
#: rows of the table of the whole way, and how often all of them are changed in each backlog
ROWS, BACKLOGS = 20_000, (1, 21, 21, 21)
ORIGIN = Origin(TABLE.id, TABLE.key, "mysql", 1, "bench", sent=1)
ALL_FORMS: dict[str, Form] = {**FORMS, "avro": lambda e, o: debezium_avro(e, o, Registered(1, 2))}


@pytest.mark.parametrize("form", ["debezium-json", "changelog-json", "upsert-json", "avro"])
def test_kafka_records(kafka: KafkaBroker, form: str) -> None:
    topic = kafka.new_topic("bench", 2)
    batches = [_wide(updates(n)) for n in range(1, BATCHES + 1)]
    producer = _producer(kafka, f"bench-{form}")
    made = _cpu_seconds(lambda events: ALL_FORMS[form](events, ORIGIN), batches)
    sent = _cpu_seconds(lambda events: _send(producer, topic, ALL_FORMS[form](events, ORIGIN)), batches)
    records = kafka.read(topic)
    changes = BATCHES * CHANGES // 2
    assert len(records) == changes * (2 if form == "changelog-json" else 1)
    size = sum(len(r.value or b"") for r in records) / len(records)
    print(
        f"\n{form}: {COLUMNS} columns, {size:.0f} bytes a record; thousand changes per"
        f" CPU second: made {changes / made / 1000:.0f}, made and acknowledged {changes / sent / 1000:.0f}"
    )


def test_from_binlog_to_acknowledged_records(
    mysql97_gtid: Server, fresh_database: FreshDatabase, tmp_path: Path, kafka: KafkaBroker
) -> None:
    server, database, folder = mysql97_gtid, fresh_database(mysql97_gtid), account(mysql97_gtid, tmp_path)
    customers.fill(server, database, ROWS)
    ours, theirs = [], []
    for number, turns in enumerate(BACKLOGS):
        name, topic = f"bench{os.getpid()}-{number}", kafka.new_topic("debezium")
        source = Source(
            "127.0.0.1", server.port, folder / "username", folder / "password", Tls("disabled", allow_unverified=True)
        )
        sink, table_id = sink_in(folder, kafka.bootstrap, name), TableId(database, "customer")
        prepare(source, sink, table_id)
        server.run("UPDATE customer SET c_birth_day = 30 - c_birth_day WHERE c_customer_sk = 1", db=database)
        send_backlog(source, sink, folder, table_id)  # what is followed after it is sent as it is
        start = BinlogPlace.end_of(server)
        changes = sum(_changes(server, database, turn + 100 * number) for turn in range(turns))
        table = f"{database}.customer"
        ours.append(
            replace(contender("cdcsync_topic", server.port, folder, table, kafka.bootstrap, name), rows=changes)
        )
        assert _count(kafka, f"{name}.{table}") == 1 + changes
        theirs.append(debezium(server, folder, table, start, changes, kafka.bootstrap, topic))
        assert _count(kafka, topic) == changes
    here, there = (_without_start(*found) for found in (ours, theirs))
    load = os.getloadavg()[0]
    show(
        f"changes per CPU second from the binlog to acknowledged debezium-json, {COLUMNS} columns, both images"
        f" (medians of {len(here)}, load {load:.1f}): {median(here):,.0f}; Debezium 3.3.1: {median(there):,.0f};"
        f" {median(here) / median(there):.1f} times (each: "
        f"{', '.join(f'{one:,.0f} and {other:,.0f}' for one, other in zip(here, there, strict=True))})"
    )


def _changes(server: Server, database: str, turn: int) -> int:
    """Updates every row; the number of them."""
    with server.connect(db=database, autocommit=True) as connection, connection.cursor() as cursor:
        return sum(
            cursor.execute(
                "UPDATE customer SET c_birth_day = 1 + MOD(c_customer_sk, 27), c_login = 'changed', "
                f"c_current_addr_sk = {turn + 1}, c_last_review_date_sk = {start}, c_first_name = 'Ada' "
                f"WHERE c_customer_sk BETWEEN {start} AND {start + 499}"
            )
            for start in range(1, ROWS + 1, 500)
        )


def _count(kafka: KafkaBroker, topic: str) -> int:
    return sum(r.value is not None for r in kafka.read(topic))


def _without_start(small: Figures, *large: Figures) -> list[float]:
    """Changes per CPU second of each large backlog, without the start."""
    return [(found.rows - small.rows) / (found.cpu - small.cpu) for found in large]


def _wide(events: Events) -> Events:
    """Adds the table's columns again under other names, until there are `COLUMNS`."""
    images, columns = events.images, events.images.drop_columns([KIND, TRANSACTION])
    for n in range(COLUMNS - columns.num_columns):
        source = columns.column_names[n % columns.num_columns]
        images = images.append_column(f"{source}_{n}", columns[source])
    return replace(events, images=images)


def _producer(kafka: KafkaBroker, name: str) -> Producer:
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap,
        "transactional.id": name,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        "batch.size": 1 << 20,
        "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    producer.init_transactions(60)
    return producer


def _send(producer: Producer, topic: str, records: Records) -> None:
    producer.begin_transaction()
    for key, value in records.pairs():
        producer.produce(topic, value, key)
    producer.commit_transaction(60)


def _cpu_seconds(work: Callable[[Events], object], batches: Sequence[Events]) -> float:
    """The CPU seconds of all batches, as the later ones cost: the first ones open connections and
    buffers."""
    spent = []
    for events in batches:
        begin = time.process_time()
        work(events)
        spent.append(time.process_time() - begin)
    return sum(spent[WARM_UP:]) / (len(batches) - WARM_UP) * len(batches)
