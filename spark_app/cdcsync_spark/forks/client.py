"""The driver's side of its fork server: starts it, and calls functions in a process of their own.

Why it exists: a stream's driver and the process of its source import mostly the same, which takes
half a CPU second and 40 MiB in each. Forked from one process after the imports, they share the
pages, and Spark's processes start in milliseconds. And what is done once in a while but leaves its
libraries and its buffers behind, such as a checkpoint of a Delta table, is done in a process that
ends.

Why it is right: the server is forked while this process has one thread, and does nothing but fork.
Where it is not possible (no Linux, no file descriptors of processes, a scratch folder without
programs) there is none: Spark starts Python as ever, and a function is called in this process.
"""

from __future__ import annotations

import gc
import importlib
import os
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from cdcsync_core.errors import Reason, fail
from cdcsync_spark.forks.channel import receive, send
from cdcsync_spark.forks.server import serve

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

#: for how many seconds a process waits for the next call: many tables have their checkpoints one
#: after the other
_IDLE_SECONDS = 2.0
#: what Spark starts in the place of Python. It waits for the end of its input, which Spark's JVM
#: holds: while it lives, the process forked for it does, and the other way round.
_SCRIPT = """#!/bin/sh
echo "$$" > {requests}
read -r _
"""

_server: ForkServer | None = None


class ForkServer:
    """`python` is what Spark is to start as Python."""

    def __init__(self, control: socket.socket, python: Path) -> None:
        self.python = python
        self._control = control
        self._connection: socket.socket | None = None
        self._turn = threading.Lock()
        self._timer: threading.Timer | None = None

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """One call at a time. Raises what the function raises, and CdcError if its process ends."""
        with self._turn:
            self._cancel_timer()
            try:
                connection = self._connection = self._connection or self._connect()
                send(connection, (function, arguments, named))
                worked, result = receive(connection)
            except (OSError, EOFError) as error:
                self._close()
                raise fail(
                    Reason.INTERNAL_ERROR,
                    f"the process of {function.__name__} ended",
                    needed="a process that answers",
                    remedy="none: it is tried again; where it fails again, raise spec.stream.driver.memory",
                ) from error
            finally:
                self._start_timer()
        if worked:
            return result
        raise result

    def _connect(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"c"], [theirs.fileno()])
        return mine

    def _start_timer(self) -> None:
        self._timer = threading.Timer(_IDLE_SECONDS, self._end_idle)
        self._timer.daemon = True
        self._timer.start()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_idle(self) -> None:
        with self._turn:
            if self._timer is threading.current_thread():
                self._close()

    def _close(self) -> None:
        """The process ends when its connection does."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def start(folder: Path, modules: Iterable[str]) -> None:
    """Imports what the forks need and forks the server, which ends with this process. `folder` is
    for what Spark starts. To be called while there is one thread."""
    global _server  # noqa: PLW0603 (it belongs to the process)
    python, requests = folder / "python", folder / "forks"
    if not _possible(python, requests):
        return
    for name in modules:
        importlib.import_module(name)
    # what is there now stays: the collector would write to all of its pages
    gc.collect()
    gc.freeze()
    mine, theirs = socket.socketpair()
    if os.fork() == 0:
        serve(theirs, os.open(requests, os.O_RDWR))
    theirs.close()
    _server = ForkServer(mine, python)


def python() -> str:
    """What Spark is to start as Python."""
    return sys.executable if _server is None else str(_server.python)


def in_own_process(function: Callable[_Args, _Result], *arguments: _Args.args, **named: _Args.kwargs) -> _Result:
    """Calls a function in a process that ends, where there is a fork server; else in this one. The
    function, its arguments and its result are picklable."""
    if _server is None:
        return function(*arguments, **named)
    result: _Result = _server.call(function, arguments, named)
    return result


def _possible(python: Path, requests: Path) -> bool:
    """Whether Spark can start the script and the server can see how processes end; makes both
    files."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    requests.parent.mkdir(parents=True, exist_ok=True)
    requests.unlink(missing_ok=True)
    os.mkfifo(requests, 0o600)
    python.write_text(_SCRIPT.format(requests=shlex.quote(str(requests))))
    python.chmod(0o700)
    return os.access(python, os.X_OK)
