"""Confirms from the server's catalog what was predicted of tables' definitions.

Why it exists: row events carry neither defaults nor generated and numbered columns, so rows alone
do not prove a prediction.

Why it is right. The catalog is read between two places of the binlog: LOW, a position whose
transactions every later question sees (R1), and HIGH, the end of the binlog after the answer. The
answer counts for a table once the stream has passed HIGH, if LOW includes the table's last step and
no statement since has named the table (each is a step while a change waits, see
`binlog.schema.definitions`): then the table had one definition from the step to HIGH, and the
answer is it. Otherwise the question is asked again. A definition that differs stops the table for a
resnapshot. An answer that cannot be had, or read, proves nothing, whatever the failure: the table
flows on, unconfirmed, and its status says why.

Nothing is lost with the run: a change counts as unconfirmed until a commit says otherwise, and a
later run asks again. Where rows do not name their columns, the definition by which they are read is
compared as well, after the last of them and now and then before it: nothing else shows a change
that the binlog does not have. Questions are asked by one connection for all tables that wait, once
for each step, beside the stream; after a failure with growing pauses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.state import LastChange
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.confirmation import contradictions, other_defaults
from cdcsync_mysql.positions.watermark import high, low
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.catalog import read_again, read_defaults
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.binlog.schema.steps import contradicted, unannounced
from cdcsync_spark.logs import get_logger
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.wire.sql.column.catalog_default import catalog_default

_log = get_logger()

#: seconds a statement of the question may take
_MAX_SECONDS = 20
#: pauses after failures
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
#: tables of one question
_AT_ONCE = 200
#: seconds after which the definition of rows that do not name their columns is compared again
RECHECK_SECONDS = 60.0


@dataclass(frozen=True)
class CatalogTable:
    """A table as the catalog shows it, with its columns' defaults in comparable form."""

    capture: Capture
    defaults: Mapping[str, str]


@dataclass(frozen=True)
class CatalogAnswer:
    """What the catalog shows of each table, by its name, or why that cannot be read; true of some
    moment between `low` and `high`."""

    low: Position
    high: LogOffset
    tables: Mapping[str, CatalogTable | CdcError]


#: of these tables; raises CdcError
Ask = Callable[[Mapping[str, Capture]], CatalogAnswer]


def ask_catalog(source: Source, lineage: Lineage, tables: Mapping[str, Capture]) -> CatalogAnswer:
    """Raises CdcError where the server cannot be asked, or is not that of `lineage`."""
    with open_session(source, max_seconds=_MAX_SECONDS) as session:
        connection, facts = session.proved(lineage), session.facts
        before = low(source, facts)
        shown_tables: dict[str, CatalogTable | CdcError] = {}
        for name, capture in tables.items():
            try:
                shown = read_again(connection, capture)
                defaults = read_defaults(connection, capture.id)
            except CdcError as e:
                shown_tables[name] = e
                continue
            by_name = {c.name: c for c in shown.columns}
            compared = {
                column: catalog_default(by_name[column], default, extra, mariadb=facts.flavor == "mariadb")
                for column, (default, extra) in defaults.items()
                if column in by_name
            }
            shown_tables[name] = CatalogTable(shown, compared)
        return CatalogAnswer(before, high(connection, facts), shown_tables)


@dataclass(frozen=True)
class _Waiting:
    """What was asked: the table's last change, if there is one, and a position that includes it;
    whether it is asked for rows that do not name their columns."""

    change: LastChange | None
    generation: int
    position: Position
    undescribed: bool


class DefinitionConfirmation:
    """Confirms the definitions of the run's `tables`; `clock` counts seconds; `recheck` as
    RECHECK_SECONDS. `begin` and `settle` are called between two batches, and `begin` where the
    reader has reached the binlog's end."""

    def __init__(
        self,
        tables: Iterable[StreamTable],
        ask: Ask,
        clock: Callable[[], float],
        run: Callable[[Callable[[], None]], None] = lambda work: threading.Thread(target=work, daemon=True).start(),
        recheck: float = RECHECK_SECONDS,
    ) -> None:
        self._tables = {t.name: t for t in tables}
        self._ask, self._clock, self._run = ask, clock, run
        self._asked: dict[str, _Waiting] = {}
        self._recheck, self._rechecked = recheck, dict[str, float]()
        self._answer: CatalogAnswer | CdcError | None = None
        self._pause, self._next = _FIRST_PAUSE, float("-inf")

    def begin(self) -> None:
        """Asks in the background for all tables that wait, unless a question is open."""
        if self._asked or self._clock() < self._next:
            return
        chosen = self._unconfirmed()[:_AT_ONCE]
        self._asked = {t.name: _waiting(t) for t in chosen}
        for table in chosen:
            table.unchecked = False
            self._rechecked[table.name] = self._clock()
        if chosen:
            captures = {t.name: t.state.capture for t in chosen}
            self._run(lambda: self._find(captures))

    @property
    def due(self) -> bool:
        """Whether a question is open, or is to be asked now."""
        return bool(self._asked) or (self._clock() >= self._next and bool(self._unconfirmed()))

    def _unconfirmed(self) -> list[StreamTable]:
        return [t for t in self._tables.values() if t.flowing and self._waits(t)]

    def _waits(self, table: StreamTable) -> bool:
        if table.change and table.change.unconfirmed:
            return True
        again = self._rechecked.get(table.name, float("-inf")) + self._recheck
        return table.unchecked and self._clock() >= again

    def _find(self, captures: Mapping[str, Capture]) -> None:
        try:
            answer: CatalogAnswer | CdcError = self._ask(captures)
        except CdcError as e:
            answer = e
        except Exception as e:  # noqa: BLE001 (a thread that ended silently would look like an open question)
            _log.exception("the catalog's definitions could not be read; it will be tried again")
            answer = fail(Reason.INTERNAL_ERROR, f"the catalog could not be read: {e!r}")
        gate("definitions-read")
        self._answer = answer

    def settle(self, reader: Position) -> None:
        """Judges the answer once the stream is as far as `reader`, behind its HIGH."""
        answer = self._answer
        if answer is None or (isinstance(answer, CatalogAnswer) and not reader.has_reached(answer.high)):
            return
        asked, self._asked, self._answer = self._asked, {}, None
        settled = [self._judged(self._tables[name], waiting, answer) for name, waiting in asked.items()]
        self._pause = _FIRST_PAUSE if all(settled) else min(2 * self._pause, _LONGEST_PAUSE)
        self._next = self._clock() + (0.0 if all(settled) else self._pause)

    def _judged(self, table: StreamTable, waiting: _Waiting, answer: CatalogAnswer | CdcError) -> bool:
        settled = self._judge(table, waiting, answer)
        if not settled and waiting.undescribed:
            table.unchecked = True
            del self._rechecked[table.name]
        return settled

    def _judge(self, table: StreamTable, waiting: _Waiting, answer: CatalogAnswer | CdcError) -> bool:
        """Whether nothing stands against the next question."""
        if not table.flowing or table.state.generation != waiting.generation:
            return True
        if not _is_of(waiting.change, table.change):
            return True  # a later step: the next question is about that one
        shown = answer if isinstance(answer, CdcError) else answer.tables[table.name]
        if isinstance(shown, CdcError):
            table.unreadable = shown.message
            return False
        assert isinstance(answer, CatalogAnswer)
        if not _includes(answer.low, waiting.position):
            return False
        self._compare(table, waiting.change, shown)
        return True

    def _compare(self, table: StreamTable, change: LastChange | None, shown: CatalogTable) -> None:
        wrong = contradictions(table.state.capture, shown.capture)
        wrong += other_defaults(dict(change.defaults if change else ()), shown.defaults)
        table.unreadable = ""
        if wrong and (change is None or not change.unconfirmed):
            table.error = unannounced(table.state.capture.id, wrong)
        elif wrong:
            table.error = contradicted(table.state.capture.id, "the catalog", wrong)
        elif change is not None and change.unconfirmed:
            table.confirmed = change


def _waiting(table: StreamTable) -> _Waiting:
    state = table.state
    assert state.position is not None
    return _Waiting(table.change, state.generation, state.position, table.unchecked)


def _is_of(asked: LastChange | None, change: LastChange | None) -> bool:
    return change is None if asked is None else asked.is_of(change)


def _includes(low: Position, position: Position) -> bool:
    """Positions of two kinds prove nothing."""
    try:
        return low.includes(position)
    except CdcError:
        return False
