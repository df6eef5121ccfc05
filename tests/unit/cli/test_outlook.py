"""What `cdcsync check` says that a failover would do to a table, under its manifest's policies."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.expected_failover import ExpectedFailover
from cdcsync_mysql.readiness.tablecheck import TableCheck
from cdcsync_operator.cli.views.check_view import Outlook

TABLE = TableId("shop", "a")
PROOF = ExpectedFailover()
LOST = ExpectedFailover(Reason.POSITION_LOST, "gtid_mode")
DIVERGED = ExpectedFailover(Reason.HISTORY_DIVERGED, "r (rand())")
HISTORY = {"delta": {"path": "/lake", "mode": "history"}}
FAILS = {"source": {"lostTail": "fail"}}
RESNAPSHOTS = {"onPositionLost": "resnapshot"}


def _spec(change: dict[str, Any]) -> Spec:
    source = {"host": "db", "credentialsSecretRef": {"name": "login"}} | change.get("source", {})
    base = {"tables": {"include": [r"shop\..*"]}, "sink": {"delta": {"path": "/lake"}}}
    return Spec.model_validate(base | change | {"source": source})


@pytest.mark.parametrize(
    ("change", "expected", "outcome"),
    [
        ({}, PROOF, "goes on by a proof; resnapshot if a lost tail changed it"),
        (FAILS, PROOF, "goes on by a proof; stops if a lost tail changed it"),
        ({"sink": HISTORY}, PROOF, "goes on by a proof; stops if a lost tail changed it"),
        ({}, LOST, "stops (PositionLost): gtid_mode"),
        (RESNAPSHOTS, LOST, "resnapshot (PositionLost): gtid_mode"),
        ({}, DIVERGED, "resnapshot (HistoryDiverged): r (rand())"),
        (FAILS, DIVERGED, "stops (HistoryDiverged): r (rand())"),
    ],
)
def test_the_policies_decide(change: dict[str, Any], expected: ExpectedFailover, outcome: str) -> None:
    assert Outlook(_spec(change), {TABLE: expected}).after_failover(TableCheck(TABLE)) == outcome


def test_a_table_that_is_not_copied_has_no_outcome() -> None:
    assert Outlook(_spec({}), {}).after_failover(TableCheck(TABLE)) == ""
