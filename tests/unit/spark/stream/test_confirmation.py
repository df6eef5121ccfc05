"""When the catalog is asked about a changed definition, and what each answer means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_core.state import LastChange
from cdcsync_core.stops import is_of_definition
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.confirmation import CatalogAnswer, CatalogTable, DefinitionConfirmation
from contract.sinkcase import ORDERS, first_state

NAME = str(ORDERS.id)
CHANGE = LastChange(1, 1.0, "ALTER TABLE orders ADD note VARCHAR(20) DEFAULT 'x'", unconfirmed=True)
REFUSED = fail(Reason.NO_SUCH_TABLE, "SELECT command denied")


def place(offset: int) -> FilePosition:
    return FilePosition(LogOffset("binlog.000001", offset))


def changed_table() -> StreamTable:
    """Its last change is at 100, and no catalog has confirmed it."""
    state = replace(first_state(), position=place(100), change=replace(CHANGE, defaults=(("note", "str x"),)))
    return StreamTable(NAME, None, state)  # type: ignore[arg-type]


def answer(shown: CatalogTable | CdcError, low: int = 100, high: int = 200) -> CatalogAnswer:
    return CatalogAnswer(place(low), place(high).at, {NAME: shown})


SHOWN = answer(CatalogTable(ORDERS, {"note": "str x"}))


@dataclass
class OneTableStream:
    """A stream with one table; questions are answered where `begin` asks them."""

    table: StreamTable = field(default_factory=changed_table)
    result: CatalogAnswer | Exception = SHOWN
    now: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self.confirmation = DefinitionConfirmation([self.table], self._ask, lambda: self.now, run=_at_once)

    def _ask(self, _: Mapping[str, Capture]) -> CatalogAnswer:
        self.count += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def step(self, reader: int = 200) -> None:
        self.confirmation.begin()
        self.confirmation.settle(place(reader))


def _at_once(work: Callable[[], None]) -> None:
    work()


def test_an_equal_catalog_confirms_once_the_stream_has_passed_the_answer() -> None:
    asked = OneTableStream()
    asked.step(reader=199)
    assert asked.table.confirmed is None
    asked.step(reader=200)
    assert asked.table.confirmed == asked.table.state.change
    asked.step()
    assert asked.count == 1


def test_a_run_that_ends_waits_for_an_answer_and_not_for_one_that_cannot_be_had() -> None:
    asked = OneTableStream()
    assert asked.confirmation.due
    asked.step(reader=199)
    assert asked.confirmation.due
    asked.step(reader=200)
    assert not asked.confirmation.due
    refused = OneTableStream(result=REFUSED)
    refused.step()
    assert not refused.confirmation.due
    refused.now = 600.0
    assert refused.confirmation.due


@pytest.mark.parametrize(
    "failure", [REFUSED, OSError("reset"), KeyError("note"), RuntimeError("dictionary changed size")]
)
def test_no_failure_leaves_the_question_open(failure: Exception) -> None:
    """It is reported, the table flows on, and the question is asked again after growing pauses."""
    asked, times = OneTableStream(result=failure), list[float]()
    for asked.now in map(float, range(80)):
        before = asked.count
        asked.step()
        times += [asked.now] * (asked.count - before)
    assert times == [0, 10, 30, 70]
    assert str(failure.args[0]) in asked.table.unreadable
    assert asked.table.flowing
    asked.result, asked.now = SHOWN, 1000.0
    asked.step()
    assert asked.table.confirmed is not None
    assert asked.table.unreadable == ""


def test_pauses_are_bounded_and_short_again_after_an_answer() -> None:
    asked = OneTableStream(result=REFUSED)
    for _ in range(12):
        asked.now += 600
        asked.step()
    assert asked.count == 12
    asked.result = SHOWN
    asked.now += 600
    asked.step()
    asked.table.confirmed, asked.result = None, REFUSED
    asked.step()
    asked.now += 10
    asked.step()
    assert asked.count == 15


def test_one_table_that_cannot_be_read() -> None:
    asked = OneTableStream(result=answer(REFUSED))
    asked.step()
    assert asked.table.unreadable == REFUSED.message
    assert asked.table.flowing
    assert asked.table.confirmed is None


def test_a_catalog_that_may_be_older_than_the_step_proves_nothing() -> None:
    asked = OneTableStream(result=answer(CatalogTable(ORDERS, {"note": "str y"}), low=99))
    asked.step()
    assert asked.table.error is None
    assert asked.table.confirmed is None


def test_another_default_stops_the_table() -> None:
    asked = OneTableStream(result=answer(CatalogTable(ORDERS, {"note": "str y"})))
    asked.step()
    assert asked.table.error is not None
    assert asked.table.error.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert asked.table.confirmed is None


def test_an_answer_about_an_earlier_change_is_no_answer() -> None:
    asked = OneTableStream(result=answer(CatalogTable(ORDERS, {"note": "str y"})))
    asked.confirmation.begin()
    asked.table.state = replace(asked.table.state, change=replace(CHANGE, version=2))
    asked.confirmation.settle(place(200))
    assert asked.table.error is None
    assert asked.table.confirmed is None


def undescribed(change: LastChange | None = None) -> StreamTable:
    """Rows of it came without the names of their columns."""
    state = replace(first_state(), position=place(100), change=change, undescribed=True)
    return StreamTable(NAME, None, state, unchecked=True)  # type: ignore[arg-type]


OTHER = ORDERS.of(replace(ORDERS.source, columns=(*ORDERS.columns[:-1], replace(ORDERS.columns[-1], name="other"))))


def test_rows_without_names_are_compared_with_the_catalog_again_and_again() -> None:
    """At most once a minute, and only if there were any since."""
    asked = OneTableStream(undescribed())
    asked.step()
    assert (asked.count, asked.table.unchecked, asked.table.error) == (1, False, None)
    asked.step()
    asked.table.unchecked, asked.now = True, 59.0
    asked.step()
    assert (asked.count, asked.confirmation.due) == (1, False)
    asked.now = 60.0
    asked.step()
    assert (asked.count, asked.table.unchecked) == (2, False)


@pytest.mark.parametrize("change", [None, CHANGE.confirmed()])
def test_a_catalog_that_contradicts_rows_without_names_stops_the_table(change: LastChange | None) -> None:
    asked = OneTableStream(undescribed(change), result=answer(CatalogTable(OTHER, {})))
    asked.step(reader=199)
    assert asked.table.error is None
    asked.step(reader=200)
    assert asked.table.error is not None
    assert asked.table.error.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert is_of_definition(asked.table.error.found)


def test_rows_without_names_stay_unchecked_where_the_answer_proves_nothing() -> None:
    for result in (REFUSED, answer(CatalogTable(OTHER, {}), low=99)):
        asked = OneTableStream(undescribed(), result=result)
        asked.step()
        assert (asked.table.unchecked, asked.table.error) == (True, None)
        asked.result, asked.now = answer(CatalogTable(ORDERS, {})), 30.0
        asked.step()
        assert (asked.table.unchecked, asked.table.error) == (False, None)


def test_a_confirmation_that_no_commit_has_yet_outlives_a_comparison_of_rows() -> None:
    asked = OneTableStream(changed_table())
    asked.step()
    asked.table.unchecked, asked.now = True, 100.0
    asked.step()
    assert asked.count == 2
    assert asked.table.change is not None
    assert not asked.table.change.unconfirmed
