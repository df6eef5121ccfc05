"""Whatever the binlog, however it is cut into batches, wherever the reader or the driver dies: the
targets end as the source.

The pieces are the real ones from facts to targets: assembler, spool, batch files, fold, applier.
The server, Spark and the lake are simulated: a binlog of transactions over two tables, of which
each target has another prefix when the first run begins; some are prepared (XA) and end in a later
transaction or never. After every commit the target equals the source as of the position that the
commit carries (the promise, rules R2, R4, R5, R8, R9).
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import Reason, TransientError, fail
from cdcsync_core.positions.chunk import WHOLE, Intervals
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position, TransactionId, meet_all
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.sealed import PrepareNeeded
from cdcsync_spark.binlog.assembly.spool import Spool
from cdcsync_spark.binlog.assembly.transactions import TransactionAssembler
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.batch_file import BatchWriter
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.wire.binlog.facts import (
    Fact,
    MappedColumn,
    Operation,
    RollbackTo,
    RowsEvent,
    Savepoint,
    TableMap,
    TransactionBegin,
    TransactionEnd,
    TransactionRollback,
    XaEnd,
    XaPrepare,
)
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.memory_target import MemoryTarget

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
NAMES = ("a", "b")
LONG = 3
Content = dict[int, int]


def definition(name: str) -> Capture:
    columns = (Column("id", SourceType.parse("int"), False), Column("v", SourceType.parse("int"), False))
    return Capture(SourceTable(TableId("shop", name), columns), ("id",))


MAPS = {
    n: TableMap(i, TableId("shop", n), tuple(MappedColumn(LONG, 0, False, c, False) for c in ("id", "v")))
    for i, n in enumerate(NAMES)
}


def rows(name: str, operation: Operation, *images: tuple[int, int]) -> RowsEvent:
    """No NULLs, then two numbers of 4 bytes, little endian, per image."""
    body = b"".join(b"\0" + struct.pack("<ii", *image) for image in images)
    return RowsEvent(TableId("shop", name), MAPS[name], operation, body, 40)


@dataclass
class BinlogSource:
    """A binlog and what the tables hold after each of its transactions. `ddl` maps a table to the
    transaction that stops it."""

    gtids: bool
    order: list[int]
    transactions: list[list[Fact]] = field(default_factory=list)
    contents: list[dict[str, Content]] = field(default_factory=lambda: [{n: {} for n in NAMES}])
    ddl: dict[str, int] = field(default_factory=dict)
    #: by xid, where it was prepared and what its commit makes of the tables
    prepared: dict[str, tuple[int, list[RowsEvent]]] = field(default_factory=dict)

    def id(self, index: int) -> TransactionId:
        """GTIDs come in another order than the binlog has them, so that every prefix of it is a set
        with gaps."""
        return TransactionId(place(index + 1), Gtid(UUID, self.order[index]) if self.gtids else None)

    def position(self, prefix: int) -> Position:
        """The position of who has the first `prefix` transactions."""
        if not self.gtids:
            return FilePosition(place(prefix))
        return GtidPosition(GtidSet().with_gtids(Gtid(UUID, n) for n in self.order[:prefix]), place(prefix))

    def prefix(self, position: Position) -> int:
        """The number of transactions that `position` has; they must be the first ones of the
        log."""
        covered = [position.covers(self.id(i)) for i in range(len(self.transactions))]
        assert covered == sorted(covered, reverse=True)
        return sum(covered)

    def prepared_before(self, xid: str, end: LogOffset, spool: Spool) -> OpenTransaction:
        """What the last PREPARE of `xid` in the binlog before `end` brings."""
        before = [t for i, t in enumerate(self.transactions) if not self.id(i).end.covers(end)]
        last = next(t for t in reversed(before) if XaPrepare(xid) in t)
        found = OpenTransaction()
        for fact in last:
            if isinstance(fact, RowsEvent):
                found.add(fact, spool)
        return found

    def sent(self, start: Position) -> Iterator[tuple[int, Fact]]:
        """What a server sends to a reader that starts there, with the transaction's index."""
        for index, inside in enumerate(self.transactions):
            if not start.covers(self.id(index)):
                yield from ((index, fact) for fact in inside)


def place(number: int) -> LogOffset:
    """Transactions are 100 bytes long, files hold three."""
    return LogOffset(f"binlog.{number // 3 + 999_998:06d}", number % 3 * 100 + 100)


#: each has keys of its own, which nothing else changes while it is prepared: the server's locks
XIDS = {"X'61',X'',1": range(4, 7), "X'62',X'',1": range(7, 10)}
ENDINGS = ("commit", "commit", "commit", "rollback", "savepoint", "prepare", "xa commit", "xa commit", "xa rollback")


@st.composite
def sources(draw: st.DrawFn) -> BinlogSource:
    count = draw(st.integers(1, 10))
    source = BinlogSource(draw(st.booleans()), draw(st.permutations(range(1, count + 1))))
    for index in range(count):
        before = source.contents[-1]
        after = {n: dict(c) for n, c in before.items()}
        ending = draw(st.sampled_from(ENDINGS))
        if ending == "prepare":
            inside = _prepare(draw, source, index, after)
            after = before
        elif ending.startswith("xa"):
            inside = _end_xa(draw, source, ending == "xa commit", after)
        else:
            inside = [_change(draw, after, _free(source)) for _ in range(draw(st.integers(0, 3)))]
        if ending == "savepoint":
            scratch = {n: dict(c) for n, c in after.items()}
            lost = [_change(draw, scratch, _free(source)) for _ in range(2)]
            inside += [Savepoint("s"), *lost, RollbackTo("s")]
        if ending == "rollback":
            after = before
            inside.append(TransactionRollback(source.id(index), 1.0))
        else:
            inside.append(TransactionEnd(source.id(index), 1.0))
        source.transactions.append([TransactionBegin(source.id(index).gtid), *inside])
        source.contents.append(after)
    _maybe_ddl(draw, source)
    return source


def _free(source: BinlogSource) -> list[int]:
    return [*range(4), *(key for xid, keys in XIDS.items() if xid not in source.prepared for key in keys)]


def _prepare(draw: st.DrawFn, source: BinlogSource, index: int, scratch: dict[str, Content]) -> list[Fact]:
    free = [xid for xid in XIDS if xid not in source.prepared]
    if not free:
        return []
    xid = draw(st.sampled_from(free))
    changes = [_change(draw, scratch, list(XIDS[xid])) for _ in range(draw(st.integers(0, 3)))]
    source.prepared[xid] = (index, changes)
    return [*changes, XaPrepare(xid)]


def _end_xa(draw: st.DrawFn, source: BinlogSource, committed: bool, after: dict[str, Content]) -> list[Fact]:
    if not source.prepared:
        return []
    xid = draw(st.sampled_from(sorted(source.prepared)))
    _, changes = source.prepared.pop(xid)
    for change in changes if committed else ():
        _redo(change, after[change.table.name])
    return [XaEnd(xid, committed)]


def _redo(change: RowsEvent, table: Content) -> None:
    images = [struct.unpack_from("<ii", change.body, i + 1) for i in range(0, len(change.body), 9)]
    if change.operation is not Operation.WRITE:
        del table[images[0][0]]
    if change.operation is not Operation.DELETE:
        table[images[-1][0]] = images[-1][1]


def _change(draw: st.DrawFn, content: dict[str, Content], keys: list[int]) -> RowsEvent:
    """A legal change of one table, made in `content`."""
    name = draw(st.sampled_from(NAMES))
    table, key, value = content[name], draw(st.sampled_from(keys)), draw(st.integers(0, 9))
    if key not in table:
        table[key] = value
        return rows(name, Operation.WRITE, (key, value))
    old = (key, table.pop(key))
    target = draw(st.sampled_from(keys))
    if target in table or draw(st.booleans()):
        return rows(name, Operation.DELETE, old)
    table[target] = value
    return rows(name, Operation.UPDATE, old, (target, value))


def _maybe_ddl(draw: st.DrawFn, source: BinlogSource) -> None:
    """One transaction becomes a DDL of table `a`; the table's later rows are of another definition
    and never examined."""
    if not draw(st.booleans()):
        return
    index = draw(st.integers(0, len(source.transactions) - 1))
    ddl = Statement("shop", "ALTER TABLE a ADD COLUMN x INT")
    source.transactions[index] = [TransactionBegin(source.id(index).gtid), ddl, TransactionEnd(source.id(index), 1.0)]
    source.ddl["a"] = index
    # what the replaced transaction did did not happen: keep the tables' contents from before it for
    # b only if nothing follows
    source.transactions[index + 1 :] = []
    source.contents[index + 1 :] = [source.contents[index]]
    source.order = source.order[: index + 1]


class PrefixLake:
    """The targets, each with a prefix of the binlog; rows may already be newer than the position
    says (rule R2)."""

    def __init__(self, source: BinlogSource, prefixes: dict[str, tuple[int, int]]) -> None:
        self.source = source
        self.shown = {n: shown for n, (_, shown) in prefixes.items()}
        self.targets = {n: self._made(n, *prefix) for n, prefix in prefixes.items()}

    def _made(self, name: str, prefix: int, shown: int) -> MemoryTarget:
        position = self.source.position(prefix)
        state = TableState(
            Identity("default/shop", Lineage.of("log"), f"shop.{name}"),
            definition(name),
            TargetSchema.of(definition(name)),
            epoch=1,
            finished=Intervals().add(WHOLE),
            low=position,
            high=place(shown),
            position=position,
        )
        content = self.source.contents[shown][name]
        return MemoryTarget(state, {(k,): {"id": k, "v": v} for k, v in content.items()})

    def check(self) -> None:
        """Every target that is consistent equals the source as of its position."""
        for name, target in self.targets.items():
            assert target.state is not None
            assert target.state.position is not None
            prefix = self.source.prefix(target.state.position)
            if prefix >= self.shown[name]:
                content = {k[0]: row["v"] for k, row in target.rows.items()}
                assert content == self.source.contents[prefix][name], f"{name} as of {prefix}"


class Run:
    """A driver: reader and applier from the targets' truth."""

    def __init__(self, source: BinlogSource, lake: PrefixLake, folder: Path, epoch: int, memory: int) -> None:
        self.source = source
        self.lake = lake
        self.folder = str(folder)
        states = {n: t.state for n, t in lake.targets.items() if t.state}
        tables = {f"shop.{n}": StreamTable(f"shop.{n}", lake.targets[n], s, 0.0) for n, s in states.items()}  # type: ignore[arg-type]
        positions = {s.capture.id: s.position for s in states.values() if s.position}
        start = meet_all(list(positions.values()))
        definitions = Definitions({s.capture.id: s.capture for s in states.values()})
        self.applier = Applier(tables, epoch, start, lambda: 0.0)
        self.assembler = TransactionAssembler(definitions, start, positions, Spool(str(folder), memory))
        self.writer = BatchWriter(folder, definitions, befores=False)
        self.dump = source.sent(start)

    def read(self) -> bool:
        """One fact; False at the end of the binlog."""
        found = next(self.dump, None)
        if found is None:
            return False
        fact = found[1]
        if not isinstance(fact, RowsEvent) or self.assembler.rows.wanted(fact.table):
            try:
                self.assembler.feed(fact)
            except PrepareNeeded as needed:
                spool = Spool(self.folder, 100)
                self.assembler.prepared.learn(needed.xid, self.source.prepared_before(needed.xid, needed.end, spool))
                self.reconnect()
        return True

    def reconnect(self) -> None:
        self.assembler.abandon()
        self.dump = self.source.sent(self.assembler.reached.position)

    def batch(self) -> BinlogBatch:
        return BinlogBatch.from_json(self.writer.write(self.assembler.seal()).to_json())

    def apply(self) -> None:
        if self.assembler.reached.moved:
            self.applier.apply(self.batch())
            self.lake.check()


@settings(max_examples=60)
@given(source=sources(), data=st.data())
def test_targets_end_as_the_source(source: BinlogSource, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = _lake(source, data)
        lake.check()
        run = Run(source, lake, Path(folder), 2, data.draw(st.sampled_from((0, 1000, 1 << 20))))
        for epoch in range(3, 3 + data.draw(st.integers(0, 4))):
            run = _lived(run, data, Path(folder), epoch)
        pause = data.draw(st.integers(1, 12))
        while all(run.read() for _ in range(pause)):
            run.apply()
        run.apply()
        run.applier.checkpoint_idle(older_than=float("inf"))
        lake.check()
        _check_end(source, lake, run)


def _lake(source: BinlogSource, data: st.DataObject) -> PrefixLake:
    prefixes = {}
    for name in NAMES:
        prefix = data.draw(st.integers(0, source.ddl.get(name, len(source.transactions))))
        prefixes[name] = (prefix, data.draw(st.integers(prefix, len(source.transactions))))
    return PrefixLake(source, prefixes)


def _lived(run: Run, data: st.DataObject, folder: Path, epoch: int) -> Run:
    """The run for a while, until it dies somewhere; the next run."""
    for _ in range(data.draw(st.integers(0, 25))):
        event = data.draw(st.sampled_from(("read",) * 6 + ("apply", "reconnect", "stamp")))
        if event == "read":
            run.read()
        elif event == "apply":
            run.apply()
        elif event == "reconnect":
            run.reconnect()
        else:
            run.applier.checkpoint_idle(older_than=float("inf"))
            run.lake.check()
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(NAMES))
        run.lake.targets[name].fail_next = fail(Reason.SINK_UNREACHABLE, "killed between two commits")
        try:
            run.apply()
        except TransientError:
            run.lake.check()
        run.lake.targets[name].fail_next = None
    return Run(run.source, run.lake, folder, epoch, data.draw(st.sampled_from((0, 1 << 20))))


def _check_end(source: BinlogSource, lake: PrefixLake, run: Run) -> None:
    """All is there; a table with a DDL stopped right before it and says so."""
    for name in NAMES:
        table, target = run.applier.tables[f"shop.{name}"], lake.targets[name]
        assert target.state is not None
        assert target.state.position is not None
        assert not table.handed_over
        assert source.prefix(target.state.position) == source.ddl.get(name, len(source.transactions))
        assert (table.error is not None) is (name in source.ddl)
