"""Raw events to batches, as columns and event by event: the two ways of the reader, which must
agree."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import Position
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.assembly.plain_path import PlainPath
from cdcsync_spark.binlog.assembly.sealed import KeptRows, PrepareNeeded, ReachNeeded, SealedTransactions
from cdcsync_spark.binlog.assembly.spool import Spooled
from cdcsync_spark.binlog.batch import BinlogBatch, TableBatch, read_transactions
from cdcsync_spark.binlog.batch_file import BatchWriter
from cdcsync_spark.binlog.dump.packets import Arrived
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.wire.binlog.parser import EventParser, Flavor

_BIG = 1 << 40


@dataclass(frozen=True)
class Reading:
    """What is read how: tables from `start`, those of `ahead` beyond it, in batches that are full
    at `limit` bytes. With `decoded`, the rows are compared as Arrow tables, too."""

    flavor: Flavor
    start: Position
    tables: Mapping[TableId, Capture]
    ahead: Mapping[TableId, Position] = field(default_factory=dict)
    policies: Mapping[TableId, FollowPolicy] = field(default_factory=dict)
    limit: int = _BIG
    befores: bool = True
    decoded: bool = False


def stand_in(table: TableId) -> Capture:
    """A definition for statements; rows are not decoded by it."""
    return Capture(SourceTable(table, (Column("id", SourceType.parse("int"), False),)), ("id",))


def arrived(events: Sequence[bytes]) -> Arrived:
    """As packets that came together."""
    sizes = np.array([len(e) + 1 for e in events], np.int64)
    ends = np.cumsum(sizes)
    data = b"".join(b"\0" + e for e in events) or b"\0"
    return Arrived(memoryview(bytearray(data)), ends - sizes + 1, ends)


def outcome(
    reading: Reading, buffers: Iterable[Sequence[bytes]], *, columns: bool, taken: list[int] | None = None
) -> list[Any]:
    """What the batches hold, then the error if there is one. `taken` gets the numbers of events
    that were read as columns together."""
    with tempfile.TemporaryDirectory() as folder:
        reader = _Reader(reading, Path(folder))
        try:
            reader.read(buffers, columns, taken)
        except CdcError as e:
            reader.found.append((type(e), str(e), e.reason))
        except (PrepareNeeded, ReachNeeded) as e:
            reader.found.append((type(e), str(e)))
        reader._hand_over()
        return reader.found


class _Reader(BinlogReader):
    """The reader without its thread and its source; a batch is taken where it is handed over."""

    def __init__(self, reading: Reading, folder: Path) -> None:
        settings = ReaderSettings(
            source=Source("127.0.0.1", 1, folder / "none", folder / "none"),
            lineage=Lineage.of("mariadb:1"),
            replica_id=7,
            tables=reading.tables,
            start=reading.start,
            ahead=reading.ahead,
            heartbeat_seconds=1.0,
            max_batch_bytes=reading.limit,
            folder=folder,
            befores=reading.befores,
            policies=reading.policies,
        )
        super().__init__(settings)
        self.found: list[Any] = []
        self._reading = reading
        self._writer: Any = _NotingWriter(self._writer, reading.decoded, self.found)

    def read(self, buffers: Iterable[Sequence[bytes]], columns: bool, taken: list[int] | None) -> None:
        gtid_pos = "0-1-1" if self._reading.flavor == "mariadb" else ""
        parser = EventParser(
            self._reading.flavor, gtid_pos=gtid_pos, is_wanted=self._wanted, binlog=self._reading.start.binlog or ""
        )
        least = 1 if columns else _BIG
        path = _Counted(parser, self._assembler, self._reading.limit, least, least)
        for buffer in buffers:
            if not self._take(parser, path, arrived(buffer)):
                break
        if taken is not None:
            taken += path.taken

    def _hand_over(self) -> None:
        batch = self._sealed()
        self.found.append((batch.changes, batch.appeared, str(batch.fatal)))


class _Counted(PlainPath):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.taken: list[int] = []

    def take(self, at: int) -> int:
        after = super().take(at)
        self.taken += [after - at] if after > at else []
        return after


@dataclass
class _NotingWriter:
    """Notes what is sealed, and what the writer makes of it."""

    writer: BatchWriter
    decoded: bool
    found: list[Any]

    def write(self, sealed: SealedTransactions) -> BinlogBatch:
        self.found.append(_comparable(sealed))
        if not self.decoded:
            return BinlogBatch(sealed.start, sealed.end, sealed.timestamp, "", ())
        batch = self.writer.write(sealed)
        transactions = read_transactions(batch.transactions) if batch.transactions else ((), ())
        self.found.append([list(part) for part in transactions])
        self.found += [_decoded(part) for part in batch.tables]
        return batch


def _decoded(part: TableBatch) -> tuple[Any, ...]:
    rows = None
    if part.file:
        with pa.memory_map(part.file) as source:
            rows = pa.ipc.open_file(source).read_all().to_pydict()
    error = None if part.stop is None else (str(part.stop), part.stop.reason)
    step = None if part.step is None else part.step.to_dict()
    return part.table, rows, part.rows, part.nulled, part.upto.to_dict(), error, step, part.proved


def _comparable(sealed: SealedTransactions) -> tuple[Any, ...]:
    """Everything in it, a row image's event for event."""
    rows = {t: [e for kept in found for e in _events(kept)] for t, found in sealed.rows.items()}
    stops = {t: (str(s.error), s.upto.to_dict()) for t, s in sealed.stops.items()}
    return (
        sealed.start.to_dict(),
        sealed.end.to_dict(),
        sealed.timestamp,
        list(sealed.transactions),
        sealed.committed_at,
        {t: r for t, r in rows.items() if r},
        stops,
        sealed.left,
        {t: step.to_dict() for t, step in sealed.steps.items()},
    )


def _events(kept: KeptRows) -> Iterator[tuple[int, str, int, bytes]]:
    index, item = kept
    if isinstance(item, Spooled):
        event = item.event()
        yield index, str(event.map), event.operation, event.body
        return
    for number, event in zip(item.transactions.tolist(), item.events(), strict=True):
        yield number, str(event.map), event.operation, event.body
