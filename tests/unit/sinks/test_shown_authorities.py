"""A spec may name any key of a labelled Secret as an authority: what is there is read as a
certificate, and is in no error."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_mysql.sessions.connection import Source, Tls, connect
from cdcsync_spark.sinks.iceberg.catalog.connection import trusting
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings, Security
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.postgresql_session import PostgresSession
from support.hostile import Hostile


def _source(ca: Path) -> object:
    return connect(Source("127.0.0.1", 1, ca, ca, Tls("verify-ca", ca=ca)))


def _brokers(ca: Path) -> object:
    return Brokers(KafkaSettings("127.0.0.1:1", security=Security(tls=True, verified=True, ca=ca))).producer()


def _registry(ca: Path) -> object:
    return Registry("https://127.0.0.1:1", ca=ca).check()


def _takes_tls(_: Hostile, connection: socket.socket) -> None:
    """PostgreSQL's answer to a request for TLS, after which libpq reads its authority."""
    connection.recv(8)
    connection.sendall(b"S")
    connection.recv(1)


def test_an_authority_of_postgresql_that_is_none_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    account, tls = tmp_path / "account", Tls("verify-ca", ca=tmp_path / "password")
    account.write_text("x")
    with Hostile(_takes_tls).listening() as port:
        login = SqlLogin("spec.sink.postgresql", "127.0.0.1", port, account, account, tls)
        with pytest.raises(CdcError, match="root certificate") as refused:
            PostgresSession(login, "d")
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("client", [_source, _brokers, _registry, trusting])
@pytest.mark.parametrize("form", ["{}", "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"])
def test_an_authority_that_is_none_is_not_shown(client: Callable[[Path], object], form: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(form.format("hunter2"))
    with pytest.raises(CdcError) as refused:
        client(tmp_path / "password")
    assert refused.value.reason is Reason.SPEC_INVALID
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
