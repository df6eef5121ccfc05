"""A signal's handler waits for no lock, whatever the thread that it interrupts holds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from cdcsync_spark.app.stop_signal import StopSignal


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_event_is_set_also_while_its_lock_is_held(number: signal.Signals) -> None:
    stopping = threading.Event()
    StopSignal().call(stopping.set)
    with stopping._cond:
        os.kill(os.getpid(), number)
        assert not stopping.is_set()
    assert stopping.wait(120)


def test_a_signal_before_the_thread_is_acted_on_once_that_is_there() -> None:
    stopping, signals = threading.Event(), StopSignal()
    os.kill(os.getpid(), signal.SIGTERM)
    signals.call(stopping.set)
    assert stopping.wait(120)
