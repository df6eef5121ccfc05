"""No variable that the installed programs know is on the allow list of a podTemplate by accident:
their names are read from the programs, so that one that a new version adds is judged, too."""

from __future__ import annotations

import re
import shutil
import ssl
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from cdcsync_operator.cluster.policy.pod_policy import PodPolicy

_NAME = re.compile(rb"\b_?[A-Z][A-Z0-9_]{2,}\b|\bTZ\b")


def _loaded(*names: str) -> Iterator[bytes]:
    """The files of this process's libraries and program whose names begin so."""
    assert ssl.OPENSSL_VERSION, "loads OpenSSL's libraries"
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {Path(line.split(maxsplit=5)[5]) for line in lines if " /" in line}
    yield from (file.read_bytes() for file in files if file.name.startswith(names))


def _cpython() -> Iterator[bytes]:
    return _loaded("libpython", Path(sys.executable).resolve().name)


def _glibc() -> Iterator[bytes]:
    """Its loader compares names behind their LD_."""
    for content in _loaded("libc.so", "libc-", "ld-linux", "ld-2"):
        yield content
        yield b" ".join(b"LD_" + name for name in _NAME.findall(content))


def _openssl() -> Iterator[bytes]:
    return _loaded("libcrypto", "libssl")


def _bash() -> Iterator[bytes]:
    yield Path(str(shutil.which("bash"))).read_bytes()


def _jvm() -> Iterator[bytes]:
    home = Path(str(shutil.which("java"))).resolve().parents[1]
    yield from (path.read_bytes() for path in home.rglob("*") if path.name in ("java", "libjvm.so", "libjli.so"))


def _spark() -> Iterator[bytes]:
    """Its scripts, the launcher that they start, and its Python."""
    home = Path(pyspark.__path__[0])
    yield from (path.read_bytes() for folder in ("bin", "sbin") for path in (home / folder).glob("*") if path.is_file())
    (launcher,) = (home / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(launcher) as jar:
        yield from (jar.read(name) for name in jar.namelist() if name.endswith(".class"))
    for path in home.rglob("*.py"):
        yield from (line for line in path.read_bytes().splitlines() if b"environ" in line or b"getenv" in line)


#: what a template may set of them: time zone, memory, authorities and proxies
_DATA = {"TZ", "MALLOC_ARENA_MAX", "SSL_CERT_DIR", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
#: program -> its files, and some of the names in them
_PROGRAMS: dict[str, tuple[Callable[[], Iterator[bytes]], set[str]]] = {
    "CPython": (_cpython, {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONBREAKPOINT"}),
    "glibc": (_glibc, {"LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH"}),
    "OpenSSL": (_openssl, {"OPENSSL_CONF", "OPENSSL_MODULES"}),
    "bash": (_bash, {"BASH_ENV", "SHELLOPTS", "PROMPT_COMMAND", "BASH_LOADABLES_PATH"}),
    "the JVM": (_jvm, {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}),
    "Spark": (_spark, {"SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON", "JAVA_HOME"}),
}


@pytest.mark.parametrize("program", _PROGRAMS)
def test_no_variable_of_a_program_is_allowed_by_accident(program: str) -> None:
    files, some = _PROGRAMS[program]
    names = {name.decode() for content in files() for name in _NAME.findall(content)}
    assert some <= names
    assert {name for name in names if PodPolicy().allows_variable(name)} <= _DATA
