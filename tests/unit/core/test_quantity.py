"""Sizes and durations as people read them."""

from __future__ import annotations

import pytest

from cdcsync_core.resource.quantity import parse_seconds, show_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.84, "0.8 s"),
        (9.94, "9.9 s"),
        (9.97, "10 s"),
        (42.4, "42 s"),
        (59.7, "1 min 0 s"),
        (200.0, "3 min 20 s"),
        (3599.8, "1 h 0 min"),
        (7510.0, "2 h 5 min"),
    ],
)
def test_a_duration_is_shown_in_its_largest_units(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


def test_a_number_beyond_a_float_is_no_duration() -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_seconds(10**399)
