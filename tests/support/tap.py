"""What passes the network of this machine at some ports, as one reads it who can: the payloads of
TCP segments."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

_EVERY_PROTOCOL, _IPV4 = 0x0003, 0x0800
_TCP = 6
_BUFFER = 64 * 2**20


class Tap:
    """Made by `tapped`. `payloads` holds what was sent from or to each port."""

    def __init__(self, ports: Collection[int]) -> None:
        self.payloads = {port: bytearray() for port in ports}

    def packet(self, packet: bytes) -> None:
        """An IPv4 packet."""
        header = (packet[0] & 15) * 4
        if packet[9] != _TCP:
            return
        segment = packet[header : int.from_bytes(packet[2:4])]
        data = segment[(segment[12] >> 4) * 4 :]
        for port in (int.from_bytes(segment[0:2]), int.from_bytes(segment[2:4])):
            if port in self.payloads:
                self.payloads[port] += data


@contextmanager
def tapped(*ports: int) -> Iterator[Tap]:
    """Taps all interfaces of this network namespace; for root."""
    tap, ending = Tap(ports), threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(_EVERY_PROTOCOL)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.settimeout(0.2)

        def listen() -> None:
            while not ending.is_set():
                try:
                    packet, about = listener.recvfrom(2**17)
                except TimeoutError:
                    continue
                if about[1] == _IPV4:
                    tap.packet(packet)

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield tap
        finally:
            ending.set()
            thread.join()
