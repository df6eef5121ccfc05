"""What a controller sees and what it may do: the values between observing, deciding and acting.

Why it exists: `decide` is a function of these values, so that a laptop and a cluster share every
decision, and a test puts a state in and reads decisions out. Nothing here touches a file, a clock
or a server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from cdcsync_core.errors import CdcError
from cdcsync_core.runs.run import Flow, RunKind
from cdcsync_core.runs.status import Status

# ---- what is seen


class RunState(StrEnum):
    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"


@dataclass(frozen=True)
class Exit:
    """A driver's last word: an `ExitCode`, and a `Reason` where it failed."""

    code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class ObservedRun:
    """A driver as it is found; times are unix seconds.

    `tables` are (name, least generation); `stop_asked`: we drained it; `reported_at` None: it has
    not reported anything yet; `exit` is set once it ended. `waiting` are reason and words where
    pods of it wait for a node. `flow` is how data flows through a stream, as of its last report
    (None: it is no stream, or has reported nothing). `appeared` counts the matching tables that it
    has met in the binlog and does not have. `stop_at` is that of its configuration. `unfit`: it
    must be stopped, because its start or its plan failed, its plan was lost, a stop of it was
    interrupted, or it does not drain in its time.
    """

    kind: RunKind
    id: str
    tables: tuple[tuple[str, int], ...]
    fingerprint: str
    state: RunState
    started_at: float
    stop_asked: bool = False
    reported_at: float | None = None
    exit: Exit | None = None
    waiting: tuple[str, str] = ("", "")
    flow: Flow | None = None
    appeared: int = 0
    stop_at: str = ""
    unfit: bool = False

    @property
    def live(self) -> bool:
        return self.state is not RunState.ENDED

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.generations)

    @cached_property
    def generations(self) -> dict[str, int]:
        """The least generation of its content, by the name of a table."""
        return dict(self.tables)

    @property
    def number(self) -> int:
        """The epoch in its id: of two runs that one status names, the newer one has the higher."""
        digits = self.id.rpartition("-")[2]
        return int(digits) if digits.isdecimal() else 0


@dataclass(frozen=True)
class ObservedTable:
    """A table that the patterns match: what forbids to capture it (None: nothing), and whether its
    log has gaps that the user accepted; `rows` is the source's estimate."""

    name: str
    error: CdcError | None = None
    unlogged_cascades: bool = False
    rows: int = 0


@dataclass(frozen=True)
class PreflightResult:
    """The outcome of a preflight for one generation of the resource; `errors` concern the whole
    source.

    `sink_errors` concern the sink; `sink_unchecked` is why it was not checked here.
    `prompt` is that of the action which asked for it: what the stream had seen of tables by then;
    so is `busy`: the tables that were locked by then, each with the ended run that met it.
    `retained` is a file of the binlog and the unix seconds until which the source keeps it: 0 where
    it is gone, None where no end is known.
    """

    generation: int
    at: float
    errors: tuple[CdcError, ...] = ()
    tables: tuple[ObservedTable, ...] = ()
    warnings: tuple[str, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)
    sink_errors: tuple[CdcError, ...] = ()
    sink_unchecked: str = ""
    prompt: str = ""
    retained: tuple[str, float | None] = ("", None)
    busy: frozenset[tuple[str, str]] = frozenset()

    @property
    def failures(self) -> tuple[CdcError, ...]:
        """Errors of source and sink that forbid to start a run."""
        return self.errors + self.sink_errors


@dataclass(frozen=True)
class Observed:
    """Everything that a decision depends on besides the resource and the time.

    `status` is the last one, with the drivers' reports in it; `token` four random hex digits, for
    the id of a new run; `closing`: the controller itself was asked to end; `refusal`: why the spec
    is not allowed here.
    """

    status: Status
    runs: tuple[ObservedRun, ...] = ()
    preflight: PreflightResult | None = None
    preflight_running: bool = False
    missing_secrets: tuple[str, ...] = ()
    refusal: str = ""
    closing: bool = False
    token: str = "0000"

    def run(self, kind: RunKind) -> ObservedRun | None:
        """The run of this kind that the status names."""
        ref = self.status.runs.get(kind)
        return next((r for r in self.runs if ref and r.id == ref.id), None)


# ---- what may be done


@dataclass(frozen=True)
class RunPreflight:
    """Do a preflight for this generation, in the background.

    `unread` names the tables that are still to be read, None for all: the binlog must outlive their
    snapshot. `prompt` and `busy` come back with what is found. `file` is the binlog's that a stream
    needs at its next time; empty: none is asked for.
    """

    generation: int
    unread: frozenset[str] | None = None
    prompt: str = ""
    file: str = ""
    busy: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class StartRun:
    """Make a driver. The run's id is in the status already when this is done.

    A snapshot run's chunk plan is begun with it: from the finished part of each table, as the
    status knows it; `executors` read for it where runs are pods, 0: its driver reads.
    """

    kind: RunKind
    id: str
    epoch: int
    tables: tuple[tuple[str, int], ...]
    fingerprint: str
    stop_at: str = ""
    executors: int = 0


@dataclass(frozen=True)
class StopRun:
    """Ask a driver to drain; asking again is harmless, and ends one that is overdue. `why` is for
    people, where the run is to be replaced."""

    kind: RunKind
    id: str
    why: str = field(default="", compare=False)


@dataclass(frozen=True)
class ForgetRun:
    """Clear away what an ended driver left."""

    kind: RunKind
    id: str


Action = RunPreflight | StartRun | StopRun | ForgetRun


@dataclass(frozen=True)
class Decision:
    """The new status, to be written before the actions are done; reconcile again after
    `requeue_after` seconds at the latest."""

    status: Status
    actions: tuple[Action, ...] = ()
    requeue_after: float = 10.0
