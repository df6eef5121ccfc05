"""A machine in the middle: it shows a client the real server's greeting, has a certificate of its
own, and asks for the password.

Why it is right: it speaks the protocol as far as a password can be had by it, decrypts what the
client encrypts for its key, and keeps every byte that it received. A test that finds no password in
there shows first, with a client that gives it away, that it would.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from support.servers import Server

_CLIENT_SSL = 0x0800
#: enough for a switch of the plugin, a challenge, a key and the password
_ROUNDS = 5
_SALT = b"saltsaltsaltsaltsalt"
_FULL_AUTHENTICATION = b"\x01\x04"


@dataclass
class Middle:
    """`greets` with that plugin (the server's own where empty), then asks to `switch` to another
    one where given. `received` is all that clients sent, `learnt` the passwords that were encrypted
    for its key."""

    server: Server
    folder: Path
    greets: str = ""
    switch: str = ""
    received: bytearray = field(default_factory=bytearray)
    learnt: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.certificate, key = self.folder / "middle.crt", self.folder / "middle.key"
        self.certificate.write_bytes(_certificate(self._key).public_bytes(serialization.Encoding.PEM))
        key.write_bytes(
            self._key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self.certificate, key)

    @contextmanager
    def listening(self, *, tls: bool) -> Iterator[int]:
        """The port; with `tls` the server seems to have it."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=self._serve, args=(listener, tls))
            thread.start()
            yield listener.getsockname()[1]
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(120)
        assert not thread.is_alive()

    def _serve(self, listener: socket.socket, tls: bool) -> None:
        with suppress(OSError, EOFError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError, EOFError):
                    client.settimeout(20)
                    self._talk(client, tls)

    def _talk(self, client: socket.socket, tls: bool) -> None:
        _send(client, 0, self._greeting(tls))
        number, answer = self._receive(client)
        if struct.unpack_from("<H", answer)[0] & _CLIENT_SSL:
            with self._tls.wrap_socket(client, server_side=True) as wrapped:
                number, _ = self._receive(wrapped)
                self._ask(wrapped, number)
        else:
            self._ask(client, number)

    def _ask(self, client: socket.socket, number: int) -> None:
        asks = [b"\xfe" + self.switch.encode() + b"\0" + _SALT + b"\0"] if self.switch else [_FULL_AUTHENTICATION]
        if self.greets == "sha256_password" and not isinstance(client, ssl.SSLSocket):
            asks = [b"\x01" + self._public_key()]  # what a client without TLS asks for in its first answer
        for _ in range(_ROUNDS):
            ask = asks.pop() if asks else _FULL_AUTHENTICATION
            _send(client, number + 1, ask)
            number, answer = self._receive(client)
            if answer in (b"\x01", b"\x02"):
                asks = [b"\x01" + self._public_key()]
            elif len(answer) == self._key.key_size // 8:
                self.learnt.append(self._decrypted(answer))

    def _greeting(self, tls: bool) -> bytes:
        """The real server's, with another plugin, and with or without TLS."""
        with socket.create_connection((self.server.host, self.server.port), 10) as real:
            _, greeting = _receive(real)
        body = bytearray(greeting)
        low = body.index(b"\0", 1) + 1 + 4 + 8 + 1
        capabilities = struct.unpack_from("<H", body, low)[0]
        struct.pack_into("<H", body, low, capabilities | _CLIENT_SSL if tls else capabilities & ~_CLIENT_SSL)
        plugin = body.rindex(b"\0", 0, -1) + 1
        self._salts = [bytes(body[low - 9 : low - 1]) + bytes(body[low + 18 : low + 30]), _SALT]
        return bytes(body[:plugin] + (self.greets.encode() or body[plugin:-1]) + b"\0")

    def _receive(self, client: socket.socket) -> tuple[int, bytes]:
        number, payload = _receive(client)
        self.received += payload
        return number, payload

    def _public_key(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form)

    def _decrypted(self, answer: bytes) -> bytes:
        oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)
        hidden = self._key.decrypt(answer, oaep)
        return b" or ".join(bytes(a ^ s[i % 20] for i, a in enumerate(hidden)) for s in self._salts)


def _send(client: socket.socket, number: int, payload: bytes) -> None:
    client.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)


def _receive(client: socket.socket) -> tuple[int, bytes]:
    head = _exactly(client, 4)
    return head[3], _exactly(client, int.from_bytes(head[:3], "little"))


def _exactly(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = client.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "middle")]), datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
