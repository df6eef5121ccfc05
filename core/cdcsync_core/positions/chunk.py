"""Splits of a key space, and the finished part of it.

A split is half open, `[start, end)`; None is open. Bounds come from the server and go back to the
server, and Python never orders them (rule R3): adjacency is equality of bounds. Splits are planned
and committed in key order, so what is finished is a list of intervals in key order, nearly always
one that starts open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: One key value as planned: integers as int; everything else as text: decimals and temporals as the
#: server prints them, strings and binaries as the hexadecimal digits of the stored bytes.
KeyValue = int | str
Bound = tuple[KeyValue, ...] | None


@dataclass(frozen=True)
class Split:
    """The key range `[start, end)`; a bound is one value per column of the chunk key."""

    start: Bound = None
    end: Bound = None

    def __post_init__(self) -> None:
        if self.start is not None and self.start == self.end:
            raise ValueError(f"an empty split: [{self.start}, {self.end})")

    def to_dict(self) -> dict[str, Any]:
        return {"start": _listed(self.start), "end": _listed(self.end)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Split:
        return cls(_bound(data["start"]), _bound(data["end"]))


WHOLE = Split()


@dataclass(frozen=True)
class Intervals:
    """The finished parts of one key space, in key order, adjacent ones merged."""

    parts: tuple[Split, ...] = ()

    def add(self, split: Split) -> Intervals:
        """Adds `split`, which must begin at the open start or where a finished part ends."""
        if split.start is None:
            if self.parts and self.parts[0].start is None:
                raise ValueError(f"{split} is finished already")
            return Intervals(_joined((split, *self.parts)))
        for i, part in enumerate(self.parts):
            if part.end == split.start:
                return Intervals(_joined((*self.parts[: i + 1], split, *self.parts[i + 1 :])))
        raise ValueError(f"{split} touches no finished part; needed a split that continues one")

    @property
    def complete(self) -> bool:
        return self.parts == (WHOLE,)

    @property
    def frontier(self) -> Bound:
        """Where the next split must start; None at the beginning. Meaningless once complete."""
        return self.parts[0].end if self.parts and self.parts[0].start is None else None

    def gaps(self) -> Iterator[Split]:
        """What is not finished, in key order."""
        start: Bound = None
        for part in self.parts:
            if part.start is not None:
                yield Split(start, part.start)
            if part.end is None:
                return
            start = part.end
        yield Split(start, None)

    def to_list(self) -> list[dict[str, Any]]:
        return [p.to_dict() for p in self.parts]

    @classmethod
    def from_list(cls, data: list[dict[str, Any]]) -> Intervals:
        return cls(tuple(Split.from_dict(d) for d in data))


def _joined(parts: tuple[Split, ...]) -> tuple[Split, ...]:
    merged: list[Split] = []
    for part in parts:
        if merged and merged[-1].end is not None and merged[-1].end == part.start:
            merged[-1] = Split(merged[-1].start, part.end)
        else:
            merged.append(part)
    return tuple(merged)


def _listed(bound: Bound) -> list[KeyValue] | None:
    return None if bound is None else list(bound)


def _bound(values: list[KeyValue] | None) -> Bound:
    return None if values is None else tuple(values)
