"""The checked proxy of a run, in a process of its own: `python -m cdcsync_lake.proxy_process`.

Why it exists: a client of a store may hold up all threads of Python while it waits for an answer
(delta-rs does while it opens, lists or deletes a file), and so a proxy in the same process would
never give it. Why it is right: the process ends when its standard input does, with the process that
started it, and whose environment says which networks are refused. Its first line is the proxy's
URL; it answers each line, which asks for the last refusal, with the error as JSON or an empty line.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

from cdcsync_core.errors import CdcError, from_json
from cdcsync_core.resource.networks import networks_of_the_run
from cdcsync_lake.checked_proxy import CheckedProxy


class ProxyProcess:
    """Serves until `close` or the end of this process; `url` is the client's proxy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = self._process.stdout.readline().rstrip("\n")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def take_refusal(self) -> CdcError | None:
        """The error of a connection that was refused lately, once."""
        text = self._asked("")
        return from_json(text) if text else None

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _asked(self, line: str) -> str:
        """Empty where the process has ended."""
        assert self._process.stdin
        assert self._process.stdout
        with self._lock, suppress(OSError, ValueError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            return self._process.stdout.readline().rstrip("\n")
        return ""


def main() -> None:
    with CheckedProxy(networks_of_the_run, through_proxies=True) as proxy:
        _write(proxy.url)
        for _ in sys.stdin:
            refusal = proxy.take_refusal()
            _write(refusal.to_json() if refusal else "")


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
