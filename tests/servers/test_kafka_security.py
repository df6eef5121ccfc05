"""TLS, logins and rights of Kafka as a sink, on a real broker; and what the brokers refuse, each
with its reason."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_demo.server_process import LOOPBACK
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from contract.sinkcase import ORDERS, SYNC, first_state
from support.hostile_broker import UNKNOWN_HOST
from support.secure_kafka import PASSWORD, USER, Authority, SecureBroker

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    broker = SecureBroker(tmp_path_factory.mktemp("secure")).start()
    yield broker
    broker.kill()


@dataclass
class SecureSink:
    """A sink of the secure listener; `folder` has its Secrets."""

    broker: SecureBroker
    folder: Path

    def __post_init__(self) -> None:
        pair = self.broker.authority.pair("anyone")
        files = {
            "account/username": USER,
            "account/password": f"{PASSWORD}\n",
            "ca/ca.crt": self.broker.authority.certificate,
            "pair/tls.crt": pair[0],
            "pair/tls.key": pair[1],
        }
        for name, text in files.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        file = self.folder / "secrets" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def sink(self, mechanism: str = "SCRAM-SHA-512", host: str = "localhost", **tls: Any) -> KafkaSink:
        section = {
            "bootstrapServers": self.broker.secure(host),
            "topic": f"t{uuid.uuid4().hex[:12]}.{{database}}.{{table}}",
            "replicationFactor": 1,
            "tls": {"caSecretRef": {"name": "ca"}, **tls},
            "sasl": {"mechanism": mechanism, "credentialsSecretRef": {"name": "account"}},
            "staging": {"path": str(self.folder / uuid.uuid4().hex)},
        }
        spec = SinkSpec.model_validate({"kafka": section})
        made = sink_from_spec(spec, self.folder / "secrets", f"{SYNC}{uuid.uuid4().hex[:8]}", Role("snapshot"))
        assert isinstance(made, KafkaSink)
        return made

    def refusal(self, sink: KafkaSink) -> CdcError:
        with pytest.raises(CdcError) as found:
            prepare(sink)
        assert PASSWORD not in repr(found.value) + found.value.to_json()
        return found.value


def prepare(sink: KafkaSink) -> None:
    sink.target(ORDERS.id).prepare(first_state(epoch=1, sync=sink.sync))  # type: ignore[union-attr]


@pytest.fixture
def case(broker: SecureBroker, tmp_path: Path) -> SecureSink:
    return SecureSink(broker, tmp_path)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_by_each_mechanism(case: SecureSink, mechanism: str) -> None:
    sink = case.sink(mechanism)
    prepare(sink)
    assert sink.session.record(str(ORDERS.id)) is not None
    assert PASSWORD not in repr(sink) + repr(sink.session)


def test_a_client_may_have_a_certificate(case: SecureSink) -> None:
    prepare(case.sink(clientCertSecretRef={"name": "pair"}))


@pytest.mark.parametrize(
    "mechanism",
    ["SCRAM-SHA-512", *(pytest.param(m, marks=pytest.mark.long) for m in ("SCRAM-SHA-256", "PLAIN"))],
)
def test_a_wrong_password(case: SecureSink, mechanism: str) -> None:
    case.write("account/password", "wrong")
    error = case.refusal(case.sink(mechanism))
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert "the brokers refuse the login" in error.found
    assert "spec.sink.kafka.sasl" in error.remedy
    case.write("account/password", PASSWORD)
    prepare(case.sink(mechanism))


def test_a_broker_by_another_authority(case: SecureSink) -> None:
    case.write("ca/ca.crt", Authority("another").certificate)
    error = case.refusal(case.sink())
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert "certificate of the brokers is refused" in error.found


def test_a_broker_that_no_known_authority_has_signed(case: SecureSink) -> None:
    error = case.refusal(case.sink(caSecretRef=None, mode="verify-identity"))
    assert error.reason is Reason.AUTHENTICATION_FAILED


def test_a_certificate_that_names_another_host(case: SecureSink) -> None:
    error = case.refusal(case.sink(host="127.0.0.1"))
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert "tls.mode: verify-ca" in error.remedy
    prepare(case.sink(host="127.0.0.1", mode="verify-ca"))


def test_brokers_that_are_not_verified_are_taken_where_that_is_asked_for(case: SecureSink) -> None:
    prepare(case.sink(caSecretRef=None, mode="required"))
    prepare(case.sink("PLAIN", caSecretRef=None, mode="required", allowUnverified=True))


#: listener, TLS, mechanism; reason, what was found, remedy
MISMATCHES = {
    "no login where one is wanted": ("logins", False, "", Reason.SINK_UNREACHABLE, "without a login", "sasl"),
    "no login where one is wanted, by TLS": ("secure", True, "", Reason.SINK_UNREACHABLE, "without a login", "sasl"),
    "a login where none is": (
        "plain",
        False,
        "SCRAM-SHA-512",
        Reason.AUTHENTICATION_FAILED,
        "takes no login",
        "leave spec.sink.kafka.sasl out",
    ),
    "a mechanism that is not there": (
        "logins",
        False,
        "SCRAM-SHA-256",
        Reason.AUTHENTICATION_FAILED,
        "does not have the mechanism",
        "sasl.mechanism",
    ),
    "no TLS where it is wanted": ("secure", False, "", Reason.SINK_UNREACHABLE, "without TLS", "tls.mode"),
    "a login, and no TLS where it is wanted": (
        "secure",
        False,
        "SCRAM-SHA-512",
        Reason.SINK_UNREACHABLE,
        "without TLS",
        "tls.mode",
    ),
    "TLS where none is": ("plain", True, "", Reason.SINK_UNREACHABLE, "the beginning of TLS", "tls.mode"),
    "TLS where logins alone are": (
        "logins",
        True,
        "SCRAM-SHA-512",
        Reason.SINK_UNREACHABLE,
        "the beginning of TLS",
        "tls.mode",
    ),
    "a port where nothing listens": ("closed", False, "", Reason.SINK_UNREACHABLE, "no program listens", "ports"),
    "a host without an address": ("nowhere", False, "", Reason.SINK_UNREACHABLE, "name service", "bootstrapServers"),
}


@pytest.fixture(scope="module")
def closed() -> Iterator[str]:
    """A port that no other program can take, and at which none listens."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        yield f"{LOOPBACK}:{bound.getsockname()[1]}"


@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_what_does_not_meet_is_named_at_once(case: SecureSink, closed: str, mismatch: str) -> None:
    """The timeout of a question is far longer than the test."""
    listener, tls, mechanism, reason, found, remedy = MISMATCHES[mismatch]
    servers = {
        "plain": case.broker.bootstrap,
        "secure": case.broker.secure(),
        "logins": case.broker.with_logins,
        "closed": closed,
        "nowhere": f"{UNKNOWN_HOST}:9092",
    }[listener]
    sink = case.sink(mechanism or "SCRAM-SHA-512", **({} if tls else {"caSecretRef": None, "mode": "disabled"}))
    security = sink.settings.security if mechanism else replace(sink.settings.security, mechanism="")
    sink.settings = replace(sink.settings, bootstrap=servers, security=security, timeout=240.0)
    begun = time.monotonic()
    error = case.refusal(sink)
    assert time.monotonic() - begun < 120
    assert error.reason is reason
    assert found in error.found
    assert servers in error.found
    assert error.needed
    assert remedy in error.remedy


def test_the_mechanisms_of_a_listener_are_named(case: SecureSink) -> None:
    sink = case.sink("SCRAM-SHA-256", caSecretRef=None, mode="disabled")
    sink.settings = replace(sink.settings, bootstrap=case.broker.with_logins)
    error = case.refusal(sink)
    assert set(error.needed.removeprefix("one of its mechanisms: ").split(",")) == {"PLAIN", "SCRAM-SHA-512"}


@pytest.mark.parametrize(
    ("file", "text"), [("ca/ca.crt", "no certificate"), ("pair/tls.key", "no key"), ("account/password", "")]
)
def test_files_that_are_of_no_use(case: SecureSink, file: str, text: str) -> None:
    case.write(file, text)
    error = case.refusal(case.sink(clientCertSecretRef={"name": "pair"}))
    assert error.reason in (Reason.SPEC_INVALID, Reason.AUTHENTICATION_FAILED)


def test_what_no_waiting_cures_is_not_waited_for(case: SecureSink) -> None:
    """The timeout of a question is far longer than the test."""
    case.write("account/password", "wrong")
    cases = {
        "the brokers refuse the login": case.sink(),
        "certificate of the brokers is refused": case.sink(host="127.0.0.1"),
    }
    for found, sink in cases.items():
        sink.settings = replace(sink.settings, timeout=120.0)
        begun = time.monotonic()
        error = case.refusal(sink)
        assert time.monotonic() - begun < sink.settings.timeout
        assert found in error.found
        assert "sasl" in error.remedy or "tls" in error.remedy


def test_a_secret_that_is_not_there(case: SecureSink) -> None:
    (case.folder / "secrets" / "account" / "password").unlink()
    error = case.refusal(case.sink())
    assert error.reason is Reason.SPEC_INVALID
    assert "no readable credential in account/password" in error.found
