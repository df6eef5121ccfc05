"""A broker with a listener of TLS and logins, and one of logins alone, beside its plain one, and
its certificates.

The listener is at 127.0.0.1, and its certificate names `localhost` only: so the same broker has an
address that is in its certificate, and one that is not.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cdcsync_demo.server_process import LOOPBACK, free_port
from support.kafka import KafkaBroker

USER, PASSWORD = "cdc", "only for tests, not shown"
_LOGIN = "org.apache.kafka.common.security"


class Authority:
    """An authority and the certificates that it signs."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = _certificate(self._name, self._name, self._key.public_key()).add_extension(constraints, critical=True)
        self.certificate = _pem(made.sign(self._key, hashes.SHA256()))

    def pair(self, host: str) -> tuple[str, str]:
        """A certificate that names the host, and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        named = x509.SubjectAlternativeName([x509.DNSName(host)])
        made = _certificate(subject, self._name, key.public_key()).add_extension(named, critical=False)
        shown = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return _pem(made.sign(self._key, hashes.SHA256())), shown.decode()


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


#: no client may do anything without a right, but for clients of the plain listener
DENYING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",
}


class SecureBroker(KafkaBroker):
    """Its accounts are USER for each mechanism; clients may have a certificate of `authority`."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.authority = Authority("tests")
        super().__init__(folder, settings)
        (folder / "broker.pem").write_text("".join(reversed(self.authority.pair("localhost"))))
        (folder / "ca.pem").write_text(self.authority.certificate)

    def start(self) -> SecureBroker:
        super().start()
        admin = self.admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            account = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([account])[USER].result(120)
        return self

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._secure, self._login = free_port(), free_port()

    def secure(self, host: str = "localhost") -> str:
        return f"{host}:{self._secure}"

    @property
    def with_logins(self) -> str:
        """The listener that has logins and no TLS."""
        return f"{LOOPBACK}:{self._login}"

    def _server_settings(self, port: int) -> dict[str, str]:
        plain = super()._server_settings(port)
        logins = f"LOGINS://{self.with_logins}"
        scram = f"{_LOGIN}.scram.ScramLoginModule required;"
        accounts = {
            "scram-sha-256.sasl.jaas.config": scram,
            "scram-sha-512.sasl.jaas.config": scram,
            "plain.sasl.jaas.config": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        }
        return {
            **plain,
            "listeners": f"{plain['listeners']},SECURE://{LOOPBACK}:{self._secure},{logins}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},SECURE://localhost:{self._secure},{logins}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,LOGINS:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(self.folder / "broker.pem"),
            "listener.name.secure.ssl.truststore.type": "PEM",
            "listener.name.secure.ssl.truststore.location": str(self.folder / "ca.pem"),
            "listener.name.secure.ssl.client.auth": "requested",
            **{
                f"listener.name.{where}.{name}": value
                for where in ("secure", "logins")
                for name, value in accounts.items()
            },
        }
