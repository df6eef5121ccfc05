"""A sink in memory under the contract of `sinks/contract`, held to it by the same cases as Delta
(`tests/contract`).

`rows` is a table's content by key, `parts` the staged parts that are live; `log` holds each commit.
`lose_next` lets another writer's commit win the next race, so that `build` is asked again with its
state; `fail_next` raises instead of committing, as an unreachable store does. A sink that takes
`events` is keyed until a table is consistent; `events` of its target is what it has published, the
rows of its snapshot first. A sink, and a target
of it, that was pickled is found again in the same process by its sink's name.
"""

from __future__ import annotations

import datetime as dt
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Converted, Filled, Origin
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.rows.arrow_types import arrow_schema, captured_schema
from cdcsync_spark.sinks.contract.changes import (
    AdvancePosition,
    Append,
    Build,
    Change,
    Commit,
    Emit,
    Empty,
    Evolve,
    Replace,
    Staged,
    StagedPart,
    Upsert,
)
from cdcsync_spark.sinks.contract.checks import (
    check_successor,
    no_copy_error,
    refuse_other_identity,
    refuse_superseded,
)
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import Maintenance, Outcome, Writer, WriterStatus, commit_each
from support.event_consumer import Event, events_of

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]
KIND = "memory"


class _Parts(dict[str, pa.Table]):
    """Staged rows by the part's body."""


@dataclass
class MemoryTarget:
    """One table, and its writer at the same time; `state` None: not there."""

    state: TableState | None = None
    rows: Rows = field(default_factory=dict)
    parts: Staged = ()
    log: list[Commit] = field(default_factory=list)
    opened: int = 0
    lose_next: Callable[[MemoryTarget], None] | None = None
    fail_next: CdcError | None = None
    fallback: str = ""
    max_idle_seconds: float = math.inf
    contents: _Parts = field(default_factory=_Parts)
    #: sink, table and generation
    address: tuple[str, TableId, int] | None = None
    sync: str = ""
    takes_events: bool = False
    events: list[Event] = field(default_factory=list)
    published: int | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __reduce__(self) -> tuple[Any, ...]:
        assert self.address is not None
        name, table, generation = self.address
        return _target, (name, table, generation)

    def prepare(self, state: TableState) -> TableState:
        with self.lock:
            self.state = self.state or state
        refuse_other_identity(self.state, state)
        return self.state

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        return self.state

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        rows = pa.Table.from_batches(batches, captured_schema(table))
        if not rows.num_rows:
            return ()
        part = StagedPart(KIND, rows.num_rows, f"{name}-{uuid.uuid4().hex}")
        self.contents[part.body] = rows
        return (part,)

    def staged(self) -> Staged:
        if self.state is None:
            raise no_copy_error(str(self.address and self.address[1]))
        return self.parts

    def writer(self, scratch: Path) -> MemoryTarget:
        return self

    def close(self) -> None:
        """Nothing takes long."""

    def maintain(self) -> str:
        return ""

    def has_news(self) -> bool:
        """No other program reaches it."""
        return False

    @property
    def status(self) -> WriterStatus:
        return WriterStatus(self.fallback, self.max_idle_seconds, Maintenance())

    def commit(self, epoch: int, build: Build) -> TableState:
        while True:
            found = self._found()
            refuse_superseded(found, epoch)
            decided = build(found)
            if self.lose_next is not None:
                winner, self.lose_next = self.lose_next, None
                winner(self)
                continue
            if decided is None:
                return found
            check_successor(found, decided, epoch)
            if self._published(found, decided):
                return decided.state

    def _published(self, found: TableState, commit: Commit) -> bool:
        """Whether it was on top of `found`."""
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        with self.lock:
            if self.state is not found:
                return False
            assert self.takes_events or not isinstance(commit.change, Emit)
            _PUBLISH[type(commit.change)](self, commit)
            self.state = commit.state
            self._publish_events()
            self.log.append(commit)
        return True

    def _found(self) -> TableState:
        self.opened += 1
        if self.state is None:
            raise fail(
                Reason.SINK_CONFLICT,
                f"there is no table of {self.sync}",
                needed="a table that this sync made",
                remedy="prepare it",
            )
        return self.state

    def append(self, commit: Commit) -> None:
        assert isinstance(commit.change, Append)
        staged = commit.change.staged
        assert not set(staged) & set(self.parts)
        made = self._staged_rows(staged, commit.state.capture)
        assert not made.keys() & self.rows.keys(), "a key twice"
        self.rows = self.rows | made
        self.parts += staged

    def replace(self, commit: Commit) -> None:
        assert isinstance(commit.change, Replace)
        self.rows = self._staged_rows(commit.change.staged, commit.state.capture)
        self.parts = commit.change.staged

    def upsert(self, commit: Commit) -> None:
        change, key = commit.change, commit.state.capture.key
        assert isinstance(change, Upsert)
        assert self.published is None or self.published != commit.state.resnapshot_nonce, "a fold after the snapshot"
        upserts, deletes = keyed(change.upserts, key), keyed(change.deletes, key)
        assert len(upserts.keys() | deletes.keys()) == change.upserts.num_rows + change.deletes.num_rows, "a key twice"
        self.rows = {k: row for k, row in self.rows.items() if k not in deletes} | upserts

    def evolve(self, commit: Commit) -> None:
        change, schema = commit.change, commit.state.schema
        assert isinstance(change, Evolve)
        taken = ([_taken(row, o) for o in change.origins] for row in self.rows.values())
        rows = (dict(zip(schema.names, values, strict=True)) for values in taken)
        self.rows = {tuple(row[k] for k in schema.key): row for row in rows}

    def empty(self, commit: Commit) -> None:
        self.rows, self.parts = {}, ()

    def advance(self, commit: Commit) -> None:
        """The state alone."""

    def emit(self, commit: Commit) -> None:
        change = commit.change
        assert isinstance(change, Emit)
        assert self.published == commit.state.resnapshot_nonce, "events before the snapshot"
        assert (change.events.first, commit.state.events) == (
            len_after(self),
            len_after(self) + change.events.num_rows - 1,
        )
        self.events += events_of(change.events)

    def _publish_events(self) -> None:
        """Where the state becomes consistent the content is published as of its position."""
        state = self.state
        if not self.takes_events or state is None or not state.consistent or self.published == state.resnapshot_nonce:
            return
        self.events = [Event("+I", row, 0) for row in self.rows.values()]
        self.published = state.resnapshot_nonce

    def _staged_rows(self, staged: Staged, table: Capture) -> Rows:
        made: Rows = {}
        for part in staged:
            if part.kind != KIND:
                raise fail(Reason.INTERNAL_ERROR, f"rows that were staged as {part.kind!r}", remedy="report this")
            rows = self.contents.get(part.body)
            if rows is None:
                raise fail(Reason.SINK_CONFLICT, f"the rows of {part.body} are not whole", remedy="stage them again")
            made |= keyed(rows, table.key)
        return made

    def open_snapshot(self) -> MemorySnapshot:
        with self.lock:
            return MemorySnapshot(self._found(), self.rows)


_PUBLISH: dict[type[Change], Callable[[MemoryTarget, Commit], None]] = {
    Append: MemoryTarget.append,
    Upsert: MemoryTarget.upsert,
    Emit: MemoryTarget.emit,
    Replace: MemoryTarget.replace,
    Evolve: MemoryTarget.evolve,
    Empty: MemoryTarget.empty,
    AdvancePosition: MemoryTarget.advance,
}


def _taken(row: Row, origin: Origin) -> Any:
    """The value that a row takes from `origin`."""
    if isinstance(origin, Filled):
        return origin.value
    value = row[origin.source]
    if isinstance(origin, Converted) and type(value) is dt.date:
        return dt.datetime.combine(value, dt.time())
    if not isinstance(origin, Converted) or not origin.digits or value is None:
        return value
    whole, _, digits = (value if isinstance(value, str) else f"{value:f}").partition(".")
    return f"{whole}.{digits.ljust(origin.digits, '0')}"


def len_after(target: MemoryTarget) -> int:
    """The ordinal of the next event."""
    return 1 + sum(event.ordinal > 0 for event in target.events)


def keyed(rows: pa.Table, key: tuple[str, ...]) -> Rows:
    return {tuple(row[k] for k in key): row for row in rows.to_pylist()}


@dataclass(frozen=True)
class MemorySnapshot:
    """`rows` is never changed: each commit makes a new dictionary."""

    state: TableState
    rows: Rows

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.state.schema)

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        found = pa.Table.from_pylist(list(self.rows.values()), self.schema)
        if key_filter is not None:
            found = found.filter(key_filter)
        return found.select(self.schema.names if columns is None else list(columns)).to_reader()


@dataclass
class MemorySink:
    """Targets by table and generation."""

    targets: dict[tuple[TableId, int], MemoryTarget] = field(default_factory=dict)
    sync: str = ""
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    events: bool = False
    _contents: dict[TableId, _Parts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _SINKS[self.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _sink, (self.name,)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(frozenset(_PUBLISH) if self.events else frozenset(_PUBLISH) - {Emit})

    def target(self, table: TableId, *, generation: int = 0) -> MemoryTarget:
        parts = self._contents.setdefault(table, _Parts())
        made = MemoryTarget(
            contents=parts,
            address=(self.name, table, generation),
            sync=self.sync,
            takes_events=self.events and not generation,
        )
        return self.targets.setdefault((table, generation), made)

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        return commit_each(epoch, parts)

    def discard(self, table: TableId, generation: int) -> None:
        """What a commit has published stays."""
        published = {part.body for part in self.target(table).parts}
        mine = self.targets.pop((table, generation), None)
        if mine is not None:
            mine.state, mine.parts, mine.rows = None, (), {}
        parts = self._contents[table]
        for body in [body for body in parts if body not in published]:
            del parts[body]


_SINKS: WeakValueDictionary[str, MemorySink] = WeakValueDictionary()


def _sink(name: str) -> MemorySink:
    return _SINKS[name]


def _target(name: str, table: TableId, generation: int) -> MemoryTarget:
    return _SINKS[name].target(table, generation=generation)
