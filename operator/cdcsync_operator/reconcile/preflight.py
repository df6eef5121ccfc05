"""The port `SourceView`: does a preflight of the source in a thread, one at a time, and keeps the
newest outcome.

Why it is right: a preflight may wait for a server that does not answer, and the controller must
not; what it finds is one value that replaces the last one whole. Definitions of recorded tables are
kept beside it, so that a table that is gone from the source can still be named to a driver, which
learns its fate from the binlog.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import memory_of, too_many_tables
from cdcsync_operator.decision.observed import PreflightResult, RunPreflight
from cdcsync_operator.reconcile.files import write_atomically
from cdcsync_operator.reconcile.planning import Splits


@dataclass(frozen=True)
class PreflightOutcome:
    """A preflight's outcome, and the definitions of the tables that it could read."""

    result: PreflightResult
    tables: dict[str, Capture] = field(default_factory=dict)


def start_thread(_: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="source", daemon=True).start()


@dataclass(frozen=True)
class SourceCalls:
    """The source as a controller needs it; `Path` is the folder of the sync's Secrets. `planning`
    is that of a `Planner`. `give_up` ends what is asked for a sync. `kept_until` says until when a
    file of the binlog is kept, as `PreflightResult.retained` has it. `start` does work of a
    namespace in a thread."""

    preflight: Callable[[CdcSync, Path, frozenset[str] | None], PreflightOutcome]
    current: Callable[[CdcSync, Path], LogOffset]
    planning: Callable[[CdcSync, Path], AbstractContextManager[Splits]]
    give_up: Callable[[Path], None] = lambda _: None
    kept_until: Callable[[CdcSync, Path, str], float | None] = lambda _, __, ___: None
    start: Callable[[str, Callable[[], None]], None] = start_thread


class DefinitionRecord:
    """Table definitions by name, in a file; without one, as long as this object lives.
    `refuse(bytes)` says how much may be kept where there is no memory for all of them, else
    nothing."""

    def __init__(self, path: Path | None = None, refuse: Callable[[int], str] = lambda _: "") -> None:
        self._path, self._refuse = path, refuse
        self._tables: dict[str, Capture] = {}
        if path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._tables = {name: Capture.from_dict(data) for name, data in stored.items()}

    def update(self, tables: dict[str, Capture]) -> None:
        """Raises SpecInvalid where there is no memory for them; then it has what it had."""
        if tables.items() <= self._tables.items():
            return
        all_tables = self._tables | tables
        bound = self._refuse(sum(memory_of(len(table.columns)) for table in all_tables.values()))
        if bound:
            raise too_many_tables(bound)
        self._tables = all_tables
        if self._path is None:
            return
        text = json.dumps({name: table.to_dict() for name, table in sorted(self._tables.items())}, ensure_ascii=False)
        write_atomically(self._path, text)

    def get(self, name: str) -> Capture:
        """Raises NoSuchTable."""
        table = self._tables.get(name)
        if table is None:
            raise fail(Reason.NO_SUCH_TABLE, "no definition of the table", remedy="correct spec.tables", table=name)
        return table


class PreflightRunner:
    """`preflight(resource, unread)` checks source and sink, `current(resource)` asks where
    the binlog ends, `kept_until(resource, file)` how long a file of it is kept; all may wait and
    may raise CdcError. `start` is that of `SourceCalls`."""

    def __init__(
        self,
        preflight: Callable[[CdcSync, frozenset[str] | None], PreflightOutcome],
        current: Callable[[CdcSync], LogOffset],
        record: DefinitionRecord,
        clock: Callable[[], float],
        wake: Callable[[], None],
        kept_until: Callable[[CdcSync, str], float | None] = lambda _, __: None,
        start: Callable[[str, Callable[[], None]], None] = start_thread,
    ) -> None:
        self._preflight, self._current, self._record = preflight, current, record
        self._kept_until, self._start = kept_until, start
        self._clock, self._wake = clock, wake
        self._outcome: PreflightResult | None = None
        #: the kinds of work that are not done yet
        self._asked: set[str] = set()
        self.log_end: LogOffset | None = None

    def outcome(self) -> PreflightResult | None:
        return self._outcome

    def running(self) -> bool:
        return "preflight" in self._asked

    def request(self, resource: CdcSync, action: RunPreflight) -> None:
        self._begin("preflight", resource, lambda: self._run_preflight(resource, action))

    def ask_log_end(self, resource: CdcSync) -> None:
        """`log_end` is set when the source has answered; asked again if it could not."""
        self._begin("log end", resource, lambda: self._take_log_end(resource))

    def _begin(self, kind: str, resource: CdcSync, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._asked.discard(kind)

        if kind in self._asked:
            return
        self._asked.add(kind)
        try:
            self._start(resource.metadata.namespace, run)
        except RuntimeError:  # there can be no further thread: it is asked for again
            self._asked.discard(kind)
            raise

    def _run_preflight(self, resource: CdcSync, action: RunPreflight) -> None:
        generation = resource.metadata.generation
        try:
            outcome = self._preflight(resource, action.unread)
            self._record.update(outcome.tables)
            result = outcome.result
            if action.file and not result.errors:
                result = replace(result, retained=(action.file, self._kept_until(resource, action.file)))
        except CdcError as error:
            result = PreflightResult(generation, self._clock(), (error,))
        except Exception as error:  # noqa: BLE001 (the end of the thread must be reported)
            unexpected = fail(
                Reason.INTERNAL_ERROR, f"the preflight failed: {type(error).__name__}: {quoted(str(error))}"
            )
            result = PreflightResult(generation, self._clock(), (unexpected,))
        self._outcome = replace(result, prompt=action.prompt, busy=action.busy)
        self._wake()

    def _take_log_end(self, resource: CdcSync) -> None:
        try:
            self.log_end = self._current(resource)
        except CdcError:
            return  # the stream reports what is wrong with the source; the next reconcile asks again
        self._wake()
