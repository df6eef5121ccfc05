"""Writes a table's staged copy, sends it, as of one position or wave by wave, then sends events
(`target`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import Build, Commit, Emit, Replace
from cdcsync_spark.sinks.contract.checks import check_successor, refuse_superseded
from cdcsync_spark.sinks.contract.writer import Outcome, Writer, WriterStatus
from cdcsync_spark.sinks.formats.json_records import Form
from cdcsync_spark.sinks.kafka.encoding import event_records, origin_of, snapshot_records
from cdcsync_spark.sinks.kafka.forms import form_of, registered_keys
from cdcsync_spark.sinks.kafka.state.table_record import SnapshotSending, TableRecord
from cdcsync_spark.sinks.kafka.topic.staged_rows import Parts, StagedRows, lost_copy
from cdcsync_spark.sinks.kafka.transactions.conflicts import check_topic, foreign_topic, is_replaced
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, TopicRecords
from cdcsync_spark.sinks.kafka.transactions.table_fault import TableFault
from cdcsync_spark.sinks.staged_copy import Copies, Recorded, is_whole

if TYPE_CHECKING:
    from cdcsync_spark.sinks.kafka.topic.target import KafkaTarget

#: of a snapshot, in one transaction
PART_ROWS = 100_000


class TopicMain:
    """The topic beside its staged copies; see `MainWriter`."""

    sends_rows = True

    def __init__(self, target: KafkaTarget, scratch: Path) -> None:
        self.target = target
        self.copies = Copies(lambda generation: target.copy(generation).writer(scratch))
        #: the id of the topic that was checked
        self._checked = ""
        #: records that are acknowledged, and of the transaction that is open
        self._records = self._sending = 0

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
        recorded = self._recorded
        if self._checked != recorded.topic_id:
            check_topic(self.name, recorded, self.session.topics.find(recorded.topic))
            self._checked = recorded.topic_id
        return recorded

    @property
    def _recorded(self) -> TableRecord:
        """Whatever became of the topic."""
        record = self.session.record(self.name)
        if record is None:
            raise foreign_topic(self.name, self.target.topic)
        return record

    def newest(self, *, wait: bool) -> Recorded | None:
        """`lost` where the topic is gone."""
        self.session.refresh()
        record, lost = self.session.record(self.name), None
        if record is None:
            return None
        try:
            record = self.record
        except PermanentError as error:
            if error.reason is not Reason.SINK_CONFLICT:
                raise
            lost = error
        return Recorded(record.state, record.published, lost)

    def recorded(self) -> Recorded:
        record = self._recorded
        return Recorded(record.state, record.published)

    def last_known(self) -> Recorded | None:
        record = self.session.record(self.name)
        return None if record is None else Recorded(record.state, record.published)

    def commit(self, epoch: int, build: Build) -> TableState:
        (outcome,) = commit_together(self.session, epoch, {0: (self, build)}).values()
        if isinstance(outcome, CdcError):
            raise outcome
        return outcome if self.record.published or not outcome.consistent else self._send_copy(epoch)

    def draft(self, epoch: int, build: Build) -> tuple[TableRecord, Commit] | None:
        """What is to be committed on top of the known record; None: nothing."""
        recorded = self._recorded
        refuse_superseded(recorded.state, epoch)
        commit = build(recorded.state)
        if commit is None:
            return None
        check_successor(recorded.state, commit, epoch)
        if not isinstance(commit.change, Replace):
            return replace(self.record, state=commit.state), commit
        sent = self._unsent(commit.state) if commit.state.consistent else None
        return replace(self._with_topic(recorded), state=commit.state, publication=sent), commit

    def _with_topic(self, record: TableRecord) -> TableRecord:
        """A topic that was deleted begins again with a resnapshot, which sends all rows. One that
        is there is taken if it is empty."""
        topics = self.session.topics
        if not is_replaced(record, topics.find(record.topic)):
            return self.record
        topic = self.target.made_topic(record.topic)
        gate("topic-made-again")
        return replace(record, topic_id=topic.id, partitions=topic.partitions, begins=(), key_schema=None)

    def pieces(self, commit: Commit) -> Iterator[TopicRecords]:
        """Raises TableFault for what the format cannot carry."""
        if not isinstance(commit.change, Emit):
            return
        sink, record = self.target.sink, self.record
        try:
            for records in event_records(self._form(record), sink.label, commit.state, commit.change.events):
                yield TopicRecords(self.name, record.topic, records)
        except PermanentError as error:
            raise TableFault(self.name, error) from None

    def _form(self, record: TableRecord) -> Form:
        sink = self.target.sink
        return form_of(sink.form, sink.registry, record.topic, record.key_schema)

    # -- the snapshot

    def _unsent(self, state: TableState) -> SnapshotSending:
        return SnapshotSending(self._rows(state.generation).as_of_now().number)

    def _rows(self, generation: int) -> StagedRows:
        return StagedRows(self.target.copy(generation), self.name, self.target.sink.part_rows)

    def publish(self, epoch: int, copy: TableState) -> TableState:
        """Sends what a growing copy has so far."""
        state = self._send_copy(epoch)
        return state if self.record.published else copy

    def _send_copy(self, epoch: int) -> TableState:
        """The rows of the copy that are not sent yet, then the state of a copy that is complete;
        where another writer was first, what that one has done counts."""
        gate("before-publish")
        sent = False
        while not (sent or self.record.published):
            refuse_superseded(self.record.state, epoch)
            sent = self._send_rows(self.record, epoch)
        gate("published")
        return self.record.state

    def _send_rows(self, record: TableRecord, epoch: int) -> bool:
        """False where another writer was first."""
        staged, parts = self._unsent_rows(record)
        if record.publication is None or not record.publication.rows:
            begins = self.session.topics.ends(record.topic, record.partitions)
            record = replace(record, begins=begins, key_schema=self._key_schema(record.topic, staged))
        for sent, rows in parts:
            pieces = self._snapshot_pieces(record, staged, rows)
            if not self._transact(replace(record.by(epoch), publication=sent), pieces):
                return False
            gate("part-sent")
        if not is_whole(staged):
            return True
        state = replace(staged, epoch=epoch, commit_number=record.state.commit_number + 1)
        return self._transact(replace(record, state=state, publication=None), ())

    def _unsent_rows(self, record: TableRecord) -> tuple[TableState, Parts]:
        """The rows that are left to send, with the copy's state."""
        rows = self._rows(record.state.generation)
        if not record.state.early:
            return rows.unsent(record.publication)
        newest = self.copies.writer(record.state.generation).last_commit()
        if newest is None:
            raise lost_copy(self.name)
        return newest, rows.unsent_waves(record.publication, newest)

    def _key_schema(self, topic: str, state: TableState) -> int | None:
        sink = self.target.sink
        columns, origin = captured_schema(state.capture), origin_of(sink.label, state, snapshot=True)
        return registered_keys(sink.form, sink.registry, topic, columns, origin)

    def _snapshot_pieces(self, record: TableRecord, state: TableState, rows: pa.Table) -> Iterator[TopicRecords]:
        """Raises TableFault for what the format cannot carry."""
        try:
            for records in snapshot_records(self._form(record), self.target.sink.label, state, rows):
                yield TopicRecords(self.name, record.topic, records)
        except PermanentError as error:
            raise TableFault(self.name, error) from None

    def _transact(self, record: TableRecord, pieces: Iterable[TopicRecords]) -> bool:
        try:
            done = self.session.transact({self.name: record}, self.counted(pieces))
        except TableFault as fault:
            raise fault.error from None
        if done:
            self.acknowledged()
        return done

    def lost_copy(self, state: TableState) -> CdcError:
        return lost_copy(self.name)

    def remove_copies(self, generation: int) -> bool:
        return self.target.sink.staging.remove_copies(self.target.table, generation)

    def has_news(self, copy: Writer | None) -> bool:
        """No program but this one takes records back."""
        return False

    def maintain(self) -> str:
        """The brokers do it."""
        return ""

    def close(self) -> None:
        """Nothing is made ready."""

    @property
    def status(self) -> WriterStatus:
        return WriterStatus(counts={"records": self._records})

    def counted(self, pieces: Iterable[TopicRecords]) -> Iterator[TopicRecords]:
        """Counts the records of a new transaction as they pass."""
        self._sending = 0
        for piece in pieces:
            self._sending += len(piece.records.keys)
            yield piece

    def acknowledged(self) -> None:
        """The transaction is committed."""
        self._records, self._sending = self._records + self._sending, 0


def commit_together(session: KafkaSession, epoch: int, parts: dict[int, tuple[TopicMain, Build]]) -> dict[int, Outcome]:
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
            writers = [(due[name][1], commit) for name, (_, commit) in drafts.items()]
            pieces = (piece for writer, commit in writers for piece in writer.counted(writer.pieces(commit)))
            if session.transact({name: record for name, (record, _) in drafts.items()}, pieces):
                for writer, _ in writers:
                    writer.acknowledged()
                break
        except TableFault as fault:
            outcomes[due[fault.table][0]] = fault.error
    return {n: writer.record.state for n, (writer, _) in parts.items()} | outcomes
