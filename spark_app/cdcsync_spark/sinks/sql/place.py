"""Where one table's target is in a SQL database, and what is wrong with what is there."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdcsync_core.errors import RUN_AGAIN, CdcError, PermanentError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.sql import tables
from cdcsync_spark.sinks.sql.dialects.dialect import PRIMARY_KEY, Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.states import BOOKKEEPING, BOOKKEEPING_NAMES, Pending, StateRow, States

#: names of tables that a sync creates for a while, or for staged rows
_OWN_NAME = re.compile(r"(cdcsync|copy|rows)_[0-9a-f]{32}")


@dataclass(frozen=True)
class SqlPlace:
    """The target of `table`, or its staged copy of a `generation` above 0, which is a table in the
    schema of the states."""

    dialect: Dialect
    sync: str
    table: TableId
    generation: int = 0

    @property
    def main(self) -> SqlName:
        return self.dialect.place(self.table)

    @property
    def key(self) -> str:
        """What the target is called in the table of states."""
        return json.dumps([self.main.schema, self.main.table, self.generation], ensure_ascii=False)

    @property
    def name(self) -> SqlName:
        if not self.generation:
            return self.main
        digest = hashlib.sha256(f"{self.sync} {self.key}".encode()).hexdigest()
        return SqlName(self.dialect.state_schema, f"copy_{digest[:32]}")

    def helper(self) -> SqlName:
        """A new name for a table beside this one."""
        return SqlName(self.name.schema, f"cdcsync_{uuid.uuid4().hex}")

    def create(self, session: SqlSession, name: SqlName, state: TableState) -> None:
        """An empty table of that name with the target's columns."""
        tables.create(self.dialect, session, name, state.capture, state.schema)

    def refuse_bookkeeping(self, capture: Capture | None = None) -> None:
        """Raises `SinkConflict` for a source table that is a sync's own: each commit would make a
        change of it, without end. Without `capture` the name alone decides."""
        columns = () if capture is None else tuple(column.name for column in capture.columns)
        in_place = self.main.schema == self.dialect.state_schema and self.main.table in BOOKKEEPING_NAMES
        if columns in BOOKKEEPING or in_place or _OWN_NAME.fullmatch(self.table.name):
            raise fail(
                Reason.SINK_CONFLICT,
                f"{self.table} is a table that a sync keeps for itself, and changes with each commit",
                needed="tables of others",
                remedy=f"leave the database {self.table.database} out (tables.exclude), {RUN_AGAIN}",
                table=str(self.table),
            )

    def refuse_unusable(self, session: SqlSession) -> None:
        """Asks only: raises `CdcError` for a table that no sync has made, or that another one has,
        and for what would make another thing of our rows."""
        if not self.dialect.columns(session, self.name):
            return
        states = SqlName(self.dialect.state_schema, "states")
        row = States(self.dialect, session).row(self.key) if self.dialect.columns(session, states) else None
        if row is None:
            raise self.foreign_error()
        state = row.state or Pending.from_text(row.pending).state
        if state.identity.sync != self.sync:
            raise self._other_sync_error(state.identity.sync)
        self.refuse_other(state.identity.table)
        if row.state is None:
            self._refuse_foreign(session, row)
        elif not row.pending:
            self.refuse_altered(session, row.state)

    def _refuse_foreign(self, session: SqlSession, row: StateRow) -> None:
        """Raises `SinkConflict` where the table is not the first one, which is pending."""
        if self.dialect.mark(session, self.name) != Pending.from_text(row.pending).new.table:
            raise self.foreign_error()

    def refuse_other(self, table: str) -> None:
        """Raises `SinkConflict` unless `table` is this one: the one of another database, which has
        the same name, has the target."""
        if table != str(self.table):
            raise fail(
                Reason.SINK_CONFLICT,
                f"{self.table} and {table} would both be in the table {self.name}, which {table} has",
                needed="a target for each table",
                remedy=f"leave one of them out (tables.exclude), or let each database have its own, {RUN_AGAIN}",
                table=str(self.table),
            )

    def _other_sync_error(self, sync: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the table {self.name} is the sync {sync}'s",
            needed="a target that this sync has made, or none",
            remedy="let this sync write into another schema",
            table=str(self.table),
        )

    def hold(self, session: SqlSession) -> None:
        """Keeps other sessions from altering the table until the transaction ends."""
        session.run(self.dialect.hold(table_name(self.dialect, self.name)))

    def refuse_referenced(self, references: Mapping[str, Sequence[str]]) -> None:
        """Raises `SinkConflict` where tables of others refer to this one by `references`
        (`Dialect.references`): once a new table takes its place, they would refer to its rows of
        before."""
        if keys := references[self.name.table]:
            raise self._obstacles_error([("foreign key", key) for key in keys])

    def refuse_altered(self, session: SqlSession, state: TableState) -> None:
        """Raises `SinkConflict` where the table is not as the state's commit has left it, or has
        what would make other rows of ours."""
        shown = self.dialect.definitions(session, self.name)
        declared = dict(zip(state.schema.names, tables.types(self.dialect, session, state), strict=True))
        lacking = [name for name in declared if self.dialect.stored(name) not in shown]
        if not shown:
            raise self._altered_error(f"the table {self.name} is gone")
        if lacking:
            raise self._altered_error(f"the table {self.name} has no column {', '.join(lacking[:10])} any more")
        for name, kind in declared.items():
            if not self.dialect.is_defined(kind, shown[self.dialect.stored(name)]):
                other = shown[self.dialect.stored(name)]
                raise self._altered_error(f"the column {name} of {self.name} is {other} by now, and was {kind}")
        key = self.refuse_obstacles(session)
        if key != sorted(map(self.dialect.stored, state.schema.key)):
            raise self._key_error(key, state.schema.key)

    def refuse_obstacles(self, session: SqlSession) -> list[str]:
        """The columns of the primary key by their names; none where there is no table. Raises
        `SinkConflict` for what would make other rows of ours."""
        shown = self.dialect.obstacles(session, self.name)
        if obstacles := [(kind, name) for kind, name in shown if kind != PRIMARY_KEY]:
            raise self._obstacles_error(obstacles)
        return sorted(name for _, name in shown)

    def _key_error(self, shown: Sequence[str], key: Sequence[str]) -> CdcError:
        there = f"is ({', '.join(shown)}) by now, and was" if shown else "is gone by now, and was"
        return self._altered_error(f"the primary key of {self.name} {there} ({', '.join(key)})")

    def _obstacles_error(self, obstacles: Sequence[tuple[str, str]]) -> CdcError:
        names = ", ".join(f"{kind} {name}" for kind, name in obstacles[:10])
        return fail(
            Reason.SINK_CONFLICT,
            f"the table {self.name} has what may change, refuse or lose rows by itself: {names}",
            needed="a plain table whose key alone is unique",
            remedy=f"drop it, or move it to a table or view beside this one, {RUN_AGAIN}",
            table=str(self.table),
        )

    def _altered_error(self, finding: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"{finding}, and the state in {self.dialect.state_schema}.states says that its rows are there",
            needed="the table as this sync has left it",
            remedy=f"define it so again if its values are as they were, {RUN_AGAIN}; or {resnapshot(str(self.table))}",
            table=str(self.table),
        )

    def foreign_error(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the table {self.name} is there and no sync has made it",
            needed="no table of that name, or one that this sync has made",
            remedy="rename or drop it, or let this sync write into another schema",
            table=str(self.table),
        )

    def duplicate_error(self, message: str) -> PermanentError:
        return PermanentError(
            Reason.SINK_CONFLICT,
            f"the database at {self.dialect.address} refuses rows of {self.name}: {quoted(message)}",
            needed="a target that is unique by its key alone, and compares the key's texts by their bytes",
            remedy=f"drop the unique index that the message names, or {resnapshot(str(self.table))}",
            table=str(self.table),
        )

    def unfinished_error(self, new: SqlName) -> CdcError:
        row = f"DELETE FROM {self.dialect.state_schema}.states WHERE target = {self.dialect.literal(self.key)}"
        return fail(
            Reason.SINK_CONFLICT,
            f"the table {new} was to take the place of {self.name}, and is at neither name, or not to be seen",
            needed="the table that a commit has filled, with the comment that it was created with",
            remedy=f"grant the account what docs/sql.md lists; or drop {self.name} and run {row}, {RUN_AGAIN}",
            table=str(self.table),
        )

    def busy_error(self) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the table {self.name} is changed too often to be read",
            needed="a moment without a commit",
            remedy="it is tried again",
            table=str(self.table),
        )

    def given_up_error(self, table: SqlName) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the table {table} was filled for so long that it was given up",
            needed="a new table within a day",
            remedy="it is tried again",
            table=str(self.table),
        )

    def not_there_error(self) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"there is no table {self.name} of the sync {self.sync}",
            needed="a table that this sync has made",
            remedy=RUN_AGAIN,
            table=str(self.table),
        )

    def lost_error(self, cause: Exception) -> CdcError:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"the connection to {self.dialect.address} breaks again and again: {cause}",
            needed="a server that stays reachable",
            remedy="see the server's log",
            table=str(self.table),
        )
