"""A target in memory that keeps the contract of `sinks/base.py`: compare-and-set on the state,
nothing or all of a commit.

`rows` is the table's content by key, `files` the staged files that are live; `log` holds each
commit. `lose_next` lets another writer's commit win the next race, so that `build` is asked again
with its state; `fail_next` raises instead of committing, as an unreachable store does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdcsync_core.errors import CdcError
from cdcsync_core.state import TableState
from cdcsync_core.table import TableId
from cdcsync_spark.sinks.base import (
    Append,
    Build,
    Commit,
    Maintenance,
    Replace,
    StagedFile,
    Upsert,
    check_successor,
    refuse_other_identity,
    refuse_superseded,
)

Row = dict[str, Any]


@dataclass
class MemoryTarget:
    """One table; `state` None: not there."""

    state: TableState | None = None
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    files: tuple[StagedFile, ...] = ()
    log: list[Commit] = field(default_factory=list)
    opened: int = 0
    lose_next: Callable[[MemoryTarget], None] | None = None
    fail_next: CdcError | None = None
    fallback: str = ""
    max_idle_seconds: float = math.inf
    maintenance: Maintenance = field(default_factory=Maintenance)

    def prepare(self, state: TableState) -> TableState:
        self.state = self.state or state
        refuse_other_identity(self.state, state)
        return self.state

    def last_commit(self) -> TableState | None:
        return self.state

    def warm(self) -> None:
        """There is no index."""

    def close(self) -> None:
        """Nothing takes long."""

    def maintain(self) -> str:
        return ""

    def staged_files(self) -> tuple[StagedFile, ...]:
        return self.files

    def commit(self, epoch: int, build: Build) -> TableState:
        found = self._found()
        refuse_superseded(found, epoch)
        decided = build(found)
        if self.lose_next is not None:
            winner, self.lose_next = self.lose_next, None
            winner(self)
            return self.commit(epoch, build)
        if decided is None:
            return found
        check_successor(found, decided, epoch)
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        self._publish(decided)
        return decided.state

    def _found(self) -> TableState:
        self.opened += 1
        assert self.state is not None
        return self.state

    def _publish(self, commit: Commit) -> None:
        match commit.change:
            case Upsert():
                self._merge(commit.change, commit.state.table.key)
            case Append(files):
                assert not set(files) & set(self.files)
                self.files += files
            case Replace(files):
                self.files = files
        self.state = commit.state
        self.log.append(commit)

    def _merge(self, change: Upsert, key: tuple[str, ...]) -> None:
        named = [*_keys(change.upserts, key), *_keys(change.deletes, key)]
        assert len(named) == len(set(named)), f"a key twice in one merge: {named}"
        for gone in _keys(change.deletes, key):
            self.rows.pop(gone, None)
        for row in change.upserts.to_pylist():
            self.rows[tuple(row[k] for k in key)] = row


def _keys(rows: pa.Table, key: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(row[k] for k in key) for row in rows.to_pylist()]


@dataclass
class MemorySink:
    """Targets by table and generation."""

    targets: dict[tuple[TableId, int], MemoryTarget] = field(default_factory=dict)

    def target(self, table: TableId, *, generation: int = 0) -> MemoryTarget:
        return self.targets.setdefault((table, generation), MemoryTarget())

    def discard(self, table: TableId, generation: int) -> None:
        self.targets.pop((table, generation), None)
