"""Writes a table's staged copy, sends it, as of one position or wave by wave, then sends events
(`target`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import Build, Commit, Emit, Replace
from cdcsync_spark.sinks.contract.checks import check_successor, refuse_superseded
from cdcsync_spark.sinks.contract.writer import Outcome, WriterStatus
from cdcsync_spark.sinks.delta.commit import DeltaWriter
from cdcsync_spark.sinks.delta.maintenance import staged_copies
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.formats.json_records import Form
from cdcsync_spark.sinks.kafka.conflicts import check_topic, foreign_topic, is_replaced
from cdcsync_spark.sinks.kafka.encoding import event_records, origin_of, snapshot_records
from cdcsync_spark.sinks.kafka.forms import form_of, registered_keys
from cdcsync_spark.sinks.kafka.session import KafkaSession, Piece
from cdcsync_spark.sinks.kafka.staged_rows import Parts, StagedRows, lost_copy
from cdcsync_spark.sinks.kafka.table_fault import TableFault
from cdcsync_spark.sinks.kafka.table_record import Publication, TableRecord, is_whole
from cdcsync_spark.wire.columns.typemap import captured_schema

if TYPE_CHECKING:
    from cdcsync_spark.sinks.kafka.target import KafkaTarget

_log = get_logger()
#: of a snapshot, in one transaction
PART_ROWS = 100_000


@dataclass
class KafkaWriter:
    """Writes the copy until it is complete, sends it, then sends events."""

    target: KafkaTarget
    scratch: Path
    _copies: dict[int, DeltaWriter] = field(default_factory=dict)
    _checked: str = ""
    _cleaned: bool = False
    #: records that are acknowledged, and of the transaction that is open
    _records: int = 0
    _sending: int = 0

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
        found = self._recorded
        if self._checked != found.topic_id:
            check_topic(self.name, found, self.session.topics.find(found.topic))
            self._checked = found.topic_id
        return found

    @property
    def _recorded(self) -> TableRecord:
        """Whatever became of the topic."""
        found = self.session.record(self.name)
        if found is None:
            raise foreign_topic(self.name, self.target.topic)
        return found

    def last_commit(self, *, wait: bool = True) -> TableState | None:
        state, lost = self.newest(wait=wait)
        if lost is not None:
            raise lost
        return state

    def newest(self, *, wait: bool = True) -> tuple[TableState | None, CdcError | None]:
        """The table's state; and what forbids to go on from it without another snapshot: the
        topic, or the copy of a resnapshot, is gone."""
        self.session.refresh()
        if self.session.record(self.name) is None:
            return None, None
        lost: CdcError | None = None
        record = self._recorded
        try:
            record = self.record
        except PermanentError as error:
            if error.reason is not Reason.SINK_CONFLICT:
                raise
            lost = error
        if record.published:
            return record.state, lost
        copy = self._copy(record).last_commit(wait=wait)
        if copy is None:
            gone = lost_copy(self.name) if record.state.position is not None else None
            return record.state, lost or gone
        return replace(copy, epoch=max(record.state.epoch, copy.epoch)), lost

    def _copy(self, record: TableRecord) -> DeltaWriter:
        generation = record.state.generation
        if generation not in self._copies:
            self._copies[generation] = self.target.copy(generation).writer(self.scratch)
        return self._copies[generation]

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `Writer.commit`."""
        record = self._recorded
        refuse_superseded(record.state, epoch)
        if not record.published:
            written = self._written_to_copy(record, epoch, build)
            if written is not None:
                return written
        (outcome,) = commit_together(self.session, epoch, {0: (self, build)}).values()
        if isinstance(outcome, PermanentError):
            raise outcome
        return outcome if self.record.published or not outcome.consistent else self._publish(epoch)

    def draft(self, epoch: int, build: Build) -> tuple[TableRecord, Commit] | None:
        """What is to be committed on top of the known record; None: nothing."""
        found = self._recorded
        refuse_superseded(found.state, epoch)
        commit = build(found.state)
        if commit is None:
            return None
        check_successor(found.state, commit, epoch)
        if not isinstance(commit.change, Replace):
            return replace(self.record, state=commit.state), commit
        sent = self._unsent(commit.state) if commit.state.consistent else None
        return replace(self._with_topic(found), state=commit.state, publication=sent), commit

    def _with_topic(self, record: TableRecord) -> TableRecord:
        """A topic that was deleted begins again with a resnapshot, which sends all rows. One that
        is there is taken if it is empty."""
        topics = self.session.topics
        if not is_replaced(record, topics.find(record.topic)):
            return self.record
        made = self.target.made_topic(record.topic)
        gate("topic-made-again")
        return replace(record, topic_id=made.id, partitions=made.partitions, begins=(), key_schema=None)

    def pieces(self, commit: Commit) -> Iterator[Piece]:
        """Raises TableFault for what the format cannot carry."""
        if not isinstance(commit.change, Emit):
            return
        sink, record = self.target.sink, self.record
        try:
            for records in event_records(self._form(record), sink.label, commit.state, commit.change.events):
                yield Piece(self.name, record.topic, records)
        except PermanentError as error:
            raise TableFault(self.name, error) from None

    def _form(self, record: TableRecord) -> Form:
        sink = self.target.sink
        return form_of(sink.form, sink.registry, record.topic, record.key_schema)

    # -- the snapshot

    def _written_to_copy(self, record: TableRecord, epoch: int, build: Build) -> TableState | None:
        """The copy's state, or that of its publication; None where the commit is the topic's: the
        copy was complete, perhaps by another run's commit meanwhile."""
        copy, claims, complete = self._copy(record), list[Commit](), False
        if copy.last_commit() is None:
            return self._claim_instead(record, epoch, build)

        def keyed(state: TableState) -> Commit | None:
            nonlocal complete
            complete = is_whole(state)
            commit = None if complete else build(state)
            if commit is not None and isinstance(commit.change, Replace):
                claims.append(commit)
                return None
            return commit

        state = copy.commit(epoch, keyed)
        if claims:
            return self._claim(epoch, claims[-1])
        if not (state.early or state.consistent):
            return state
        published = self._publish(epoch)
        if complete:
            return None
        return published if self.record.published else state

    def _claim_instead(self, record: TableRecord, epoch: int, build: Build) -> TableState:
        """Where the copy is gone nothing but a resnapshot helps. A stream's batch does not go on
        from the record's state."""
        commit = None
        with suppress(TransientError):
            commit = build(record.state)
        if commit is None or not isinstance(commit.change, Replace):
            raise lost_copy(self.name)
        return self._claim(epoch, commit)

    def _claim(self, epoch: int, commit: Commit) -> TableState:
        """Of a newer copy, while an older one is not published."""

        def build(found: TableState) -> Commit | None:
            if found.generation >= commit.state.generation:
                return None
            return replace(commit, state=replace(commit.state, commit_number=found.commit_number + 1))

        (outcome,) = commit_together(self.session, epoch, {0: (self, build)}).values()
        if isinstance(outcome, PermanentError):
            raise outcome
        return outcome if self.record.published or not outcome.consistent else self._publish(epoch)

    def _unsent(self, state: TableState) -> Publication:
        return Publication(self._rows(state.generation).as_of_now().version)

    def _rows(self, generation: int) -> StagedRows:
        return StagedRows(self.target.copy(generation).path, self.target.sink.part_rows)

    def _publish(self, epoch: int) -> TableState:
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
        """With the copy's state."""
        rows = self._rows(record.state.generation)
        if not record.state.early:
            return rows.unsent(record.publication)
        newest = self._copy(record).last_commit()
        if newest is None:
            raise lost_copy(self.name)
        return newest, rows.unsent_waves(record.publication, newest)

    def _key_schema(self, topic: str, state: TableState) -> int | None:
        sink = self.target.sink
        columns, origin = captured_schema(state.capture), origin_of(sink.label, state, snapshot=True)
        return registered_keys(sink.form, sink.registry, topic, columns, origin)

    def _snapshot_pieces(self, record: TableRecord, state: TableState, rows: pa.Table) -> Iterator[Piece]:
        """Raises TableFault for what the format cannot carry."""
        try:
            for records in snapshot_records(self._form(record), self.target.sink.label, state, rows):
                yield Piece(self.name, record.topic, records)
        except PermanentError as error:
            raise TableFault(self.name, error) from None

    def _transact(self, record: TableRecord, pieces: Iterable[Piece]) -> bool:
        try:
            done = self.session.transact({self.name: record}, self.counted(pieces))
        except TableFault as fault:
            raise fault.error from None
        if done:
            self.acknowledged()
        return done

    def maintain(self) -> str:
        record = self.session.record(self.name)
        if record is None:
            return ""
        if not record.published:
            copy = self._copies.get(record.state.generation)
            known = copy.last_commit() if copy else None
            return copy.maintain() if copy and known and not is_whole(known) else ""
        if self._cleaned:
            return ""
        self._cleaned = True
        return "remove staged copies" if self._remove_copies(record.state.generation) else ""

    def _remove_copies(self, generation: int) -> bool:
        """Those up to the published one, once per run; what fails is tried by the next run."""
        path, copies = self.target.staging, list[TablePath]()
        try:
            with path.translating_errors("removing staged copies"):
                copies = staged_copies(path, generation)
                for copy in copies:
                    copy.lake.delete_folder(copy.folder)
        except CdcError as error:
            _log.warning("staged copies are removed later", table=self.name, error=str(error))
        return bool(copies)

    def has_news(self) -> bool:
        """No program but this one takes records back."""
        return False

    def warm(self) -> None:
        """A copy that is sent early takes no changes."""
        record = self.session.record(self.name)
        for copy in () if record is None or record.state.early else self._copies.values():
            copy.warm()

    def close(self) -> None:
        for copy in self._copies.values():
            copy.close()

    @property
    def sent(self) -> int:
        """Records that are acknowledged."""
        return self._records

    @property
    def status(self) -> WriterStatus:
        return WriterStatus(records=self._records)

    def counted(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Of a new transaction."""
        self._sending = 0
        for piece in pieces:
            self._sending += len(piece.records.keys)
            yield piece

    def acknowledged(self) -> None:
        """The transaction is committed."""
        self._records, self._sending = self._records + self._sending, 0


def commit_together(
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
            writers = [(due[name][1], commit) for name, (_, commit) in drafts.items()]
            pieces = (piece for writer, commit in writers for piece in writer.counted(writer.pieces(commit)))
            if session.transact({name: record for name, (record, _) in drafts.items()}, pieces):
                for writer, _ in writers:
                    writer.acknowledged()
                break
        except TableFault as fault:
            outcomes[due[fault.table][0]] = fault.error
    return {n: writer.record.state for n, (writer, _) in parts.items()} | outcomes
