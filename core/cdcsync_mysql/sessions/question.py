"""One question to a source that may be hostile: bounded in time, in memory, and in where it may go.

Why it exists: the operator asks the sources of many tenants in one process. A timeout of a socket
passes a server that sends a byte now and then, a client's library joins packets without end, and a
name may resolve to an address that only the operator reaches.

Why it is right: time is a wall clock's, and at its end the sockets are shut down beneath whatever
reads from them; so are they when the question is given up, and none is opened afterwards. A socket
is held by a descriptor of its own, because TLS takes the first one over. What is connected to is
the address that was checked, not the name again.
"""

from __future__ import annotations

import itertools
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.networks import parse_networks, refuse_addresses

_CONNECT_SECONDS = 10.0
#: of a connection on which nothing comes: until the peer's kernel is asked, and between questions
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 30, 10, 3
#: in which the peer's kernel takes what was sent, so that a server that is slow to read has time
_TAKEN_SECONDS = 300
#: of a TLS handshake and a login together
LOGIN_SECONDS = 30.0


@dataclass(frozen=True)
class AnswerLimits:
    """Bounds of an answer: packets (a row is one), and bytes in all of them. 250,000 rows of Python
    values take some 100 MiB."""

    packets: int = 250_000
    bytes: int = 32 * 2**20


#: of memory, in what is counted as one step
_STEP = 2**20
#: what a packet, which is a row, takes as Python's values beside its bytes, twice
_PACKET_BYTES = 200


class Question:
    """Use as a context manager; what is asked meanwhile is within `limits`, and none of it goes to
    an address of `refused_networks` (in the form of `ipaddress`). `take(bytes)` says whether there
    is memory for all that the question holds, and `bound` how much that may be, in words. `stop`
    may be called by any thread."""

    def __init__(
        self,
        refused_networks: tuple[str, ...] = (),
        limits: AnswerLimits = AnswerLimits(),
        take: Callable[[int], bool] = lambda _: True,
        login_seconds: float = LOGIN_SECONDS,
        bound: str = "",
    ) -> None:
        self.limits = limits
        self.bound = bound
        self.login_seconds = login_seconds
        self._take = take
        self._answer = self._kept = self._taken = 0
        self.refused_networks = refused_networks
        self._refused = parse_networks(refused_networks)
        self._changed = threading.Condition()
        self._ends: list[float] = []
        self._wakes_at = math.inf
        self._held: dict[int, socket.socket] = {}
        self._numbers = itertools.count(1)
        self._closed = False
        self.stopped = False
        self._watch = threading.Thread(target=self._keep_time, name="question", daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.stop()
        self._watch.join()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What is done inside ends in time, or is stopped."""
        end = time.monotonic() + seconds
        with self._changed:
            self._ends.append(end)
            if end < self._wakes_at:
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._ends.remove(end)

    def stop(self) -> None:
        """Shuts down all connections; there are none afterwards."""
        with self._changed:
            self.stopped = True
            held, self._held = self._held, {}
        for sock in held.values():
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def answered(self, packets: int, size: int) -> bool:
        """What the answer that is being read has so far; False where there is no memory for it."""
        self._answer = 2 * size + _PACKET_BYTES * packets
        return self._has_memory()

    def keep(self, size: int) -> bool:
        """What is made of answers and held till the question's end; False as above."""
        self._answer, self._kept = 0, self._kept + size
        return self._has_memory()

    def _has_memory(self) -> bool:
        """In steps, so that who counts is not asked for each packet."""
        held = (self._answer + self._kept) // _STEP * _STEP
        if held == self._taken:
            return True
        if not self._take(held):
            return False
        self._taken = held
        return True

    def open(self, host: str, port: int) -> tuple[socket.socket, int]:
        """A connected socket, and the number by which it is to be released. Raises OSError;
        SpecInvalid for an address that is refused; SourceUnreachable where the question was
        stopped."""
        addresses = _addresses(host, port)
        refuse_addresses("spec.source.host", host, addresses, self._refused)
        last: OSError = OSError(f"no address of {host}")
        for address in addresses:
            if self.stopped:
                raise out_of_time()
            try:
                return self._hold(socket.create_connection((address, port), _CONNECT_SECONDS))
            except OSError as error:
                last = error
        raise last

    def release(self, number: int) -> None:
        """The connection was closed; may be called again."""
        with self._changed:
            held = self._held.pop(number, None)
        if held is not None:
            held.close()

    def _hold(self, sock: socket.socket) -> tuple[socket.socket, int]:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _end_when_lost(sock)
        own = socket.socket(fileno=os.dup(sock.fileno()))
        with self._changed:
            if not self.stopped:
                number = next(self._numbers)
                self._held[number] = own
                return sock, number
        own.close()
        sock.close()
        raise out_of_time()

    def _keep_time(self) -> None:
        with self._changed:
            while not self._closed:
                left = min(self._ends, default=math.inf) - time.monotonic()
                if left <= 0:
                    break
                self._wakes_at = time.monotonic() + left
                self._changed.wait(None if math.isinf(left) else left)
        self.stop()


def _addresses(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def out_of_time() -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        "the source did not answer in time",
        needed="answers within the operator's bounds",
        remedy="check spec.source.host and port, and the server's load",
    )


def out_of_memory(bound: str) -> CdcError:
    """Sources of others may hold it just then, so it is tried again."""
    return fail(
        Reason.SOURCE_UNREACHABLE,
        "the source sends more than the operator has memory for, beside what it holds of other sources",
        needed=bound or "answers within the operator's bounds",
        remedy="name fewer tables in spec.tables, or let the account read fewer",
    )


def _end_when_lost(sock: socket.socket) -> None:
    """The kernel ends a connection whose packets are dropped, however long its answer may take:
    another kernel answers its questions while the server computes (`man 7 tcp`)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, _PROBE_SECONDS),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, 1000 * _TAKEN_SECONDS),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
