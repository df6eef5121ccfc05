"""The process that forks: for Spark, which asks by a program that it takes for Python, and for the
driver's calls.

It has one thread and imports nothing more, so a fork of it is whole. Each process of Spark's has
two ends, the program that Spark started and the one that was forked for it; where one ends, the
other is ended. When the driver is gone, so is its socket: then all of them end.
"""

from __future__ import annotations

import os
import pickle
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from cdcsync_spark.forks.channel import receive, send

#: as `ps` shows them
SERVER, SOURCE, CALLS = "cdcsync-forks", "cdcsync-source", "cdcsync-calls"


def serve(control: socket.socket, requests: int) -> NoReturn:
    """Forks until the other end of `control` is closed. `requests`: a pipe of process ids, a line
    each."""
    code = 1
    try:
        _begin(SERVER, {control.fileno(), requests})
        _Server(control, requests).run()
        code = 0
    except BaseException:  # noqa: BLE001 (no frame of the driver's is to go on here)
        traceback.print_exc()
    finally:
        os._exit(code)


class _Server:
    def __init__(self, control: socket.socket, requests: int) -> None:
        self._control, self._requests = control, requests
        self._children: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ, self._fork_for_spark)
        self._selector.register(control, selectors.EVENT_READ, self._fork_for_calls)
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select():
                # what was done for another one may have ended this
                if self._selector.get_map().get(key.fileobj) is key:
                    key.data()
        for child in self._children:
            os.kill(child, signal.SIGKILL)

    def _fork_for_spark(self) -> None:
        for word in os.read(self._requests, 4096).split():
            with suppress(OSError, ValueError):  # a program that is gone again, or no memory
                started = int(word)
                module, environment = _asked(started)
                self._tie(os.pidfd_open(started), self._fork(partial(_run_module, module, environment), SOURCE))

    def _fork_for_calls(self) -> None:
        message, descriptors, *_ = socket.recv_fds(self._control, 1, 1)
        if not message:
            self._ended = True
            return
        (descriptor,) = descriptors
        with suppress(OSError):  # no memory; the driver sees a closed socket
            self._watch(self._fork(partial(_answer_calls, descriptor), CALLS, descriptor))
        os.close(descriptor)

    def _fork(self, work: Callable[[], int], name: str, *kept: int) -> int:
        pid = os.fork()
        if pid:
            self._children.add(pid)
            return pid
        code = 1
        try:
            _begin(name, set(kept))
            code = work()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        except BaseException:  # noqa: BLE001 (no frame of the server's is to go on here)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code & 0xFF)

    def _tie(self, started: int, child: int) -> None:
        """`started`: the descriptor of what Spark started."""

        def end_child() -> None:
            self._selector.unregister(started)
            os.kill(child, signal.SIGTERM)  # not reaped yet: that ends the watch over `started`, too

        def end_started() -> None:
            if started in self._selector.get_map():
                self._selector.unregister(started)
                with suppress(OSError):
                    signal.pidfd_send_signal(started, signal.SIGTERM)
            os.close(started)

        self._selector.register(started, selectors.EVENT_READ, end_child)
        self._watch(child, end_started)

    def _watch(self, child: int, then: Callable[[], None] = lambda: None) -> None:
        descriptor = os.pidfd_open(child)

        def reap() -> None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            os.waitpid(child, 0)
            self._children.discard(child)
            then()

        self._selector.register(descriptor, selectors.EVENT_READ, reap)


def _begin(name: str, kept: set[int]) -> None:
    """A process like one that was started: its own name and signals, no file of the process that it
    was forked from but the standard ones."""
    for number in (int(entry) for entry in os.listdir("/proc/self/fd")):  # noqa: PTH208
        if number > 2 and number not in kept:
            with suppress(OSError):
                os.close(number)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    ignored = name == SERVER  # it ends after the driver
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignored else signal.SIG_DFL)
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _asked(started: int) -> tuple[str, dict[str, str]]:
    """The module and the environment of `python -m MODULE`."""
    folder = Path(f"/proc/{started}")
    words = folder.joinpath("cmdline").read_bytes().split(b"\0")
    module = os.fsdecode(words[words.index(b"-m") + 1])
    pairs = (entry.partition(b"=") for entry in folder.joinpath("environ").read_bytes().split(b"\0") if entry)
    return module, {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _run_module(module: str, environment: dict[str, str]) -> int:
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _answer_calls(descriptor: int) -> int:
    with socket.socket(fileno=descriptor) as connection:
        while True:
            try:
                function, arguments, named = receive(connection)
            except EOFError:
                return 0
            _answer(connection, partial(function, *arguments, **named))


def _answer(connection: socket.socket, call: Callable[[], object]) -> None:
    """(True, the result) or (False, the error)."""
    try:
        answer = True, call()
    except Exception as error:  # noqa: BLE001 (raised where it was called)
        answer = False, error
    try:
        send(connection, answer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        send(connection, (False, RuntimeError(f"{answer[1]!r} cannot be sent: {error}")))
