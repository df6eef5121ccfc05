"""A run that is to end by itself and was asked to end before has not done its work."""

from __future__ import annotations

import threading

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import LOG_END, RunConfig, RunKind
from cdcsync_spark.app.driver import _cut_short


@pytest.mark.parametrize(
    ("kind", "stop_at", "cut_short"),
    [(RunKind.STREAM, "", False), (RunKind.STREAM, LOG_END, True), (RunKind.VERIFY, "", True)],
)
def test_a_signal_before_the_end_is_an_error_of_a_run_that_ends_by_itself(
    kind: RunKind, stop_at: str, cut_short: bool
) -> None:
    config = RunConfig("r", 1, kind, {}, (), "", "", "", stop_at=stop_at)
    stopping = threading.Event()
    assert _cut_short(config, stopping) is None
    stopping.set()
    error = _cut_short(config, stopping)
    assert (error is not None) is cut_short
    assert error is None or error.reason is Reason.DRIVER_LOST
