"""A connection to a Hive metastore, by its Thrift interface.

Why it exists: Thrift's own socket waits without end and resolves names by itself. Why it is right:
the connection goes to an address that the operator's policy was asked about; each call ends by a
clock, however slowly bytes come, and of an answer a bounded number of bytes is read. The messages
are read and written by the client that PyIceberg brings, which is generated from Hive's own
interface.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport.TTransport import TBufferedTransport, TTransportBase

from cdcsync_core.resource.networks import networks_of_the_run, parse_networks
from cdcsync_lake.checked_proxy import connect_checked

#: of one answer: a table with thousands of columns
ANSWER_BYTES = 16 * 2**20
_ELEMENTS = 100_000
_PORT = 9083
#: what a call raises that has no answer, or one that is none of the interface's
NO_ANSWER = (TException, OSError, EOFError, ValueError, TypeError, struct.error, RecursionError)


class Connected:
    """A client of the metastore at `uri`, which `spec_field` of the spec names, within a `with`;
    each call ends after `seconds`. With `tls` the metastore's certificate is verified, and names
    its host. Raises OSError, and CdcError where the policy refuses an
    address. A class, because contextlib sets the traceback of what passes a generator, and the
    interface's exceptions refuse to be changed."""

    def __init__(
        self, uri: str, spec_field: str, seconds: float, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self._uri, self._spec_field, self._seconds, self._tls = urlsplit(uri), spec_field, seconds, tls

    def __enter__(self) -> Client:
        host, port = self._uri.hostname or "", self._uri.port or _PORT
        networks = parse_networks(networks_of_the_run())
        trusted = self._tls() if self._tls else None
        self._connection = connect_checked(self._spec_field, host, port, networks, self._seconds)
        if trusted:
            self._connection = _encrypted(self._connection, trusted, host)
        transport = TBufferedTransport(_BoundedTransport(self._connection, self._seconds), 64 * 2**10)
        return Client(TBinaryProtocol(transport, string_length_limit=ANSWER_BYTES, container_length_limit=_ELEMENTS))

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _encrypted(connection: socket.socket, trusted: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return trusted.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


class _BoundedTransport(TTransportBase):
    """Bytes of calls over a connection; each `flush` begins a call."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._end, self._bytes = 0.0, 0
        self._call = b""

    def isOpen(self) -> bool:
        return True

    def write(self, content: bytes) -> None:
        self._call += content

    def flush(self) -> None:
        call, self._call = self._call, b""
        self._end, self._bytes = time.monotonic() + self._seconds, ANSWER_BYTES
        self._connection.settimeout(self._seconds)
        self._connection.sendall(call)

    def read(self, size: int) -> bytes:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"it did not answer within {self._seconds:g} s")
        self._connection.settimeout(left)
        block = self._connection.recv(min(size, 2**20))
        self._bytes -= len(block)
        if self._bytes < 0:
            raise ValueError(f"its answer has more than {ANSWER_BYTES} bytes")
        return block
