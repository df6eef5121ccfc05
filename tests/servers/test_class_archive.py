"""The class archives that a real session maps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cdcsync_spark.session import class_archive, start
from cdcsync_spark.session.start import archive_paths

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_PROGRAM = """
import sys
from pathlib import Path
from cdcsync_spark.session.class_archive import _stream
from cdcsync_spark.session.start import _archive_option, start_session
tasks, folder = sys.argv[1] == "tasks", sys.argv[2]
options = f"{_archive_option(tasks)} -Xlog:class+load:file={folder}/classes:none"
spark = start_session(
    "archive", cores=1, memory="512m", scratch_dir=folder, extra={}, jvm_options=options, tasks=tasks
)
_stream(spark, folder)
print(Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text())
"""


def archives() -> tuple[Path, Path]:
    paths = archive_paths()
    if paths is None or not all(path.exists() for path in paths):
        pytest.skip("`make setup` made no class archive, see .cache/warmup.log")
    return paths


@pytest.mark.parametrize("tasks", [False, True])
def test_a_session_maps_the_archives_of_its_kind_and_not_that_of_java(tasks: bool, tmp_path: Path) -> None:
    base, above = archives()
    kind = "tasks" if tasks else "stream"
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, kind, str(tmp_path)], capture_output=True, text=True, check=False
    )
    maps = ended.stdout
    assert str(base) in maps, ended.stderr[-3000:]
    assert (str(above) in maps) == tasks
    assert "classes.jsa" not in maps
    # what is made while it runs has no file: lambdas, proxies, accessors
    loaded = (tmp_path / "classes").read_text().splitlines()
    from_jars = [line for line in loaded if ".jar" in line.partition(" source: ")[2]]
    assert len([line for line in loaded if line.endswith("shared objects file")]) > 5000
    assert len(from_jars) < 100, from_jars


def test_archives_of_other_versions_go_and_right_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(class_archive, "make_home", Path.mkdir)
    (tmp_path / "share" / "cdcsync").mkdir(parents=True)
    paths = archive_paths()
    assert paths is not None
    stale = paths[0].with_name("spark-4.0.0-0123456789ab.jsa")
    for path in (*paths, stale):
        path.write_text("as it was")
    assert class_archive.main() == 0
    assert [path.read_text() for path in paths] == ["as it was"] * 2
    assert not stale.exists()
    assert str(paths[0]) in capsys.readouterr().out


def test_the_name_of_an_archive_changes_with_what_it_is_good_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    seen = {archive_paths()}
    home = start.spark_home()
    home.mkdir(parents=True)
    for classes in ("a.jar", "a.jar:b.jar"):
        (home / start.CLASS_PATH).write_text(classes)
        seen.add(archive_paths())
    monkeypatch.setattr(start, "JVM", "-XX:+UseG1GC")
    seen.add(archive_paths())
    monkeypatch.setattr(start, "_ARCHIVES", 0)
    seen.add(archive_paths())
    assert len(seen) == 5
