"""How brokers are reached: the settings of each kind of client.

Why it is right: credentials are read from their files when a client is made, so no object here
holds a secret that could be printed, and a rotated one works for the next client; TLS that is asked
for is never given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cdcsync_core.account_texts import hidden_texts, without_texts
from cdcsync_core.errors import Reason, fail
from cdcsync_spark.sinks.kafka.connection.obstacles import Client

#: seconds for one question to a broker
TIMEOUT_SECONDS = 30.0
#: of a transaction: the broker ends it afterwards
TRANSACTION_SECONDS = 60.0
#: of the process's memory for records that are not sent yet
_QUEUE_KILOBYTES = 64 * 1024


@dataclass(frozen=True)
class Security:
    """TLS and the login, as files. Without `ca` the authorities that the machine knows verify the
    brokers; `verified` is whether any does, `names_host` whether the certificate has to name the
    host. No `mechanism`: no login."""

    tls: bool = False
    verified: bool = False
    names_host: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    mechanism: Literal["", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"] = ""
    username: Path | None = None
    password: Path | None = None

    def without_account(self, message: str) -> str:
        """A broker's message without what it may repeat of the login."""
        return without_texts(message, hidden_texts(self.username, self.password))

    def settings(self) -> dict[str, Any]:
        """The settings of any client. Raises SpecInvalid where a file is missing."""
        protocol = ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")
        return {"security.protocol": protocol, **self._tls(), **self._login()}

    def _tls(self) -> dict[str, Any]:
        if not self.tls:
            return {}
        files = {
            "ssl.certificate.location": self.cert,
            "ssl.key.location": self.key,
            "ssl.ca.location": self.ca or (Path("probe") if self.verified else None),
        }
        return {
            "enable.ssl.certificate.verification": self.verified,
            "ssl.endpoint.identification.algorithm": "https" if self.names_host else "none",
            **{name: str(file) for name, file in files.items() if file is not None},
        }

    def _login(self) -> dict[str, Any]:
        if not self.mechanism or self.username is None or self.password is None:
            return {}
        return {
            "sasl.mechanisms": self.mechanism,
            "sasl.username": credential(self.username),
            "sasl.password": credential(self.password),
        }


@dataclass(frozen=True)
class KafkaSettings:
    """The brokers `bootstrap`, settings of the producer beyond ours, the seconds for one question
    to a broker, and those of a transaction; `exactly_once` is whether there are any."""

    bootstrap: str
    producer: tuple[tuple[str, str], ...] = ()
    timeout: float = TIMEOUT_SECONDS
    transaction: float = TRANSACTION_SECONDS
    security: Security = Security()
    exactly_once: bool = True

    def common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "cdcsync",
            "socket.timeout.ms": int(min(10.0, self.transaction) * 1000),
            "socket.connection.setup.timeout.ms": 10_000,
            "allow.auto.create.topics": False,
            "log_level": 2,
            **self.security.settings(),
        }

    @property
    def kind(self) -> Client:
        return Client(self.security.tls, bool(self.security.mechanism))

    def admin(self) -> dict[str, Any]:
        """The settings of an admin client, which logs what fails, because it does not report all of
        it."""
        settings = {k: v for k, v in self.common().items() if k != "allow.auto.create.topics"}
        return {**settings, "log_level": 6}

    def consumer(self, isolation: str) -> dict[str, Any]:
        """The settings of a consumer that is assigned its partitions and commits no offsets: the
        group is only a name, and no right on it is needed (`rights`)."""
        return {
            **self.common(),
            "group.id": "cdcsync",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # a client whose queue was full for a moment waits a second before it fetches again
            "fetch.queue.backoff.ms": 10,
        }

    def transactional(self, transactional_id: str) -> dict[str, Any]:
        """The settings of a producer that sends transactions."""
        return {
            **self._sending(),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(self.transaction * 1000),
        }

    def plain(self) -> dict[str, Any]:
        """The settings of a producer without transactions; what it could not send for as long as a
        transaction may take is not sent any more."""
        return {**self._sending(), "message.timeout.ms": int(self.transaction * 1000)}

    def _sending(self) -> dict[str, Any]:
        """The user's settings may tune the sending, never its guarantees."""
        return {
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "compression.type": "lz4",
            **dict(self.producer),
            **self.common(),
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": _QUEUE_KILOBYTES,
        }


def credential(file: Path) -> str:
    """A line end that an editor added is no part of a credential."""
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        raise fail(
            Reason.SPEC_INVALID,
            f"no readable credential in {file.parent.name}/{file.name}",
            needed="the Secret of credentialsSecretRef in spec.sink.kafka.sasl or schemaRegistry, with its keys",
        ) from None
