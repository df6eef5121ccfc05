"""The jars with which Spark knows Delta, so that tests read what was written and play other
programs: which they are, where they lie, how they are fetched.

Fetched once by Maven, each proved by its checksum, into the Python environment:
`python tests/support/delta_jars.py`. The list is closed: what delta-spark names besides them Spark
has already, in another version.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: group, artifact, version -> SHA-256
JARS = {
    ("io.delta", "delta-spark_4.1_2.13", "4.4.0"): "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ("io.delta", "delta-storage", "4.4.0"): "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ("io.delta", "delta-kernel-api", "4.4.0"): "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    ("io.delta", "delta-kernel-defaults", "4.4.0"): "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    (
        "io.delta",
        "delta-kernel-unitycatalog",
        "4.4.0",
    ): "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    (
        "io.unitycatalog",
        "unitycatalog-client",
        "0.6.0",
    ): "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
}


class DeltaJarsUnavailable(RuntimeError):
    """Maven did not bring them."""


def folder() -> Path:
    """Where the jars lie in this Python environment."""
    return Path(sys.prefix) / "share" / "cdcsync" / "delta-jars"


def installed() -> list[Path]:
    """The jars; none where not all of them are there."""
    jars = [folder() / _file(artifact, version) for _, artifact, version in JARS]
    return jars if all(jar.is_file() for jar in jars) else []


def fetch() -> list[Path]:
    """The jars, by Maven unless they are there."""
    if not installed():
        folder().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder().parent, prefix="fetch-") as made:
            _copy(Path(made))
            folder().mkdir(exist_ok=True)
            for (_, artifact, version), expected in JARS.items():
                jar = Path(made) / _file(artifact, version)
                _check(jar, expected)
                jar.rename(folder() / jar.name)
    return installed()


def settings() -> dict[str, str]:
    """The settings of a session that knows Delta."""
    assert installed(), "run: make setup"
    return {
        "spark.jars": ",".join(map(str, installed())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _file(artifact: str, version: str) -> str:
    return f"{artifact}-{version}.jar"


def _copy(made: Path) -> None:
    if shutil.which("mvn") is None:
        raise _unavailable("no mvn on the PATH")
    made.joinpath("pom.xml").write_text(_pom())
    command = ["mvn", "-q", "-B", _GOAL, f"-DoutputDirectory={made}"]
    done = subprocess.run(command, cwd=made, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise _unavailable(f"Maven ended with {done.returncode}: {done.stdout[-1000:]}")


def _pom() -> str:
    """A project of the jars alone, without what they name themselves."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version>{alone}</dependency>"
        for g, a, v in JARS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>cdcsync</groupId>'
        f"<artifactId>jars</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
    )


def _check(jar: Path, expected: str) -> None:
    with jar.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != expected:
        raise _unavailable(f"{jar.name} has the SHA-256 {found}, not {expected}")


def _unavailable(found: str) -> DeltaJarsUnavailable:
    return DeltaJarsUnavailable(f"{found}; install Maven, or repair its access to its repository")


if __name__ == "__main__":
    sys.stdout.write(f"Delta jars: {len(fetch())} in {folder()}\n")
