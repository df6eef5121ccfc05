"""What Spark committed is entered only if the files that went and came hold the rows that they
should (promise 5)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdcsync_core.errors import PermanentError, Reason, TransientError
from cdcsync_spark.sinks.base import AdvancePosition, Append, Commit
from cdcsync_spark.sinks.delta.delta_spark import _check_rows, spark_error
from cdcsync_spark.sinks.delta.view import Action, TableView, new_file
from cdcsync_spark.sinks.lake.staging import DataFile


def add(path: str, rows: int) -> Action:
    return {"add": dict(new_file(path, 1, json.dumps({"numRecords": rows}), 0, data_change=True).add)}


def commit(change: object) -> Commit:
    return cast(
        Commit, SimpleNamespace(change=change, state=SimpleNamespace(identity=SimpleNamespace(table="shop.orders")))
    )


def view() -> TableView:
    found = TableView()
    found.take(add("old", 10))
    return found


REMOVED: Action = {"remove": {"path": "old"}}


@pytest.mark.parametrize(
    ("change", "gained", "actions"),
    [
        (AdvancePosition(), 2, [REMOVED, add("new", 12)]),
        (AdvancePosition(), -10, [REMOVED]),
        (Append((DataFile("a", 1, 3).as_part(),)), 0, [add("new", 3)]),
    ],
)
def test_rows_that_add_up_are_entered(change: object, gained: int, actions: list[Action]) -> None:
    _check_rows(view(), commit(change), actions, gained)


@pytest.mark.parametrize(
    ("change", "gained", "actions"),
    [
        (AdvancePosition(), 2, [REMOVED, add("new", 11)]),
        (Append((DataFile("a", 1, 3).as_part(),)), 0, [add("new", 2)]),
        (AdvancePosition(), 0, []),
    ],
    ids=["a file was read in part", "a staged file was read in part", "not one commit"],
)
def test_a_row_too_few_is_refused(change: object, gained: int, actions: list[Any]) -> None:
    with pytest.raises((PermanentError, TransientError)) as refused:
        _check_rows(view(), commit(change), actions, gained)
    assert refused.value.reason is Reason.INTERNAL_ERROR


def test_what_spark_says_of_a_broken_rule_is_told_without_the_rows_values() -> None:
    text = (
        "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (id > 0) violated by row with values:\n"
        " - id : -1\n - note : secret SQLSTATE: 23001"
    )
    stopped = spark_error(text, "shop.orders")
    assert stopped.reason is Reason.SINK_CONFLICT
    assert "CHECK constraint positive (id > 0) violated" in stopped.message
    assert "secret" not in stopped.message
