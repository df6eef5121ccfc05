"""MySQL GTID sets as values: `uuid[:tag]:first-last[:first-last]...[,...]`.

Membership is exact and sets may have gaps, so a set, unlike an offset, says precisely which
transactions a table has. Intervals are kept closed, sorted and merged per source (`uuid` or
`uuid:tag`), which makes equality structural. MariaDB's transactions of one server in one domain are
numbered likewise: their source is `domain-server`. Source: MySQL manual, "GTID Format and Storage"
(tags since 8.3: `uuid:tag:first-last`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: the transactions of one server in one domain of MariaDB
_GROUP = re.compile(r"\d{1,10}-\d{1,10}")
_TAG = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,31}")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")

Interval = tuple[int, int]


@dataclass(frozen=True)
class Gtid:
    """One transaction: `source` is `uuid` or `uuid:tag` in lower case, or `domain-server` of
    MariaDB; `number` starts at 1."""

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Gtid:
        source, _, number = text.rpartition(":")
        if not source or not number.isdigit():
            raise ValueError(f"not a GTID: {text!r}; needed uuid[:tag]:number")
        return cls(source.lower(), int(number))


class GtidSet:
    """An immutable set of transactions with exact membership."""

    __slots__ = ("_sources",)

    def __init__(self, sources: Mapping[str, Iterable[Interval]] | None = None) -> None:
        merged = {source: _merge(intervals) for source, intervals in (sources or {}).items()}
        self._sources: dict[str, tuple[Interval, ...]] = {s: merged[s] for s in sorted(merged) if merged[s]}

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Reads the server's text, in any case and with line breaks; `""` is the empty set."""
        sources: dict[str, list[Interval]] = {}
        for part in (p.strip() for p in text.replace("\n", "").split(",")):
            if part:
                _parse_part(part, sources)
        return cls(sources)

    def __str__(self) -> str:
        return ",".join(
            ":".join([source, *(str(a) if a == b else f"{a}-{b}" for a, b in intervals)])
            for source, intervals in self._sources.items()
        )

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._sources == other._sources

    def __hash__(self) -> int:
        return hash(tuple(self._sources.items()))

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __contains__(self, gtid: Gtid) -> bool:
        return any(a <= gtid.number <= b for a, b in self._sources.get(gtid.source, ()))

    def items(self) -> Iterator[tuple[str, tuple[Interval, ...]]]:
        """(source, closed intervals) in the order of the sources."""
        return iter(self._sources.items())

    def covers(self, other: GtidSet) -> bool:
        return all(
            all(any(a <= x and y <= b for a, b in self._sources.get(source, ())) for x, y in intervals)
            for source, intervals in other._sources.items()
        )

    def union(self, other: GtidSet) -> GtidSet:
        sources = {s: list(i) for s, i in self._sources.items()}
        for source, intervals in other._sources.items():
            sources.setdefault(source, []).extend(intervals)
        return GtidSet(sources)

    def intersection(self, other: GtidSet) -> GtidSet:
        return GtidSet(
            {
                source: [
                    (max(a, x), min(b, y))
                    for a, b in intervals
                    for x, y in other._sources.get(source, ())
                    if max(a, x) <= min(b, y)
                ]
                for source, intervals in self._sources.items()
            }
        )

    def subtract(self, other: GtidSet) -> GtidSet:
        """What is not in `other`."""
        return GtidSet({source: _without(own, other._sources.get(source, ())) for source, own in self.items()})

    def since(self, first: Gtid) -> GtidSet:
        """The transactions of its source from `first` on."""
        return GtidSet(
            {
                source: [(max(a, first.number), b) for a, b in own if b >= first.number]
                for source, own in self.items()
                if source == first.source
            }
        )

    def count(self, *, without: str = "") -> int:
        """How many transactions it has, those of the source `without` left out."""
        return sum(b - a + 1 for source, own in self.items() if source != without for a, b in own)

    def last(self, count: int, *, without: str = "") -> GtidSet:
        """The last `count` transactions of each source but `without`."""
        return GtidSet({source: _last(own, count) for source, own in self.items() if source != without})

    def filled(self, most: int) -> GtidSet:
        """A set that covers this one, with at most `most` intervals of each source: the gaps
        between the oldest are filled."""
        return GtidSet(
            {
                source: own if len(own) <= most else ((own[0][0], own[-most][1]), *own[len(own) - most + 1 :])
                for source, own in self.items()
            }
        )

    def with_gtids(self, gtids: Iterable[Gtid]) -> GtidSet:
        """This set and the given transactions."""
        sources: dict[str, list[Interval]] = {}
        for gtid in gtids:
            sources.setdefault(gtid.source, []).append((gtid.number, gtid.number))
        return self.union(GtidSet(sources)) if sources else self


def _without(own: Iterable[Interval], taken: tuple[Interval, ...]) -> Iterator[Interval]:
    """Both are sorted; each interval is met once, because sets may have thousands of gaps."""
    at = 0
    for a, b in own:
        while at < len(taken) and taken[at][1] < a:
            at += 1
        while at < len(taken) and taken[at][0] <= b:
            if a < taken[at][0]:
                yield a, taken[at][0] - 1
            a = taken[at][1] + 1
            if a > b:
                break
            at += 1
        if a <= b:
            yield a, b


def _last(own: Sequence[Interval], count: int) -> Iterator[Interval]:
    for a, b in reversed(own):
        if count <= 0:
            return
        yield max(a, b - count + 1), b
        count -= b - a + 1


def _merge(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for a, b in sorted(intervals):
        if a < 1 or b < a:
            raise ValueError(f"not an interval of transactions: {a}-{b}; needed 1 <= first <= last")
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], b))
        else:
            merged.append((a, b))
    return tuple(merged)


def _parse_part(part: str, sources: dict[str, list[Interval]]) -> None:
    uuid, *fields = (f.strip() for f in part.split(":"))
    if not (_UUID.fullmatch(uuid) or _GROUP.fullmatch(uuid)) or not fields or not _RANGE.fullmatch(fields[-1]):
        raise ValueError(f"not a GTID set: {part!r}; needed uuid[:tag]:first-last")
    source = uuid.lower()
    for field in fields:
        if match := _RANGE.fullmatch(field):
            first = int(match[1])
            sources.setdefault(source, []).append((first, int(match[2] or first)))
        elif _TAG.fullmatch(field):
            source = f"{uuid.lower()}:{field.lower()}"
        else:
            raise ValueError(f"not a GTID set: {part!r}; {field!r} is neither a tag nor an interval")
