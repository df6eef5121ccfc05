"""Where one table's target is in a SQL database, and what is wrong with what is there."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.sql import tables
from cdcsync_spark.sinks.sql.dialect import Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.states import States


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

    def refuse_unusable(self, session: SqlSession) -> None:
        """Asks only: raises `CdcError` for a table that no sync has made, or that another one has,
        and for what would make another thing of our rows."""
        if not self.dialect.columns(session, self.name):
            return
        states = SqlName(self.dialect.state_schema, "states")
        row = States(self.dialect, session).row(self.key) if self.dialect.columns(session, states) else None
        if row is None:
            raise self.foreign_error()
        if row.state is not None and row.state.identity.sync != self.sync:
            raise self._other_sync_error(row.state.identity.sync)
        self.dialect.refuse_obstacles(session, self.name)

    def _other_sync_error(self, sync: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the table {self.name} is the sync {sync}'s",
            needed="a target that this sync has made, or none",
            remedy="let this sync write into another schema",
            table=str(self.table),
        )

    def refuse_altered(self, session: SqlSession, state: TableState) -> None:
        """Raises `SinkConflict` where the table is not as the state's commit has left it."""
        columns = self.dialect.columns(session, self.name)
        lacking = [name for name in state.schema.names if self.dialect.stored(name) not in columns]
        if not columns:
            raise self._altered_error(f"the table {self.name} is gone")
        if lacking:
            raise self._altered_error(f"the table {self.name} has no column {', '.join(lacking[:10])} any more")
        self.dialect.refuse_obstacles(session, self.name)

    def _altered_error(self, finding: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"{finding}, and the state in {self.dialect.state_schema}.states says that its rows are there",
            needed="the table as this sync has left it",
            remedy=resnapshot(str(self.table)),
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
