"""A topic folded to the table that its records end with: what `verify` compares with the source.

Why it is right. The fold: all records of a key are in one partition, so its last one says which row
it has, also where the snapshot was sent early (`target`: rows are before the changes of their key);
records before the newest snapshot's first are left out. The place: the state is read first,
so the topic up to its ends, asked for after that, has all that the state covers. A transaction
writes to the state topic before it sends a record, and a state is read when all before it is
decided; so the state that is read at last covers all that was read of the topic. In between a
stream may have committed: each key has a row that it had between these two positions
(`InexactSnapshot`). Where the stream stands still they are one.

A topic is read once per process: a later version reads only what came since. What is read lies in
a folder of its own on local disk, in files by the hash of the key, each of which is folded in
memory: a file has about 100,000 records, or the 512th part of the topic.

The keys of Avro have the id of their schema in them. A definition that a topic follows leaves the
key as it is, so each key has one id, as brokers and consumers need it, too. Where a registry has
given another one all the same, the key has two last records and is reported as a duplicate.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Message, TopicPartition

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.position import Position
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.checks import replaced_meanwhile
from cdcsync_spark.sinks.formats.record_reader import RecordReader
from cdcsync_spark.sinks.kafka.connection.brokers import passes, sink_error
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.transactions.conflicts import check_topic
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession

_FILE_RECORDS, _MOST_FILES = 100_000, 512
#: records that wait until they are written
_WAITING = 100_000
_AT_ONCE, _POLL_SECONDS = 5_000, 0.2
_PLACE = "_cdc_row"
_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
#: of a batch: rows, and bytes of their records but for the last one
_ROWS, _BYTES = 10_000, 64 << 20
Places = tuple[int, ...]
#: the last record of a key
Last = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class TopicSnapshot:
    """`files` has for each hash of a key the files with its records, oldest first; `until` as in
    `InexactSnapshot`."""

    reader: RecordReader
    state: TableState
    files: tuple[tuple[str, ...], ...]
    until: Position | None

    @property
    def schema(self) -> pa.Schema:
        return captured_schema(self.state.capture)

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """See `TargetSnapshot.scan`; raises SinkConflict from the reader for a record that is none
        of the form."""
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(n) for n in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, key_filter))

    def _batches(self, schema: pa.Schema, key_filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        for files in self.files:
            for last in _pieces(_folded(files)):
                try:
                    table = self._rows(last, schema, key_filter)
                except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
                    raise self._unreadable(error) from None
                yield from table.to_batches()

    def _rows(self, last: list[Last], schema: pa.Schema, key_filter: pc.Expression | None) -> pa.Table:
        keys = self.reader.keys([key for key, _ in last], self._key)
        if key_filter is not None:
            places = keys.append_column(_PLACE, pa.array(range(len(last)))).filter(key_filter)[_PLACE]
            keys, last = keys.take(places), [last[n] for n in places.to_pylist()]
        indexes, rows = self.reader.rows([value for _, value in last], self.schema)
        if not rows.select(keys.schema.names).equals(keys.take(pa.array(indexes, pa.int64()))):
            raise ValueError("a key that is not its row's")
        return rows.select(schema.names)

    @property
    def _key(self) -> pa.Schema:
        return pa.schema([self.schema.field(k) for k in self.state.capture.key])

    def _unreadable(self, error: Exception) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the topic holds a record that is none of {self.reader.form}: {type(error).__name__}: {str(error)[:200]}",
            needed="a topic that only this sync writes, in one format",
            remedy=resnapshot(self.state.identity.table),
            table=self.state.identity.table,
        )


def _pieces(last: dict[bytes, bytes | None]) -> Iterator[list[Last]]:
    piece, size = list[Last](), 0
    for key, value in last.items():
        piece.append((key, value))
        size += len(value or b"")
        if len(piece) == _ROWS or size >= _BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _folded(files: Sequence[str]) -> dict[bytes, bytes | None]:
    """The last record of each key."""
    last: dict[bytes, bytes | None] = {}
    for file in files:
        with pa.memory_map(file) as source:
            for batch in pa.ipc.open_stream(source):
                last.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return last


@dataclass
class TopicFold:
    """A table's topic as this process has read it."""

    session: KafkaSession
    reader: RecordReader
    table: str
    _read_to: list[int] = field(default_factory=list)
    _begins: Places = ()
    _files: list[list[str]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="cdcsync-topic-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def snapshot(self) -> TopicSnapshot | None:
        """The topic as it is now; None where a snapshot is still to be sent."""
        record = self._published()
        if record is None:
            return None
        check_topic(self.table, record, self.session.topics.find(record.topic))
        ends = self.session.topics.ends(record.topic, record.partitions)
        begins = record.begins or (0,) * record.partitions
        if begins != self._begins:
            self._begin(record, begins, ends)
        self._read(record, ends)
        newest = self._published()
        if newest is None or newest.state.generation != record.state.generation:
            raise replaced_meanwhile(self.table)
        files = tuple(tuple(files) for files in self._files)
        reader = self.reader.of(record.state.capture.captured)
        return TopicSnapshot(reader, record.state, files, newest.state.position)

    def _published(self) -> TableRecord | None:
        self.session.refresh()
        record = self.session.record(self.table)
        return record if record is not None and record.published else None

    def _begin(self, record: TableRecord, begins: Places, ends: Places) -> None:
        """Another snapshot's records, or the first ones."""
        firsts = self.session.topics.begins(record.topic, record.partitions)
        if any(first > begin for first, begin in zip(firsts, begins, strict=True)):
            raise _expired(self.table, record.topic)
        records = sum(ends) - sum(begins)
        self._begins, self._read_to = begins, list(begins)
        self._files = [[] for _ in range(min(_MOST_FILES, records // _FILE_RECORDS + 1))]

    def _read(self, record: TableRecord, ends: Places) -> None:
        """What came since the last time."""
        waiting: list[dict[bytes, bytes | None]] = [{} for _ in self._files]
        parts = len(waiting)
        with _Spool(self._folder, self._files, next(self._numbers)) as spool:
            for messages in _messages(self.session, record.topic, self._read_to, ends):
                for message in messages:
                    key, value = message.key(), message.value()
                    if key is None:
                        raise _foreign(self.table, record.topic)
                    waiting[zlib.crc32(key) % parts if parts > 1 else 0][key] = value
                if sum(map(len, waiting)) >= _WAITING:
                    spool.write(waiting)
            spool.write(waiting)
        self._read_to = list(ends)


class _Spool:
    """New files behind `files`, one for each hash that has records. A context manager."""

    def __init__(self, folder: str, files: list[list[str]], number: int) -> None:
        self._folder, self._files, self._number = Path(folder), files, number
        self._open: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open.values():
            writer.close()

    def write(self, waiting: list[dict[bytes, bytes | None]]) -> None:
        """And empties it."""
        for part, last in enumerate(waiting):
            if last:
                columns = [pa.array(last.keys(), pa.binary()), pa.array(last.values(), pa.binary())]
                self._writer(part).write_batch(pa.record_batch(columns, schema=_SCHEMA))
                last.clear()

    def _writer(self, part: int) -> pa.ipc.RecordBatchStreamWriter:
        if part not in self._open:
            path = str(self._folder / f"{part:03d}-{self._number}.arrow")
            self._open[part] = pa.ipc.new_stream(path, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4"))
            self._files[part].append(path)
        return self._open[part]


def _messages(session: KafkaSession, topic: str, begins: Sequence[int], ends: Places) -> Iterator[list[Message]]:
    """The committed records from `begins` to `ends`."""
    left = {p: end for p, (begin, end) in enumerate(zip(begins, ends, strict=True)) if begin < end}
    consumer = session.brokers.consumer("read_committed")
    try:
        consumer.assign([TopicPartition(topic, p, begins[p]) for p in left])
        patience = session.settings.transaction + session.settings.timeout
        until = time.monotonic() + patience
        while left:
            messages = consumer.consume(_AT_ONCE, _POLL_SECONDS)
            taken = [m for m in messages if _before_the_end(m, left, topic)]
            if taken:
                until = time.monotonic() + patience
                yield taken
            elif time.monotonic() > until:
                raise session.brokers.timeout(f"reading the topic {topic}")
    finally:
        consumer.close()


def _before_the_end(message: Message, left: dict[int, int], topic: str) -> bool:
    """Whether it is a record that is wanted; a partition whose end was reached is not left."""
    error, partition, at = message.error(), message.partition(), message.offset()
    if error is not None and error.name() != "_PARTITION_EOF":
        if not passes(KafkaException(error)):
            raise sink_error(error, f"reading the topic {topic}")
        return False
    end = left.get(partition)
    if end is None or at is None:
        return False
    if at + (error is None) >= end:
        del left[partition]
    return error is None and at < end


def _expired(table: str, topic: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the first records of the snapshot in the topic {topic} have expired",
        needed="a topic that keeps them: retention.ms=-1, or cleanup.policy=compact",
        remedy=f"change the topic's settings, then {resnapshot(table)}; or compare what a consumer has made of it",
        table=table,
    )


def _foreign(table: str, topic: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the topic {topic} holds a record without a key",
        needed="a topic that only this sync writes",
        remedy="stop the other writer",
        table=table,
    )
