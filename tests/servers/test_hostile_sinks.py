"""One tenant's store cannot take the operator from others: its check is bounded in time and memory,
and ends with its sync."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_lake.check import SinkCheck
from cdcsync_lake.location import Location
from cdcsync_mysql.sessions.question import Question
from cdcsync_operator.cluster.quota.sink_process import check_apart
from contract.stores import ACCESS_KEY, REGION, SECRET_KEY, s3_server
from support import hostile
from support.hostile import Hostile, endless_pages, internal_page

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
#: more than the process may have, and what two sockets hold
_UNBOUNDED = 160 * 2**20


def endless_answer(server: Hostile, client: socket.socket) -> None:
    client.recv(65536)
    server.send(client, b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n")
    while not server.ending.is_set():
        server.send(client, bytes(2**20))


def dripping_answer(server: Hostile, client: socket.socket) -> None:
    client.recv(65536)
    server.send(client, b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n")
    server.drip(client)


def elsewhere(port: int) -> Callable[[Hostile, socket.socket], None]:
    """Redirects to another address of this machine."""

    def redirect(server: Hostile, client: socket.socket) -> None:
        client.recv(65536)
        head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.2:%d/x\r\nContent-Length: 0\r\n\r\n"
        server.send(client, head % port)

    return redirect


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "AWS_ACCESS_KEY_ID").write_text(ACCESS_KEY)
    (folder / "AWS_SECRET_ACCESS_KEY").write_text(SECRET_KEY)
    return folder


def _lake(port: int, secret: Path) -> Location:
    return Location.parse("s3://lake/cdc", f"http://127.0.0.1:{port}", REGION, str(secret))


@pytest.mark.parametrize("way", [endless_pages, hostile.silence, dripping_answer])
def test_a_wall_clock_ends_a_check(way: Callable[[Hostile, socket.socket], None], secret: Path) -> None:
    with Hostile(way).listening() as port, Question() as asked:
        found = check_apart(_lake(port, secret), asked, seconds=3)
    (error,) = found.errors
    assert error.reason is Reason.SINK_UNREACHABLE
    assert "did not end in time" in error.message


def test_an_answer_without_end_takes_no_memory_of_the_operator(secret: Path) -> None:
    server = Hostile(endless_answer)
    with server.listening() as port, Question() as asked:
        found = check_apart(_lake(port, secret), asked)
    assert {e.reason for e in found.errors} == {Reason.SINK_UNREACHABLE}
    assert server.sent < _UNBOUNDED


@contextmanager
def _checking(lake: Location, asked: Question) -> Iterator[list[SinkCheck]]:
    found: list[SinkCheck] = []
    thread = threading.Thread(target=lambda: found.append(check_apart(lake, asked, seconds=3600)))
    thread.start()
    yield found
    thread.join(600)
    assert not thread.is_alive()


def test_a_check_ends_with_its_sync(secret: Path) -> None:
    server = Hostile(hostile.silence)
    with server.listening() as port, Question() as asked:
        with _checking(_lake(port, secret), asked) as found:
            assert server.met.acquire(timeout=600)
            asked.stop()
        assert found[0].errors


def test_a_real_store_is_judged_as_ever(secret: Path, tmp_path: Path) -> None:
    with s3_server(tmp_path) as store, Question() as asked:
        lake = _lake(store.port, secret)
        (missing,) = check_apart(lake, asked).errors
        assert (missing.reason, "create the bucket" in missing.message) == (Reason.NO_SUCH_BUCKET, True)
        store.make_bucket("lake")
        assert check_apart(lake, asked) == SinkCheck("s3://lake/cdc")
        assert not asked.stopped


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f000001"])
def test_no_spelling_of_an_endpoint_reaches_a_network_of_the_policy(host: str, secret: Path) -> None:
    server = Hostile(internal_page)
    with server.listening() as port, Question(("127.0.0.0/8",)) as asked:
        lake = Location.parse("s3://lake/cdc", f"http://{host}:{port}", REGION, str(secret))
        (error,) = check_apart(lake, asked).errors
    assert error.reason is Reason.SPEC_INVALID
    assert "is at 127.0.0.1, in the network 127.0.0.0/8 that the operator's policy refuses" in error.message
    assert server.sent == 0


def test_a_variable_of_the_secret_reaches_no_network_of_the_policy(secret: Path) -> None:
    server = Hostile(internal_page)
    with server.listening() as port, Question(("127.0.0.0/8",)) as asked:
        (secret / "AWS_ENDPOINT_URL").write_text(f"http://127.0.0.1:{port}")
        (secret / "AWS_ALLOW_HTTP").write_text("true")
        errors = check_apart(Location.parse("s3://lake/cdc", "", REGION, str(secret)), asked).errors
    assert {e.reason for e in errors} == {Reason.SPEC_INVALID}
    assert server.sent == 0


@pytest.mark.parametrize(
    "variables",
    [{"PROXY_EXCLUDES": "127.0.0.1"}, {"AWS_PROXY_EXCLUDES": "127.0.0.1"}, {"AWS_PROXY_URL": "http://127.0.0.1:{}"}],
)
def test_no_variable_of_the_secret_turns_the_check_of_addresses_off(variables: dict[str, str], secret: Path) -> None:
    server = Hostile(internal_page)
    with server.listening() as port, Question(("127.0.0.0/8",)) as asked:
        for name, value in variables.items():
            (secret / name).write_text(value.format(port))
        errors = check_apart(_lake(port, secret), asked).errors
    assert {e.reason for e in errors} == {Reason.SPEC_INVALID}
    assert server.sent == 0


def test_a_redirect_reaches_no_network_of_the_policy(secret: Path) -> None:
    other = Hostile(internal_page)
    with (
        other.listening("127.0.0.2") as away,
        Hostile(elsewhere(away)).listening() as port,
        Question(("127.0.0.2/32",)) as asked,
    ):
        assert check_apart(_lake(port, secret), asked).errors
    assert other.sent == 0


def test_no_text_of_an_answer_is_shown(secret: Path) -> None:
    with Hostile(internal_page).listening() as port, Question() as asked:
        errors = check_apart(_lake(port, secret), asked).errors
    shown = " ".join(error.message for error in errors)
    assert "404 Not Found" in shown
    for text in ("admin-of-the-cluster", "Password", "hunter2"):
        assert text not in shown


def test_credentials_that_no_request_can_carry_are_named(secret: Path) -> None:
    """The client ends in a panic."""
    (secret / "AWS_SESSION_TOKEN").write_text("one line\nand another")
    with Hostile(internal_page).listening() as port, Question() as asked:
        errors = check_apart(_lake(port, secret), asked).errors
    assert {error.reason for error in errors} == {Reason.SINK_UNREACHABLE}
    assert all("no request can carry its credentials" in error.message for error in errors)
    assert "another" not in " ".join(error.message for error in errors)
