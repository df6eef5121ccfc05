"""A TCP relay that can stop forwarding: connections stay open and nothing comes through, as when
packets are dropped.

with relay_to(server.host, server.port) as relay:
    ...                         # clients connect to 127.0.0.1:relay.port
    relay.stop()                # nothing is forwarded from now on, in either direction
    relay.forward()             # what has come meanwhile, and all that comes
    relay.drop_packets()        # of the clients that are there: no kernel answers theirs
    relay.hold_dumps = True     # a connection that asks MySQL for a dump gets nothing from then on
    relay.hold_text = b"SHOW"   # a connection that sends this gets nothing from then on
    relay.refuse = True         # a new connection is closed at once, those that are there go on
    relay.lead_to(host, port)   # new connections go to another server, those that are there stay
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

#: a command is the first byte behind a packet's header of four, whose number is 0; where its flags
#: lie, of which 1 ends a dump with the binlog
_DUMPS = {0x12: 9, 0x1E: 5}
_TICK = 0.1
#: Linux; a program of the packet filter for a socket, which takes no byte of any packet
_SO_ATTACH_FILTER, _TAKES_NOTHING = 26, struct.pack("HBBI", 6, 0, 0, 0)


class Relay:
    """Made by `relay_to`."""

    def __init__(self, host: str, port: int, address: str = "127.0.0.1", own_port: int = 0) -> None:
        self._target = (host, port)
        self._open = threading.Event()
        self._open.set()
        self._closed = threading.Event()
        self._listener = socket.create_server((address, own_port))
        self._listener.settimeout(_TICK)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self._connections: list[socket.socket] = []
        self._clients: list[socket.socket] = []
        self.hold_dumps = self.refuse = False
        self.hold_text = b""
        self.refused = 0

    def lead_to(self, host: str, port: int) -> None:
        self._target = (host, port)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def stop(self) -> None:
        self._open.clear()

    def forward(self) -> None:
        self._open.set()

    def drop_packets(self) -> None:
        program = ctypes.create_string_buffer(_TAKES_NOTHING)
        filtering = struct.pack("@HP", 1, ctypes.addressof(program))
        for client in self._clients:
            client.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filtering)

    def close(self) -> None:
        self._closed.set()
        self._open.set()
        for connection in self._connections:
            _end(connection)
        for thread in self._threads:
            thread.join()
        for connection in (self._listener, *self._connections):
            connection.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self._begin(client)

    def _begin(self, client: socket.socket) -> None:
        if self.refuse:
            client.close()
            self.refused += 1
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        held = threading.Event()
        self._clients.append(client)
        self._connections += [client, server]
        for one, other in ((client, server), (server, client)):
            thread = threading.Thread(target=self._pump, args=(one, other, one is client, held))
            self._threads.append(thread)
            thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, asks: bool, held: threading.Event) -> None:
        with suppress(OSError), ExitStack() as stack:
            stack.callback(_end, source)
            stack.callback(_end, target)
            while not self._closed.is_set():
                data = self._received(source)
                if data is None:
                    continue
                self._open.wait()
                if asks and self._holds(data):
                    held.set()
                if not data or self._closed.is_set():
                    return
                if not held.is_set():
                    target.sendall(data)

    def _holds(self, data: bytes) -> bool:
        if self.hold_text and self.hold_text in data:
            return True
        return self.hold_dumps and _asks_for_an_endless_dump(data)

    def _received(self, source: socket.socket) -> bytes | None:
        # not select.select: it takes no file descriptor from 1024 on
        waiting = select.poll()
        waiting.register(source, select.POLLIN)
        return source.recv(1 << 16) if waiting.poll(_TICK * 1000) else None


def _asks_for_an_endless_dump(data: bytes) -> bool:
    flags_at = _DUMPS.get(data[4]) if len(data) > 10 and data[3] == 0 else None
    return flags_at is not None and not data[flags_at] & 1


def _end(connection: socket.socket) -> None:
    """Both threads of a connection use it, so it is not closed yet."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(host: str, port: int, address: str = "127.0.0.1") -> Iterator[Relay]:
    """At `address` of this machine."""
    relay = Relay(host, port, address)
    try:
        yield relay
    finally:
        relay.close()


@contextmanager
def relays_at_one_port(*targets: tuple[str, int]) -> Iterator[list[Relay]]:
    """One for each target, at 127.0.0.1, 127.0.0.2 and so on: hosts of a source have one port."""
    with ExitStack() as stack:
        relays: list[Relay] = []
        while len(relays) < len(targets):
            try:
                own_port = relays[0].port if relays else 0
                relays.append(Relay(*targets[len(relays)], f"127.0.0.{len(relays) + 1}", own_port))
            except OSError:  # another program has the port at that address
                for relay in relays:
                    relay.close()
                relays = []
        for relay in relays:
            stack.callback(relay.close)
        yield relays
