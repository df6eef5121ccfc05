"""What is published: rows that were staged, the kinds of change, and the commit of one with its
state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.state import TableState
from cdcsync_core.tables.schema_change import Origin
from cdcsync_spark.rows.events import Events


@dataclass(frozen=True)
class StagedPart:
    """Rows that are written and invisible until a commit names them.

    `kind` is the sink's that wrote them and reads `body`, a text of its own; `rows` are how many.
    """

    kind: str
    rows: int
    body: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StagedPart:
        return cls(data["kind"], data["rows"], data["body"])


Staged = tuple[StagedPart, ...]


@dataclass(frozen=True)
class Append:
    """A wave: rows whose keys the table does not have yet."""

    staged: Staged


@dataclass(frozen=True)
class Upsert:
    """A folded batch: `upserts` with the target's columns, `deletes` with those of its key; a key
    once in both together, never NULL.

    `new` is there for a declared key, which no index of the source guards: for each key, those of
    `upserts` first, whether the batch gives it before it takes it away. The target must not have
    it then, or the sink raises KeyNotUnique and changes nothing.
    """

    upserts: pa.Table
    deletes: pa.Table
    new: npt.NDArray[np.bool_] | None = None

    @property
    def empty(self) -> bool:
        return self.upserts.num_rows + self.deletes.num_rows == 0


@dataclass(frozen=True)
class Replace:
    """The whole content, of the new state's schema: what was there before goes in the same commit.

    It may come from another binlog: nothing is left that was read from the previous one.
    """

    staged: Staged


@dataclass(frozen=True)
class AdvancePosition:
    """The state alone: an idle table's position, the claim of a new run."""


@dataclass(frozen=True)
class Emit:
    """A batch for a sink that keeps events: every image in the order of the binlog. Only for a
    target whose state is published; before, the target takes the changes of a keyed one and
    publishes its content as of the first consistent state by itself."""

    events: Events


@dataclass(frozen=True)
class Evolve:
    """The rows that are there get the new state's schema; `origins` says for each of its columns,
    in their order, where the values come from, in the names of the found state's schema. Rows come
    and go by other changes only. Of a target that has published events it is asked only where their
    rows stay as they are.

    A sink for which this would take more than its limits raises `PermanentError(SchemaChanged)`
    before it has changed anything.
    """

    origins: tuple[Origin, ...]


@dataclass(frozen=True)
class Empty:
    """All rows go; the schema stays."""


Change = Append | Upsert | Emit | Replace | Evolve | Empty | AdvancePosition


def rows_of(change: Change) -> int:
    """The rows that a batch changes or emits."""
    if isinstance(change, Upsert):
        return int(change.upserts.num_rows + change.deletes.num_rows)
    return change.events.num_rows if isinstance(change, Emit) else 0


@dataclass(frozen=True)
class Commit:
    """What is published in one transaction. `state.commit_number` is the found state's plus one,
    `state.epoch` the writer's."""

    state: TableState
    change: Change


#: A pure decision on the state found in the target; None: nothing to do. Called again after a lost
#: race.
Build = Callable[[TableState], Commit | None]
