"""Targets in a SQL database: a table each, and the table of states beside them.

Staged rows are tables in the schema of the states; so is the staged copy that a resnapshot fills.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.sinks.contract.changes import Build, Staged
from cdcsync_spark.sinks.contract.checks import no_copy_error, refuse_other_identity
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import Outcome, Writer
from cdcsync_spark.sinks.sql import tables
from cdcsync_spark.sinks.sql.dialects.dialect import ConnectionLost, Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import count, table_name
from cdcsync_spark.sinks.sql.dialects.transaction import transaction
from cdcsync_spark.sinks.sql.place import SqlPlace
from cdcsync_spark.sinks.sql.publication import CAPABILITIES, STAGED_ROWS, staged_part
from cdcsync_spark.sinks.sql.snapshot import SqlSnapshot
from cdcsync_spark.sinks.sql.states import Pending, StateRow, States
from cdcsync_spark.sinks.sql.work import TableWork
from cdcsync_spark.sinks.sql.writer import SqlWriter, commit_together, on_session

#: rows of a transaction that loads staged ones
_STAGED_ROWS = 20_000
#: to begin a snapshot at which no commit comes between its two first statements
_MOMENTS = 100


@dataclass(frozen=True)
class SqlTarget:
    """One table's target."""

    place: SqlPlace

    def prepare(self, state: TableState) -> TableState:
        self.place.refuse_bookkeeping(state.capture)
        with self._writing() as writer:
            current = writer.create(state)
        refuse_other_identity(current, state)
        return current

    def last_commit(self) -> TableState | None:
        """Also of a table that others have altered: a resnapshot mends it."""
        with self._writing() as writer:
            return on_session([writer], lambda session: TableWork(self.place, session).state())

    def commit(self, epoch: int, build: Build) -> TableState:
        with self._writing() as writer:
            return writer.commit(epoch, build)

    def writer(self, scratch: Path) -> SqlWriter:
        return SqlWriter(self.place)

    @contextmanager
    def _writing(self) -> Iterator[SqlWriter]:
        writer = SqlWriter(self.place)
        try:
            yield writer
        finally:
            writer.close()

    # -- staged rows

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        """One table of staged rows, without a key."""
        place, dialect, schema = self.place, self.place.dialect, TargetSchema.of(table)
        rows, part = 0, SqlName(dialect.state_schema, f"{STAGED_ROWS}{uuid.uuid4().hex}")
        with self._session() as session:
            for loaded in _bounded(batches, captured_schema(table)):
                if not rows:
                    States(dialect, session).create()
                    States(dialect, session).note_helper(place.key, part)
                    tables.create_unkeyed(dialect, session, part, table, schema)
                session.load(table_name(dialect, part), loaded)
                rows += loaded.num_rows
        gate("staged")
        return (staged_part(part, rows),) if rows else ()

    def staged(self) -> Staged:
        """See `TableTarget.staged`."""
        with self._writing() as writer:
            state = writer.last_commit()
        if state is None or state.identity.sync != self.place.sync:
            raise no_copy_error(str(self.place.table))
        with self._session() as session:
            rows = count(self.place.dialect, session, self.place.name)
        return (staged_part(self.place.name, rows),) if rows else ()

    def open_snapshot(self) -> SqlSnapshot:
        """The newest version. While it is there, no other table can take the target's place."""
        session = self._open()
        try:
            with self._writing() as writer:
                state = on_session([writer], lambda other: self._begin_snapshot(session, other))
        except ConnectionLost as lost:
            session.close()
            raise self.place.lost_error(lost) from lost
        except BaseException:
            session.close()
            raise
        return SqlSnapshot(self.place.dialect, session, self.place.name, state)

    def _begin_snapshot(self, session: SqlSession, other: SqlSession) -> TableState:
        """Begins a transaction whose rows are those of the state. A moment does not choose which
        table has a name. So the table is held after it, and the moment counts if the state is the
        same still: a table that takes the target's place changes it."""
        for _ in range(_MOMENTS):
            TableWork(self.place, other).newest()  # and with it what was left pending
            session.begin(snapshot=True)
            row = self._row(session)
            session.fetch((int,), f"SELECT 1 FROM {table_name(self.place.dialect, self.place.name)} LIMIT 0")
            if row is not None and row.state is not None and not row.pending and row == self._row(other):
                return row.state
            session.rollback()
        raise self.place.busy_error()

    def _row(self, session: SqlSession) -> StateRow | None:
        return States(self.place.dialect, session).row(self.place.key)

    def discard(self) -> None:
        """Drops the table, its state and what was created for it."""
        with self._session() as session:
            states = States(self.place.dialect, session)
            states.create()
            while (pending := states.pending(self.place.key)) is not None:
                with transaction(session):
                    self._remove(states, pending)
            gate("sql-state-removed")
            for table in (*states.helpers(self.place.key), self.place.name):
                states.drop_helper(table)

    def _remove(self, states: States, pending: str) -> None:
        """Removes the state, and lists the tables that were there by it: where the run dies before
        they are dropped, maintenance drops them."""
        if states.remove(self.place.key, pending):
            if pending:
                states.note_helper(self.place.key, Pending.from_text(pending).new)
            if self.place.generation:
                states.note_helper(self.place.key, self.place.name)

    @contextmanager
    def _session(self) -> Iterator[SqlSession]:
        session = self._open()
        try:
            yield session
        except ConnectionLost as lost:
            raise self.place.lost_error(lost) from lost
        finally:
            session.close()

    def _open(self) -> SqlSession:
        try:
            return self.place.dialect.open()
        except ConnectionLost as lost:
            raise self.place.lost_error(lost) from lost


@dataclass(frozen=True)
class SqlSink:
    """All targets of the sync `namespace/name` in one database server."""

    dialect: Dialect
    sync: str

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def target(self, table: TableId, *, generation: int = 0) -> SqlTarget:
        return SqlTarget(SqlPlace(self.dialect, self.sync, table, generation))

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        """In one transaction."""
        return iter(commit_together(epoch, [(sql_writer(writer), build) for writer, build in parts]))

    def discard(self, table: TableId, generation: int) -> None:
        assert generation > 0
        self.target(table, generation=generation).discard()


def sql_writer(writer: Writer) -> SqlWriter:
    """A writer of this sink."""
    assert isinstance(writer, SqlWriter)
    return writer


def _bounded(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows in tables of at most `_STAGED_ROWS`, none of them empty."""
    for batch in batches:
        for first in range(0, batch.num_rows, _STAGED_ROWS):
            yield pa.Table.from_batches([batch.slice(first, _STAGED_ROWS)], schema)
