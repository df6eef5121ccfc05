"""Kafka topics as targets: every change in order, exactly once, after a snapshot without a false
row, or with early delivery after rows as they were read.

A table's snapshot goes through a staged copy, a keyed table at `staging`: waves are appended
to it and the changes since LOW are folded in, as in a replica. When its state is consistent, its
rows are sent, in parts of bounded size, each part in a transaction with the number of rows that are
sent; the last transaction has the state "as of P". From then on the topic takes events.

Why it is right: whose turn it is follows from the table's record in the state topic, which every
transaction that sends anything carries along (R4) and which is compared before it is committed
(`state_topic`, R8). A copy that is consistent never changes again, so its rows in the order of its
files are fixed, and a number of them says where to go on.

With early delivery (`TableState.early`) a first snapshot is sent wave by wave. The copy is its
journal: a wave is a commit of the copy, then its rows are sent, each part with the place up to
which the copy is sent (`staged_rows`). A run that dies in between is followed by one that goes on
at that place in the rows that were staged, so no row is reread, and none is sent twice. When the
copy is complete and sent, the last transaction has the state "from LOW on", LOW being the meet of
all. No event of the table is sent before that one, whichever run commits: until then the topic is
not published, so a commit sends what is left of the copy first. No row is sent after it: the run
that would send one finds that it was overtaken, or is fenced. All records of a key are in one
partition, so a row is before all events of its key there. When the state has passed the furthest
HIGH, the last record of each key is right (R2): a key with an event since LOW is as its last event
says, one without is as it was read, or has no record.

The state says which way a table goes, not the resource of the moment, so a snapshot ends in the
way that it began. A resnapshot is sent as of one position always (`ResnapshotCopy`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import PermanentError
from cdcsync_core.gates import gate
from cdcsync_core.resource.topic_names import shared_topic, topic_prefix
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.changes import Build, Staged
from cdcsync_spark.sinks.contract.checks import refuse_other_identity
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.sinks.contract.staging import Staging, StagingTable
from cdcsync_spark.sinks.contract.writer import Outcome, Writer
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.kafka.connection.topics import Topic, TopicSettings
from cdcsync_spark.sinks.kafka.encoding import SourceLabel
from cdcsync_spark.sinks.kafka.forms import reader_of
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from cdcsync_spark.sinks.kafka.topic.staged_rows import lost_copy
from cdcsync_spark.sinks.kafka.topic.writer import PART_ROWS, TopicMain, commit_together
from cdcsync_spark.sinks.kafka.topic_fold import TopicFold
from cdcsync_spark.sinks.kafka.transactions.conflicts import check_topic, foreign_topic
from cdcsync_spark.sinks.kafka.transactions.plain_session import PlainSession
from cdcsync_spark.sinks.kafka.transactions.session import KafkaSession, state_topic
from cdcsync_spark.sinks.staged_copy import CHANGES, CopyThenPublish


@dataclass
class KafkaSink:
    """The topics of the sync `namespace/name`; `role` is the kind of run that writes, empty for who
    only reads. `staging` has the staged copies."""

    settings: KafkaSettings
    topics: TopicSettings
    form: str
    sync: str
    staging: Staging
    role: str = ""
    part_rows: int = PART_ROWS
    #: the name of the state topic; empty: after the sync
    state: str = ""
    #: of the format debezium-avro
    registry: Registry | None = None
    #: the source's; 0 for who does not ask it
    server_id: int = 0
    _session: KafkaSession | None = field(default=None, init=False, compare=False, repr=False)
    _folds: dict[str, TopicFold] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """A connection is its process's own."""
        return {**self.__dict__, "_session": None, "_folds": {}}

    @property
    def session(self) -> KafkaSession:
        if self._session is None:
            kind = KafkaSession if self.settings.exactly_once else PlainSession
            self._session = kind(
                self.settings, self.sync, self.role, self.topics.replication, self.state or state_topic(self.sync)
            )
        return self._session

    @property
    def label(self) -> SourceLabel:
        return SourceLabel(topic_prefix(self.topics.template, self.sync), self.server_id)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(CHANGES, together=True)

    def target(self, table: TableId, *, generation: int = 0) -> KafkaTarget | StagingTable:
        """The rows before a resnapshot are known to consumers, so it is sent as of one position,
        whatever the delivery of a first snapshot."""
        return self.staging.copy(table, generation, early=False) if generation else KafkaTarget(self, table)

    def fold(self, table: str) -> TopicFold:
        """What this process has read of the table's topic."""
        if table not in self._folds:
            self._folds[table] = TopicFold(self.session, reader_of(self.form, self.registry), table)
        return self._folds[table]

    def discard(self, table: TableId, generation: int) -> None:
        """A copy that the topic waits for stays."""
        record = self.session.record(str(table))
        if record is None or record.published or record.state.generation != generation:
            self.staging.copy(table, generation).remove()

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        """One transaction for the tables that are published; the copies of the others are written
        one by one."""
        outcomes: dict[int, Outcome] = {}
        for number, (writer, build) in enumerate(parts):
            try:
                if not topic_of(writer).record.published:
                    outcomes[number] = writer.commit(epoch, build)
            except PermanentError as error:
                outcomes[number] = error
        live = {n: (topic_of(writer), build) for n, (writer, build) in enumerate(parts) if n not in outcomes}
        outcomes |= commit_together(self.session, epoch, live)
        return iter([outcomes[n] for n in range(len(parts))])


def topic_of(writer: Writer) -> TopicMain:
    """The topic that a writer of this sink writes."""
    assert isinstance(writer, CopyThenPublish)
    assert isinstance(writer.main, TopicMain)
    return writer.main


@dataclass
class KafkaTarget:
    """One table's topic."""

    sink: KafkaSink
    table: TableId
    #: the generation of the copy that is filled, known after `prepare`
    waiting: int | None = None
    #: acknowledged to its commits
    records: int = 0

    @property
    def name(self) -> str:
        return str(self.table)

    @property
    def topic(self) -> str:
        return self.sink.topics.name(self.sink.sync, self.table)

    def copy(self, generation: int) -> StagingTable:
        return self.sink.staging.copy(self.table, generation)

    def prepare(self, state: TableState) -> TableState:
        """A topic that is there is taken if it is empty."""
        session = self.sink.session
        record = session.record(self.name)
        while record is None:
            self._refuse_shared(session)
            topic = self.made_topic(self.topic)
            session.transact({self.name: TableRecord(state, topic.name, topic.id, topic.partitions)}, ())
            gate("table-created")
            record = session.record(self.name)
        refuse_other_identity(record.state, state)
        check_topic(self.name, record, session.topics.find(record.topic))
        self.waiting = record.state.generation
        if record.published:
            return record.state
        copy = self.copy(record.state.generation)
        begun = record.publication is not None or record.state.position is not None
        if begun and copy.last_commit() is None:
            raise lost_copy(self.name)
        return copy.prepare(record.state)

    def _refuse_shared(self, session: KafkaSession) -> None:
        """Two tables under one name meet here: the state topic has all names that are taken."""
        others = [t for t, r in session.records().items() if r.topic == self.topic and t != self.name]
        if others:
            raise shared_topic(self.name, self.topic, others[0])

    def made_topic(self, name: str) -> Topic:
        """One that is there is taken if it is empty."""
        settings, topics = self.sink.topics, self.sink.session.topics
        topics.make(name, settings.partitions, settings.replication, dict(settings.config))
        topic = topics.made(name)
        if not topics.is_empty(topic):
            raise foreign_topic(self.name, name)
        return topic

    def last_commit(self) -> TableState | None:
        """Where the topic, or the copy of a resnapshot, is gone, what that was begun with: another
        resnapshot goes on from it, and nothing else (`prepare`, `Writer.last_commit`)."""
        return self.writer().newest()[0]

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        """In tasks of Spark, which do not ask the brokers."""
        assert self.waiting is not None, "prepared before"
        return self.copy(self.waiting).stage(table, batches, name)

    def staged(self) -> Staged:
        """There is nothing to be published of a topic."""
        return ()

    def commit(self, epoch: int, build: Build) -> TableState:
        writer = self.writer()
        try:
            return writer.commit(epoch, build)
        finally:
            self.records += writer.status.counts["records"]

    @property
    def counts(self) -> Mapping[str, int]:
        """See `Counting`."""
        return {"records": self.records}

    def writer(self, scratch: Path | None = None) -> CopyThenPublish:
        return CopyThenPublish(TopicMain(self, scratch or Path(tempfile.gettempdir())))

    def open_snapshot(self) -> TargetSnapshot:
        """The table that the topic's records end with; until they are sent, the staged copy."""
        folded = self.sink.fold(self.name).snapshot()
        if folded is not None:
            return folded
        record = self.sink.session.record(self.name)
        if record is None:
            raise foreign_topic(self.name, self.topic)
        return self.copy(record.state.generation).open_snapshot()
