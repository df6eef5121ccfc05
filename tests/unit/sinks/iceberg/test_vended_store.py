"""Credentials that a catalog gives for a table: asked for when they are needed, again before they
end, and never mixed with those of the manifest."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.catalog.vended_store import VendedCredentials, VendedStore, client_config

PLACE = Location("s3", "lake/shop/orders")
KEY = {"s3.access-key-id": "key", "s3.secret-access-key": "secret-value", "s3.session-token": "token-value"}
IN_CLIENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-value", "AWS_SESSION_TOKEN": "token-value"}


class AskedCatalog:
    """What a catalog answers, at a time that the test sets."""

    def __init__(self) -> None:
        self.now, self.asked, self.answer, self.down = 1000.0, 0, dict[str, str](), False
        self.credentials = VendedCredentials(self.ask, lambda: self.now)

    def ask(self) -> Mapping[str, str]:
        self.asked += 1
        if self.down:
            raise fail(Reason.SINK_UNREACHABLE, "the catalog is down", remedy="wait")
        return self.answer

    def ends_at(self, seconds: float) -> None:
        self.answer = {**KEY, "s3.session-token-expires-at-ms": str(round(seconds * 1000))}

    def asked_at(self, now: float) -> int:
        self.now = now
        assert self.credentials.settings() == self.answer
        return self.asked


@pytest.mark.parametrize(
    ("end", "last"), [(4600.0, 4299.9), (1100.0, 1049.9), (None, 1599.9)], ids=["an hour", "short", "no end named"]
)
def test_they_are_asked_for_again_before_they_end(end: float | None, last: float) -> None:
    catalog = AskedCatalog()
    if end is None:
        catalog.answer = KEY
    else:
        catalog.ends_at(end)
    assert [catalog.asked_at(1000.0), catalog.asked_at(last), catalog.asked_at(last + 0.2)] == [1, 1, 2]


def test_a_catalog_that_is_down_is_asked_again_and_stops_work_when_they_have_ended() -> None:
    catalog = AskedCatalog()
    catalog.ends_at(2000.0)
    assert catalog.asked_at(1000.0) == 1
    catalog.down = True
    assert [catalog.asked_at(1700.0), catalog.asked_at(1709.0), catalog.asked_at(1711.0)] == [2, 2, 3]
    catalog.now = 2000.0
    with pytest.raises(CdcError, match="is down"):
        catalog.credentials.settings()
    catalog.down = False
    catalog.ends_at(9000.0)
    assert catalog.asked_at(2001.0) == 5


def test_what_the_catalog_says_of_the_store_counts_with_its_own_key_only() -> None:
    given = {**KEY, "s3.endpoint": "http://store:9000", "client.region": "eu", "s3.signer.uri": "http://x"}
    endpoint = {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu"}
    assert client_config(PLACE, given) == IN_CLIENT | endpoint
    own = Location("s3", "lake/shop/orders", "https://own", "us")
    ours = {"AWS_ENDPOINT_URL": "https://own", "AWS_ALLOW_HTTP": "false", "AWS_REGION": "us"}
    assert client_config(own, given) == IN_CLIENT | ours
    assert client_config(own, {"s3.endpoint": "http://store:9000"}) == ours
    assert client_config(PLACE, {}) == {}


def test_nothing_of_the_process_goes_where_the_catalog_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client takes from the environment what its options do not have."""
    elsewhere = {"s3.endpoint": "http://store:9000", "client.region": "eu"}
    assert client_config(PLACE, elsewhere | {"s3.access-key-id": "key"}) == {}, "no whole key"
    pair = {name: value for name, value in KEY.items() if name != "s3.session-token"} | elsewhere
    assert "AWS_SESSION_TOKEN" not in client_config(PLACE, pair)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-process")
    assert client_config(PLACE, pair)["AWS_SESSION_TOKEN"] == ""
    assert client_config(PLACE, KEY | elsewhere)["AWS_SESSION_TOKEN"] == "token-value"


def test_no_message_and_no_pickle_has_them() -> None:
    store = TableStores().at("s3://lake/shop/orders", _settings)
    assert isinstance(store, VendedStore)
    assert store.storage_options() == {"AWS_CONDITIONAL_PUT": "etag"} | IN_CLIENT
    assert store.below("data").storage_options() == store.storage_options()
    error = store.error(OSError("refused secret-value for token-value"), "shop.orders", "reading")
    assert "refused *** for ***" in error.message
    stored = pickle.dumps(store)
    assert not any(secret in repr(store) or secret.encode() in stored for secret in KEY.values() if len(secret) > 3)
    assert pickle.loads(stored).storage_options() == store.storage_options()


def _settings() -> Mapping[str, str]:
    return KEY
