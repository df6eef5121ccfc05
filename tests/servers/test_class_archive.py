"""The class archive that a real session maps, and the options that real JVMs take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdcsync_spark.engine import class_archive, start
from cdcsync_spark.engine.jvm_options import JVM, SMALL_HEAP, Use, diagnostic_options, java, java_version
from cdcsync_spark.engine.start import archive_path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_PROGRAM = """
import sys
from pathlib import Path
from cdcsync_spark.engine.class_archive import _stream
from cdcsync_spark.engine.start import start_session
folder = sys.argv[1]
options = f"-Xlog:class+load:file={folder}/classes:none"
spark = start_session(
    "archive", cores=1, memory="512m", scratch_dir=folder, extra={}, jvm_options=options, tasks=False
)
_stream(spark, folder)
print(Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text())
"""


def test_a_session_maps_the_archive_and_not_that_of_java(tmp_path: Path) -> None:
    archive = archive_path()
    if archive is None or not archive.exists():
        pytest.skip("`make setup` made no class archive, see .cache/warmup.log")
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    maps = ended.stdout
    assert str(archive) in maps, ended.stderr[-3000:]
    assert "classes.jsa" not in maps
    # what is made while it runs has no file: lambdas, proxies, accessors
    loaded = (tmp_path / "classes").read_text().splitlines()
    from_jars = [line for line in loaded if ".jar" in line.partition(" source: ")[2]]
    assert len([line for line in loaded if line.endswith("shared objects file")]) > 5000
    assert len(from_jars) < 100, from_jars


def test_archives_of_other_versions_go_and_the_right_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(class_archive, "make_home", Path.mkdir)
    (tmp_path / "share" / "cdcsync").mkdir(parents=True)
    path = archive_path()
    assert path is not None
    stale = path.with_name("spark-4.0.0-0123456789ab.jsa")
    for archive in (path, stale):
        archive.write_text("as it was")
    assert class_archive.main() == 0
    assert path.read_text() == "as it was"
    assert not stale.exists()
    assert str(path) in capsys.readouterr().out


def test_the_name_of_an_archive_changes_with_what_it_is_good_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    seen = {archive_path()}
    class_path = start.spark_home() / "jars" / start.CLASS_PATH_JAR
    class_path.parent.mkdir(parents=True)
    for classes in ("a.jar", "a.jar:b.jar"):
        class_path.write_text(classes)
        seen.add(archive_path())
    monkeypatch.setattr(start, "JVM", "-XX:+UseG1GC")
    seen.add(archive_path())
    monkeypatch.setattr(start, "_ARCHIVE", 0)
    seen.add(archive_path())
    assert len(seen) == 5


def test_the_jvms_of_this_machine_start_with_what_they_get(monkeypatch: pytest.MonkeyPatch) -> None:
    here = java()
    assert here is not None
    others = {p.resolve().parents[1] for p in Path("/usr/lib/jvm").glob("*/bin/java")}
    homes = {Path(here).resolve().parents[1], *(home for home in others if (home / "release").exists())}
    for home in sorted(homes):
        monkeypatch.setenv("JAVA_HOME", str(home))
        version = java_version()
        options = [*JVM.split(), *SMALL_HEAP.split(), *diagnostic_options(version, Use)[0], "-version"]
        ended = subprocess.run(
            [home / "bin" / "java", *options], env=dict(os.environ), capture_output=True, text=True, check=False
        )
        assert (ended.returncode, version is not None and version in ended.stderr) == (0, True), ended.stderr
