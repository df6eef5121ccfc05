"""Commits to a Delta table as compare-and-set (rule R8), by entries of our own in its log.

A commit brings its view of the table to the newest version, reads our newest state there, lets the
caller decide, and writes the next entry only if nobody has written it: rows, state and transaction
number together, or nothing. Whoever loses the race starts again on the version that won, so
whatever an OPTIMIZE, another program's append or a newer run did is seen before anything is built
on it. An entry whose outcome is unknown (the store did not answer) is no special case: the next
opening finds it, or does not.

Between commits the view and the key index stay in memory; both follow the log, whoever wrote it,
and are dropped after an error of a commit; a step of upkeep that fails before its entry has changed
neither. Where the table's protocol asks for more than our entries honour, or allows no deletion
vectors, delta-rs commits, or Spark finds the actions of an entry that we complete
(`sinks.delta.strategy`), and `fallback` says why.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import structlog
from pyroaring import BitMap
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.table import Table
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks.base import (
    Append,
    Build,
    Closed,
    Commit,
    Maintenance,
    Replace,
    StagedFile,
    Step,
    Upsert,
    check_successor,
    refuse_superseded,
)
from cdcsync_spark.sinks.delta import delta_rs, delta_spark
from cdcsync_spark.sinks.delta import maintenance as delta_maintenance
from cdcsync_spark.sinks.delta import properties as delta_properties
from cdcsync_spark.sinks.delta.batch import Batch, write_batch
from cdcsync_spark.sinks.delta.compaction import next_move, write_move
from cdcsync_spark.sinks.delta.features import (
    VECTORS_ENABLED,
    deletion_vectors_unavailable,
    unsupported_reason,
    upgrade,
)
from cdcsync_spark.sinks.delta.log import Log, LostRace, completed, entry_name, head
from cdcsync_spark.sinks.delta.open import catch_up
from cdcsync_spark.sinks.delta.snapshot import deleted_rows, file_batches, read_range
from cdcsync_spark.sinks.delta.strategy import CommitStrategy, choose, delta_rs_writes, rewritten
from cdcsync_spark.sinks.delta.table_path import TablePath, delta_schema
from cdcsync_spark.sinks.delta.view import Action, LiveFile, TableView, entry_text, new_file
from cdcsync_spark.sinks.lake.key_index import FileVersion, KeyIndex

#: other programs' commits may get in between that often before the run gives up and is retried with
#: backoff
ATTEMPTS = 20
#: rows from which a table's index is built before its first batch comes
WARM_ROWS = 1_000_000

_log = structlog.get_logger()


#: what may go wrong where nothing is lost by it: the store, a race, a file that cannot be read
_HARMLESS = (CdcError, LostRace, ValueError, KeyError, pa.ArrowException)


class DeltaWriter:
    """Writes one table, with a view of it and an index of its keys that are kept between commits.
    `scratch` is a folder on a local disk.

    Thread safe. `fallback` is why the last MERGE was left to delta-rs, as a phrase; empty where it
    was not.
    """

    def __init__(self, table_path: TablePath, scratch: Path) -> None:
        self._path = table_path
        self._scratch = scratch
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._forget()
        self._epoch = -1
        self._swept = False
        self._failures = delta_maintenance.Failures(str(table_path.table))
        self.fallback = ""
        self.maintenance = Maintenance()

    def _forget(self) -> None:
        self._view: TableView | None = None
        self._index: KeyIndex | None = None

    def last_commit(self) -> TableState | None:
        """The newest own state; None: no table there."""
        with self._locked("reading the state"):
            view = self._newest(self._path.log())
            if view is not None and view.state is None:
                raise self._path.foreign_table_error()
            return view.state if view else None

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Target.commit`."""
        attempts = Retrying(
            retry=retry_if_exception_type(LostRace),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(0.02, max=1),
            retry_error_callback=self._give_up,
        )
        with self._locked("committing"):
            return attempts(self._try_commit, epoch, build)

    @contextmanager
    def _locked(self, doing: str) -> Iterator[None]:
        with self._lock, self._path.translating_errors(doing), self._forgetting():
            yield

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
        view = self._newest(log)
        if view is None or view.state is None:
            raise self._path.foreign_table_error()
        found = view.state
        refuse_superseded(found, epoch)
        commit = build(found)
        if commit is None:
            return found
        check_successor(found, commit, epoch)
        if not isinstance(commit.change, Replace):  # which writes the schema anew and leaves no file
            self._path.refuse_other_columns(view, found.table)
        gate("before-commit")
        self._epoch = epoch
        self._publish(log, view, commit)
        gate("committed")
        return commit.state

    def _newest(self, log: Log) -> TableView | None:
        view = self._view
        if view is not None and catch_up(log, view) == 0 and not log.has_entry(view.version):
            # the log was cut behind us, or is gone: what is written after a hole nobody reads
            view = None
        self._view = view or self._path.view()
        return self._view

    @property
    def max_idle_seconds(self) -> float:
        """See `Writer.max_idle_seconds`."""
        return delta_maintenance.max_idle_seconds(self._view.properties) if self._view else math.inf

    # -- one commit

    def _publish(self, log: Log, view: TableView, commit: Commit) -> None:
        """Raises LostRace."""
        change = commit.change
        merging = isinstance(change, Upsert) and change.upserts.num_rows + change.deletes.num_rows > 0
        reason = self._unsupported_reason(view, merging=merging)
        if merging:
            self.fallback = reason
        if reason:
            self._fall_back(view, commit, reason)
            return
        now = _now()
        batch = self._batch(log, view, commit, now)
        operation = _OPERATIONS.get(type(change), "WRITE")
        self._enter_batch(view, commit.state, operation, now, batch)

    def _enter_batch(self, view: TableView, state: TableState, operation: str, now: int, batch: Batch) -> None:
        self._enter(view, state, [*head(state, operation, now), *batch.actions], batch.paths)
        if self._index is not None:
            batch.apply_to(self._index)

    def _enter(self, view: TableView, state: TableState, actions: list[Action], paths: list[str]) -> None:
        """The log's next entry, or LostRace; then nobody needs the files at `paths`, written for
        it."""
        text = entry_text(actions)
        if not self._path.store.put_new(entry_name(view.version + 1), text.encode()):
            with suppress(OSError):  # a later run's sweep takes them
                delta_maintenance.delete_files(self._path, paths)
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

    def _batch(self, log: Log, view: TableView, commit: Commit, now: int) -> Batch:
        change, table = commit.change, commit.state.table
        if isinstance(change, Upsert):
            if change.upserts.num_rows + change.deletes.num_rows == 0:
                return Batch()
            batch = write_batch(self._path, table, view, self._synced_index(log, view), change, now)
            batch.actions[:0] = upgrade(view, view.metadata["schemaString"], {VECTORS_ENABLED: "true"}, vectors=True)
            return batch
        if isinstance(change, Append):
            return Batch(self._adds(change.files, now))
        if isinstance(change, Replace):
            return Batch(self._replaced(view, table, change, now))
        return Batch()

    def _replaced(self, view: TableView, table: Table, change: Replace, now: int) -> list[Action]:
        schema, properties = delta_schema(table), delta_properties.adapted(view.properties, table)
        return [
            *upgrade(view, schema, properties, vectors=False),
            *(file.removed(now, data_change=True) for file in view.files.values()),
            *self._adds(change.files, now),
        ]

    def _adds(self, files: tuple[StagedFile, ...], now: int) -> list[Action]:
        self._path.refuse_missing(files)
        made = [new_file(f.path.removeprefix(self._path.prefix), f.size, f.stats, now, data_change=True) for f in files]
        return [{"add": dict(file.add)} for file in made]

    # -- the index

    def _synced_index(self, log: Log, view: TableView) -> KeyIndex:
        assert view.state is not None
        table = view.state.table
        if self._index is None or self._index.table != table:
            self._index = KeyIndex(table, self._scratch, secrets.randbits(64))
        schema = arrow_schema(table)
        keys = partial(file_batches, log.files, table=schema, columns=table.key)
        begun = time.monotonic()
        read = self._index.sync({path: self._version(log, file, keys) for path, file in view.files.items()})
        if read:
            seconds = round(time.monotonic() - begun, 3)
            _log.info("read keys into the index", table=str(self._path.table), files=read, seconds=seconds)
        return self._index

    def _version(self, log: Log, file: LiveFile, read_keys: Callable[[str], Iterable[pa.RecordBatch]]) -> FileVersion:
        vector, path = file.vector, f"{log.folder}/{file.path}"
        return FileVersion(
            vector.id if vector else "",
            lambda: self._until_closed(partial(read_keys, path)),
            lambda: self._deleted(log, file),
        )

    def _until_closed(self, read: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """What `read` gives. A process does not end before its pools do, and an index may take
        minutes: so each file's reading looks."""
        self._refuse_closed()
        for batch in read():
            yield batch
            self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closing.is_set():
            raise Closed

    def close(self) -> None:
        """See `Writer.close`. What was read of an index that is not whole is forgotten with the
        error."""
        self._closing.set()

    def warm(self) -> None:
        """See `Writer.warm`. A small table's index is built when its first batch comes: most tables
        may rest."""
        try:
            self._refuse_closed()
            with self._locked("building the key index"):
                log = self._path.log()
                view = self._newest(log)
                if view is not None and self._large(view) and not self._unsupported_reason(view, merging=True):
                    self._synced_index(log, view)
        except Closed:
            return
        except _HARMLESS as error:
            _log.warning("the key index is built later", table=str(self._path.table), error=str(error))

    @staticmethod
    def _large(view: TableView) -> bool:
        return view.state is not None and sum(file.rows or 0 for file in view.files.values()) >= WARM_ROWS

    # -- upkeep

    def maintain(self) -> str:
        """One step of upkeep (see `sinks.delta.maintenance`), if one is due: its name; empty where
        none is.

        A step that fails has written no entry, so what is known of the table stays: to read it
        again may take minutes.
        """
        with self._lock, self._forgetting():
            for step in (self._tidy, self._checkpoint, self._remove, self._sweep, self._move):
                name = step.__name__.removeprefix("_")
                if not self._failures.resting(name):
                    try:
                        done = self._timed(step)
                    except LostRace:
                        return ""
                    except _HARMLESS as error:
                        self._failures.add(name, error)
                        return ""
                    if done:
                        self._failures.end(name)
                        return name
        return ""

    def _timed(self, step: Callable[[TableView], Step | None]) -> Step | None:
        view, begun = self._view, time.monotonic()
        if view is None or view.state is None or view.state.epoch != self._epoch:
            return None
        with self._path.translating_errors("upkeep"):
            done = step(view)
        if done:
            self.maintenance = self.maintenance.after(done, time.monotonic() - begun)
        return done

    def _tidy(self, view: TableView) -> Step | None:
        return Step("tidy") if self._index is not None and self._index.tidy() else None

    def _checkpoint(self, view: TableView) -> Step | None:
        if not delta_maintenance.checkpoint_due(view):
            return None
        delta_maintenance.checkpoint(self._path, view)
        return Step("checkpoint")

    def _remove(self, view: TableView) -> Step | None:
        dead = [] if self._path.staged else delta_maintenance.removable(view, _now())
        if not dead:
            return None
        delta_maintenance.remove(self._path, view, dead)
        return Step("remove", files_removed=len(dead))

    def _sweep(self, view: TableView) -> Step | None:
        if self._path.staged or self._index is None or self._swept:
            return None
        aged = delta_maintenance.aged(self._path, view)
        newest = self._newest(self._path.log())
        # where a run slept they are its successor's
        mine = newest is not None and newest.state is not None and newest.state.epoch == self._epoch
        orphans = delta_maintenance.unnamed(newest, aged) if newest and mine else []
        delta_maintenance.delete_files(self._path, orphans)
        self._swept = True
        return Step("sweep", files_removed=len(orphans))

    def _move(self, view: TableView) -> Step | None:
        plain = self._path.vectors and not self._path.staged and not deletion_vectors_unavailable(view)
        move = next_move(view.files.values()) if plain else None
        if move is None or view.state is None or view.fields.keys() != set(arrow_schema(view.state.table).names):
            # a move would forget the values of columns that somebody added
            return None
        log = self._path.log()
        if self._index is not None:
            # what another program did since the last batch is in the view only
            self._synced_index(log, view)
        now = _now()
        batch = write_move(self._path, log.files, view.state.table, view, partial(self._deleted, log), move, now)
        with self._forgetting():
            self._enter_batch(view, view.state, "OPTIMIZE", now, batch)
        return Step("move", bytes_written=batch.bytes)

    def _deleted(self, log: Log, file: LiveFile) -> BitMap:
        return deleted_rows(
            file.vector, lambda path, offset, size: read_range(log.files, f"{log.folder}/{path}", offset, size)
        )

    # -- the other ways

    def _fall_back(self, view: TableView, commit: Commit, reason: str) -> None:
        spark = delta_spark.serves(self._path, view)
        chosen = choose(
            reason,
            writable=delta_rs_writes(view),
            spark=spark,
            # who wants no vectors gets none, whatever the table has
            rewritten=rewritten(view, commit.change, commit.state.table.key[0]) if spark and self._path.vectors else 0,
        )
        if chosen is CommitStrategy.NONE:
            raise self._path.not_writable(reason)
        if chosen is CommitStrategy.SPARK:
            self._commit_by_spark(view, commit)
        else:
            delta_rs.publish(self._path, view, commit)

    def _commit_by_spark(self, view: TableView, commit: Commit) -> None:
        """Spark's actions, our state: one entry of the log."""
        actions, paths = delta_spark.work(self._path, view, commit)
        gate("spark-written")
        entry = completed(actions, commit.state, _now())
        self._enter(view, commit.state, entry, paths)

    def _give_up(self, attempts: RetryCallState) -> TableState:
        raise self._path.contention_error(attempts.attempt_number)


def _now() -> int:
    """As the log tells time, in milliseconds."""
    return time.time_ns() // 1_000_000


_OPERATIONS: dict[type, str] = {Upsert: "MERGE"}
