"""Commits to a Delta table as compare-and-set (rule R8), by native commits: entries that we write
in its Delta log.

A commit brings its view of the table to the newest version, reads our newest state there, lets the
caller decide, and writes the next entry only if that version has none yet: rows, state and
transaction number together, or nothing. After a lost race it starts again on the version that won,
so whatever an OPTIMIZE, another program's append or a newer run did is seen before anything is
built on it. An entry whose outcome is unknown (the store did not answer) is no special case: the
next opening finds it, or does not.

Between commits the view and the key index stay in memory; both follow the Delta log, whatever
program wrote it, and are dropped after an error of a commit; a step of maintenance that fails
before its entry has changed neither. Where the table's protocol asks for more than native commits
honour, or allows no deletion vectors, delta-rs commits, and `WriterStatus.fallback` says why. A
table with a feature that neither honours stops.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import (
    AdvancePosition,
    Append,
    Build,
    Change,
    Commit,
    Empty,
    Evolve,
    Replace,
    Upsert,
)
from cdcsync_spark.sinks.contract.checks import check_successor, refuse_superseded
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import Busy, Closed, WriterStatus
from cdcsync_spark.sinks.delta import properties as delta_properties
from cdcsync_spark.sinks.delta import refusals
from cdcsync_spark.sinks.delta.batch import Batch, write_batch
from cdcsync_spark.sinks.delta.evolution import not_native, write_emptied, write_evolution
from cdcsync_spark.sinks.delta.features import (
    VECTORS_ENABLED,
    deletion_vectors_unavailable,
    unsupported_reason,
    unwritable_features,
    upgrade,
)
from cdcsync_spark.sinks.delta.log import Log, LostRace, entry_name, head
from cdcsync_spark.sinks.delta.maintenance import (
    HARMLESS,
    TableMaintenance,
    delete_files,
    max_idle_seconds,
    milliseconds,
)
from cdcsync_spark.sinks.delta.open import catch_up
from cdcsync_spark.sinks.delta.policy import LIMITS, POLICY, Limits, MaintenancePolicy
from cdcsync_spark.sinks.delta.schema import delta_schema
from cdcsync_spark.sinks.delta.table_index import TableIndex
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import Action, TableView, entry_text, new_file
from cdcsync_spark.sinks.lake.staging import data_files

#: of so many questions for news one asks whether the newest entry is still there
LOSS_QUESTIONS = 4
_log = get_logger()


class DeltaWriter:
    """Writes one table, with a view of it and an index of its keys that are kept between commits.
    `scratch` is a folder on a local disk. Thread safe."""

    def __init__(
        self,
        table_path: TablePath,
        scratch: Path,
        policy: MaintenancePolicy = POLICY,
        limits: Limits = LIMITS,
    ) -> None:
        self._path = table_path
        self._limits = limits
        self._lock = threading.Lock()
        self._view: TableView | None = None
        #: the version whose state the caller has
        self._given = -1
        self._questions = itertools.count(1)
        self._index = TableIndex(str(table_path.table), scratch)
        self._maintenance = TableMaintenance(table_path, self._index, self, policy)
        self._epoch = -1
        self._fallback = ""

    def _forget(self) -> None:
        self._view = None
        self._index.forget()

    @property
    def status(self) -> WriterStatus:
        """See `Writer.status`."""
        view = self._view
        idle = max_idle_seconds(view.properties) if view else math.inf
        return WriterStatus(self._fallback, idle, self._maintenance.cost)

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        """See `Writer.last_commit`."""
        with self._locked("reading the state", wait=wait):
            view = self.newest(self._path.log())
            if view is not None and view.state is None:
                raise self._path.foreign_table_error()
            self._given = view.version if view else -1
            return view.state if view else None

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`."""
        attempts = Retrying(
            retry=retry_if_exception_type(LostRace),
            stop=stop_after_attempt(self._limits.attempts),
            wait=wait_random_exponential(0.02, max=1),
            retry_error_callback=self._give_up,
        )
        with self._locked("committing"):
            return attempts(self._try_commit, epoch, build)

    @contextmanager
    def _locked(self, doing: str, *, wait: bool = True) -> Iterator[None]:
        if not self._lock.acquire(blocking=wait):
            raise Busy
        try:
            with self._path.translating_errors(doing), self._forgetting():
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """After an error nothing that was known is believed; a lost race has written nothing."""
        try:
            yield
        except LostRace:
            raise
        except BaseException:
            self._forget()
            raise

    def _try_commit(self, epoch: int, build: Build) -> TableState:
        log = self._path.log()
        view = self.newest(log)
        if view is None or view.state is None:
            raise self._path.foreign_table_error()
        found = view.state
        refuse_superseded(found, epoch)
        self._given = view.version
        commit = build(found)
        if commit is None:
            return found
        check_successor(found, commit, epoch)
        if not isinstance(commit.change, Replace):  # which writes a new schema and leaves no file
            refusals.refuse_other_columns(view, found)
        gate("before-commit")
        self._epoch = epoch
        self._publish(log, view, commit)
        self._given = view.version
        gate("committed")
        return commit.state

    def newest(self, log: Log) -> TableView | None:
        view = self._view
        if view is not None and catch_up(log, view) == 0 and not log.has_entry(view.version):
            # the Delta log was cut behind us, or is gone: no reader gets past a hole in it
            view = None
        self._view = view or self._path.view()
        return self._view

    # -- one commit

    def _publish(self, log: Log, view: TableView, commit: Commit) -> None:
        """Raises LostRace."""
        merging = isinstance(commit.change, Upsert) and not commit.change.empty
        reason = self._unsupported_reason(view, merging=merging)
        if merging:
            self._fallback = reason
        if reason and isinstance(commit.change, Evolve | Empty):
            raise not_native(commit.state, reason)
        if reason:
            self._fall_back(view, commit, reason)
            return
        now = milliseconds()
        operation, make = _NATIVE[type(commit.change)]
        batch = make(self, log, view, commit, now)
        if isinstance(commit.change, Evolve | Empty):
            gate("step-staged")
        self._enter_batch(view, commit.state, operation, now, batch)

    def _enter_batch(self, view: TableView, state: TableState, operation: str, now: int, batch: Batch) -> None:
        self._enter(view, state, [*head(state, operation, now), *batch.actions], batch.paths)
        if self._index.current is not None:
            batch.apply_to(self._index.current)

    def _enter(self, view: TableView, state: TableState, actions: list[Action], paths: Iterable[str]) -> None:
        """The Delta log's next entry, or LostRace; then the files at `paths` go."""
        text = entry_text(actions)
        if not self._path.store.put_new(entry_name(view.version + 1), text.encode()):
            with suppress(OSError):  # a later run's maintenance removes them
                delete_files(self._path, paths)
            raise LostRace
        gate("entry-written")
        view.apply(view.version + 1, actions, state)

    def _unsupported_reason(self, view: TableView, *, merging: bool) -> str:
        if not merging:
            return unsupported_reason(view)
        return (
            deletion_vectors_unavailable(view)
            if self._path.vectors
            else "spec.sink.delta.options.deletionVectors is false"
        )

    # -- what each kind of change is natively

    def _upserted(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        assert isinstance(commit.change, Upsert)
        if commit.change.empty:
            return Batch()
        batch = write_batch(self._path, commit.state.schema, view, self._index.synced(log, view), commit.change, now)
        batch.actions[:0] = upgrade(view, view.metadata["schemaString"], {VECTORS_ENABLED: "true"}, vectors=True)
        return batch

    def _appended(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        return Batch(self._adds(commit.change, now))

    def _replaced(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        target = commit.state.schema
        schema, properties = delta_schema(target), delta_properties.adapted(view.properties, target)
        return Batch(
            [
                *upgrade(view, schema, properties, vectors=False),
                *(file.removed(now, data_change=True) for file in view.files.values()),
                *self._adds(commit.change, now),
            ]
        )

    def _advanced(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        return Batch()

    def _evolved(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        assert isinstance(commit.change, Evolve)
        return write_evolution(self._path, view, commit.state, commit.change, now, self._limits.rewritten_bytes)

    def _emptied(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        return write_emptied(view, now)

    def _adds(self, change: Change, now: int) -> list[Action]:
        files = data_files(change)
        self._path.refuse_missing(files)
        made = [new_file(f.path.removeprefix(self._path.prefix), f.size, f.stats, now, data_change=True) for f in files]
        return [{"add": dict(file.add)} for file in made]

    # -- the index

    def close(self) -> None:
        """See `Writer.close`."""
        self._index.close()

    def warm(self) -> None:
        """See `Warming.warm`. A small table's index is built when its first batch comes: most
        tables may rest."""
        try:
            self._index.refuse_closed()
            with self._locked("building the key index"):
                log = self._path.log()
                view = self.newest(log)
                if view is not None and self._large(view) and not self._unsupported_reason(view, merging=True):
                    self._index.synced(log, view)
        except Closed:
            return
        except HARMLESS as error:
            _log.warning("the key index is built later", table=str(self._path.table), error=str(error))

    def _large(self, view: TableView) -> bool:
        return view.state is not None and sum(file.rows or 0 for file in view.files.values()) >= self._limits.warm_rows

    def has_news(self) -> bool:
        """See `Writer.has_news`. It waits for no commit: one that is made meanwhile knows more.
        What maintenance has met is news, too. A table that is gone, or was put back from an older
        copy, lacks the newest entry: each question more is a request, so that one is rare."""
        view = self._view
        if view is None or view.version != self._given:
            return True
        version, log = view.version, self._path.log()
        try:
            if log.has_entry(version + 1):
                return True
            return next(self._questions) % LOSS_QUESTIONS == 0 and not log.has_entry(version)
        except (OSError, CdcError):
            return False

    # -- maintenance

    def maintain(self) -> str:
        """See `Writer.maintain`."""
        with self._lock, self._forgetting():
            view = self._view
            if view is None or view.state is None or view.state.epoch != self._epoch:
                return ""
            return self._maintenance.step(view)

    def enter_compaction(self, view: TableView, batch: Batch, now: int) -> None:
        """See `Commits`: a compaction is a commit with the state as it was found."""
        assert view.state is not None
        with self._forgetting():
            self._enter_batch(view, view.state, "OPTIMIZE", now, batch)

    # -- fallback

    def _fall_back(self, view: TableView, commit: Commit, reason: str) -> None:
        if self._path.events is not None:  # others would write rows without the metadata columns
            raise refusals.history_not_writable(str(self._path.table), reason)
        if features := unwritable_features(view):
            raise refusals.not_writable(str(self._path.table), features)
        from cdcsync_spark.sinks.delta import delta_rs

        delta_rs.publish(self._path, view, commit)

    def _give_up(self, attempts: RetryCallState) -> TableState:
        raise refusals.contention_error(str(self._path.table), self._path.store.uri, attempts.attempt_number)


_Make = Callable[[DeltaWriter, Log, TableView, Commit, int], Batch]
#: kind of change -> the name of the operation in the Delta log, and what makes the batch
_NATIVE: dict[type[Change], tuple[str, _Make]] = {
    Append: ("WRITE", DeltaWriter._appended),
    Upsert: ("MERGE", DeltaWriter._upserted),
    Replace: ("WRITE", DeltaWriter._replaced),
    AdvancePosition: ("WRITE", DeltaWriter._advanced),
    Evolve: ("CHANGE COLUMNS", DeltaWriter._evolved),
    Empty: ("TRUNCATE", DeltaWriter._emptied),
}
CAPABILITIES = Capabilities(frozenset(_NATIVE))
