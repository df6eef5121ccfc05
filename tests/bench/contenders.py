"""What is compared: each function is one program, run as `python contenders.py NAME ARGUMENTS`; it
prints the rows it handled.

`folder` holds the files `username` and `password`; `table` is database.table. Peers are used as
their users use them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.watermark import current, low
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions.connection import Source, Tls, connect

_CHUNK = 50_000
#: how often the stream hands over what has arrived, where no batch is full before: the shortest
#: `spec.stream.interval` is half of it
_INTERVAL_SECONDS = 0.2


def _source(port: str, folder: str) -> Source:
    return Source(
        "127.0.0.1",
        int(port),
        Path(folder) / "username",
        Path(folder) / "password",
        Tls("disabled", allow_unverified=True),
    )


def cdcsync_snapshot_arrow(port: str, folder: str, table: str) -> int:
    """Every split of the table into Arrow, in one process."""
    from cdcsync_spark.snapshot.splits.split_read import SplitReader

    source = _source(port, folder)
    with connect(source) as connection:
        facts = read_facts(connection)
        definition = read_table(connection, TableId(*table.split(".")))
        splits = list(plan(connection, definition, _CHUNK))
    start = low(source, facts)
    return sum(
        batch.num_rows
        for split in splits
        for batch in SplitReader(source, facts.lineage, definition, split, start, 600).batches()
    )


def pymysql_arrow(port: str, folder: str, table: str) -> int:
    """PyMySQL's server-side cursor into Arrow, in one process."""
    from pymysql.cursors import SSCursor

    with connect(_source(port, folder), max_seconds=1800) as connection, connection.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        handled = 0
        while rows := cursor.fetchmany(10_000):
            arrays = [_inferred(column) for column in zip(*rows, strict=True)]
            handled += pa.table(arrays, names=[str(i) for i in range(len(arrays))]).num_rows
        return handled


def _inferred(column: tuple[Any, ...]) -> pa.Array:
    """Arrow's own guess, which does not know numbers beyond 63 bits."""
    try:
        return pa.array(column)
    except OverflowError:
        return pa.array(column, pa.uint64())


def cdcsync_snapshot_parquet(port: str, folder: str, table: str) -> int:
    """The snapshot as Spark tasks that write Parquet: splits, waves and commits, as a run does."""
    from cdcsync_spark.engine.start import start_session
    from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
    from cdcsync_spark.sinks.lake.storage.stores import open_store
    from cdcsync_spark.snapshot.splits.split_read import SplitReader
    from cdcsync_spark.snapshot.wave_job import SplitTask, run_wave
    from cdcsync_spark.sources.datasource import SnapshotReader
    from cdcsync_spark.sources.options import SourceOptions

    source = _source(port, folder)
    options = SourceOptions(source, TableId(*table.split(".")), frozenset())
    with tempfile.TemporaryDirectory() as lake:
        target = DeltaSink(open_store(lake), "bench/bench").target(options.table)
        partitions = SnapshotReader(options, _CHUNK, 60).partitions()
        tasks = [
            SplitTask(0, SplitReader(source, p.lineage, p.table, p.split, p.low, 600), target, f"bench-{i}")
            for i, p in enumerate(partitions)
        ]
        with start_session("bench", cores=2, memory="2g", scratch_dir=lake, extra={}) as spark:
            return sum(result.rows for result in run_wave(spark, tasks, lambda _: None))


def spark_session() -> int:
    """What the two before and after it pay before the first row: a session and a task in Python."""
    from cdcsync_spark.engine.start import start_session

    with (
        tempfile.TemporaryDirectory() as scratch,
        start_session("bench", cores=2, memory="2g", scratch_dir=scratch, extra={}) as spark,
    ):
        return int(spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long").count())


def spark_jdbc_parquet(port: str, folder: str, table: str, key: str, jar: str, columns: str = "*") -> int:
    """Spark's own JDBC reader, two partitions by `key`, to Parquet; `columns` as SQL has them."""
    return _spark_jdbc("parquet", port, folder, table, key, jar, columns)


def spark_jdbc_delta(port: str, folder: str, table: str, key: str, jar: str) -> int:
    """The same to a Delta table."""
    return _spark_jdbc("delta", port, folder, table, key, jar, "*")


def _spark_jdbc(form: str, port: str, folder: str, table: str, key: str, jar: str, columns: str) -> int:
    from cdcsync_spark.engine.start import start_session
    from support import delta_jars

    delta = delta_jars.settings() if form == "delta" else {}
    source = _source(port, folder)
    with connect(source) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT MIN({key}), MAX({key}), COUNT(*) FROM {table}")
        first, last, count = cursor.fetchall()[0]
    with tempfile.TemporaryDirectory() as scratch:
        # all of the JVM's compilers, and Spark's: here it is the JVM that works
        extra = {
            **delta,
            "spark.jars": ",".join(filter(None, (jar, delta.get("spark.jars")))),
            "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
            "spark.sql.codegen.wholeStage": "true",
            "spark.sql.codegen.factoryMode": "FALLBACK",
        }
        with start_session("bench", cores=2, memory="2g", scratch_dir=scratch, extra=extra) as spark:
            rows = spark.read.jdbc(
                f"jdbc:mysql://127.0.0.1:{port}/?permitMysqlScheme&sslMode=disable&allowPublicKeyRetrieval=true",
                table if columns == "*" else f"(SELECT {columns} FROM {table}) some",
                column=key,
                lowerBound=first,
                upperBound=last,
                numPartitions=2,
                properties={
                    "user": source.username_file.read_text(),
                    "password": source.password_file.read_text(),
                    "fetchsize": "10000",
                    "driver": "org.mariadb.jdbc.Driver",
                },
            )
            rows.write.format(form).save(f"{scratch}/out")
    return int(count)


def cdcsync_binlog_arrow(port: str, folder: str, table: str, start: str) -> int:
    """The binlog from `start` (a position's JSON) to its end into Arrow files: every row image, as
    the source `mysql_binlog` gives them."""
    return _read_log(port, folder, table, start, befores=True)


def cdcsync_binlog_folded(port: str, folder: str, table: str, start: str) -> int:
    """The same as a run reads it: an update's before image is in the files only where the key
    changed. Counts the binlog's row images."""
    return _read_log(port, folder, table, start, befores=False)


def cdcsync_binlog_single_events(port: str, folder: str, table: str, start: str) -> int:
    """As `cdcsync_binlog_folded`, but every transaction event by event, none of them as columns."""
    from functools import partial

    from cdcsync_spark.binlog import reader
    from cdcsync_spark.binlog.assembly.plain_path import PlainPath

    vars(reader)["PlainPath"] = partial(PlainPath, least_events=1 << 60)
    return _read_log(port, folder, table, start, befores=False)


def _read_log(port: str, folder: str, table: str, start: str, *, befores: bool) -> int:
    import json

    from cdcsync_core.positions.position import position_from_dict
    from cdcsync_spark.binlog.reader import BinlogReader
    from cdcsync_spark.binlog.settings import ReaderSettings
    from cdcsync_spark.engine.collector import QuietCollector

    source = _source(port, folder)
    with connect(source) as connection:
        facts = read_facts(connection)
        definition = read_table(connection, TableId(*table.split(".")))
        goal = current(connection, facts).at
    assert goal
    with tempfile.TemporaryDirectory() as spool:
        begin = position_from_dict(json.loads(start), facts.log)
        settings = ReaderSettings(
            source=source,
            lineage=facts.lineage,
            replica_id=4_000_000_001,
            tables={definition.id: definition},
            start=begin,
            ahead={},
            heartbeat_seconds=1.0,
            max_batch_bytes=16 << 20,
            folder=Path(spool),
            interval_seconds=_INTERVAL_SECONDS,
            befores=befores,
        )
        collector = QuietCollector()
        reader = BinlogReader(settings)
        reader.start()
        handled = 0
        while True:
            batch = reader.next_batch()
            collector.between_batches()
            if batch is None:
                continue
            if batch.fatal:
                raise batch.fatal
            handled += sum(t.rows for t in batch.tables)
            for part in batch.tables:
                if part.stop:
                    raise part.stop
                Path(part.file).unlink()
            if batch.end.has_reached(goal):
                reader.stop()
                return handled


def cdcsync_pipeline(port: str, folder: str, table: str) -> int:
    """The binlog from the target's position to its end into the target, as a driver does it, in one
    process: read, decoded, folded, committed, tended. How long each part took is in
    `folder`/parts.json."""
    from bench.pipeline import apply_backlog

    return apply_backlog(_source(port, folder), Path(folder), TableId(*table.split(".")))


def cdcsync_stream_in_spark(config: str) -> int:
    """A driver's run of a stream to the binlog's end."""
    from bench.engines import stream_in_spark

    return stream_in_spark(Path(config))


def cdcsync_stream_in_process(config: str) -> int:
    """The same run, whose reader is a thread and no Spark is started."""
    from bench.engines import stream_in_process

    return stream_in_process(Path(config))


def cdcsync_topic(port: str, folder: str, table: str, brokers: str, name: str) -> int:
    """The binlog from the topic's position to its end as acknowledged records of `debezium-json`,
    as a driver sends them, in one process: row images."""
    from bench.topics import send_backlog, sink_in

    sink = sink_in(Path(folder), brokers, name)
    return send_backlog(_source(port, folder), sink, Path(folder), TableId(*table.split(".")))


def mysql_replication(port: str, folder: str, table: str, file: str, offset: str) -> int:
    """mysql-replication from file and offset to the end of the binlog: row images, as its users get
    them."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    source = _source(port, folder)
    database, name = table.split(".")
    stream = BinLogStreamReader(
        connection_settings={
            "host": source.host,
            "port": source.port,
            "user": source.username_file.read_text(),
            "passwd": source.password_file.read_text(),
        },
        server_id=4_000_000_002,
        log_file=file,
        log_pos=int(offset),
        resume_stream=True,
        blocking=False,
        only_schemas=[database],
        only_tables=[name],
        only_events=[DeleteRowsEvent, WriteRowsEvent, UpdateRowsEvent],
    )
    handled = 0
    for event in stream:
        handled += len(event.rows) * (2 if isinstance(event, UpdateRowsEvent) else 1)
    stream.close()
    return handled


if __name__ == "__main__":
    sys.stdout.write(f"\n{globals()[sys.argv[1]](*sys.argv[2:])}\n")
