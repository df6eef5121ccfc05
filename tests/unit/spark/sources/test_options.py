"""The options of the public sources: checked, and never a credential among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sources.options import SourceOptions, whole

GIVEN = {"host": "127.0.0.1", "usernameFile": "/run/u", "passwordFile": "/run/p", "table": "shop.orders"}


def test_options_say_where_the_table_is() -> None:
    options = SourceOptions.parse(GIVEN | {"port": "3307", "excludeColumns": " a, b ,"})
    assert options.table == TableId("shop", "orders")
    assert (options.source.host, options.source.port) == ("127.0.0.1", 3307)
    assert (options.source.username_file, options.source.password_file) == (Path("/run/u"), Path("/run/p"))
    assert options.excluded == frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("host", "mode"), [("127.0.0.1", "disabled"), ("::1", "disabled"), ("db.example.com", "required")]
)
def test_tls_is_on_unless_the_server_is_this_machine(host: str, mode: str) -> None:
    assert SourceOptions.parse(GIVEN | {"host": host}).source.tls.mode == mode


def test_tls_is_as_asked() -> None:
    tls = SourceOptions.parse(GIVEN | {"tlsMode": "verify-identity", "tlsCa": "/run/ca"}).source.tls
    assert (tls.mode, tls.ca, tls.cert) == ("verify-identity", Path("/run/ca"), None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("host", ""),
        ("table", "orders"),
        ("table", ".orders"),
        ("port", "33o6"),
        ("port", "-1"),
        ("passwordFile", ""),
        # a word that means nothing must not mean less than what it was meant to
        ("tlsMode", "Verify-Identity"),
        ("tlsMode", "on"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: str) -> None:
    with pytest.raises(PermanentError, match=f"option {option}") as caught:
        SourceOptions.parse(GIVEN | {option: value})
    assert caught.value.reason is Reason.SPEC_INVALID


def test_numbers_have_defaults() -> None:
    assert (whole({}, "chunkSize", 7), whole({"chunkSize": "9"}, "chunkSize", 7)) == (7, 9)
