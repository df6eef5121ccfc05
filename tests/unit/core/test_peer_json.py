"""JSON that nests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.peer_json import NestsTooDeeply, cut_below, parse_json


@pytest.mark.parametrize(
    ("value", "cut"),
    [
        ({"a": [1, {"b": 2}], "c": 3}, {"a": [1, None], "c": 3}),
        ([[[], {}], [[[1]], "x"]], [[None, None], [None, "x"]]),
        ({"[{": {'"]': "\\"}, "x": {"y": {"\\": '"}'}}}, {"[{": {'"]': "\\"}, "x": {"y": None}}),
        ({}, {}),
        (1, 1),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_what_is_below_the_levels_is_null(value: Any, cut: Any, indent: int | None) -> None:
    assert json.loads(cut_below(json.dumps(value, indent=indent), 2)) == cut


def test_a_value_of_more_levels_than_the_parser_takes_can_be_read_without_them() -> None:
    text = '{"a":' * 100_000 + '"x"' + "}" * 100_000
    with pytest.raises(NestsTooDeeply):
        parse_json(text)
    assert parse_json(cut_below(text, 2)) == {"a": {"a": None}}
