"""The options of Spark's JVM: those that every JVM knows, and diagnostic ones, which belong to the
versions of a JDK that they were tried with. A JVM does not start with one that it does not know, so
another version goes without, and a warning says so.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

#: the driver's JVM plans short jobs whose work is done in Python: the first compiler suffices, and
#: costs half the CPU seconds of both. One that ran out of memory may have lost any of its threads,
#: and would wait for them forever: it ends. Its performance counters, which a thread writes
#: twenty times a second, are not used, nor are Netty's events for Java's flight recorder, which
#: start parts of it.
JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData -Dio.netty.jfr.enabled=false"
)
#: of a session without tasks. Its heap begins with what it needs, and grows where it has to: a new
#: one takes the sixty-fourth part of the machine. Its young generation stays small, because all of
#: it is touched between two collections, and no rows pass through this JVM.
SMALL_HEAP = "-Xms40m -Xmn8m"


class Use(Enum):
    """Which JVMs get an option."""

    ARCHIVE = "maps a class archive"
    AT_REST = "has no tasks"


@dataclass(frozen=True)
class Diagnostic:
    """An option that needs `-XX:+UnlockDiagnosticVMOptions`, and the first and the last version of
    a JDK that has it."""

    option: str
    use: Use
    first: int
    last: int
    gain: str


DIAGNOSTIC = (
    Diagnostic("-XX:ArchiveRelocationMode=0", Use.ARCHIVE, 17, 25, "the pages of the class archive are shared"),
    Diagnostic("-XX:AsyncDeflationInterval=10000", Use.AT_REST, 17, 25, "a thread wakes up less often"),
    Diagnostic("-XX:GuaranteedSafepointInterval=10000", Use.AT_REST, 17, 25, "a thread wakes up less often"),
)


def diagnostic_options(version: str | None, uses: Iterable[Use]) -> tuple[list[str], list[str]]:
    """The options for a JDK of this version, and warnings about those that it goes without."""
    flags = [flag for flag in DIAGNOSTIC if flag.use in set(uses)]
    major = _major(version)
    options = [flag.option for flag in flags if major is not None and flag.first <= major <= flag.last]
    warnings = [
        f"Java {version or 'of an unknown version'} is started without {flag.option} ({flag.gain}), "
        f"which was tried with {flag.first} to {flag.last}"
        for flag in flags
        if flag.option not in options
    ]
    return (["-XX:+UnlockDiagnosticVMOptions", *options] if options else []), warnings


def _major(version: str | None) -> int | None:
    """17 of `17.0.15`, 25 of `25-ea`, 8 of `1.8.0_402`."""
    match = re.match(r"(?:1\.)?(\d{1,3})(?!\d)", version or "")
    return int(match[1]) if match else None


def java() -> str | None:
    """The program that starts a JVM, as Spark finds it; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(Path(home) / "bin" / "java" if home else "java")


def java_version() -> str | None:
    """The version of that JVM, from the file `release` of its folder; None where it has none."""
    installed = java()
    if installed is None:
        return None
    try:
        release = (Path(installed).resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="([^"]{1,40})"$', release, re.M)
    return version[1] if version else None


def chosen(*uses: Use) -> str:
    """The diagnostic options of the JVM that will be started; a warning for each that is left out
    goes to the log."""
    options, warnings = diagnostic_options(java_version(), uses)
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    return " ".join(options)
