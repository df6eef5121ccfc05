"""What is read of a target: one version of its rows with the state that they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.positions.position import Position
from cdcsync_core.state import TableState


class TargetSnapshot(Protocol):
    """One fixed version of a target and the state that it carries."""

    @property
    def state(self) -> TableState: ...

    @property
    def schema(self) -> pa.Schema: ...

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """The rows in batches, in no order, with bounded memory; `columns` None: all, in the
        schema's order. `key_filter` is over key columns only."""
        ...


@runtime_checkable
class InexactSnapshot(Protocol):
    """A `TargetSnapshot` that was read while the target was written: each key has a row that it had
    between the state's position and `until`."""

    @property
    def until(self) -> Position | None: ...


@runtime_checkable
class SessionSnapshot(Protocol):
    """A `TargetSnapshot` that is a transaction of a session: only the process that opened it can
    read it, one scan at a time."""

    @property
    def ends_with_session(self) -> bool: ...


class Readable(Protocol):
    """A target whose rows can be read, as a verification does."""

    def open_snapshot(self) -> TargetSnapshot:
        """The newest version, fixed; later commits do not change what it reads."""
        ...
