"""Records of `debezium-json` as a checking consumer takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from support.event_consumer import Event


def debezium_events(records: Iterable[tuple[Any, Any]]) -> Iterator[Event]:
    """A tombstone follows a delete of its key and is no event."""
    deleted: Any = None
    for key, value in records:
        if value is None:
            assert key == deleted, f"a tombstone of {key} after {deleted}"
            deleted = None
            continue
        before, after = _IMAGES[value["op"]]
        assert (value["before"] is not None, value["after"] is not None) == (bool(before), bool(after)), value
        deleted = key if value["op"] == "d" else None
        if before:
            yield Event(before, value["before"], 0)
        if after:
            yield Event(after, value["after"], 0)


_IMAGES = {"c": ("", "+I"), "r": ("", "+I"), "u": ("-U", "+U"), "d": ("-D", "")}
