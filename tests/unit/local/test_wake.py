"""An event that a signal's handler sets while the thread that waits is in any state."""

from __future__ import annotations

import os
import signal
import threading
import time

from cdcsync_operator.local.wake import Wake


def test_a_wait_ends_with_its_time_or_when_it_is_set() -> None:
    wake = Wake()
    assert not wake.wait(0.01)
    threading.Timer(0.05, wake.set).start()
    assert wake.wait(600)
    assert wake.wait(600), "until it is cleared"
    wake.clear()
    assert not wake.wait(0.01)
    wake.clear()


def test_a_signal_ends_the_wait() -> None:
    wake = Wake()
    before = signal.signal(signal.SIGUSR1, lambda *_: wake.set())
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        begun = time.monotonic()
        assert wake.wait(600)
        assert time.monotonic() - begun < 300
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_it_may_be_set_without_end() -> None:
    """No thread waits meanwhile, and the socket is full."""
    wake = Wake()
    for _ in range(100_000):
        wake.set()
    assert wake.wait(0)
    wake.clear()
    assert not wake.wait(0)
