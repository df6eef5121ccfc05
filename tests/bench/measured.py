"""Measures a program with all that it starts: CPU seconds, wall seconds, peak memory
(counted by `accounted.py`).

The machines are small and shared, so the CPU seconds are the figure and ratios within one run the
statement; wall time is shown as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_FOLDER = Path(__file__).parent
_RESULTS = _FOLDER.parents[1] / ".cache" / "bench.txt"


@dataclass(frozen=True)
class Figures:
    """`rows` is what the program handled, by its own account; `memory` (PSS) and `working_set` are
    the process tree's peaks in MiB; `parts` the CPU seconds by kind of process."""

    name: str
    rows: int
    cpu: float
    wall: float
    memory: float
    working_set: float
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows_per_cpu_second(self) -> float:
        return self.rows / self.cpu if self.cpu else 0.0


def measure(name: str, command: Sequence[str], rows: int | None = None) -> Figures:
    """Runs `command` to its end; `rows` where it does not print them as its last line. Raises on a
    failure."""
    with tempfile.NamedTemporaryFile("r") as result:
        accounted = [sys.executable, str(_FOLDER / "accounted.py"), result.name, *command]
        process = subprocess.run(accounted, capture_output=True, env=_environment(), timeout=1800, check=False)
        if process.returncode != 0:
            raise RuntimeError(f"{name}: exit {process.returncode}: {process.stderr.decode()[-2000:]}")
        found = json.load(result)
    handled = rows if rows is not None else int(process.stdout.split()[-1])
    return Figures(name, handled, found["cpu"], found["wall"], found["memory"], found["working_set"], found["parts"])


def contender(name: str, *arguments: object) -> Figures:
    """One of the functions of `contenders.py`, in a process of its own."""
    return measure(name, [sys.executable, str(_FOLDER / "contenders.py"), name, *(str(a) for a in arguments)])


def table(title: str, figures: Sequence[Figures], floor: str) -> str:
    """A table as text; the last column is CPU seconds a row relative to the contender called
    `floor`."""
    base = next(f for f in figures if f.name == floor).rows_per_cpu_second
    lines = [
        title,
        f"{'':34}{'rows':>10}{'CPU s':>9}{'wall s':>9}{'rows/CPU s':>13}{'x floor':>9}{'PSS MiB':>10}{'pod MiB':>10}",
    ]
    lines += [
        f"{f.name:34}{f.rows:>10,}{f.cpu:>9.2f}{f.wall:>9.2f}{f.rows_per_cpu_second:>13,.0f}"
        f"{base / f.rows_per_cpu_second if f.rows > 1 else 0:>9.2f}{f.memory:>10.0f}{f.working_set:>10.0f}"
        for f in figures
    ]
    return "\n".join(lines)


def show(text: str) -> None:
    """Prints a table, and adds it to those of earlier runs."""
    print(f"\n{text}\n")
    _RESULTS.parent.mkdir(exist_ok=True)
    with _RESULTS.open("a") as results:
        results.write(text + "\n\n")


def by_part(parts: Mapping[str, float]) -> str:
    """CPU seconds by kind of process as text, the highest first."""
    return ", ".join(f"{name} {cpu:.2f}" for name, cpu in sorted(parts.items(), key=lambda p: -p[1]))


def _environment() -> dict[str, str]:
    paths = [str(_FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
