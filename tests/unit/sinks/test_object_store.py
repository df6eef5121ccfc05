"""A listing of a store that has no end; credentials that are none; panics of clients."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import obstore
import pytest
from obstore.store import S3Store

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.lake.storage import object_store
from cdcsync_spark.sinks.lake.storage.store import Store
from cdcsync_spark.sinks.lake.storage.stores import open_store
from support.hostile import Hostile, endless_pages

pytestmark = pytest.mark.timeout(240)
_KEYS = {"access_key_id": "any", "secret_access_key": "any"}


def _pages(server: Hostile, client: socket.socket) -> None:
    """The client keeps a connection that it does not use."""
    client.settimeout(2)
    endless_pages(server, client)


def _metadata(answer: bytes) -> Callable[[Hostile, socket.socket], None]:
    """What a cloud's service for credentials answers."""

    def way(server: Hostile, client: socket.socket) -> None:
        client.settimeout(2)
        while client.recv(65536):
            server.send(client, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

    return way


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text("any")
    return tmp_path


def _listed(store: Store) -> object:
    with store.translating_errors("shop.orders", "listing"):
        return store.listed("_cdcsync.probe")


def _deleted(store: Store) -> object:
    with store.translating_errors("shop.orders", "deleting"):
        return store.delete_folder("_cdcsync.probe")


@pytest.mark.parametrize("use", [_listed, _deleted])
def test_a_listing_without_end_is_named(use: object, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Hostile(_pages)
    with server.listening() as port:
        store = open_store("s3://lake/cdc", f"http://127.0.0.1:{port}", "us-east-1", str(lake))
        monkeypatch.setattr(object_store, "MOST_NAMES", 500)
        with pytest.raises(CdcError, match="has more than 500 objects") as found:
            use(store)  # type: ignore[operator]
        assert found.value.reason is Reason.SINK_CONFLICT
        monkeypatch.setattr(object_store, "LONGEST_LISTING", 0.0)
        with pytest.raises(CdcError, match="no end of a listing within 0 s") as found:
            use(store)  # type: ignore[operator]
        assert found.value.reason is Reason.SINK_UNREACHABLE
    assert server.sent < 2**22


def _opened(store: Store) -> object:
    with store.translating_errors("shop.orders", "opening"):
        return store.files().open_input_file("x")


def _read(store: Store) -> object:
    with store.translating_errors("shop.orders", "reading"):
        return store.read("x")


def _put(store: Store) -> object:
    with store.translating_errors("shop.orders", "committing"):
        return store.put_new("x", b"1")


@pytest.mark.parametrize("use", [_listed, _deleted, _read, _put])
@pytest.mark.parametrize("answer", [b"two\nlines\0", b"\xff", b"[" * 100_000])
def test_credentials_that_are_none_are_named(use: object, answer: bytes, tmp_path: Path) -> None:
    """Some end the client in a panic, which is no `Exception`."""
    with Hostile(_metadata(answer)).listening() as port:
        (tmp_path / "AWS_METADATA_ENDPOINT").write_text(f"http://127.0.0.1:{port}")
        store = open_store("s3://lake/cdc", f"http://127.0.0.1:{port}", "us-east-1", str(tmp_path))
        with pytest.raises(CdcError) as found:
            use(store)  # type: ignore[operator]
    assert found.value.reason is Reason.SINK_UNREACHABLE
    assert "two" not in found.value.message


@pytest.mark.parametrize(
    "name",
    ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ENDPOINT_URL_STS",
     "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_METADATA_ENDPOINT", "AWS_PROXY_URL", "PROXY_EXCLUDES",
     "AWS_SSE_CUSTOMER_KEY_BASE64", "TOMORROWS"],
)  # fmt: skip
def test_no_variable_of_a_secret_sends_a_file_or_goes_around_the_proxy(
    name: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver has the source's password as a file, which another Secret must not send to a host of
    its own. On a machine without a policy the user's own Secret may have any variable."""
    (lake / name).write_text("/secrets/source/password")
    store = open_store("s3://lake/cdc", "https://store", "eu", str(lake))
    assert name in store.storage_options()
    monkeypatch.setattr(object_store, "run_proxy", lambda: SimpleNamespace(url="http://127.0.0.1:9"))
    assert store.storage_options() == {
        "AWS_CONDITIONAL_PUT": "etag", "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "eu",
        "AWS_ENDPOINT_URL": "https://store", "AWS_ALLOW_HTTP": "false", "proxy_url": "http://127.0.0.1:9",
    }  # fmt: skip


@pytest.mark.parametrize("use", [_listed, _opened, _read, _put])
def test_a_secret_that_no_request_can_carry_is_named(use: object, lake: Path) -> None:
    (lake / "AWS_SESSION_TOKEN").write_text("one line\nand another")
    store = open_store("s3://lake/cdc", "http://127.0.0.1:9", "us-east-1", str(lake))
    with pytest.raises(CdcError, match="no request can carry its credentials") as found:
        use(store)  # type: ignore[operator]
    assert found.value.reason is Reason.SINK_UNREACHABLE
    assert "another" not in found.value.message


def _panic() -> None:
    """A real one, whose text is no other's business."""
    client = S3Store("b", config={"endpoint": "http://127.0.0.1:9", "region": "x", "session_token": "one\ntwo"} | _KEYS)
    obstore.head(client, "x")


def _absent(server: Hostile, client: socket.socket) -> None:
    """A store that is up, and has nothing."""
    client.settimeout(2)
    while client.recv(65536):
        server.send(client, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def _local(lake: Path) -> Iterator[Store]:
    yield open_store(str(lake))


@contextmanager
def _remote(lake: Path) -> Iterator[Store]:
    with Hostile(_absent).listening() as port:
        yield open_store("s3://lake/cdc", f"http://127.0.0.1:{port}", "us-east-1", str(lake))


@pytest.mark.parametrize("opened", [_local, _remote])
def test_a_panic_over_what_a_table_has_is_the_tables(
    opened: Callable[[Path], AbstractContextManager[Store]], lake: Path
) -> None:
    """Such a panic is delta-rs' over a checkpoint, for example: the credentials are good, and no
    retry helps."""
    with opened(lake) as store:
        with pytest.raises(CdcError) as found, store.translating_errors("shop.orders", "committing"):
            _panic()
        assert (found.value.reason, found.value.table) == (Reason.SINK_CONFLICT, "shop.orders")
        assert found.value.found == f"the client panicked while committing in {store.uri}"
        assert not re.search("credentials|two", found.value.message)
        with pytest.raises(CdcError) as found, store.translating_errors("", "committing"):
            _panic()
        assert (found.value.reason, found.value.table) == (Reason.INTERNAL_ERROR, "")


def test_a_panic_while_the_store_is_away_is_the_stores(lake: Path) -> None:
    """Nothing is known of the table then."""
    store = open_store("s3://lake/cdc", "http://127.0.0.1:9", "us-east-1", str(lake))
    with pytest.raises(CdcError) as found, store.translating_errors("shop.orders", "committing"):
        _panic()
    assert found.value.reason is Reason.SINK_UNREACHABLE
    assert "panicked" not in found.value.message
