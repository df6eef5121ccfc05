"""A sync without Spark and without a controller: the same parts, called one after the other in the
test's process.

It copies tables by splits between watermarks, follows the binlog by `BinlogReader` and `Applier`
when it is asked to, and keeps a status file and a lock as a controller does. Tests of what stands
beside a sync (verify) need its effects at chosen moments, not its processes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import meet_all
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_mysql.positions.watermark import high
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.reading.selected_tables import resolve
from cdcsync_mysql.server import ServerFacts, read_facts
from cdcsync_mysql.sessions.connection import Source, connect, source_from_spec
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.schema.steps import NOT_FOLLOWED
from cdcsync_spark.binlog.settings import ReaderSettings
from cdcsync_spark.delivery.events import takes_events
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.changes import Append, Commit, Replace
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.contract.sink import Sink, Target
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.stream.apply.applier import Applier
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.policies import policy_of
from support.servers import Server
from support.source import repair_of

_POLL_SECONDS = 0.05
USER, PASSWORD = "cdc", "a secret of the test"


@dataclass
class SmallSync:
    """A sync of the tables of `database` on `server`, into `folder`; `kafka` is a section of a
    sink, whose topics are those of the sync `name`; `sql` is a whole `spec.sink` of a SQL database,
    whose Secret is the source's. With `follow`, changes of definitions are followed. `excluded` are
    columns that are left out, by table."""

    server: Server
    database: str
    folder: Path
    chunk_size: int = 1000
    name: str = "small"
    kafka: dict[str, Any] = field(default_factory=dict)
    sql: dict[str, Any] = field(default_factory=dict)
    follow: bool = False
    excluded: dict[str, list[str]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server.create_user(USER, PASSWORD)
        secret = self.folder / "secrets" / "source"
        secret.mkdir(parents=True)
        (secret / "username").write_text(USER)
        (secret / "password").write_text(PASSWORD)
        self.resource = CdcSync.model_validate(self._manifest())
        self.source: Source = source_from_spec(self.resource.spec.source, self.secrets_dir)
        self.restart()
        with connect(self.source) as connection:
            self.facts: ServerFacts = read_facts(connection)

    def restart(self) -> None:
        """As a new process: what it knows is in the targets."""
        spec = self.resource.spec.sink
        self.sink: Sink = sink_from_spec(spec, self.secrets_dir, self.resource.full_name, Role("stream"))
        self.targets = {name: self.target(name.partition(".")[2]) for name in self.targets}

    def _manifest(self) -> dict[str, Any]:
        return {
            "apiVersion": "cdcsync.io/v1alpha1",
            "kind": "CdcSync",
            "metadata": {"name": self.name},
            "spec": {
                "source": {
                    "host": self.server.host,
                    "port": self.server.port,
                    "credentialsSecretRef": {"name": "source"},
                },
                "tables": {"include": [f"{self.database}\\..*"], "overrides": self._overrides()},
                "snapshot": {"chunkSize": self.chunk_size, "parallelism": 2},
                "sink": self._sink(),
            },
        }

    def _overrides(self) -> list[dict[str, Any]]:
        return [
            {"table": f"{self.database}.{table}", "columns": {"exclude": columns}}
            for table, columns in self.excluded.items()
        ]

    def _sink(self) -> dict[str, Any]:
        if self.sql:
            return self.sql
        lake = {"path": str(self.folder / "lake")}
        return {"kafka": {**self.kafka, "staging": lake}} if self.kafka else {"delta": lake}

    @property
    def secrets_dir(self) -> Path:
        return self.folder / "secrets"

    @property
    def status_file(self) -> Path:
        return self.folder / f"default.{self.name}.yaml"

    @property
    def lock_file(self) -> Path:
        return self.folder / f"default.{self.name}.lock"

    def target(self, name: str) -> Target:
        return self.sink.target(TableId(self.database, name))

    def write_status(self, *tables: TableStatus) -> None:
        fresh = self.status_file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"status": Status(table_status=tables).to_dict()}))
        fresh.rename(self.status_file)

    # -- the snapshot

    def copy(self, *, again: int = 0) -> None:
        """All tables, as of now; they are consistent when the binlog is followed once. `again` is
        the generation of a resnapshot."""
        with connect(self.source) as connection:
            for table in resolve(connection, self.resource.spec.tables.selection).tables:
                self._copy_table(table, again)

    def _copy_table(self, table_id: TableId, generation: int) -> None:
        with connect(self.source) as connection:
            table = read_table(connection, table_id, frozenset(self.excluded.get(table_id.name, ())))
            splits = list(plan(connection, table, self.chunk_size))
        main = self.sink.target(table_id)
        target = self.sink.target(table_id, generation=generation)
        identity = Identity(self.resource.full_name, self.facts.lineage, str(table_id))
        target.prepare(TableState(identity, table, TargetSchema.of(table), epoch=1, generation=generation))
        safe = LowMark(self.source, self.facts).take()
        readers = [SplitReader(self.source, self.facts.lineage, table, s, safe, 60) for s in splits]
        files = [f for i, r in enumerate(readers) for f in target.stage(table, r.batches(), f"split-{i}")]
        with connect(self.source) as connection:
            end = high(connection, self.facts)
        rows = sum(r.rows for r in readers)

        def build(found: TableState) -> Commit:
            return Commit(replace(found.after_wave(splits, safe, end, rows, 0), epoch=1), Append(tuple(files)))

        state = target.commit(1, build)
        if generation:
            staged = target.staged()
            main.commit(
                1, lambda found: Commit(replace(state, commit_number=found.commit_number + 1), Replace(tuple(staged)))
            )
        self.targets[str(table_id)] = main

    # -- the stream

    def catch_up(self) -> None:
        """Until the source's position of now."""
        with connect(self.source) as connection:
            end = high(connection, self.facts)
        with self.running(report=False) as stream:
            stream.wait_for(lambda: stream.applier.reader.has_reached(end))

    @contextmanager
    def running(self, *, report: bool = True) -> Iterator[StreamThread]:
        """Follows the binlog in a thread, under the lock; `report` writes the status file."""
        with open(self.lock_file, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stream = StreamThread(self, report)
            stream.start()
            try:
                yield stream
            finally:
                stream.stop()


class StreamThread:
    """A thread that applies the binlog."""

    def __init__(self, sync: SmallSync, report: bool) -> None:
        self._sync, self._report = sync, report
        self.tables = {n: self._table(n, t) for n, t in sync.targets.items()}
        positions = {t.state.capture.id: t.state.position for t in self.tables.values() if t.state.position}
        start = meet_all(list(positions.values()))
        events = takes_events(sync.sink.capabilities)
        repair = repair_of(sync.source, sync.facts.lineage)
        together, commit_all = sync.sink.capabilities.together, sync.sink.commit_all
        self.applier = Applier(self.tables, 1, start, time.monotonic, repair, events, commit_all, together)
        self._folder = sync.folder / f"log-{os.urandom(4).hex()}"
        self._folder.mkdir()
        definitions = {t.state.capture.id: t.state.capture for t in self.tables.values()}
        self._reader = BinlogReader(
            ReaderSettings(
                sync.source,
                sync.facts.lineage,
                4_000_000_001,
                definitions,
                start,
                positions,
                1.0,
                8 << 20,
                self._folder,
                policies={t.state.capture.id: t.policy for t in self.tables.values()},
            )
        )
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _table(self, name: str, target: Target) -> StreamTable:
        sync = self._sync
        policy = policy_of(sync.resource.spec, name, sync.sink.capabilities) if sync.follow else NOT_FOLLOWED
        return StreamTable(name, target.writer(sync.folder), _state(target), time.monotonic(), policy=policy)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def wait_for(self, condition: Any, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._failure is None, self._failure
            assert time.monotonic() < deadline, "the stream did not get there in time"
            time.sleep(_POLL_SECONDS)

    def _run(self) -> None:
        self._reader.start()
        try:
            while not self._ending.is_set():
                batch = self._reader.next_batch()
                if batch is None:
                    self._ending.wait(_POLL_SECONDS)
                    continue
                if batch.fatal:
                    raise batch.fatal
                self.applier.apply(batch)
                self._raise_stopped()
                if self._report:
                    self._write_status()
            self.applier.checkpoint_idle(older_than=float("inf"))
            self._raise_stopped()
        except CdcError as e:
            self._failure = e
        finally:
            self._reader.stop()

    def _raise_stopped(self) -> None:
        stopped = next((t.error for t in self.tables.values() if t.error), None)
        if stopped:
            raise stopped

    def _write_status(self) -> None:
        self._sync.write_status(
            *(
                TableStatus(
                    name=t.name,
                    phase=TablePhase.STREAMING if self.applier.consistent(t) else TablePhase.CATCHING_UP,
                    position=StatusPosition.model_validate(self.applier.position(t).to_dict()),
                )
                for t in self.tables.values()
            )
        )


def _state(target: Target) -> TableState:
    state = target.last_commit()
    assert state is not None
    return state
