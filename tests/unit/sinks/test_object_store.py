"""A listing of a store that has no end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.lake import object_store
from cdcsync_spark.sinks.lake.store import Store
from cdcsync_spark.sinks.lake.stores import open_store
from servers.test_hostile_sinks import endless_pages
from support.hostile import Hostile

pytestmark = pytest.mark.timeout(240)


def _pages(server: Hostile, client: socket.socket) -> None:
    """The client keeps a connection that it does not use."""
    client.settimeout(2)
    endless_pages(server, client)


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
