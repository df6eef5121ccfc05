"""A Hive metastore that a test session owns, from the jars that PySpark brings, on a Derby database
in a folder and on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast
from xml.sax.saxutils import escape

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from hive_metastore.ThriftHiveMetastore import Processor
from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TBufferedTransportFactory

from cdcsync_demo.server_process import LOOPBACK, ServerProcess
from cdcsync_spark.sinks.iceberg.catalog.connection import trusting
from cdcsync_spark.sinks.iceberg.catalog.metastore import NO_ANSWER, Connected
from support.iceberg_catalog import SPARK_JARS
from support.secure_kafka import Authority

_SECURITY = "org.apache.hadoop.hive.ql.security"


class HiveMetastore:
    """`start` it, then work in databases of one's own. It refuses to change a table whose folder
    says that its user may not write there. With an `authority` it speaks TLS, as `localhost`, and
    that authority's certificate is in `ca.pem` of the folder."""

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        self._folder, self._host = folder, "localhost" if authority else LOOPBACK
        self.ca = folder / "ca.pem" if authority else None
        self._tls = _tls_settings(folder, authority) if authority else {}
        self._process = ServerProcess(self._command, folder / "metastore.log", self._serves)

    def start(self) -> HiveMetastore:
        """Starts twice: as in Hive's own tests it makes the tables of its locks, as its schema tool
        does otherwise, but then refuses the locks of clients such as Iceberg's."""
        self._start({"hive.in.test": "true"})
        with self._connected(self._process.port) as metastore:
            metastore.get_open_txns()
        self.kill()
        self._start({})
        return self

    def _start(self, more: Mapping[str, str]) -> None:
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self._folder}/derby;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "HikariCP",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"{self._folder}/hive",
            "hive.metastore.metrics.enabled": "false",
            "hive.stats.autogather": "false",
            "hive.async.log.enabled": "false",
            "hive.metastore.pre.event.listeners": f"{_SECURITY}.authorization.AuthorizationPreEventListener",
            "hive.security.metastore.authorization.manager": f"{_SECURITY}.authorization.StorageBasedAuthorizationProvider",
            "hive.security.metastore.authenticator.manager": f"{_SECURITY}.HadoopDefaultMetastoreAuthenticator",
            **self._tls,
            **more,
        }
        conf = self._folder / "conf"
        conf.mkdir(exist_ok=True)
        properties = (f"<property><name>{n}</name><value>{escape(v)}</value></property>" for n, v in settings.items())
        (conf / "hive-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
        self._process.start(self._process.port)

    def kill(self) -> None:
        self._process.kill()

    @property
    def uri(self) -> str:
        return f"thrift://{self._host}:{self._process.port}"

    def _connected(self, port: int | None) -> Connected:
        tls = partial(trusting, self.ca) if self.ca else None
        return Connected(f"thrift://{self._host}:{port}", "the test", 300, tls)

    def _serves(self, port: int) -> bool:
        try:
            with self._connected(port) as metastore:
                return bool(metastore.getVersion())
        except NO_ANSWER:
            return False

    def _command(self, port: int) -> Sequence[str]:
        java = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
        path = f"{self._folder / 'conf'}:{SPARK_JARS / '*'}"
        return [*java, "-cp", path, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]


def _tls_settings(folder: Path, authority: Authority) -> dict[str, str]:
    """Writes the authority's certificate, and a key and certificate of the metastore's own."""
    (folder / "ca.pem").write_text(authority.certificate)
    certificate, key = (part.encode() for part in authority.pair("localhost"))
    password = b"only for tests"
    stored = pkcs12.serialize_key_and_certificates(
        b"metastore",
        cast("ec.EllipticCurvePrivateKey", serialization.load_pem_private_key(key, None)),
        x509.load_pem_x509_certificate(certificate),
        None,
        serialization.BestAvailableEncryption(password),
    )
    (folder / "keys.p12").write_bytes(stored)
    names = {"keystore.path": f"{folder}/keys.p12", "keystore.password": password.decode(), "use.SSL": "true"}
    return {f"hive.metastore.{name}": value for name, value in names.items()}


class MetastoreProxy:
    """A metastore that passes calls on to the one at `uri`. With changes of tables it does as
    `fault` says: `unchecked` (it leaves out what is expected, as releases before HIVE-26882 do),
    `before` (nothing is done, and an error answered), `after` (it is done, and an error
    answered)."""

    def __init__(self, uri: str) -> None:
        self._uri, self.fault = uri, ""
        self._socket = TServerSocket(LOOPBACK, 0)
        self._socket.listen()
        port = self._socket.handle.getsockname()[1]
        self.uri = f"thrift://{LOOPBACK}:{port}"
        server = TThreadedServer(Processor(self), self._socket, TBufferedTransportFactory(), TBinaryProtocolFactory())
        server.daemon = True
        Thread(target=self._serve, args=(server,), daemon=True).start()

    def _serve(self, server: Any) -> None:
        self._socket.listen = lambda: None  # it listens already
        with suppress(Exception):  # closed
            server.serve()

    def close(self) -> None:
        self._socket.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with Connected(self._uri, "the test", 300) as metastore:
                return getattr(metastore, name)(*arguments)

        return call

    def alter_table_with_environment_context(self, database: str, table: str, changed: Any, context: Any) -> None:
        expected = str(context.properties.get("expected_parameter_value"))
        fault, probe = self.fault, expected.startswith("none-")
        if fault == "before" and not probe:
            raise RuntimeError(fault)
        if fault == "unchecked":
            context.properties = {n: v for n, v in context.properties.items() if not n.startswith("expected")}
        with Connected(self._uri, "the test", 300) as metastore:
            metastore.alter_table_with_environment_context(database, table, changed, context)
        if fault == "after" and not probe:
            raise RuntimeError(fault)
