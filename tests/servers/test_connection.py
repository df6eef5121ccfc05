"""Connections: the session profile of R1, TLS that is never given up, errors in the product's
words, no secret anywhere."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cdcsync_core.errors import CdcError, Reason
from cdcsync_mysql.server import log_retention_seconds, read_facts
from cdcsync_mysql.sessions.connection import Source, Tls, connect, fetch
from support.fixtures import FreshDatabase, FreshServer
from support.semisync import until
from support.servers import Server
from support.source import connected, source_of

_PASSWORD = "geheim-7f3c"


def _refusal(source: Source) -> CdcError:
    with pytest.raises(CdcError) as refused:
        connect(source)
    assert _PASSWORD not in repr(refused.value) + refused.value.to_json()
    return refused.value


def _variable(server: Server, name: str, max_seconds: int = 60) -> str:
    with connect(source_of(server), max_seconds=max_seconds) as connection:
        return str(fetch(connection, "SHOW SESSION VARIABLES LIKE %s", (name,))[0][1])


@contextmanager
def _globals(server: Server, **values: str) -> Iterator[None]:
    kept = {name: server.query(f"SELECT @@GLOBAL.{name}")[0][0] for name in values}
    server.run(*(f"SET GLOBAL {name} = {value}" for name, value in values.items()))
    try:
        yield
    finally:
        for name, value in kept.items():
            server.query(f"SET GLOBAL {name} = %s", value)


def test_globals_do_not_reach_our_sessions(any_server: Server, fresh_database: FreshDatabase) -> None:
    """Facts, 7: a global READ UNCOMMITTED showed a row that was rolled back, sql_select_limit cut a
    split without an error."""
    d = fresh_database(any_server)
    any_server.run("CREATE TABLE t (k CHAR(5) PRIMARY KEY, at TIMESTAMP NULL)", db=d)
    any_server.run("SET time_zone = '+00:00'", "INSERT INTO t VALUES ('a', '2024-01-01 12:00:00'), ('b', NULL)", db=d)
    isolation = "transaction_isolation" if any_server.flavor == "mysql" else "tx_isolation"
    hostile = {
        isolation: "'READ-UNCOMMITTED'",
        "sql_select_limit": "1",
        "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES'",
        "time_zone": "'+05:00'",
        "autocommit": "0",
    }
    with _globals(any_server, **hostile), any_server.connect(autocommit=False) as writer, writer.cursor() as cursor:
        cursor.execute(f"INSERT INTO {d}.t VALUES ('c', NULL)")
        with connected(any_server) as (connection, _):
            rows = fetch(connection, f"SELECT k, CAST(at AS CHAR) FROM {d}.t ORDER BY k")
        writer.rollback()
    assert rows == [("a", "2024-01-01 12:00:00"), ("b", None)]


def test_statements_and_lock_waits_are_bounded(any_server: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=d)
    with connect(source_of(any_server), max_seconds=1) as connection:
        with pytest.raises(CdcError) as too_long:
            fetch(
                connection,
                "SELECT COUNT(*) FROM information_schema.COLUMNS a, information_schema.COLUMNS b WHERE SLEEP(3) = 9",
            )
        assert (too_long.value.reason, "maxSplitSeconds" in too_long.value.remedy) == (Reason.TABLE_BUSY, True)
        with any_server.connect(db=d) as locker, locker.cursor() as cursor:
            cursor.execute("LOCK TABLES t WRITE")
            with pytest.raises(CdcError) as locked:
                fetch(connection, f"SELECT * FROM {d}.t")
        assert locked.value.reason is Reason.TABLE_BUSY


def test_long_options(any_server: Server) -> None:
    assert int(_variable(any_server, "net_write_timeout")) >= 3600
    assert _variable(any_server, "lock_wait_timeout", max_seconds=7) == "3"


def test_a_stream_reads_rows_as_they_come(any_server: Server) -> None:
    numbers = "WITH RECURSIVE d AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM d WHERE n < 900) SELECT n FROM d"
    with connect(source_of(any_server), stream=True) as connection, connection.cursor() as cursor:
        cursor.execute(numbers)
        assert cursor.fetchmany(2) == [(1,), (2,)]
        assert cursor.rowcount == 2**64 - 1, "the client knows the number of rows before it has read them"
        assert len(list(cursor)) == 898


def test_facts(any_server: Server) -> None:
    with connected(any_server) as (connection, facts):
        assert facts.flavor == any_server.flavor
        assert facts.tested
        assert facts.supported
        assert any_server.version.startswith(facts.version)
        assert facts.gtid == (any_server.variant == "mysql97_gtid")
        assert read_facts(connection) == facts
    data = facts.to_dict()
    if facts.flavor == "mysql":
        assert facts.log == f"mysql:{data['serverUuid']}"
    else:
        assert (facts.log, "serverUuid" in data) == (f"mariadb:{data['serverId']}", False)


def test_retention(mysql97_gtid: Server, mariadb1011: Server) -> None:
    with connected(mysql97_gtid) as (connection, _):
        assert log_retention_seconds(connection) == 30 * 86400
        with _globals(mysql97_gtid, binlog_expire_logs_auto_purge="OFF"):
            assert log_retention_seconds(connection) == 0
    with connected(mariadb1011) as (connection, _):
        assert log_retention_seconds(connection) == 0
        with _globals(mariadb1011, expire_logs_days="0.5"):
            assert log_retention_seconds(connection) == 43200


# ---- accounts


def test_credentials_are_read_at_each_connect(any_server: Server) -> None:
    any_server.create_user("rotating", _PASSWORD)
    source = source_of(any_server, "rotating", f"{_PASSWORD}\n")
    connect(source).close()
    any_server.create_user("rotating", "another")
    refused = _refusal(source)
    assert (refused.reason, refused.reason.retried) == (Reason.AUTHENTICATION_FAILED, False)
    source.password_file.write_text("another")
    connect(source).close()


def test_no_account(any_server: Server, tmp_path: Path) -> None:
    assert _refusal(source_of(any_server, "stranger", _PASSWORD)).reason is Reason.AUTHENTICATION_FAILED
    missing = Source(any_server.host, any_server.port, tmp_path / "u", tmp_path / "p", Tls("disabled"))
    assert _refusal(missing).reason is Reason.SPEC_INVALID


def test_locked_account(any_server: Server) -> None:
    any_server.create_user("locked", _PASSWORD)
    any_server.run("SET sql_log_bin = 0", "ALTER USER 'locked'@'%' ACCOUNT LOCK")
    assert _refusal(source_of(any_server, "locked", _PASSWORD)).reason is Reason.AUTHENTICATION_FAILED


def test_passwords_of_any_bytes(any_server: Server) -> None:
    """The login is the assertion: it raises where the password arrives changed."""
    password = 'pä%s\\"`€ x'
    any_server.run(
        "SET sql_log_bin = 0",
        "DROP USER IF EXISTS 'odd'@'%'",
        "CREATE USER 'odd'@'%' IDENTIFIED BY 'pä%s\\\\\"`€ x'",
    )
    connect(source_of(any_server, "odd", password)).close()


def test_a_source_holds_no_secret(mariadb1011: Server) -> None:
    source = source_of(mariadb1011, "someone", _PASSWORD)
    assert _PASSWORD not in repr(source)
    assert _PASSWORD.encode() not in pickle.dumps(source)
    assert pickle.loads(pickle.dumps(source)) == source


def test_missing_privileges_name_the_grant(any_server: Server, fresh_database: FreshDatabase) -> None:
    d = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=d)
    any_server.create_user("poor", _PASSWORD, ["SELECT"], on=f"{d}_x.*")
    with connect(source_of(any_server, "poor", _PASSWORD)) as connection:
        with pytest.raises(CdcError) as no_select:
            fetch(connection, f"SELECT * FROM {d}.t")
        with pytest.raises(CdcError) as no_log:
            fetch(connection, "SHOW BINARY LOGS")
    assert no_select.value.reason is no_log.value.reason is Reason.PRIVILEGE_MISSING
    assert no_select.value.remedy.startswith("GRANT SELECT ON ")
    assert "`t` TO 'poor'@" in no_select.value.remedy
    privilege = "REPLICATION CLIENT" if any_server.flavor == "mysql" else "BINLOG MONITOR"
    assert no_log.value.remedy.startswith(f"GRANT {privilege} ON *.* TO ")


# ---- reachability


def test_a_port_without_a_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        source = Source("127.0.0.1", taken.getsockname()[1], Path(__file__), Path(__file__), Tls("disabled"))
        refused = _refusal(source)
    assert (refused.reason, refused.reason.retried) == (Reason.SOURCE_UNREACHABLE, True)


def test_a_server_that_hangs_up_or_says_nonsense() -> None:
    for greeting in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with _impostor(greeting) as source:
            assert _refusal(source).reason.retried


@contextmanager
def _impostor(greeting: bytes, tls: Tls | None = None) -> Iterator[Source]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.sendall(greeting)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield Source("127.0.0.1", listening.getsockname()[1], Path(__file__), Path(__file__), tls or Tls("disabled"))
        thread.join(120)


def test_a_killed_connection_is_transient(any_server: Server) -> None:
    with connected(any_server) as (connection, _):
        number = fetch(connection, "SELECT CONNECTION_ID()")[0][0]
        any_server.run(f"KILL {number}")
        with pytest.raises(CdcError) as gone:
            fetch(connection, "SELECT 1")
    assert gone.value.reason is Reason.SOURCE_UNREACHABLE


def test_too_many_connections(fresh_server: FreshServer) -> None:
    server = fresh_server("mariadb1011", max_connections=10, extra_max_connections=0)
    server.create_user("many", _PASSWORD, ["SELECT"])
    source = source_of(server, "many", _PASSWORD)
    until(lambda: _connected(server) == 1, "the end of the connections that made the account")
    with ExitStack() as held:
        for _ in range(10):
            held.enter_context(server.connect("many", password=_PASSWORD))
        full = _refusal(source)
    assert full.reason is Reason.SOURCE_UNREACHABLE


def _connected(server: Server) -> int:
    return int(server.query("SHOW STATUS LIKE 'Threads_connected'")[0][1])


# ---- TLS


def _is_encrypted(source: Source) -> bool:
    with connect(source) as connection:
        return bool(fetch(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1])


def test_tls_with_the_servers_own_certificate(mysql97_gtid: Server) -> None:
    """MySQL makes a certificate authority and a server certificate for itself; the name in it is no
    host's."""
    ca = mysql97_gtid.datadir / "ca.pem"
    assert not _is_encrypted(source_of(mysql97_gtid))
    assert _is_encrypted(source_of(mysql97_gtid, tls=Tls("required")))
    assert _is_encrypted(source_of(mysql97_gtid, tls=Tls("verify-ca", ca)))
    refused = _refusal(source_of(mysql97_gtid, tls=Tls("verify-identity", ca)))
    assert (refused.reason, refused.reason.retried) == (Reason.AUTHENTICATION_FAILED, False)
    assert "verify-ca" in refused.remedy
    client = {"cert": mysql97_gtid.datadir / "client-cert.pem", "key": mysql97_gtid.datadir / "client-key.pem"}
    assert _is_encrypted(source_of(mysql97_gtid, tls=Tls("verify-ca", ca, **client)))


def test_a_foreign_authority_is_refused(mysql97_gtid: Server, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(_some_authority())
    refused = _refusal(source_of(mysql97_gtid, tls=Tls("verify-ca", tmp_path / "ca.crt")))
    assert (refused.reason, "certificate" in refused.found) == (Reason.AUTHENTICATION_FAILED, True)


def _some_authority() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unknown to the server")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def test_certificates_that_cannot_be_loaded(mysql97_gtid: Server, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    for ca in (tmp_path / "ca.crt", tmp_path / "missing"):
        assert _refusal(source_of(mysql97_gtid, tls=Tls("verify-ca", ca))).reason is Reason.SPEC_INVALID
        assert _refusal(source_of(mysql97_gtid, tls=Tls("required", ca))).reason is Reason.SPEC_INVALID


def test_tls_is_never_given_up(mariadb1011: Server) -> None:
    """A server without TLS (or one in the middle that pretends so) gets no credentials of a client
    that asks for TLS."""
    assert mariadb1011.query("SELECT @@have_ssl")[0][0] == "DISABLED"
    mariadb1011.create_user("tls", _PASSWORD)
    refused = _refusal(source_of(mariadb1011, "tls", _PASSWORD, Tls("required")))
    assert (refused.reason, refused.reason.retried) == (Reason.SPEC_INVALID, False)
    assert "spec.source.tls: {mode: disabled}" in refused.remedy


def test_an_account_that_requires_tls(mysql97_gtid: Server) -> None:
    mysql97_gtid.create_user("secure", _PASSWORD)
    mysql97_gtid.run("SET sql_log_bin = 0", "ALTER USER 'secure'@'%' REQUIRE SSL")
    assert _refusal(source_of(mysql97_gtid, "secure", _PASSWORD)).reason is Reason.AUTHENTICATION_FAILED
    connect(source_of(mysql97_gtid, "secure", _PASSWORD, Tls("required"))).close()


#: a handshake (protocol 10, version 8.0.0) whose plugin is mysql_clear_password, without TLS;
#: capabilities 0xA208 and 0x0008 are PROTOCOL_41 | SECURE_CONNECTION | TRANSACTIONS |
#: CONNECT_WITH_DB and PLUGIN_AUTH
_GREETING_BODY = (
    b"\x0a8.0.0\x00\x01\x00\x00\x00" + b"saltsalt" + b"\x00\x08\xa2\x2d\x02\x00\x08\x00\x15" + bytes(10)
    + b"saltsaltsalt\x00" + b"mysql_native_password\x00"
)  # fmt: skip
_SWITCH_TO_CLEAR = b"\xfemysql_clear_password\x00"


def test_a_server_that_asks_for_the_password_itself_does_not_get_it(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("user")
    (tmp_path / "p").write_text(_PASSWORD)
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.sendall(len(_GREETING_BODY).to_bytes(3, "little") + b"\x00" + _GREETING_BODY)
                received.extend(client.recv(4096))
                client.sendall(len(_SWITCH_TO_CLEAR).to_bytes(3, "little") + b"\x02" + _SWITCH_TO_CLEAR)
                while data := client.recv(4096):
                    received.extend(data)

        thread = threading.Thread(target=serve)
        thread.start()
        source = Source("127.0.0.1", listening.getsockname()[1], tmp_path / "u", tmp_path / "p", Tls("disabled"))
        refused = _refusal(source)
        thread.join(120)
    assert refused.reason is Reason.AUTHENTICATION_FAILED
    assert received
    assert _PASSWORD.encode() not in received
