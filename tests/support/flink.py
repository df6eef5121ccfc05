"""Flink SQL as a process of its own: jars from Maven (`tests/support/flink-jars.sh`), fetched when
they are needed first, and a program that prints the changelog of a query."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

FLINK = Path(__file__).parents[2] / ".cache" / "flink-2.0.0"
_PROGRAM = Path(__file__).parent / "FlinkSql.java"
_OPENED = ("java.lang", "java.util", "java.time", "java.math", "java.nio", "java.net", "java.text")
#: the JVM's options: Flink's serializers look into the JDK's own classes
OPENS = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
_SECONDS = 300
Values = tuple[str | None, ...]


def changelog(*statements: str) -> list[tuple[str, Values]]:
    """The kinds of change (`+I`, `-U`, `+U`, `-D`) and the values that the last statement gives
    until its source's end."""
    if not FLINK.is_dir():
        subprocess.run([str(Path(__file__).parent / "flink-jars.sh"), str(FLINK)], check=True)
    command = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *OPENS]
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    found = subprocess.run(
        [*command, logging, "-cp", f"{FLINK / 'jars'}/*", str(_PROGRAM)],
        input="".join(f"{s};\n" for s in statements),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    return [_line(line) for line in found.stdout.splitlines()]


def _line(line: str) -> tuple[str, Values]:
    kind, *values = line.split("\t")
    return kind, tuple(None if v == "\\N" else v for v in values)


def final_rows(changes: Sequence[tuple[str, Values]]) -> list[Values]:
    """The rows that are left; a row that is taken away must be there, value for value."""
    rows: Counter[Values] = Counter()
    for kind, values in changes:
        if kind in ("+I", "+U"):
            rows[values] += 1
        else:
            assert rows[values] > 0, f"{kind} of a row that is not there: {values}"
            rows[values] -= 1
    return sorted((row for row, count in rows.items() for _ in range(count)), key=repr)
