"""The table of states: one row for each target, which changes in the transaction of its rows.

The row has the state and, apart, the two numbers that a commit compares: `number` and `epoch`.
`pending` is the next state with the table that is to take the target's place, where the database
cannot do both in one transaction; while it is there, no commit can be made. `helpers` lists the
tables that were created beside the targets, so that none is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from cdcsync_core.errors import Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.quoting import quoted
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.sql.dialects.dialect import AlreadyThere, Dialect, SqlName, SqlSession
from cdcsync_spark.sinks.sql.dialects.names import table_name

#: after which a table that was created for a commit belongs to none any more
_ABANDONED_SECONDS = 24 * 3600
#: the columns of the tables `states` and `helpers`
BOOKKEEPING = (
    ("target", "number", "epoch", "state", "pending"),
    ("helper_table", "helper_schema", "target", "created"),
)
BOOKKEEPING_NAMES = ("states", "helpers")
#: in place of the target of a table that is to be dropped
_GIVEN_UP = "given up"
T = TypeVar("T")


@dataclass(frozen=True)
class Pending:
    """`new` is to take the name `table`, and the state to become `state`; what had the name until
    then is `old`."""

    new: SqlName
    table: SqlName
    old: SqlName
    state: TableState

    def to_text(self) -> str:
        names = {name: asdict(getattr(self, name)) for name in ("new", "table", "old")}
        return json.dumps(names | {"state": self.state.to_dict()}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Pending:
        """Raises `SinkConflict` for what is none."""
        return _read(text, cls._from_dict)

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Pending:
        new, table, old = (SqlName(**data[name]) for name in ("new", "table", "old"))
        return cls(new, table, old, TableState.from_dict(data["state"]))


@dataclass(frozen=True)
class StateRow:
    """`state` is None where the target was never there yet; `pending` is empty, or a `Pending` as
    its text."""

    state: TableState | None
    pending: str = ""


@dataclass(frozen=True)
class States:
    """The table of states, and that of helpers, by one session."""

    dialect: Dialect
    session: SqlSession

    @property
    def _states(self) -> str:
        return table_name(self.dialect, SqlName(self.dialect.state_schema, "states"))

    @property
    def _helpers(self) -> str:
        return table_name(self.dialect, SqlName(self.dialect.state_schema, "helpers"))

    def create(self) -> None:
        """Both tables, where they are missing; PostgreSQL refuses one that another session creates
        at the same time, and then it is there. Raises `CdcError` before the first statement where
        the account or the server takes none."""
        schema = self.dialect.state_schema
        if not all(self.dialect.columns(self.session, SqlName(schema, name)) for name in BOOKKEEPING_NAMES):
            self.dialect.refuse_server(self.session, [schema])
        self.dialect.create_schema(self.session, self.dialect.state_schema)
        for statement in self.dialect.bookkeeping():
            with suppress(AlreadyThere):
                self.session.run(statement)

    def row(self, target: str) -> StateRow | None:
        rows = self.session.fetch((str, str), f"SELECT state, pending FROM {self._states} WHERE target = %s", (target,))
        if not rows:
            return None
        ((state, pending),) = rows
        return StateRow(_read(state, TableState.from_dict) if state else None, pending)

    def pending(self, target: str) -> str | None:
        """What is pending, or an empty text; None where the target has no row."""
        rows = self.session.fetch((str,), f"SELECT pending FROM {self._states} WHERE target = %s", (target,))
        return str(rows[0][0]) if rows else None

    def numbers(self, target: str) -> tuple[int, int] | None:
        """The number and the epoch of the state."""
        rows = self.session.fetch((int, int), f"SELECT number, epoch FROM {self._states} WHERE target = %s", (target,))
        return (rows[0][0], rows[0][1]) if rows else None

    def insert(self, target: str, state: TableState, pending: Pending | None = None) -> bool:
        """The first state of a target, which follows with `finish` where it is `pending`; False
        where another run has inserted one."""
        texts = (_text(state), "") if pending is None else ("", pending.to_text())
        try:
            self.session.run(
                f"INSERT INTO {self._states} (target, number, epoch, state, pending) VALUES (%s, %s, %s, %s, %s)",
                (target, state.commit_number, state.epoch, *texts),
            )
        except AlreadyThere:
            return False
        return True

    def advance(self, target: str, current: TableState, state: TableState) -> bool:
        """`state` after `current`; False where the target's state is another one by now."""
        return self._update(target, current, "number = %s, epoch = %s, state = %s", _numbers(state), state)

    def pend(self, target: str, current: TableState, pending: Pending) -> bool:
        """The state follows with `finish`; False as of `advance`."""
        return self._update(target, current, "pending = %s", (pending.to_text(),), pending.state)

    def _update(
        self, target: str, current: TableState, change: str, values: tuple[object, ...], state: TableState
    ) -> bool:
        where = "target = %s AND number = %s AND epoch <= %s AND pending = ''"
        bound = (target, current.commit_number, state.epoch)
        return self.session.run(f"UPDATE {self._states} SET {change} WHERE {where}", (*values, *bound)) == 1

    def finish(self, target: str, pending: str, state: TableState) -> None:
        """Ends what is pending; where two runs do so, one has done it."""
        self.session.run(
            f"UPDATE {self._states} SET number = %s, epoch = %s, state = %s, pending = ''"
            " WHERE target = %s AND pending = %s",
            (*_numbers(state), target, pending),
        )

    def remove(self, target: str, pending: str) -> bool:
        """False where another text is pending by now, or the row is gone."""
        where = "target = %s AND pending = %s"
        return self.session.run(f"DELETE FROM {self._states} WHERE {where}", (target, pending)) == 1

    # -- helpers

    def note_helper(self, target: str, table: SqlName) -> None:
        """Before the table is created."""
        self.session.run(
            f"INSERT INTO {self._helpers} (target, helper_schema, helper_table) VALUES (%s, %s, %s)",
            (target, table.schema, table.table),
        )

    def helpers(self, target: str) -> list[SqlName]:
        """The tables that were created for a target."""
        return self._listed("target = %s", target)

    def abandoned(self, target: str) -> list[SqlName]:
        """The tables that no commit takes any more, by their age: those of the target, and of
        targets without a state, such as a staged copy that was discarded."""
        age = f"created < CURRENT_TIMESTAMP - INTERVAL '{_ABANDONED_SECONDS}' SECOND"
        stateless = f"target <> %s AND target NOT IN (SELECT target FROM {self._states})"
        own = self._listed(f"target = %s AND {age}", target) + self._listed("target = %s", _GIVEN_UP)
        return own + self._listed(f"{stateless} AND {age}", target)

    def _listed(self, condition: str, target: str) -> list[SqlName]:
        rows = self.session.fetch(
            (str, str), f"SELECT helper_schema, helper_table FROM {self._helpers} WHERE {condition}", (target,)
        )
        return [SqlName(*row) for row in rows]

    def take_helper(self, target: str, table: SqlName) -> bool:
        """Takes the table from the list, as a part of the commit that makes it the target; False
        where it was given up."""
        where = "helper_schema = %s AND helper_table = %s AND target = %s"
        bound = (table.schema, table.table, target)
        return self.session.run(f"DELETE FROM {self._helpers} WHERE {where}", bound) == 1

    def give_up_helper(self, table: SqlName) -> bool:
        """So that no commit can take it; False where one has: of this and `take_helper` the first
        is done alone."""
        where = "helper_schema = %s AND helper_table = %s"
        self.session.run(
            f"UPDATE {self._helpers} SET target = '{_GIVEN_UP}' WHERE {where}", (table.schema, table.table)
        )
        return table in self._listed("target = %s", _GIVEN_UP)

    def drop_helper(self, table: SqlName) -> None:
        self.session.run(f"DROP TABLE IF EXISTS {table_name(self.dialect, table)}")
        self.session.run(
            f"DELETE FROM {self._helpers} WHERE helper_schema = %s AND helper_table = %s", (table.schema, table.table)
        )


def _read(text: str, of: Callable[[dict[str, Any]], T]) -> T:
    try:
        return of(parse_json(text))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise fail(
            Reason.SINK_CONFLICT,
            f"a row of the table of states cannot be read ({type(error).__name__}: {quoted(str(error))})",
            needed="the states as syncs of this version write them",
            remedy="run the version that wrote it; or drop the target and delete its row, and resnapshot the table",
        ) from error


def _text(state: TableState) -> str:
    return json.dumps(state.to_dict(), separators=(",", ":"))


def _numbers(state: TableState) -> tuple[object, ...]:
    return state.commit_number, state.epoch, _text(state)
