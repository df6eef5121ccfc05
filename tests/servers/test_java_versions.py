"""A sync runs on each version of Java that the manual names, with the options that were tried with
it (docs/decisions/cost-of-spark.md); 17 is that of the other tests. The JVM of the next version
takes the options, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cdcsync_spark.engine.jvm_options import DIAGNOSTIC, JVM, SMALL_HEAP, Use, diagnostic_options, java_version
from support.fixtures import FreshDatabase
from support.servers import Server
from support.sync_process import Sync

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]
_ROOT = Path(__file__).resolve().parents[2]
_CACHE = _ROOT / ".cache"


def _java_home(version: str) -> Path:
    home = _CACHE / f"java-{version}"
    make = [str(_ROOT / "tests" / "support" / "java.sh"), version, str(home), str(_CACHE / "mariadb118")]
    subprocess.run([*make, str(Path(sys.executable).with_name("pip"))], check=True)
    return home


@pytest.mark.parametrize("version", ["21", "25"])
def test_a_jvm_starts_with_the_options(version: str) -> None:
    """On 25 no run of Spark 4.1 works (docs/versions.md), and it is not the options that end it."""
    options, warnings = diagnostic_options(version, Use)
    assert warnings == []
    command = [_java_home(version) / "bin" / "java", *JVM.split(), *SMALL_HEAP.split(), *options, "-version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f'"{version}' in ended.stderr


@pytest.mark.parametrize("version", ["21"])
def test_a_sync_is_copied_and_followed(
    version: str,
    mariadb1011: Server,
    fresh_database: FreshDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java_home(version)))
    running = java_version()
    assert running is not None
    assert running.startswith(version)
    options, warnings = diagnostic_options(running, Use)
    assert (len(options), warnings) == (1 + len(DIAGNOSTIC), [])

    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)", db=database)
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync") as sync:
        sync.run_to_completion()
        mariadb1011.run("UPDATE t SET v = 20 WHERE id = 2", "INSERT INTO t VALUES (3, 3)", db=database)
        sync.run_to_completion()
        rows = sync.target(f"{database}.t").select(["id", "v"]).sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in rows] == [(1, 1), (2, 20), (3, 3)]
        logs = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.log"))
        assert "warning: Java" not in logs
