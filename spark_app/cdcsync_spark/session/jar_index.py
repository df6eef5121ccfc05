"""The index of the home's jars: a jar that says which of them has what, so that Java opens the few
that it needs.

Without it a search for a service or for a configuration file that is not there opens all jars, and
the list of the files of each, 100,000 altogether, stays in the JVM's heap: 14 MiB. Java looks into
`META-INF/INDEX.LIST` of a jar that it opens, and opens those named there only for a package or a
file that they have. (Java 17; since 21 Java ignores it, and opens all.)

A search for a service has to find all of its providers, and with the index it ends with the first
jar; so the jar of the index has the providers' lists of all jars, joined. Log4j searches so for
lists of its plugins, which cannot be joined: its jars are not in the index.

Source: "JAR File Specification", Java SE 17, JAR Index; jdk.internal.loader.URLClassPath.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

#: sorts first: what comes before it is opened
NAME = "0-index.jar"
_INDEX, _SERVICES = "META-INF/INDEX.LIST", "META-INF/services/"
_VERSIONS = "META-INF/versions/"
#: what a jar says of itself: Java reads it from the jar that it has opened
_NEVER_SEARCHED = ("META-INF/maven/", "META-INF/MANIFEST.MF", "META-INF/LICENSE", "META-INF/NOTICE", _INDEX)
_NOT_INDEXED = "log4j-"


def write_index(folder: Path, place: Path) -> None:
    """Of the jars of `folder`, in order of their names, into it; it will be `place`. Java knows a
    jar by where its links lead."""
    jars = sorted(jar for jar in folder.glob("*.jar") if not jar.name.startswith(_NOT_INDEXED))
    services: dict[str, list[str]] = {}
    lines = ["JarIndex-Version: 1.0", ""]
    for jar in jars:
        with zipfile.ZipFile(jar) as content:
            names = [name for name in content.namelist() if not name.endswith("/")]
            lines += [quote(os.path.relpath(jar.resolve(), place.resolve())), *sorted(_entries(names)), ""]
            for name in names:
                if name.startswith(_SERVICES):
                    services.setdefault(name, []).append(content.read(name).decode())
    for jar in folder.glob(f"{_NOT_INDEXED}*.jar"):
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if name in services:
                    services[name].append(content.read(name).decode())
    with zipfile.ZipFile(folder / NAME, "w") as index:
        index.writestr(_INDEX, "\n".join(lines))
        for name, texts in sorted(services.items()):
            index.writestr(name, "\n".join(texts))


def _entries(names: Iterable[str]) -> set[str]:
    """Packages; what lies in no package, and in META-INF, by its own name."""
    found = set()
    for name in names:
        if name.startswith(_NEVER_SEARCHED):
            continue
        if name.startswith(_VERSIONS):
            name = name.removeprefix(_VERSIONS).partition("/")[2]
        package, slash, _ = name.rpartition("/")
        found.add(name if not slash or name.startswith("META-INF/") else package)
    return found
