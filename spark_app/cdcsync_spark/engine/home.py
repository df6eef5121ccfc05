"""Makes the home that Spark is started from: PySpark's programs, and its jars but those for machine
learning.

Spark's launcher names the class path `conf:jars/*`, and Java reads what `jars/*` stands for in the
order of the file system, which is another one where an image is unpacked. A class archive is good
for one order. So `jars` has one jar, whose manifest names the others in the order of their names.
Source: "JAR File Specification", Java SE 17, Class-Path; Spark 4.1, `AbstractCommandBuilder`.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

from cdcsync_spark.engine.start import CLASS_PATH_JAR, LINKED_JARS

#: how the names of jars for machine learning begin. One of them makes every session register its
#: functions by Scala's reflection, a fifth of what the JVM of a short run costs.
_MACHINE_LEARNING = (
    *("spark-mllib", "spark-graphx", "breeze", "spire"),
    *("cats-kernel", "algebra", "JTransforms", "JLargeArrays"),
)
#: of a manifest's line with its end, in bytes
_LINE = 72


def make_home(home: Path) -> None:
    """Makes a new home and renames it into place: the links of the previous one may lead to an
    environment that is gone."""
    pyspark_home = Path(pyspark.__file__).parent
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="home-") as folder:
        new_home = Path(folder) / "new"
        new_home.mkdir()
        (new_home / "bin").symlink_to(pyspark_home / "bin")
        _link_jars(new_home / "jars", list((pyspark_home / "jars").glob("*.jar")))
        if home.exists():
            home.rename(Path(folder) / "old")
        new_home.rename(home)


def _link_jars(folder: Path, jars: Sequence[Path]) -> None:
    (folder / LINKED_JARS).mkdir(parents=True)
    linked = sorted((jar for jar in jars if not jar.name.startswith(_MACHINE_LEARNING)), key=lambda jar: jar.name)
    for jar in linked:
        (folder / LINKED_JARS / jar.name).symlink_to(jar)
    _write_class_path(folder / CLASS_PATH_JAR, [f"{LINKED_JARS}/{jar.name}" for jar in linked])


def _write_class_path(jar: Path, entries: Sequence[str]) -> None:
    """Its bytes and its time are always the same: an archive is good for both."""
    entry = zipfile.ZipInfo("META-INF/MANIFEST.MF")
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(entry, "Manifest-Version: 1.0\n" + _folded(f"Class-Path: {' '.join(entries)}"))
    os.utime(jar, (315532800, 315532800))  # 1980, as the entry's


def _folded(line: str) -> str:
    """A line of a manifest goes on in the next one after a space."""
    first, rest = line[: _LINE - 1], line[_LINE - 1 :]
    width = _LINE - 2
    return "\n ".join([first, *(rest[at : at + width] for at in range(0, len(rest), width))]) + "\n"
