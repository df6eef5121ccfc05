"""A run's configuration, from the controller to the driver, and the driver's reports: one form for
processes and pods.

A controller writes a `RunConfig` to a file before it starts `python -m cdcsync_spark FILE`. The
driver answers with `Report`s, one JSON object a line (locally on the descriptor named by
`report_fd`, on a cluster in ConfigMaps of its run), and ends with an exit code and, as its
last report, an `exit`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum, StrEnum
from typing import Any

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.runs.report import ExitReport, PositionJson, SnapshotReport, TableReport
from cdcsync_core.tables.capture import Capture

#: `RunConfig.stop_at` of a stream that catches up: the end that the binlog has when the run begins
LOG_END = "end"


class RunKind(StrEnum):
    """The two applications, the temporary second reader of a table that was resnapshotted (rule
    R5), and the comparison of source and target."""

    SNAPSHOT = "snapshot"
    STREAM = "stream"
    CATCH_UP = "catchUp"
    VERIFY = "verify"

    @property
    def copies(self) -> bool:
        """Whether it writes the tables that it has. A verification has them beside the run that
        does."""
        return self is not RunKind.VERIFY


class Decoder(StrEnum):
    """How rows become columns: all rows of a batch at once, or value by value, which is the
    reference for tests and `verify`. The values are those of `--decoder`."""

    VECTORIZED = "vectorized"
    REFERENCE = "reference"


class ExitCode(IntEnum):
    """The exit codes of drivers and of the command line alike."""

    DONE = 0
    RETRY = 1
    USAGE = 2
    USER_MUST_ACT = 3
    DIFFERENCES = 4


class TablePhase(StrEnum):
    """A table's phase in `status.tableStatus[]`."""

    PENDING = "Pending"
    SNAPSHOTTING = "Snapshotting"
    CATCHING_UP = "CatchingUp"
    STREAMING = "Streaming"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNASSIGNED = "Unassigned"


@dataclass(frozen=True)
class TableAssignment:
    """One table of a run: its definition as planned, the resnapshot nonce that its content must
    honour (0: none asked), and the least generation that it must have. `at_start`: its first
    content begins where `spec.start` says, without a snapshot. `copied`: a run has reported a
    position of it, and the user has not asked for another try since: its target has a state."""

    table: Capture
    nonce: int = 0
    generation: int = 0
    at_start: bool = False
    copied: bool = False

    def to_dict(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"table": self.table.to_dict(), "nonce": self.nonce, "generation": self.generation}
        flags = {"atStart": self.at_start, "copied": self.copied}
        return parts | {name: True for name, is_set in flags.items() if is_set}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableAssignment:
        flags = data.get("atStart", False), data.get("copied", False)
        return cls(Capture.from_dict(data["table"]), data["nonce"], data["generation"], *flags)


@dataclass(frozen=True)
class RunConfig:
    """Everything that a driver needs besides the source and the targets. Holds no secret.

    `resource` is the manifest's CdcSync as a dictionary; `epoch` the least run epoch that the
    driver may use (a higher one found in a target is exceeded by one); `plan_dir` holds the plan
    shards of the snapshot (see `PlanShard`); `secrets_dir` holds `<secret name>/<key>` files, read
    again at each reconnect; `scratch_dir` is local disk for checkpoints and spills, the run's own;
    `report_fd` is the inherited descriptor for reports, -1 for none. `stop_at` ends a run that
    reads the binlog: the place to reach (`Place.parse`), or `LOG_END`; "" for none. `spark` are the
    settings of a Spark that has executors; none: everything is in the driver. `followed` is that
    of the source (`Source.followed`). `status_file` has the sync's status where it is a file.
    """

    id: str
    epoch: int
    kind: RunKind
    resource: dict[str, Any]
    tables: tuple[TableAssignment, ...]
    plan_dir: str
    secrets_dir: str
    scratch_dir: str
    report_fd: int = -1
    stop_at: str = ""
    decoder: Decoder = Decoder.VECTORIZED
    spark: dict[str, str] = field(default_factory=dict)
    followed: BinlogId = ""
    status_file: str = ""

    def to_json(self) -> str:
        parts = vars(self) | {"tables": [t.to_dict() for t in self.tables]}
        for later in ("followed", "status_file"):  # which a driver of an older image does not know
            if not parts[later]:
                del parts[later]
        return json.dumps(parts, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        data = json.loads(text)
        tables = tuple(TableAssignment.from_dict(t) for t in data.pop("tables"))
        enums = {"kind": RunKind(data["kind"]), "decoder": Decoder(data["decoder"])}
        return cls(**(data | enums | {"tables": tables}))


@dataclass(frozen=True)
class PlanShard:
    """A piece of one table's chunk plan: at most 1,000 splits in key order.

    Shard `number` of a table lies in `<plan_dir>/<table index, 5 digits>-<number, 5 digits>.json`
    (the index into `RunConfig.tables`), written atomically. `last` ends the table's plan. The plan
    continues `frontier` (`Intervals.frontier`): a driver that finds another frontier in the target
    plans that table itself, because the target's commit is the truth.
    """

    table: str
    number: int
    frontier: list[Any] | None
    splits: tuple[Split, ...]
    last: bool

    def to_json(self) -> str:
        return json.dumps(
            {
                "table": self.table,
                "number": self.number,
                "frontier": self.frontier,
                "splits": [s.to_dict() for s in self.splits],
                "last": self.last,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> PlanShard:
        data = json.loads(text)
        return cls(**(data | {"splits": tuple(Split.from_dict(s) for s in data["splits"])}))

    @staticmethod
    def filename(table_index: int, number: int) -> str:
        return f"{table_index:05d}-{number:05d}.json"


@dataclass(frozen=True)
class Flow:
    """How data flows through a stream, in seconds as of the report that it comes with: ages,
    because the clocks of two machines differ.

    `connected`: the run has received an event or heartbeat from the source; `seconds_since_event`
    is the age of the last one, or since when the run has waited for the first (None: it does not
    listen yet). `waiting` is for how long the oldest received change has waited for its commit, 0
    where none waits; `commit` the age of the run's last commit (None: none yet).
    """

    connected: bool = False
    seconds_since_event: float | None = None
    waiting: float = 0.0
    commit: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Flow:
        """What a newer driver reports beyond that is ignored."""
        return cls(**{k: v for k, v in data.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Report:
    """A report of a driver; every part is optional and replaces what was known.

    `tables` are changed parts of entries of `status.tableStatus`; `snapshot` is `status.snapshot`;
    `position` and `lag_seconds` are the reader's, and come together: None is a lag that the driver
    does not know; `flow` is a stream's `Flow`; `epoch` is the epoch that the driver really uses;
    `done` is the run's work so far (commits, rows); `maintenance` is what that of its tables
    has cost (steps, seconds, bytes written, filesRemoved), for metrics; `exit` is the exit report:
    code, reason, message, remedy. `appeared` grows when a stream meets a table in the binlog that
    matches the patterns and is not the run's: then the catalog is worth a preflight.
    """

    run: str
    tables: list[TableReport] = field(default_factory=list)
    snapshot: SnapshotReport | None = None
    position: PositionJson | None = None
    lag_seconds: float | None = None
    epoch: int | None = None
    done: dict[str, int] | None = None
    exit: ExitReport | None = None
    maintenance: dict[str, float] | None = None
    flow: dict[str, Any] | None = None
    appeared: int | None = None

    def to_json(self) -> str:
        """One line."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({k: v for k, v in parts.items() if v not in (None, [])}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Report:
        return cls(**json.loads(text))
