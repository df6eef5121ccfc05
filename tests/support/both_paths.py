"""Raw events to whole transactions, as columns and event by event: the two ways of the reader,
which must agree."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cdcsync_core.capture import Capture
from cdcsync_core.errors import CdcError
from cdcsync_core.position import Position
from cdcsync_core.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.definitions import Definitions
from cdcsync_spark.binlog.packets import Arrived
from cdcsync_spark.binlog.plain_transactions import PlainPath
from cdcsync_spark.binlog.sealed import KeptRows, PrepareNeeded, ReachNeeded, SealedTransactions
from cdcsync_spark.binlog.spool import Spool, Spooled
from cdcsync_spark.binlog.transactions import TransactionAssembler
from cdcsync_spark.wire.binlog.parser import EventParser, Flavor

_BIG = 1 << 40


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
    flavor: Flavor,
    buffers: Iterable[Sequence[bytes]],
    start: Position,
    tables: Iterable[TableId],
    *,
    columns: bool,
    limit: int = _BIG,
    ahead: Mapping[TableId, Position] | None = None,
    taken: list[int] | None = None,
) -> list[Any]:
    """What the batches hold, each full at `limit`, then the error if there is one. `taken` gets the
    numbers of events that were read as columns together."""
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(folder, limit)
        definitions = Definitions({t: stand_in(t) for t in tables})
        assembler = TransactionAssembler(definitions, start, ahead or {}, spool)
        parser = EventParser(flavor, mark="0-1-1" if flavor == "mariadb" else "", wanted=assembler.wanted)
        least = dict.fromkeys(("least_events", "least_transactions"), 1 if columns else _BIG)
        plain = PlainPath(parser, assembler, limit, **least)
        found: list[Any] = []
        try:
            for buffer in buffers:
                batches = _read(arrived(buffer), parser, plain, assembler, limit, taken)
                # one by one: those before an error count
                for sealed in map(_comparable, batches):
                    found += [sealed]
        except CdcError as e:
            found.append((type(e), str(e), e.reason))
        except (PrepareNeeded, ReachNeeded) as e:
            found.append((type(e), str(e)))
        return [*found, _comparable(assembler.seal())]


def _read(
    buffer: Arrived,
    parser: EventParser,
    plain: PlainPath,
    assembler: TransactionAssembler,
    limit: int,
    taken: list[int] | None,
) -> Iterator[SealedTransactions]:
    plain.look(buffer)
    at = 0
    while at < len(buffer):
        after = plain.take(at)
        if after > at:
            if taken is not None:
                taken.append(after - at)
            at = after
            continue
        event = buffer[at]
        at += 1
        if len(event) > 4 and event[4] == 15:
            assembler.begin_file(int.from_bytes(event[:4], "little"))
        for fact in parser.feed(event):
            assembler.feed(fact)
        if assembler.size >= limit and assembler.moved:
            yield assembler.seal()


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
    )


def _events(kept: KeptRows) -> Iterator[tuple[int, str, int, bytes]]:
    index, item = kept
    if isinstance(item, Spooled):
        event = item.event()
        yield index, str(event.map), event.operation, event.body
        return
    for number, event in zip(item.transactions.tolist(), item.events(), strict=True):
        yield number, str(event.map), event.operation, event.body
