"""Calls functions in processes of their own, which end.

Why it exists: what is done once in a while, such as a checkpoint of a Delta table, leaves its
libraries and its buffers behind where it was done: 30 MiB.

Such a process is forked from Python's fork server, which has imported what the calls need. It ends
with its parent, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from cdcsync_core.errors import Reason, fail

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def processes(count: int, *modules: str) -> ProcessPoolExecutor:
    """A pool whose processes end with this one. `modules` are imported once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return ProcessPoolExecutor(count, context, initializer=_end_with_parent)


def in_own_process(function: Callable[_Args, _Result], *arguments: _Args.args, **named: _Args.kwargs) -> _Result:
    """Raises what the function raises, and CdcError where its process ends before it answers. The
    function, its arguments and its result are picklable."""
    with processes(1, function.__module__) as pool:
        try:
            return pool.submit(function, *arguments, **named).result()
        except BrokenProcessPool as error:
            raise fail(
                Reason.INTERNAL_ERROR,
                f"the process of {function.__name__} ended",
                needed="a process that answers",
                remedy="none: it is tried again; where it fails again, raise spec.driver.memory, or spec.stream.driver.memory",
            ) from error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
