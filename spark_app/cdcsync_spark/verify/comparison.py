"""One verification: all tables of a manifest, from the first read to the results."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.spec import CdcSync, replica_id
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.verification import Difference, TableResult, VerificationProgress, VerificationStep, VerifyConfig
from cdcsync_core.state import TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.selected_tables import resolve
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source, source_from_spec
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.verify.clearing import note_equal
from cdcsync_spark.verify.confirm import DifferenceConfirmation, Suspect, kept_in
from cdcsync_spark.verify.digest import Digesters
from cdcsync_spark.verify.keys import refuse_other_definition
from cdcsync_spark.verify.reading import Candidates, Work, compare_table, count_rows, spool_for, start_workers
from cdcsync_spark.verify.report import differences
from cdcsync_spark.verify.sync_status import StatusFile, SyncStatus
from cdcsync_spark.verify.target_position import Opened, open_target

_MOST_WORKERS = 8
_TOO_MANY = "there are too many to confirm all of them"
OnReport = Callable[[VerificationProgress | TableResult], None]


@dataclass
class _Subject:
    """A table on its way."""

    id: TableId
    started: float
    #: the state of the rows that were compared
    state: TableState | None = None
    candidates: Candidates | None = None
    suspect: Suspect | None = None
    position: str = ""
    skipped: str = ""
    error: CdcError | None = None
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return str(self.id)


@dataclass
class Comparison:
    """`run` once. `only` are the names of the tables that are compared, None: all of the
    manifest."""

    config: VerifyConfig
    resource: CdcSync
    source: Source
    facts: ServerFacts
    sink: Sink
    status: SyncStatus
    report: OnReport
    only: frozenset[str] | None = None
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def run(self) -> list[TableResult]:
        """Raises CdcError for what concerns all tables."""
        tables = self._tables()
        subjects = [_Subject(table, time.monotonic()) for table in tables]
        workers = max(1, min(self.resource.spec.snapshot.parallelism, os.cpu_count() or 1, _MOST_WORKERS))
        with start_workers(workers) as pool:
            for number, subject in enumerate(subjects):
                self._attempt(subject, number, pool, workers)
        self._confirmation().confirm([s.suspect for s in subjects if s.suspect])
        return [*(self._finish(s) for s in subjects), *self._gone({str(t) for t in tables})]

    def _tables(self) -> list[TableId]:
        """What the manifest names, but for tables that the sync says it does not take part in, or
        those of `only`."""
        selection = self.resource.spec.tables.selection
        with open_session(self.source) as session:
            captured = resolve(session.proved(self.facts.lineage), selection).tables
        if self.only is not None:
            return [t for t in captured if str(t) in self.only]
        status = self.status.read()
        left_out = {t.name for t in status.table_status if t.phase is TablePhase.UNASSIGNED}
        return [t for t in captured if str(t) not in left_out]

    def _gone(self, present: set[str]) -> list[TableResult]:
        """Tables that were copied and are not at the source any more."""
        status = self.status.read()
        names = self.only
        if names is None:
            names = frozenset(t.name for t in status.table_status if t.phase is not TablePhase.UNASSIGNED)
        missing = [n for n in sorted(names - present) if self.resource.spec.tables.selection.captures(n)]
        return [TableResult(name, error=_no_source(name).to_dict()) for name in missing]

    def _attempt(self, subject: _Subject, number: int, pool: ProcessPoolExecutor, workers: int) -> None:
        subject.started = time.monotonic()
        with kept_in(subject):
            self._compare(subject, number, pool, workers)
        subject.seconds = time.monotonic() - subject.started

    # -- the first read

    def _compare(self, subject: _Subject, number: int, pool: ProcessPoolExecutor, workers: int) -> None:
        name = subject.name
        opened = self._open(subject)
        if opened is None:
            return
        state = subject.state = opened.snapshot.state
        with open_session(self.source) as session:
            refuse_other_definition(session.proved(state.identity.lineage, state.position), state.capture)
        table = self.resource.spec.tables.as_read(state.capture)
        estimate = count_rows(opened.snapshot)
        spec = self.resource.spec.snapshot
        digesters = Digesters.of(table, self.seed)
        spool = spool_for(Path(self.config.scratch_dir) / f"table-{number}", estimate)
        work = Work(
            self.source, state.identity.lineage, table, opened.position, spec.max_split_seconds, digesters, spool
        )

        def advance(rows: int, ranges: int) -> None:
            self.report(VerificationProgress(name, VerificationStep.COMPARING, rows, estimate, ranges))

        advance(0, 0)
        comparison = compare_table(pool, workers, work, opened.snapshot, spec.chunk_size, advance)
        self.report(
            VerificationProgress(
                name,
                VerificationStep.COMPARING,
                comparison.source_rows,
                estimate,
                comparison.ranges,
                len(comparison.digests) + comparison.uncounted,
            )
        )
        subject.candidates = comparison
        subject.position = str(opened.position)
        subject.suspect = Suspect(
            table, self.sink.target(subject.id), state.generation, digesters, comparison.keys, comparison.digests
        )

    def _open(self, subject: _Subject) -> Opened | None:
        """None for a table that cannot be compared yet."""
        status = self.status.read()
        target = self.sink.target(subject.id)
        state = target.last_commit()
        if state is None:
            subject.skipped = "there is no target table yet: run the sync until it is copied"
        elif not state.capture.key:
            subject.skipped = "it has no key, by which rows are compared"
        elif state.capture.chunk_key is None:
            subject.skipped = "its key is declared: the source has no index by which rows are compared"
        elif state.without_snapshot:
            subject.skipped = "it was begun by spec.start, without the rows of before: resnapshot it to compare it"
        elif state.position is None:
            subject.skipped = "its snapshot is not complete: verify again when it is"
        else:
            return open_target(target, str(subject.id), status)
        return None

    # -- the second

    def _confirmation(self) -> DifferenceConfirmation:
        metadata = self.resource.metadata
        return DifferenceConfirmation(
            self.source,
            self.facts,
            self.status,
            replica_id(metadata.namespace, f"{metadata.name}/verify/{os.getpid()}"),
            Path(self.config.scratch_dir),
            self.resource.spec.snapshot.max_split_seconds,
            self.config.timeout,
            self.config.reader,
            lambda name, step: self.report(VerificationProgress(name, step)),
        )

    # -- results

    def _finish(self, subject: _Subject) -> TableResult:
        result = TableResult(str(subject.id), position=subject.position, skipped=subject.skipped)
        candidates, suspect = subject.candidates, subject.suspect
        if candidates is not None and suspect is not None:
            subject.error = suspect.error
            result = replace(
                result,
                source_rows=candidates.source_rows,
                target_rows=candidates.target_rows,
                ranges=candidates.ranges,
                counts={kind.value: n for kind, n in Counter(suspect.kinds).items()},
                changing=0 if suspect.error else len(candidates.digests) - len(suspect.kinds),
                unconfirmed=candidates.uncounted,
                why=_TOO_MANY if candidates.uncounted else "",
                position=str(suspect.position or subject.position),
                generation=suspect.generation,
            )
            result = replace(result, keys=self._keys(subject, suspect))
        if subject.error is None and result.equal:
            self._note_equal(subject)
        error = subject.error.to_dict() if subject.error else None
        return replace(result, error=error, seconds=round(subject.seconds, 2))

    def _note_equal(self, subject: _Subject) -> None:
        """In the target, where another program changed its rows."""
        try:
            if subject.state is not None:
                note_equal(self.sink, subject.state, Path(self.config.scratch_dir))
        except CdcError as e:
            subject.error = e

    def _keys(self, subject: _Subject, suspect: Suspect) -> tuple[Difference, ...]:
        if not suspect.kinds[: self.config.limit]:
            return ()
        shown: list[Difference] = []
        with kept_in(subject):
            snapshot = suspect.target.open_snapshot()
            first, kinds = suspect.keys.slice(0, self.config.limit), suspect.kinds[: self.config.limit]
            seconds = self.resource.spec.snapshot.max_split_seconds
            shown += differences(
                self.source, self.facts.lineage, suspect.table, snapshot, first, kinds, suspect.digesters.keys, seconds
            )
        return tuple(shown)


def _no_source(name: str) -> CdcError:
    return fail(
        Reason.NO_SUCH_TABLE,
        "the table was copied and is not at the source any more, or the account may not read it",
        needed="the table that was copied",
        remedy="leave it out by spec.tables.exclude, or GRANT SELECT on it",
        table=name,
    )


def open_comparison(config: VerifyConfig, report: OnReport) -> Comparison:
    """Reaches the source once; raises CdcError."""
    status = StatusFile(Path(config.status_file), Path(config.lock_file))
    resource = CdcSync.model_validate(config.resource).following(status.read().followed)
    secrets_dir = Path(config.secrets_dir)
    hosts = source_from_spec(resource.spec.source, secrets_dir)
    sink = sink_from_spec(resource.spec.sink, secrets_dir, resource.full_name)
    with open_session(hosts) as session:
        source, facts = session.source, session.facts
    return Comparison(config, resource, source, facts, sink, status, report)
