"""A decision about very many tables costs what they cost one by one: the worker that decides it
serves other syncs, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from cdcsync_core.runs.run import RunKind, TableAssignment
from cdcsync_core.runs.status import Status, only_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.reconcile.planning import table_plans
from unit.controller.harness import ControllerHarness, resource

pytestmark = pytest.mark.timeout(600)
#: one that looks through all tables for each of them takes seven seconds or more, else a quarter
TABLES, CPU_SECONDS = 10_000, 5.0
NAMES = tuple(f"shop.t{n:06d}" for n in range(TABLES))


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU seconds of this process, so that a loaded machine counts as an idle one."""
    before = time.process_time()
    work()
    return time.process_time() - before


def test_no_decision_of_a_snapshots_end_looks_through_all_tables_for_each() -> None:
    harness = ControllerHarness(NAMES, resource())
    harness.steps()
    harness.read(*NAMES)
    assert cpu_seconds(harness.step) < CPU_SECONDS
    harness.end(RunKind.SNAPSHOT)
    assert cpu_seconds(harness.step) < CPU_SECONDS
    harness.steps(2)
    harness.flow(*NAMES)
    assert cpu_seconds(harness.step) < CPU_SECONDS
    assert harness.status.tables.streaming == TABLES


def test_nor_does_one_when_all_of_them_wait_for_a_definition() -> None:
    names = NAMES[:4000]
    harness = ControllerHarness(names, resource(onPositionLost="resnapshot"))
    harness.steps()
    harness.read(*names)
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    lost = {"phase": "Failed", "reason": "PositionLost", "message": "purged"}
    harness.say(RunKind.STREAM, tables=[{"name": name, **lost} for name in names])
    harness.end(RunKind.STREAM, 3, "PositionLost", "purged")
    assert cpu_seconds(lambda: harness.steps(12)) < 2 * CPU_SECONDS
    assert len(harness.live(RunKind.SNAPSHOT).tables) == len(names)


def test_a_plan_finds_each_table_at_once() -> None:
    status = only_tables(Status(), [TableStatus(name=name) for name in NAMES])
    tables = [TableAssignment(SimpleNamespace(id=name), 0, 0) for name in NAMES]  # type: ignore[arg-type]
    assert cpu_seconds(lambda: table_plans(status, tables)) < CPU_SECONDS
