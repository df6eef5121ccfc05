"""What commits cost that are measured one after the other, as rows of a table that is printed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from bench.delta_contenders import DeltaContender
from bench.delta_tables import KeyBatches, folder_bytes

Show = Callable[[str, str], None]
Pair = tuple[float, float]
HEAD = (
    "rows | keys | changes | | commits | median ms | CPU ms | slowest ms | commits a second | maintenance, ms a commit | "
    "its CPU ms | bytes a change"
)


@dataclass
class Times:
    """Wall and CPU seconds of commits and of the maintenance after them; bytes that the commits
    wrote."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    maintenance: list[float] = field(default_factory=list)
    maintenance_cpu: list[float] = field(default_factory=list)
    written: int = 0

    def add(self, commit: Pair, maintenance: Pair, written: int) -> None:
        for seconds, column in zip(
            (*commit, *maintenance), (self.wall, self.cpu, self.maintenance, self.maintenance_cpu), strict=True
        ):
            column.append(seconds)
        self.written += written

    def row(self, rows: int, kind: str, changes: int, name: str) -> str:
        count = len(self.wall)
        rate = count / (sum(self.wall) + sum(self.maintenance))
        cells = [
            f"{rows:,}", kind, f"{changes:,}", name, str(count),
            *(f"{1000 * seconds:,.0f}" for seconds in (statistics.median(self.wall), statistics.median(self.cpu), max(self.wall))),
            f"{rate:,.1f}", *(f"{1000 * sum(spent) / count:,.1f}" for spent in (self.maintenance, self.maintenance_cpu)),
            f"{self.written / count / changes:,.0f}",
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


def measured(contender: DeltaContender, stream: KeyBatches, folder: Path, commits: int, warm_up: int) -> Times:
    """`warm_up` commits are not counted."""
    times = Times()
    for turn in range(-warm_up, commits):
        change, before = stream.batch(), folder_bytes(folder)
        commit = _timed(contender, partial(contender.commit, stream.number, change))
        written = folder_bytes(folder) - before
        maintenance = _timed(contender, contender.maintain)
        if turn >= 0:
            times.add(commit, maintenance, written)
    return times


def _timed(contender: DeltaContender, act: Callable[[], object]) -> Pair:
    """Wall and CPU seconds."""
    cpu, begun = contender.cpu(), time.perf_counter()
    act()
    wall = time.perf_counter() - begun
    return wall, contender.cpu() - cpu


@pytest.fixture(scope="module")
def show() -> Iterator[Show]:
    """Prints a row of the table with this head at once, and all tables at the end."""
    tables: dict[str, list[str]] = {}

    def one(head: str, row: str) -> None:
        tables.setdefault(head, []).append(row)
        print(f"\n{row}")

    yield one
    for head, rows in tables.items():
        print("\n".join(["", f"| {head} |", "|" + "---|" * (head.count("|") + 1), *rows]))
