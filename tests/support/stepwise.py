"""A copy in steps, in the test's process: the same parts as a run, stopped where a test wants to
interfere."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import LogOffset, Position, meet_all
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_mysql.positions.history import verify_resumable
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.readiness.snapshot_host import SnapshotHost
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.server import ServerFacts, read_facts
from cdcsync_mysql.sessions.connection import Source, Tls, connect
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.schema.steps import NOT_FOLLOWED, FollowPolicy, unconfirmed_tables, unproved_tables
from cdcsync_spark.binlog.search.crash_tail import TailLimits
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.delivery.events import takes_events
from cdcsync_spark.sinks.contract.changes import Append, Commit, Staged, StagedPart
from cdcsync_spark.sinks.contract.sink import Sink, Target
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.snapshot.source import LiveSource
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.crash_repair import Repair, SourceRepair
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.confirmation import DefinitionConfirmation, ask_catalog
from cdcsync_spark.stream.failover import Failover
from support.compare import TargetDifference, compare, source_rows
from support.servers import Server
from support.source import repair_of

_ACCOUNT, _PASSWORD = "stepwise", "only for tests"
_FOLLOW_SECONDS = 240.0
_REPLICA_ID = 4_100_000_001


@dataclass
class Stepwise:
    """Tables of `database` on `server`, copied into `folder`."""

    server: Server
    database: str
    folder: Path
    chunk_size: int = 100
    max_batch_bytes: int = 1 << 20
    targets: dict[str, Target] = field(default_factory=dict)
    tail_limits: TailLimits | None = None
    piece_keys: int = SourceRepair.piece_keys
    #: None: a lake of Delta tables in `folder`
    sink: Sink | None = None
    policy: FollowPolicy | None = None
    #: whether definitions are confirmed once all is applied; called between the question and its
    #: answer's judgement
    confirm: Callable[[], None] | None = None
    #: of the server, on which snapshots read
    replica: Server | None = None

    def __post_init__(self) -> None:
        username, password = self.folder / "username", self.folder / "password"
        username.write_text(_ACCOUNT)
        password.write_text(_PASSWORD)
        self._account = username, password
        self._numbers = itertools.count()
        self.reach(self.server)

    def reach(self, server: Server) -> None:
        """As if the source's name led to `server` from now on."""
        server.create_user(_ACCOUNT, _PASSWORD)
        self.server = server
        self.source = Source(server.host, server.port, *self._account, Tls("disabled", allow_unverified=True))
        with connect(self.source) as connection:
            self.facts: ServerFacts = read_facts(connection)

    def move(self, *names: str) -> None:
        """As a run of the stream does with tables that are on another server."""
        ids = [TableId(self.database, n) for n in self.targets]
        with open_session(self.source) as session:
            failover = Failover(self.source, session, ids, epoch=1)
            moved = {name: failover.judge(self.state(name)) for name in names}
            for name in names:
                target = self.targets[name].writer(Path(tempfile.gettempdir()))
                state = failover.move(target, self.state(name), moved[name])
                session.proved(state.identity.lineage, state.position)

    def snapshot(self, name: str, after_split: Callable[[int], None] = lambda _: None) -> None:
        """One wave over the whole table; `after_split(i)` is called when split i is staged."""
        table = self._definition(name)
        with connect(self.source) as connection:
            splits = list(plan(connection, table, self.chunk_size))
        target = self._sink().target(table.id)
        target.prepare(
            TableState(
                Identity("test/stepwise", self.facts.lineage, str(table.id)), table, TargetSchema.of(table), epoch=1
            )
        )
        staged = list[StagedPart]()
        live = LiveSource(self.source, self.facts, self.snapshot_host)
        safe = live.low()
        while live.behind(safe):
            time.sleep(0.02)
        for number, split in enumerate(splits):
            reader = SplitReader(
                self.source, self.facts.lineage, table, split, safe, 60, replica=live.replica_for(table)
            )
            staged += target.stage(table, reader.batches(), f"split-{number}")
            after_split(number)
        end = live.high(self.facts.lineage, safe, safe)
        target.commit(1, _wave(splits, safe, end, tuple(staged)))
        self.targets[name] = target

    def begin(self, name: str) -> None:
        """Begins the table at the end of the binlog, without a snapshot."""
        table, low = self._definition(name), LiveSource(self.source, self.facts).low()
        target = self._sink().target(table.id)
        target.prepare(
            TableState(
                Identity("test/stepwise", self.facts.lineage, str(table.id)), table, TargetSchema.of(table), epoch=1
            )
        )
        target.commit(1, lambda state: Commit(replace(state.begun_at(low), epoch=1), Append(())))
        self.targets[name] = target

    @property
    def snapshot_host(self) -> SnapshotHost | None:
        if self.replica is None:
            return None
        replica = replace(self.source, host=self.replica.host, port=self.replica.port)
        return SnapshotHost(replica, self.source, self.facts)

    def _sink(self) -> Sink:
        return self.sink or DeltaSink(open_store(str(self.folder / "lake")), "test/stepwise")

    @property
    def _events(self) -> bool:
        return takes_events(self._sink().capabilities)

    def follow(
        self, meanwhile: Callable[[], None] | None = None, *, killed: bool = False, upto: LogOffset | None = None
    ) -> dict[str, StreamTable]:
        """Applies the binlog up to now, or to the batch that reaches `upto`; stopped tables are in
        the result, the others are applied to the end. `meanwhile` runs once the reader has arrived
        there, and is applied, too. Where it is `killed` then, idle tables have only what was
        committed on the way."""
        end = upto or self.end()
        tables = {f"{self.database}.{n}": self._stream_table(n, t) for n, t in self.targets.items()}
        positions = {TableId(self.database, n): _position(tables[f"{self.database}.{n}"]) for n in self.targets}
        start = meet_all(list(positions.values()))
        self.verify_resumable(start)
        epoch = max(t.state.epoch for t in tables.values())
        applier = Applier(tables, epoch, start, time.monotonic, self.repair(), events=self._events)
        reader = BinlogReader(self._settings(start, positions))
        reader.start()
        try:
            _apply(reader, applier, end)
            if meanwhile is not None:
                meanwhile()
                _apply(reader, applier, self.end())
            if self.confirm is not None:
                self._confirm(reader, applier)
        finally:
            reader.stop()
        applier.checkpoint_idle(older_than=float("-inf" if killed else "inf"))
        return {t.name.removeprefix(f"{self.database}."): t for t in tables.values()}

    def catching_up(self, name: str, between: Callable[[], None] = lambda: None) -> dict[str, Target]:
        """The table of the rows 1 and 2, by its name: `v` of each was increased while the snapshot
        read, which has the update of row 2. The stream has passed that of row 1 only, which was
        committed before `between`."""
        ends: list[LogOffset] = []

        def update_both(split: int) -> None:
            if split == 0:
                self.server.run(f"UPDATE {self.database}.{name} SET v = v + 1 WHERE id = 1")
                ends.append(self.end())
                between()
                self.server.run(f"UPDATE {self.database}.{name} SET v = v + 1 WHERE id = 2")

        chunk_size, self.chunk_size = self.chunk_size, 1
        self.snapshot(name, after_split=update_both)
        self.chunk_size = chunk_size
        table = {name: self.targets.pop(name)}
        others, largest = self.targets, self.max_batch_bytes
        self.targets, self.max_batch_bytes = dict(table), 1
        self.follow(killed=True, upto=ends[0])
        self.targets, self.max_batch_bytes = others, largest
        return table

    def _confirm(self, reader: BinlogReader, applier: Applier) -> None:
        assert self.confirm is not None
        ask = partial(ask_catalog, self.source, self.facts.lineage)
        confirmation = DefinitionConfirmation(applier.tables.values(), ask, time.monotonic, run=lambda work: work())
        confirmation.begin()
        self.confirm()
        _apply(reader, applier, self.end())
        confirmation.settle(applier.reader)

    def _stream_table(self, name: str, target: Target) -> StreamTable:
        state = target.last_commit()
        assert state is not None
        writer = target.writer(Path(tempfile.gettempdir()))
        policy = self.policy or NOT_FOLLOWED
        return StreamTable(f"{self.database}.{name}", writer, state, committed=0.0, policy=policy)

    def repair(self) -> Repair:
        return repair_of(self.source, self.facts.lineage, self.tail_limits, self.piece_keys)

    def verify_resumable(self, position: Position) -> None:
        with connect(self.source) as connection:
            verify_resumable(connection, read_facts(connection), self.facts.lineage, position)

    def difference(self, name: str) -> TargetDifference:
        """Source against target, both at rest."""
        target = self.targets[name].open_snapshot().scan().read_all()
        key = self.state(name).capture.key
        return compare(name, source_rows(self.server, self.database, name, target.schema), target, key)

    def position(self, name: str) -> Position:
        position = self.state(name).position
        assert position is not None
        return position

    def end(self) -> LogOffset:
        with connect(self.source) as connection:
            return high(connection, self.facts)

    def state(self, name: str) -> TableState:
        state = self.targets[name].last_commit()
        assert state is not None
        return state

    def _definition(self, name: str) -> Capture:
        with connect(self.source) as connection:
            return read_table(connection, TableId(self.database, name))

    def _settings(self, start: Position, positions: dict[TableId, Position]) -> ReaderSettings:
        folder = self.folder / f"log-{next(self._numbers)}"
        folder.mkdir()
        definitions = {TableId(self.database, n): self.state(n).capture for n in self.targets}
        return ReaderSettings(
            source=self.source,
            lineage=self.facts.lineage,
            replica_id=_REPLICA_ID,
            tables=definitions,
            start=start,
            ahead=positions,
            heartbeat_seconds=1.0,
            max_batch_bytes=self.max_batch_bytes,
            befores=self._events,
            folder=folder,
            policies={} if self.policy is None else dict.fromkeys(definitions, self.policy),
            unproved=unproved_tables(self.state(n) for n in self.targets),
            unconfirmed=unconfirmed_tables(self.state(n) for n in self.targets),
        )


def _apply(reader: BinlogReader, applier: Applier, end: LogOffset) -> None:
    deadline = time.monotonic() + _FOLLOW_SECONDS
    while not applier.reader.has_reached(end):
        assert time.monotonic() < deadline, f"the binlog was not followed to {end}, only to {applier.reader}"
        batch = reader.next_batch()
        if batch is None:
            time.sleep(0.02)
        elif batch.fatal:
            raise batch.fatal
        else:
            applier.apply(batch)


def _wave(splits: list[Split], safe: Position, end: LogOffset, staged: Staged) -> Callable[[TableState], Commit]:
    def build(found: TableState) -> Commit:
        return Commit(replace(found.after_wave(splits, safe, end, 0, 0), epoch=1), Append(staged))

    return build


def _position(table: StreamTable) -> Position:
    assert table.state.position is not None
    return table.state.position
