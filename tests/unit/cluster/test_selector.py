"""Label selectors, as the API server takes them."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import CdcError
from cdcsync_operator.cluster.settings import from_environment
from cdcsync_operator.cluster.syncs.selector import parse_selector, selects


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("", {}, True),
        ("shard=one", {"shard": "one"}, True),
        ("shard==one", {"shard": "two"}, False),
        ("shard=one", {}, False),
        ("shard=", {"shard": ""}, True),
        ("shard!=one", {"shard": "two"}, True),
        ("shard!=one", {"shard": "one"}, False),
        ("shard!=one", {}, True),
        ("shard", {"shard": ""}, True),
        ("shard", {}, False),
        ("!shard", {}, True),
        ("! shard", {"shard": "x"}, False),
        ("shop.example/team in (a, b)", {"shop.example/team": "b"}, True),
        ("shop.example/team in (a,b)", {"shop.example/team": "c"}, False),
        ("team notin (a, b)", {"team": "c"}, True),
        ("team notin (a, b)", {}, True),
        ("team notin (a)", {"team": "a"}, False),
        ("team in (a, b), !frozen, shard=one", {"team": "a", "shard": "one"}, True),
        ("team in (a, b), !frozen, shard=one", {"team": "a", "shard": "one", "frozen": ""}, False),
    ],
)
def test_what_a_selector_selects(selector: str, labels: dict[str, str], selected: bool) -> None:
    assert selects(parse_selector(selector), labels) is selected


@pytest.mark.parametrize(
    "text", ["a b", "=x", "a in b", "a in (b", "a=b,", "a,,b", "a>1", "-a=b", "a=b c", "a in (b c)"]
)
def test_what_is_no_selector_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(CdcError, match="the chart's values selector"):
        from_environment({"CDCSYNC_DRIVER_IMAGE": "x", "CDCSYNC_SELECTOR": text})


def test_a_selector_is_the_operators_setting() -> None:
    found = from_environment({"CDCSYNC_DRIVER_IMAGE": "x", "CDCSYNC_SELECTOR": "team in (a, b)"})
    assert found.selector == "team in (a, b)"
    assert from_environment({"CDCSYNC_DRIVER_IMAGE": "x"}).selector == ""
