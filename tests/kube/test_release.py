"""The files of a release, made as `make release` makes them; what is in them works by itself."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.chart import HELM, helm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    command = [sys.executable, str(ROOT / "tools" / "release.py"), str(folder), "--helm", str(HELM)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder.parent)
    return folder


def one(release: Path, pattern: str) -> Path:
    (path,) = release.glob(pattern)
    return path


def test_every_file_has_its_checksum(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in release.iterdir()
        if path.name != "SHA256SUMS"
    }
    kinds = ("*.whl", "cdcsync-*.tar.gz", "cdcsync-chart-*.tgz", "*-constraints.txt", "*.cdx.json", "*-notes.md")
    assert {one(release, kind).name for kind in kinds} == sums.keys()


def test_the_chart_and_the_bill_are_of_this_version(release: Path) -> None:
    rendered = helm("template", "cdcsync", str(one(release, "cdcsync-chart-*.tgz")), values={"clusterWide": True})
    assert rendered.returncode == 0, rendered.stderr
    assert "kind: CustomResourceDefinition" in rendered.stdout
    bill = json.loads(one(release, "*.cdx.json").read_text())
    pins = one(release, "*-constraints.txt").read_text().splitlines()
    assert len(bill["components"]) == len(pins) > 40
    assert {"pyspark", "kopf", "deltalake"} <= {c["name"] for c in bill["components"]}
    assert one(release, "*-notes.md").read_text().startswith("# CdcSync ")


def test_the_source_builds_the_same_wheel(release: Path, tmp_path: Path) -> None:
    with tarfile.open(one(release, "cdcsync-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    wheels = [one(release, "*.whl"), one(tmp_path / "again", "*.whl")]
    first, second = ({i.filename: i.CRC for i in zipfile.ZipFile(path).infolist()} for path in wheels)
    assert first == second


def test_the_wheel_has_its_programs_and_the_demos_example(release: Path, tmp_path: Path) -> None:
    """Imports from the wheel's files alone, with other packages as they are installed here."""
    with zipfile.ZipFile(one(release, "*.whl")) as archive:
        archive.extractall(tmp_path)
    third_party = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if not p.startswith({str(ROOT)!r}) or 'site-packages' in p]\n"
        "from cdcsync_demo import folder; assert folder.__file__.startswith(sys.argv[1]), folder.__file__\n"
        "from cdcsync_operator.cli.kubectl.plugin import COMMANDS\n"
        "print(folder.example_resource()['kind'], len(COMMANDS))"
    )
    path = os.pathsep.join([str(tmp_path), *third_party])
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert result.stdout.split()[0] == "CdcSync"
    (metadata,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert "kubectl-cdcsync = cdcsync_operator.cli.kubectl.plugin:main" in metadata.read_text()


def test_the_demos_example_is_the_projects() -> None:
    copy = ROOT / "demo" / "cdcsync_demo" / "examples" / "shop.yaml"
    assert copy.read_text() == (ROOT / "examples" / "shop.yaml").read_text(), "remedy: copy it there"
