"""A database server as a child process of this one.

Why it exists: the demo and the tests need servers that they own: on loopback, on a port of their
own, in a folder of their own, that can be stopped or killed at any moment and never outlive their
owner.

Why it is right:
- *Ready* means that our own process listens on the port and greets. Both are checked, because
  another process may have taken the port between our choosing it and the server's binding it; then
  the server exits and the start is repeated on another port.
- The server is signalled by its process id only, and only while it is our unreaped child, so the id
  cannot belong to anyone else.
- If this process dies without stopping the server, a guard (a shell that waits for its standard
  input to close) stops it.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
_PORT_ATTEMPTS = 5
#: below those that Linux gives to connections (`net.ipv4.ip_local_port_range`) and Kubernetes to
#: services
_PORTS = range(12_000, 30_000)
_POLL_SECONDS = 0.05
_PORT_TAKEN_MARKS = ("Address already in use", "Do you already have another", "in use by another process")


class ServerStartError(RuntimeError):
    """The server ended or stayed silent while starting; the message carries the end of its log."""


class ServerProcess:
    """One run of a database server: `start`, then `stop` or `kill`; may be started again on the
    same data folder.

    `command` gives the argument vector for a port; `log` is the file that takes the server's
    output; `greets` is whether the server that listens on a port answers as it should.
    """

    def __init__(
        self, command: Callable[[int], Sequence[str]], log: Path, greets: Callable[[int], bool] | None = None
    ) -> None:
        self._command = command
        self._log = log
        self._is_ready = greets or _greets
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.port: int | None = None

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server else None

    def is_running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def start(self, port: int | None = None, timeout: float = 240) -> int:
        """Starts the server on `port`, or on a free one, and returns the port once the server
        greets."""
        if self.is_running():
            raise ServerStartError(f"the server runs already (pid {self.pid}, port {self.port}); stop it first")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self.port = port or free_port()
            offset = self._log.stat().st_size if self._log.exists() else 0
            self._launch(self.port)
            try:
                self._await_greeting(self.port, timeout)
            except ServerStartError:
                self.kill()
                if port or attempt == _PORT_ATTEMPTS or not self._port_was_taken(offset):
                    raise
            else:
                return self.port
        raise AssertionError("the last attempt returns or raises")

    def stop(self, timeout: float = 60) -> None:
        """Asks the server to end and waits for it; kills it when it does not end in time."""
        if self._server is None:
            return
        if self.is_running():
            self._server.send_signal(signal.SIGTERM)
            try:
                self._server.wait(timeout)
            except subprocess.TimeoutExpired:
                self._server.kill()
        self._reap()

    def kill(self) -> None:
        """Ends the server as a crash would: SIGKILL, no clean-up."""
        if self._server is None:
            return
        if self.is_running():
            self._server.kill()
        self._reap()

    def _launch(self, port: int) -> None:
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                list(self._command(port)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", 'cat >/dev/null; kill "$1"', "sh", str(self._server.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _reap(self) -> None:
        assert self._server is not None
        if self._guard is not None:
            self._end_guard(self._guard)
        self._server.wait()
        self._server = self._guard = None

    @staticmethod
    def _end_guard(guard: subprocess.Popen[bytes]) -> None:
        # Killed as a group, its `cat` included, before its input closes: a guard that saw the end
        # of its input would signal.
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()
        if guard.stdin is not None:
            guard.stdin.close()

    def _await_greeting(self, port: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.is_running():
                raise ServerStartError(f"the server ended while starting; the end of its log:\n{self._log_tail()}")
            if self._listens(port) and self._is_ready(port):
                return
            time.sleep(_POLL_SECONDS)
        raise ServerStartError(
            f"the server did not greet within {timeout:.0f} s; the end of its log:\n{self._log_tail()}"
        )

    def _listens(self, port: int) -> bool:
        try:
            connections = psutil.Process(self.pid).net_connections(kind="tcp4")
        except psutil.Error:
            return False
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)

    def _port_was_taken(self, offset: int) -> bool:
        with self._log.open("rb") as log:
            log.seek(offset)
            text = log.read().decode(errors="replace")
        return any(mark in text for mark in _PORT_TAKEN_MARKS)

    def _log_tail(self, lines: int = 25) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """A TCP port that was free on loopback a moment ago. The system gives it to no connection and
    to none that binds port 0, so that it is likely to be free still, also while its server is
    restarted."""
    for _ in range(_PORT_ATTEMPTS):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, random.choice(_PORTS)))  # noqa: S311
            return int(probe.getsockname()[1])
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _greets(port: int) -> bool:
    """Whether the server sends a first packet: 4 bytes of header, then at least one.

    It need not be a handshake: before the first account for a TCP host exists, it is the error "not
    allowed to connect".
    """
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as client, client.makefile("rb") as packets:
            return len(packets.read(5)) == 5
    except OSError:
        return False
