"""Kafka topics as targets: every change in order, exactly once, after a snapshot without a false
row.

A table's snapshot goes through a staged copy, a keyed Delta table at `staging`: waves are appended
to it and the changes since LOW are folded in, as in a replica. When its state is consistent, its
rows are sent, in parts of bounded size, each part in a transaction with the number of rows that are
sent; the last transaction has the state "as of P". From then on the topic takes events.

Why it is right: whose turn it is follows from the table's record in the state topic, which every
transaction that sends anything carries along (R4) and which is compared before it is committed
(`state_topic`, R8). A copy that is consistent never changes again, so its rows in the order of its
files are fixed, and a number of them says where to go on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import structlog

from cdcsync_core.capture import Capture
from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.remedies import resnapshot
from cdcsync_core.source_table import TableId
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.base import (
    AdvancePosition,
    Append,
    Build,
    Capabilities,
    Commit,
    Emit,
    Outcome,
    Replace,
    Staged,
    TargetSnapshot,
    Upsert,
    Writer,
    WriterStatus,
    check_successor,
    refuse_other_identity,
    refuse_superseded,
)
from cdcsync_spark.sinks.delta.commit import DeltaWriter
from cdcsync_spark.sinks.delta.sink import DeltaTarget
from cdcsync_spark.sinks.delta.snapshot import DeltaSnapshot
from cdcsync_spark.sinks.delta.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.kafka.client import KafkaSettings
from cdcsync_spark.sinks.kafka.encoding import event_records, snapshot_records
from cdcsync_spark.sinks.kafka.session import KafkaSession, Piece, TableFault, state_topic
from cdcsync_spark.sinks.kafka.table_record import Publication, TableRecord
from cdcsync_spark.sinks.kafka.topics import Topic, TopicSettings
from cdcsync_spark.sinks.lake.store import Store

_log = structlog.get_logger()
#: of a snapshot, in one transaction
PART_ROWS = 100_000
CAPABILITIES = Capabilities(frozenset({Append, Upsert, Emit, Replace, AdvancePosition}))


@dataclass
class KafkaSink:
    """The topics of the sync `namespace/name`; `role` is the kind of run that writes, empty for who
    only reads. `staging` is the lake of the staged copies."""

    settings: KafkaSettings
    topics: TopicSettings
    form: str
    sync: str
    staging: Store
    role: str = ""
    part_rows: int = PART_ROWS
    #: the name of the state topic; empty: after the sync
    state: str = ""
    _session: KafkaSession | None = field(default=None, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """A connection is its process's own."""
        return {**self.__dict__, "_session": None}

    @property
    def session(self) -> KafkaSession:
        if self._session is None:
            self._session = KafkaSession(
                self.settings, self.sync, self.role, self.topics.replication, self.state or state_topic(self.sync)
            )
        return self._session

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def target(self, table: TableId, *, generation: int = 0) -> KafkaTarget | DeltaTarget:
        main = KafkaTarget(self, table)
        return main.copy(generation) if generation else main

    def discard(self, table: TableId, generation: int) -> None:
        """A copy that the topic waits for stays."""
        found = self.session.record(str(table))
        if found is None or found.published or found.state.generation != generation:
            KafkaTarget(self, table).remove_copy(generation)

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        """One transaction for the tables that are published; the copies of the others are written
        one by one."""
        outcomes: dict[int, Outcome] = {}
        for number, (writer, build) in enumerate(parts):
            assert isinstance(writer, KafkaWriter)
            try:
                if not writer.record.published:
                    outcomes[number] = writer.commit(epoch, build)
            except PermanentError as error:
                outcomes[number] = error
        live = {n: part for n, part in enumerate(parts) if n not in outcomes}
        outcomes |= _commit_together(self.session, epoch, live)  # type: ignore[arg-type]
        return iter([outcomes[n] for n in range(len(parts))])


def _commit_together(
    session: KafkaSession, epoch: int, parts: dict[int, tuple[KafkaWriter, Build]]
) -> dict[int, Outcome]:
    """Decided again after a lost race, and without a table that is refused."""
    outcomes: dict[int, Outcome] = {}
    while True:
        due = {writer.name: (n, writer, build) for n, (writer, build) in parts.items() if n not in outcomes}
        drafts: dict[str, tuple[TableRecord, Commit]] = {}
        for name, (n, writer, build) in due.items():
            try:
                draft = writer.draft(epoch, build)
            except PermanentError as error:
                outcomes[n] = error
                continue
            if draft is not None:
                drafts[name] = draft
        if not drafts:
            break
        try:
            pieces = (piece for name, (_, commit) in drafts.items() for piece in due[name][1].pieces(commit))
            if session.transact({name: record for name, (record, _) in drafts.items()}, pieces):
                break
        except TableFault as fault:
            outcomes[due[fault.table][0]] = fault.error
    return {n: writer.record.state for n, (writer, _) in parts.items()} | outcomes


@dataclass
class KafkaTarget:
    """One table's topic."""

    sink: KafkaSink
    table: TableId
    #: the generation of the copy that is filled, known after `prepare`
    waiting: int | None = None

    @property
    def name(self) -> str:
        return str(self.table)

    @property
    def topic(self) -> str:
        return self.sink.topics.name(self.sink.sync, self.table)

    def copy(self, generation: int) -> DeltaTarget:
        folder = f"{STAGED_PREFIX}{generation}"
        return DeltaTarget(TablePath(self.sink.staging, self.sink.sync, self.table, folder))

    def remove_copy(self, generation: int) -> None:
        path = self.copy(generation).path
        with path.translating_errors("removing a staged copy"):
            path.lake.delete_folder(path.folder)

    def prepare(self, state: TableState) -> TableState:
        """A topic that is there is taken if it is empty."""
        session = self.sink.session
        record = session.record(self.name)
        while record is None:
            topic = self._made_topic(session)
            session.transact({self.name: TableRecord(state, topic.name, topic.id, topic.partitions)}, ())
            gate("table-created")
            record = session.record(self.name)
        refuse_other_identity(record.state, state)
        self.waiting = record.state.generation
        if record.published:
            return record.state
        return self.copy(record.state.generation).prepare(record.state)

    def _made_topic(self, session: KafkaSession) -> Topic:
        """Two tables under one name meet here: the state topic has all names that are taken."""
        wanted, name = self.sink.topics, self.topic
        others = [t for t, r in session.records().items() if r.topic == name and t != self.name]
        if others:
            raise _shared_topic(self.name, name, others[0])
        session.topics.make(name, wanted.partitions, wanted.replication, dict(wanted.config))
        found = session.topics.made(name)
        if not session.topics.is_empty(found):
            raise _foreign_topic(self.name, name)
        return found

    def last_commit(self) -> TableState | None:
        return self.writer().last_commit()

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        """In tasks of Spark, which do not ask the brokers."""
        assert self.waiting is not None, "prepared before"
        return self.copy(self.waiting).stage(table, batches, name)

    def staged(self) -> Staged:
        """There is nothing to be published of a topic."""
        return ()

    def commit(self, epoch: int, build: Build) -> TableState:
        return self.writer().commit(epoch, build)

    def writer(self, scratch: Path | None = None) -> KafkaWriter:
        return KafkaWriter(self, scratch or Path(tempfile.gettempdir()))

    def open_snapshot(self) -> TargetSnapshot:
        """Of the staged copy; a topic has no rows as of now."""
        record = self.sink.session.record(self.name)
        if record is not None and not record.published:
            return self.copy(record.state.generation).open_snapshot()
        raise fail(
            Reason.SPEC_INVALID,
            "a topic holds changes, not rows that could be compared",
            needed="a sink of tables",
            remedy="compare the table that a consumer makes of the topic",
            table=self.name,
        )


@dataclass
class KafkaWriter:
    """Writes the copy until it is consistent, sends it, then sends events."""

    target: KafkaTarget
    scratch: Path
    _copies: dict[int, DeltaWriter] = field(default_factory=dict)
    _checked: str = ""
    _cleaned: bool = False

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def session(self) -> KafkaSession:
        return self.target.sink.session

    @property
    def record(self) -> TableRecord:
        """Raises SinkConflict where there is none, or where the topic is not the one that it is
        about."""
        found = self.session.record(self.name)
        if found is None:
            raise _foreign_topic(self.name, self.target.topic)
        if self._checked != found.topic_id:
            _check_topic(self.name, found, self.session.topics.find(found.topic))
            self._checked = found.topic_id
        return found

    def last_commit(self) -> TableState | None:
        self.session.refresh()
        if self.session.record(self.name) is None:
            return None
        record = self.record
        if record.published:
            return record.state
        copy = self._copy(record).last_commit()
        if copy is None:
            if record.state.position is not None:
                raise self._lost_copy()
            return record.state
        return replace(copy, epoch=max(record.state.epoch, copy.epoch))

    def _copy(self, record: TableRecord) -> DeltaWriter:
        generation = record.state.generation
        if generation not in self._copies:
            self._copies[generation] = self.target.copy(generation).writer(self.scratch)
        return self._copies[generation]

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`."""
        record = self.record
        refuse_superseded(record.state, epoch)
        if not record.published:
            written = self._written_to_copy(record, epoch, build)
            if written is not None:
                return written
        (outcome,) = _commit_together(self.session, epoch, {0: (self, build)}).values()
        if isinstance(outcome, PermanentError):
            raise outcome
        return outcome if self.record.published or not outcome.consistent else self._publish(epoch)

    def draft(self, epoch: int, build: Build) -> tuple[TableRecord, Commit] | None:
        """What is to be committed on top of the known record; None: nothing."""
        found = self.record
        refuse_superseded(found.state, epoch)
        commit = build(found.state)
        if commit is None:
            return None
        check_successor(found.state, commit, epoch)
        if not isinstance(commit.change, Replace):
            return replace(found, state=commit.state), commit
        sent = self._unsent(commit.state) if commit.state.consistent else None
        return replace(found, state=commit.state, publication=sent), commit

    def pieces(self, commit: Commit) -> Iterator[Piece]:
        """Raises TableFault for what the format cannot carry."""
        if not isinstance(commit.change, Emit):
            return
        sink, topic = self.target.sink, self.record.topic
        try:
            for records in event_records(sink.form, sink.sync, commit.state, commit.change.events):
                yield Piece(self.name, topic, records)
        except PermanentError as error:
            raise TableFault(self.name, error) from None

    # -- the snapshot

    def _written_to_copy(self, record: TableRecord, epoch: int, build: Build) -> TableState | None:
        """The copy's state, or that of its publication; None where the commit is the topic's: the
        copy was complete, or another one is to be claimed."""
        copy, claims = self._copy(record), list[Commit]()
        found = copy.last_commit()
        if found is None:
            raise self._lost_copy()
        if found.consistent:
            self._publish(epoch)
            return None

        def keyed(state: TableState) -> Commit | None:
            commit = None if state.consistent else build(state)
            if commit is not None and isinstance(commit.change, Replace):
                claims.append(commit)
                return None
            return commit

        state = copy.commit(epoch, keyed)
        if claims:
            return self._claim(epoch, claims[-1])
        return self._publish(epoch) if state.consistent else state

    def _claim(self, epoch: int, commit: Commit) -> TableState:
        """Of a newer copy, while an older one is not published."""

        def build(found: TableState) -> Commit | None:
            if found.generation >= commit.state.generation:
                return None
            return replace(commit, state=replace(commit.state, commit_number=found.commit_number + 1))

        (outcome,) = _commit_together(self.session, epoch, {0: (self, build)}).values()
        if isinstance(outcome, PermanentError):
            raise outcome
        return outcome if self.record.published or not outcome.consistent else self._publish(epoch)

    def _unsent(self, state: TableState) -> Publication:
        return Publication(self._snapshot(state.generation).version)

    def _snapshot(self, generation: int) -> DeltaSnapshot:
        """The copy's newest version, its files in one order."""
        path = self.target.copy(generation).path
        with path.translating_errors("reading the staged copy"):
            view = path.view()
        if view is None or view.state is None:
            raise self._lost_copy()
        found = path.snapshot(view)
        return replace(found, files=tuple(sorted(found.files, key=lambda file: file[0])))

    def _publish(self, epoch: int) -> TableState:
        """The rows of the copy that are not sent yet, then the state; where another writer was
        first, what that one has done counts."""
        gate("before-publish")
        while not self.record.published:
            record = self.record
            refuse_superseded(record.state, epoch)
            snapshot = self._snapshot(record.state.generation)
            sent = record.publication or Publication(snapshot.version)
            if sent.version != snapshot.version or not snapshot.state.consistent:
                raise self._lost_copy()
            self._send_snapshot(record, sent, snapshot, epoch)
        gate("published")
        return self.record.state

    def _send_snapshot(self, record: TableRecord, sent: Publication, snapshot: DeltaSnapshot, epoch: int) -> None:
        sink = self.target.sink
        for rows in _parts(snapshot, sent.rows, sink.part_rows):
            sent = replace(sent, rows=sent.rows + rows.num_rows)
            records = snapshot_records(sink.form, sink.sync, snapshot.state, rows)
            pieces = (Piece(self.name, record.topic, r) for r in records)
            if not self._transact(replace(record.by(epoch), publication=sent), pieces):
                return
            gate("part-sent")
        state = replace(snapshot.state, epoch=epoch, commit_number=record.state.commit_number + 1)
        self._transact(replace(record, state=state, publication=None), ())

    def _transact(self, record: TableRecord, pieces: Iterable[Piece]) -> bool:
        try:
            return self.session.transact({self.name: record}, pieces)
        except TableFault as fault:
            raise fault.error from None

    def maintain(self) -> str:
        record = self.session.record(self.name)
        if record is None:
            return ""
        if not record.published:
            copy = self._copies.get(record.state.generation)
            known = copy.last_commit() if copy else None
            return copy.maintain() if copy and known and not known.consistent else ""
        if self._cleaned:
            return ""
        self._cleaned = True
        return "remove staged copies" if self._remove_copies(record.state.generation) else ""

    def _remove_copies(self, generation: int) -> bool:
        """Those up to the published one, once per run; what fails is tried by the next run."""
        path, found = self.target.copy(generation).path, False
        try:
            with path.translating_errors("removing staged copies"):
                for name in path.lake.listed(path.root):
                    number = name.removeprefix(STAGED_PREFIX)
                    if name != number and number.isdecimal() and int(number) <= generation:
                        self.target.remove_copy(int(number))
                        found = True
        except CdcError as error:
            _log.warning("staged copies are removed later", table=self.name, error=str(error))
        return found

    def warm(self) -> None:
        for copy in self._copies.values():
            copy.warm()

    def close(self) -> None:
        for copy in self._copies.values():
            copy.close()

    @property
    def status(self) -> WriterStatus:
        return WriterStatus()

    def _lost_copy(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            "the staged copy of the snapshot is gone, or was changed",
            needed="the copy until it is sent",
            remedy=resnapshot(self.name),
            table=self.name,
        )


def _parts(snapshot: DeltaSnapshot, skipped: int, size: int) -> Iterator[pa.Table]:
    """The rows behind the first `skipped` ones, at most `size` together."""
    part: list[pa.RecordBatch] = []
    for batch in snapshot.scan():
        passed = min(skipped, batch.num_rows)
        skipped, batch = skipped - passed, batch.slice(passed)
        while batch.num_rows:
            room = size - sum(b.num_rows for b in part)
            part, batch = [*part, batch.slice(0, room)], batch.slice(room)
            if sum(b.num_rows for b in part) == size:
                yield pa.Table.from_batches(part, snapshot.schema)
                part = []
    if part:
        yield pa.Table.from_batches(part, snapshot.schema)


def _check_topic(table: str, record: TableRecord, found: Topic | None) -> None:
    if found is None or found.id != record.topic_id:
        what = "is gone" if found is None else "was deleted and made again"
        raise fail(
            Reason.SINK_CONFLICT,
            f"the topic {record.topic} {what}",
            needed="the topic that the records were sent to",
            remedy=f"delete the state topic and the other topics, too, and begin again: {resnapshot(table)} cannot",
            table=table,
        )
    if found.partitions != record.partitions:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the topic {record.topic} has {found.partitions} partitions, and had {record.partitions}",
            needed="the number that it was made with: another one moves keys, and their order is lost",
            remedy="create this sync again with another topic template",
            table=table,
        )


def _foreign_topic(table: str, topic: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the topic {topic} has records, and the state topic has no record of the table",
        needed="an empty topic, or none",
        remedy="create this sync again with another topic template, or delete the topic",
        table=table,
    )


def _shared_topic(table: str, topic: str, other: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the topic {topic} is that of {other}, too",
        needed="a topic for each table",
        remedy="correct spec.sink.kafka.topic, or leave one of them out (tables.exclude)",
        table=table,
    )
