"""A network of the test's own: the test's thread moves into a fresh network namespace, and clients
live in others behind a wire.

Why it exists: a driver whose machine is gone closes no connection, and neither end may answer for
it; that takes an interface that is down, not a process that is killed. Nothing of this machine's
network is touched, and all of it is gone with the last process in it. Needs root, `ip` (iproute2)
and util-linux.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_SECONDS = 120


class RemoteMachine:
    """A machine behind a wire: `server_address` is the test's end of it, `command` begins a command
    that runs there."""

    def __init__(self, number: int) -> None:
        self._wire = f"wire{number}"
        self.server_address = f"10.231.{number}.1"
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        _await_namespace(self._holder.pid)
        self.command = ["nsenter", f"--target={self._holder.pid}", "--net"]
        _run("ip", "link", "add", self._wire, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        _run("ip", "address", "add", f"{self.server_address}/24", "dev", self._wire)
        _run("ip", "link", "set", self._wire, "up")
        _run(*self.command, "ip", "address", "add", f"10.231.{number}.2/24", "dev", "eth0")
        _run(*self.command, "ip", "link", "set", "eth0", "up")

    def cut(self) -> None:
        """No packet passes the wire any more, in neither direction."""
        _run("ip", "link", "set", self._wire, "down")

    def remove(self) -> None:
        """The machine is gone, with its connections, if nothing runs in it any more."""
        self._holder.kill()
        self._holder.wait()


@contextmanager
def clients(count: int) -> Iterator[list[RemoteMachine]]:
    """The calling thread, and what it starts, is in a namespace of its own until the end; so are
    its clients."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare of the network")
    with ExitStack() as cleanup:
        cleanup.callback(os.close, before)
        cleanup.callback(libc.setns, before, _CLONE_NEWNET)
        _run("ip", "link", "set", "lo", "up")
        made = []
        for number in range(1, count + 1):
            made.append(RemoteMachine(number))
            cleanup.callback(made[-1].remove)
        yield made


def _await_namespace(pid: int) -> None:
    ours, deadline = _namespace(f"self/task/{threading.get_native_id()}"), time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            if _namespace(str(pid)) != ours and Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                return
        time.sleep(0.01)
    raise AssertionError("no namespace was made")


def _namespace(process: str) -> Path:
    return Path(f"/proc/{process}/ns/net").readlink()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
