"""A sync in the states that runs beside each other begin with, and its tables."""

from __future__ import annotations

from typing import Any

from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.decision.runs.preflights import PREFLIGHT_EVERY
from unit.controller.harness import ControllerHarness

SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
AGAIN = [{"table": "shop.b", "nonce": 1}]


def flowing() -> ControllerHarness:
    harness = ControllerHarness()
    harness.to_streaming()
    return harness


def reading_again() -> ControllerHarness:
    """A snapshot of shop.b beside the stream, without a report yet."""
    harness = flowing()
    harness.change(resnapshot=AGAIN)
    harness.steps()
    assert harness.live(SNAPSHOT).tables == (("shop.b", 1),)
    return harness


def entry(harness: ControllerHarness, name: str = "shop.b") -> TableStatus:
    found = harness.status.table(name)
    assert found is not None
    return found


def look_again(harness: ControllerHarness, **parts: Any) -> None:
    """The next regular preflight finds this."""
    for name, value in parts.items():
        setattr(harness, name, value)
    harness.step(PREFLIGHT_EVERY + 1)
    flowing = [t.name for t in harness.status.table_status if t.phase == "Streaming"]
    if flowing:
        harness.flow(*flowing)
    harness.steps()
