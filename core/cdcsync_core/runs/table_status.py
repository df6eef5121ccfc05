"""The status of one table of a sync, and how many tables are in which phase.

Why it exists: programs read one table as they read the whole, and a driver reports it alone. Why it
is right: as the whole status it is a view; the truth is in the target's commit (rule R4).
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field, computed_field

from cdcsync_core.errors import Reason
from cdcsync_core.positions.failover import diverged_at
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status_part import StatusPart, StatusPosition, StatusSplit, StatusWatermark, Text, Word
from cdcsync_core.runs.verification_status import VerifiedStatus

#: snapshot done, content as of a position
POSITIONED = frozenset({TablePhase.CATCHING_UP, TablePhase.STREAMING, TablePhase.COMPLETED})
CONSISTENT = frozenset({TablePhase.STREAMING, TablePhase.COMPLETED})


class SchemaStatus(StatusPart):
    """The last change of the table's definition: `version` counts the definitions of its content,
    `step` is what the statement meant for the rows, `proof` what has confirmed the definition that
    was predicted from it (a `Proof`), `proof_message` what is not confirmed, and why."""

    version: int = 0
    at: str = ""
    statement: Text = ""
    step: Word = ""
    proof: Word = ""
    proof_message: Text = ""

    @property
    def change(self) -> tuple[int, str, str, str]:
        """Which one it is, whatever has confirmed it."""
        return (self.version, self.at, self.statement, self.step)


class SinkWriteStatus(StatusPart):
    """A commit of another program that changed rows of a target: the target's `version`, the
    `program` and its `operation` as the commit names them, and when it was made."""

    version: int = 0
    program: Word = ""
    operation: Word = ""
    at: str = ""


class ResnapshotStatus(StatusPart):
    """What the controller decided by itself: `generation` is the least that the content must have
    (0: nothing is decided), `reason` and `message` are those of the stop that it fixes, `at` when
    this was decided, the last hour's decisions, the newest last."""

    generation: int = 0
    reason: Word = ""
    message: Text = ""
    at: tuple[str, ...] = ()


class TableStatus(StatusPart):
    """One table.

    `finished`, `low`, `high`, `position` are as the target's state has them; `generation` is the
    number of its content, or of that which is being staged beside it; `nonce` is the user's request
    that this honours. `schema_` is the last change of its definition, `resnapshot` what was decided
    by itself (None: nothing yet). `rewriting` is why its commits rewrite files, which costs what
    the table costs; empty where they need not. `uncompacted` is why its files become more with each
    batch; empty where maintenance merges them. `written` is the last change of its rows by another
    program since they were known to be the source's. `verified` is what was found of it when it
    was last compared with the source (None: never yet). `appeared`: it was captured because it
    appeared while the sync ran. `without_snapshot` is as its state has it. `run` is the run that
    spoke of it last.
    """

    name: str
    phase: TablePhase = TablePhase.PENDING
    splits_total: int = 0
    splits_finished: int = 0
    finished: tuple[StatusSplit, ...] = ()
    low: StatusPosition | None = None
    high: StatusWatermark | None = None
    rows: int = 0
    nulled_dates: int = 0
    events: int = 0
    nonce: int = 0
    generation: int = 0
    appeared: bool = False
    without_snapshot: bool = False
    position: StatusPosition | None = None
    rewriting: Text = ""
    uncompacted: Text = ""
    written: SinkWriteStatus | None = None
    run: str = ""
    reason: Word = ""
    message: Text = ""
    schema_: SchemaStatus | None = Field(default=None, alias="schema")
    resnapshot: ResnapshotStatus | None = None
    verified: VerifiedStatus | None = None

    @property
    def differs(self) -> bool:
        """Whether a verification found that its content is not the source's, and none since then
        that it is."""
        verified = self.verified
        return verified is not None and bool(verified.differs_since) and verified.generation == self.generation

    @property
    def is_resnapshotted(self) -> bool:
        """Whether it is resnapshotted by a decision of the controller, from that on until its new
        content is consistent."""
        if self.resnapshot is None or not self.resnapshot.generation or self.failed:
            return False
        return self.phase not in CONSISTENT and self.phase is not TablePhase.UNASSIGNED

    @property
    def binlog(self) -> BinlogId:
        """That of its content; of a table that has diverged and is to be resnapshotted, that of the
        server on which it has. Empty where there is none."""
        decided = self.resnapshot
        if decided is not None and self.is_resnapshotted and self.generation < decided.generation:
            return diverged_at(decided.message) or self._binlog_of_content
        return self._binlog_of_content

    @property
    def _binlog_of_content(self) -> BinlogId:
        return self.position.binlog if self.position is not None else ""

    @property
    def positioned(self) -> bool:
        return self.phase in POSITIONED

    @property
    def failed(self) -> bool:
        return self.phase is TablePhase.FAILED

    @property
    def is_busy(self) -> bool:
        """Stopped by a lock or a slow statement: the controller tries it again by itself."""
        return self.failed and self.reason == Reason.TABLE_BUSY.value

    @property
    def is_read(self) -> bool:
        """The snapshot has all of it."""
        return self.finished == (StatusSplit(),)

    @property
    def at_low(self) -> bool:
        """Its content is at its low watermark: a snapshot made it, and no stream has gone on. A low
        watermark names no binlog."""
        if self.position is None or self.low is None:
            return self.position is None and self.low is None
        return self.position.model_copy(update={"binlog": ""}) == self.low

    @property
    def passed_high(self) -> bool:
        """The content has passed all that its snapshot rows may already contain (rule R2)."""
        if not (self.position and self.high and self.is_read):
            return False
        return self.position.parsed().has_reached(self.high.parsed(self.position.binlog))


class TableCounts(StatusPart):
    """`total` is the sum of those below it but `unassigned`."""

    total: int = 0
    pending: int = 0
    snapshotting: int = 0
    catching_up: int = 0
    streaming: int = 0
    failed: int = 0
    unassigned: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ready(self) -> str:
        """For a column of `kubectl get`."""
        return f"{self.streaming}/{self.total}"


def count_tables(tables: Iterable[TableStatus]) -> TableCounts:
    """`total` are the assigned tables: what is unassigned is counted beside it."""
    phases = [t.phase for t in tables]
    done = phases.count(TablePhase.STREAMING) + phases.count(TablePhase.COMPLETED)
    unassigned = phases.count(TablePhase.UNASSIGNED)
    return TableCounts(
        total=len(phases) - unassigned,
        pending=phases.count(TablePhase.PENDING),
        snapshotting=phases.count(TablePhase.SNAPSHOTTING),
        catching_up=phases.count(TablePhase.CATCHING_UP),
        streaming=done,
        failed=phases.count(TablePhase.FAILED),
        unassigned=unassigned,
    )
