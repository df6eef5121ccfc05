"""Work whose memory is measured, in a process of its own.

Why it exists: CPython before 3.13.2 can crash where `tracemalloc.stop` meets a thread that begins
or ends, as of a test before, and what that thread allocates would count, too. A fork has one thread
and all that its test has patched, and tracing is never stopped there: it ends with the process. A
fork that came while another thread held a lock, as for an import, may wait for it for ever: it is
tried again.
"""

from __future__ import annotations

import multiprocessing
import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

_Result = TypeVar("_Result")

_ATTEMPTS = 2
#: ten times as long as the slowest work takes on a machine that is loaded ten times over
_SECONDS = 300.0


def traced(work: Callable[[], _Result]) -> _Result:
    """What `work` returns, which asks `tracemalloc` itself; what else it changes is gone then."""
    for _ in range(_ATTEMPTS):
        answer = _answer(work)
        if answer is not None:
            result, error = answer
            assert not error, error
            return result
    raise AssertionError(f"no process had a result in {_SECONDS:.0f} s")


def _answer(work: Callable[[], _Result]) -> tuple[_Result, str] | None:
    """The result and the error of a process; None where it waits for ever."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_answer, args=(work, sender), daemon=True)
    with receiver, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # where this process has several threads
        child.start()
        sender.close()
        try:
            return receiver.recv() if receiver.poll(_SECONDS) else None
        except EOFError:
            raise AssertionError("the process ended without a result") from None
        finally:
            child.kill()
            child.join()


def _send_answer(work: Callable[[], Any], sender: Connection) -> None:
    tracemalloc.start()
    try:
        answer = work(), ""
    except BaseException:  # noqa: BLE001 (an outcome of pytest is no Exception)
        answer = None, traceback.format_exc()
    sender.send(answer)
