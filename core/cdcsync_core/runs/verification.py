"""What a verification is asked, and what it answers: one form for the process that compares and the
command that shows it.

The command writes a `VerifyConfig` to a file and starts `python -m cdcsync_spark.verify FILE`,
which answers on its standard output with one JSON object a line: any number of
`VerificationProgress`, then one `TableResult` per table. The verdict is a function of the results
alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import ExitCode


class ReaderName(StrEnum):
    """The decoders of the binlog by which a verification confirms a difference."""

    CDCSYNC = "cdcsync"
    MYSQL_REPLICATION = "mysql-replication"


@dataclass(frozen=True)
class VerifyConfig:
    """Holds no secret. `resource` is the manifest's CdcSync as a dictionary; `secrets_dir` holds
    `<secret name>/<key>` files.

    `status_file` is the sync's resource with its status in YAML, read repeatedly: it shows how
    far idle tables are; `lock_file` is locked (flock) as long as the sync's controller runs.
    `scratch_dir` is local disk for digests; `limit` how many differing keys of a table are shown;
    `timeout` how many seconds the stream may take to pass the position at which keys were
    reread; `reader` whose decoder of the binlog confirms a difference.
    """

    resource: dict[str, Any]
    secrets_dir: str
    status_file: str
    lock_file: str
    scratch_dir: str
    limit: int = 20
    timeout: float = 120.0
    reader: ReaderName = ReaderName.CDCSYNC

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> VerifyConfig:
        data = json.loads(text)
        return cls(**data | {"reader": ReaderName(data["reader"])})


class VerificationStep(StrEnum):
    """What is being done with a table."""

    COMPARING = "comparing"
    WAITING = "waiting"
    READING_AGAIN = "reading again"


@dataclass(frozen=True)
class VerificationProgress:
    """`rows` of the source were read so far, of about `estimate`; `candidates` are keys whose rows
    differed when they were read first."""

    table: str
    step: VerificationStep
    rows: int = 0
    estimate: int = 0
    ranges: int = 0
    candidates: int = 0

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"progress": asdict(self)}, ensure_ascii=False)


class DifferenceKind(StrEnum):
    """How a key differs."""

    MISSING = "missing in target"
    EXTRA = "extra in target"
    DIFFERENT = "different"
    DUPLICATE = "more than once in target"


@dataclass(frozen=True)
class Difference:
    """One key. `key` maps key columns to texts, `columns` maps what differs to the texts of source
    and target."""

    kind: DifferenceKind
    key: dict[str, str]
    columns: dict[str, tuple[str, str]]


@dataclass(frozen=True)
class TableResult:
    """One table. `counts` has how many keys differ per `DifferenceKind`, proven; `keys` the first
    of them. `changing` keys differed when they were read first and are right: they changed
    meanwhile, which is also why the row counts of both sides may differ.

    `unconfirmed` keys differed when they were read first and were not compared again (`why`), so
    nothing is proven. `generation` is that of the content that was compared. `ranges` are the key
    ranges that were read; `position` is what the target was as of when it was read last. `skipped`
    says why the table could not be compared yet; `error` ended its verification (a `CdcError` as a
    dictionary).
    """

    table: str
    source_rows: int = 0
    target_rows: int = 0
    ranges: int = 0
    counts: dict[str, int] | None = None
    keys: tuple[Difference, ...] = ()
    changing: int = 0
    unconfirmed: int = 0
    why: str = ""
    position: str = ""
    generation: int = 0
    seconds: float = 0.0
    skipped: str = ""
    error: dict[str, Any] | None = None

    @property
    def differences(self) -> int:
        return sum((self.counts or {}).values())

    @property
    def equal(self) -> bool:
        return not (self.differences or self.unconfirmed or self.skipped or self.error)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"equal": self.equal}

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"result": self.to_dict()}, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableResult:
        keys = tuple(
            Difference(DifferenceKind(k["kind"]), k["key"], {c: (v[0], v[1]) for c, v in k["columns"].items()})
            for k in data["keys"]
        )
        return cls(**({k: v for k, v in data.items() if k != "equal"} | {"keys": keys}))


def parse_line(line: str) -> VerificationProgress | TableResult:
    """A line of the comparing process; raises ValueError for anything else."""
    data = json.loads(line)
    if "result" in data:
        return TableResult.from_dict(data["result"])
    if "progress" in data:
        return VerificationProgress(**(data["progress"] | {"step": VerificationStep(data["progress"]["step"])}))
    raise ValueError(f"not a line of a verification: {line[:80]!r}")


def verdict(results: Iterable[TableResult]) -> ExitCode:
    """Proven differences first; then what only the user can fix; then what another attempt may
    settle."""
    results_so_far = list(results)
    if any(r.differences for r in results_so_far):
        return ExitCode.DIFFERENCES
    reasons = [Reason(r.error["reason"]) for r in results_so_far if r.error]
    if any(not reason.retried for reason in reasons):
        return ExitCode.USER_MUST_ACT
    return ExitCode.DONE if all(r.equal for r in results_so_far) else ExitCode.RETRY
