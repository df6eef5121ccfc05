"""The binlog into a Kafka topic in one process: read in a thread and sent in transactions with the
state, as a driver does it without Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from bench.pipeline import MAX_BATCH_BYTES
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_mysql.positions.watermark import current, high, low
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions.connection import Source, connect
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.sinks.contract.changes import Append, Commit
from cdcsync_spark.sinks.delta.replica.staging_table import DeltaStaging
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.topics import TopicSettings
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable

_IDLE_SECONDS = 0.01


def sink_in(folder: Path, brokers: str, name: str) -> KafkaSink:
    topics = TopicSettings(f"{name}.{{database}}.{{table}}")
    staging = DeltaStaging(open_store(str(folder / f"lake-{name}")), f"bench/{name}")
    return KafkaSink(KafkaSettings(brokers), topics, "debezium-json", f"bench/{name}", staging, "stream")


def prepare(source: Source, sink: KafkaSink, table_id: TableId) -> None:
    """The topic's target, as if the table had been empty: nothing of a snapshot is sent."""
    target = sink.target(table_id)
    with connect(source) as connection:
        facts, table = read_facts(connection), read_table(connection, table_id)
        splits = list(plan(connection, table, 1 << 30))
    target.prepare(
        TableState(Identity(sink.sync, facts.lineage, str(table_id)), table, TargetSchema.of(table), epoch=1)
    )
    safe = low(source, facts)
    with connect(source) as connection:
        end = high(connection, facts)

    def build(found: TableState) -> Commit:
        return Commit(replace(found.after_wave(splits, safe, end, 0, 0), epoch=1), Append(()))

    target.commit(1, build)


def send_backlog(source: Source, sink: KafkaSink, folder: Path, table: TableId) -> int:
    """All changes between the topic's position and the binlog's end; the number of row images."""
    with connect(source) as connection:
        goal = current(connection, read_facts(connection)).at
    assert goal
    writer = sink.target(table).writer(folder)
    state = writer.last_commit()
    assert state
    assert state.position
    settings = ReaderSettings(
        source=source,
        lineage=state.identity.lineage,
        replica_id=4_000_000_001,
        tables={table: state.capture},
        start=state.position,
        ahead={},
        heartbeat_seconds=1.0,
        max_batch_bytes=MAX_BATCH_BYTES,
        folder=folder,
    )
    tables = {str(table): StreamTable(str(table), writer, state, time.monotonic())}
    applier = Applier(
        tables, state.epoch, state.position, time.monotonic, events=True, commit_all=sink.commit_all, together=True
    )
    reader, images = BinlogReader(settings), 0
    reader.start()
    while not applier.reader.has_reached(goal):
        batch = reader.next_batch()
        if batch is None:
            time.sleep(_IDLE_SECONDS)
            continue
        if batch.fatal:
            raise batch.fatal
        applier.apply(batch)
        images += sum(part.rows for part in batch.tables)
    applier.checkpoint_idle(older_than=float("inf"))
    reader.stop()
    error = tables[str(table)].error
    if error is not None:
        raise error
    return images
