"""What a binlog reader is asked for. Picklable: the stream's reader runs in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import Position
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.schema.steps import FollowPolicy


@dataclass(frozen=True)
class Reconnect:
    """A lost source is tried again every `pause_seconds`; without progress for `window_seconds`,
    the run ends."""

    window_seconds: float = 60.0
    pause_seconds: float = 1.0


@dataclass(frozen=True)
class ReaderSettings:
    """What to read, and how.

    `ahead` holds the positions of tables that are beyond `start`; a batch is full when it takes
    `max_batch_bytes` of memory (`TransactionAssembler.size`); `interval_seconds` is the time from
    one batch to the next where none is full before, `idle_seconds` the longest wait for a binlog
    that does not move. Without `befores`, before images that a fold by
    key does not need are left out. `spare_ids` are used where a dump with `replica_id` does not
    begin within `begin_seconds` (see `binlog.dump.replica_ids`; the reader sets that). `received`
    is the file for what has been received (see `reader_health`); None: none. With `patterns`,
    batches count what the binlog has of other tables that match them. `policies` says what is
    followed of changes of a definition; a table without one stops. `unproved` tables had such a
    change, and no row of it was seen; of `unconfirmed` ones the catalog was not compared since. Of
    `unlogged` tables the user accepted that foreign keys change them without row events. With
    `hold_back`, a batch is handed over once the source has committed all of it (`hold_back`). The
    reader ends where `source` was demoted and one of `others` can be used.
    """

    source: Source
    lineage: Lineage
    replica_id: int
    tables: Mapping[TableId, Capture]
    start: Position
    ahead: Mapping[TableId, Position]
    heartbeat_seconds: float
    max_batch_bytes: int
    folder: Path
    decoder: Decoder = Decoder.VECTORIZED
    interval_seconds: float = 0.0
    idle_seconds: float = 0.0
    befores: bool = True
    spare_ids: tuple[int, ...] = ()
    begin_seconds: float | None = None
    received: Path | None = None
    patterns: TableSelection | None = None
    reconnect: Reconnect = Reconnect()
    policies: Mapping[TableId, FollowPolicy] = field(default_factory=dict)
    unproved: frozenset[TableId] = frozenset()
    unconfirmed: frozenset[TableId] = frozenset()
    unlogged: frozenset[TableId] = frozenset()
    hold_back: bool = False
    others: Source | None = None
