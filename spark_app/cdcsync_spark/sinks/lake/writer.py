"""Commits to a table of a lake as compare-and-set (rule R8), whatever the table's format.

A commit brings its version of the table to the newest one, reads our newest state there, lets the
caller decide, and publishes the next version only if none has come meanwhile: rows, state and
commit number together, or nothing. After a lost race it starts again on the version that won, so
whatever an OPTIMIZE, another program's append or a newer run did is seen before anything is built
on it. A commit whose outcome is unknown (the store did not answer) is no special case: the next
opening finds it, or does not.

Between commits the version and the key index stay in memory; both follow the table, whatever
program wrote it, and are dropped after an error of a commit; a step of maintenance that fails
before its commit has changed neither.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic

import pyarrow as pa
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.declared_key import unguarded_commit
from cdcsync_core.tables.target_schema import TargetSchema
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
from cdcsync_spark.sinks.contract.writer import Busy, Closed, MaintenanceStep, WriterStatus
from cdcsync_spark.sinks.lake.compaction import next_compaction, write_compaction
from cdcsync_spark.sinks.lake.evolution import write_evolution
from cdcsync_spark.sinks.lake.files.file_changes import (
    AddedFile,
    FileChanges,
    added_files,
    checked,
    deletions_of,
    refuse_keys_there,
)
from cdcsync_spark.sinks.lake.files.snapshot import LostFile
from cdcsync_spark.sinks.lake.files.staging import Stamp, data_files, stage
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, LostRace, TableFormat, V
from cdcsync_spark.sinks.lake.keys.scratch import Scratch
from cdcsync_spark.sinks.lake.maintenance import HARMLESS, TableMaintenance
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.table_folder import TableFolder
from cdcsync_spark.sinks.lake.table_index import TableIndex

#: of so many questions for news one asks whether the newest version is still there
LOSS_QUESTIONS = 4
_log = get_logger()


class LakeWriter(Generic[V]):
    """Writes one table, with a version of it and an index of its keys that are kept between
    commits. `scratch` is a folder on a local disk. Thread safe."""

    def __init__(
        self,
        table_format: TableFormat[V],
        folder: TableFolder,
        scratch: Path,
        policy: MaintenancePolicy = POLICY,
        limits: CommitLimits = LIMITS,
    ) -> None:
        self._format = table_format
        self._folder = folder
        self._policy = policy
        self._limits = limits
        self._lock = threading.Lock()
        self._version: V | None = None
        #: the version whose state the caller has
        self._given = -1
        self._questions = itertools.count(1)
        self._index = TableIndex(folder, scratch)
        self._lineage = table_format.lineage(scratch)
        self._maintenance: TableMaintenance[V] = TableMaintenance(folder, self._steps(), policy.retry_seconds)
        self._epoch = -1
        self._fallback = ""
        self._uncompacted = ""

    def _steps(self) -> Mapping[str, Callable[[V], MaintenanceStep | None]]:
        return {"merge runs": self._merge_runs, **self._format.expiry(self), "compact": self._compact}

    @property
    def status(self) -> WriterStatus:
        """See `Writer.status`."""
        version = self._version
        idle = self._format.max_idle_seconds(version) if version else math.inf
        return WriterStatus(self._fallback, idle, self._maintenance.cost, uncompacted=self._uncompacted)

    @property
    def last_known(self) -> TableState | None:
        """The state as of the last use."""
        return self._version.state if self._version is not None else None

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        """See `Writer.last_commit`."""
        with self._locked("reading the state", wait=wait):
            version = self.newest()
            if version is not None and version.state is None:
                raise self._format.foreign_table_error()
            self._given = version.number if version else -1
            return version.state if version else None

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
            with self._folder.translating_errors(doing), self._forgetting():
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
            self._version = None
            self._index.forget()
            raise

    def _try_commit(self, epoch: int, build: Build) -> TableState:
        version = self.newest()
        if version is None or version.state is None:
            raise self._format.foreign_table_error()
        state = version.state
        refuse_superseded(state, epoch)
        self._given = version.number
        commit = build(state)
        if commit is None:
            return state
        check_successor(state, commit, epoch)
        if not isinstance(commit.change, Replace):  # which writes a new schema and leaves no file
            self._format.refuse_altered(version)
        gate("before-commit")
        self._epoch = epoch
        with self._losing_races_alone(version):
            self._publish(version, commit)
        self._given = self._version.number if self._version else -1
        gate("committed")
        return commit.state

    @contextmanager
    def _losing_races_alone(self, version: V) -> Iterator[None]:
        """A file that is gone with its version, because another one came meanwhile, is a lost
        race."""
        try:
            yield
        except LostFile:
            if self._format.has_news(version, or_loss=True):
                raise LostRace from None
            raise

    def newest(self) -> V | None:
        """See `Writing`."""
        version = self._version
        if version is not None:
            version = self._format.follow(version)
        self._version = version or self._format.open()
        return self._version

    def _give_up(self, attempts: RetryCallState) -> TableState:
        raise self._folder.contention_error(attempts.attempt_number)

    # -- one commit

    def _publish(self, version: V, commit: Commit) -> None:
        """Raises LostRace."""
        merging = isinstance(commit.change, Upsert) and not commit.change.empty
        reason = self._format.unsupported_reason(version, merging=merging)
        if merging:
            self._fallback = reason
        if reason:
            if isinstance(commit.change, Upsert) and commit.change.new is not None and merging:
                raise unguarded_commit(commit.state.capture, reason)
            self._format.publish_otherwise(version, commit, reason)
            return
        self._ENTER[type(commit.change)](self, version, commit)

    def _enter(self, version: V, commit: FileCommit) -> V:
        """The next version, or LostRace; then what was written for it goes."""
        try:
            after = self._format.publish(version, commit)
        except LostRace:
            if not commit.staged:
                with suppress(OSError):  # a later run's maintenance removes them
                    new = (*commit.adding(), *commit.changes.rewritten.values())
                    self._folder.remove(file.path for file in new)
            raise
        self._version = after
        if self._index.current is not None:
            deleted = ((name, after.files[name].deleted) for name in commit.changes.deleted_rows)
            ids = {name: rows.id for name, rows in deleted if rows is not None}
            commit.changes.apply_to(self._index.current, commit.adding(), ids)
        self._lineage.add(after.files, {new.path: new.row_ids for new in commit.adding() if new.row_ids is not None})
        return after

    def _enter_upserts(self, version: V, commit: Commit) -> None:
        """Data and deletions are found and written at the same time, because neither names the
        other; but for the ids of rows, which go with the places of their keys."""
        assert isinstance(commit.change, Upsert)
        if commit.change.empty:
            self._enter(version, FileCommit(commit.state, CommitOperation.STATE))
            return
        schema = commit.state.schema
        index = self._index.synced(version)
        upserts, deletes = checked(schema, commit.change)
        with ThreadPoolExecutor(2) as concurrently:
            keys = pa.concat_tables([upserts.select(list(schema.key)), deletes])
            stamp, locating = self._format.stamp(version, commit.state, ()), concurrently.submit(index.locate, keys)
            if commit.change.new is not None:
                refuse_keys_there(commit.state.capture, keys, commit.change.new, locating.result())
            rows = partial(self._lineage.continued, version.files, upserts, locating.result)
            writing = concurrently.submit(self._data_files, schema, rows, stamp)
            changes = deletions_of(index, locating.result())
            self._enter(version, FileCommit(commit.state, CommitOperation.MERGE, changes, writing.result))

    def _data_files(
        self, schema: TargetSchema, read: Callable[[], pa.Table], stamp: Stamp | None
    ) -> tuple[AddedFile, ...]:
        folder, rows = self._folder, read()
        write = partial(stage, folder.lake.below(folder.root), folder.staged, schema, name="stream", stamp=stamp)
        added = added_files(rows, schema.key, write, folder.prefix)
        gate("data-written")
        return added

    def _enter_wave(self, version: V, commit: Commit) -> None:
        files = self._staged(commit.change)
        self._enter(version, FileCommit(commit.state, CommitOperation.APPEND, adding=lambda: files, staged=True))

    def _enter_content(self, version: V, commit: Commit) -> None:
        files, changes = self._staged(commit.change), FileChanges(removed=tuple(version.files))
        self._enter(version, FileCommit(commit.state, CommitOperation.REPLACE, changes, lambda: files, staged=True))

    def _staged(self, change: Change) -> tuple[AddedFile, ...]:
        files = data_files(change)
        self._folder.refuse_missing(files)
        return tuple(AddedFile(f.path.removeprefix(self._folder.prefix), f) for f in files)

    def _enter_position(self, version: V, commit: Commit) -> None:
        self._enter(version, FileCommit(commit.state, CommitOperation.STATE))

    def _enter_schema(self, version: V, commit: Commit) -> None:
        change, state = commit.change, commit.state
        assert isinstance(change, Evolve)
        if self._format.rewrites(version, state, change.origins):
            stamp = self._format.stamp(version, state, change.origins)
            entered = write_evolution(
                self._folder, version, state, change, self._limits.rewritten_bytes, stamp, self._lineage
            )
        else:
            entered = FileCommit(state, CommitOperation.EVOLVE, origins=change.origins)
        gate("step-staged")
        self._enter(version, entered)

    def _enter_emptied(self, version: V, commit: Commit) -> None:
        gate("step-staged")
        changes = FileChanges(removed=tuple(version.files))
        self._enter(version, FileCommit(commit.state, CommitOperation.EMPTY, changes))

    #: kind of change -> what publishes it
    _ENTER: ClassVar[Mapping[type[Change], Callable[[Any, Any, Commit], None]]] = {
        Append: _enter_wave,
        Upsert: _enter_upserts,
        Replace: _enter_content,
        AdvancePosition: _enter_position,
        Evolve: _enter_schema,
        Empty: _enter_emptied,
    }

    # -- the index

    def close(self) -> None:
        """See `Writer.close`."""
        self._index.close()

    def warm(self) -> None:
        """See `Warming`. A small table's index is built when its first batch comes: most tables may
        rest."""
        try:
            self._index.refuse_closed()
            with self._locked("building the key index"):
                version = self.newest()
                if (
                    version is not None
                    and version.state is not None
                    and version.state.capture.key
                    and self._large(version)
                    and not self._format.unsupported_reason(version, merging=True)
                ):
                    self._index.synced(version)
        except Closed:
            return
        except HARMLESS as error:
            _log.warning("the key index is built later", table=str(self._folder.table), error=str(error))

    def _large(self, version: V) -> bool:
        rows = sum(file.rows or 0 for file in version.files.values())
        return version.state is not None and rows >= self._limits.warm_rows

    def has_news(self) -> bool:
        """See `Writer.has_news`. It waits for no commit: one that is made meanwhile knows more.
        What maintenance has met is news, too. A table that is gone, or was put back from an older
        copy, lacks the newest version: each question more is a request, so that one is rare."""
        version = self._version
        if version is None or version.number != self._given:
            return True
        try:
            return self._format.has_news(version, or_loss=next(self._questions) % LOSS_QUESTIONS == 0)
        except (OSError, CdcError):
            return False

    # -- maintenance

    def maintain(self) -> str:
        """See `Writer.maintain`."""
        with self._lock, self._forgetting():
            version = self._version
            if version is None or version.state is None or version.state.epoch != self._epoch:
                return ""
            return self._maintenance.step(version)

    def has_written(self) -> bool:
        """See `Writing`."""
        return self._index.current is not None

    def _merge_runs(self, version: V) -> MaintenanceStep | None:
        index = self._index.current
        return MaintenanceStep("merge runs") if index is not None and index.merge_runs() else None

    def _compact(self, version: V) -> MaintenanceStep | None:
        if self._folder.staged or self._format.unsupported_reason(version, merging=True):
            return None
        due, state = next_compaction(version.files, self._policy), version.state
        if due is None or state is None:
            return None
        beside = self._beside(version, state.schema.names)
        if beside is None:
            return None
        if self._index.current is not None:
            # what another program did since the last batch is in the version only
            self._index.synced(version)
        stamp, scratch = self._format.stamp(version, state, ()), Scratch(self._index.scratch)
        compaction = write_compaction(self._folder, version, due, scratch, stamp, self._lineage, beside)
        return self._enter_compaction(version, compaction)

    def _beside(self, version: V, ours: Collection[str]) -> Sequence[pa.Field] | None:
        """The columns with which a compaction is written beside `ours`; None where the table does
        not have all of these. Raises SinkConflict where one of them is another, or values of one
        beside them would be forgotten."""
        if not set(version.names).issuperset(ours):
            return None
        try:
            beside = self._format.beside(version, ours)
        except CdcError as error:
            self._uncompacted = error.message
            raise
        self._uncompacted = ""
        self._format.refuse_altered(version)
        return beside

    def _enter_compaction(self, version: V, compaction: FileCommit) -> MaintenanceStep:
        """A commit with the state as it was found; raises LostRace."""
        with self._forgetting():
            after = self._enter(version, compaction)
        vectors = (after.files[name].deleted for name in compaction.changes.deleted_rows)
        written = sum(new.file.size for new in compaction.adding()) + sum(rows.size for rows in vectors if rows)
        return MaintenanceStep("compact", bytes_written=written)

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities(frozenset(cls._ENTER))
