"""What the images install: the product without the demo, which starts a database server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_wheel_of_an_image_is_whole_without_the_demo(tmp_path: Path) -> None:
    """Built as the Dockerfile does, from what `.dockerignore` lets through."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    source = tmp_path / "source"
    source.mkdir()
    for name in allowed:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        packages = {name.partition("/")[0] for name in archive.namelist()}
        archive.extractall(tmp_path / "site")
    assert {"cdcsync_core", "cdcsync_operator", "cdcsync_spark"} <= packages
    assert "cdcsync_demo" not in packages
    assert commands(tmp_path / "site") == "run check plan explain status verify"


def test_every_module_of_the_operator_loads_without_spark_and_columns() -> None:
    """Its image has none of these libraries."""
    code = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(("deltalake", "numpy", "pandas", "py4j", "pyarrow", "pyspark")))
names = []
for name in ("cdcsync_core", "cdcsync_kube", "cdcsync_lake", "cdcsync_mysql", "cdcsync_operator"):
    package = importlib.import_module(name)
    names += [m.name for m in pkgutil.walk_packages(package.__path__, f"{name}.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(result.stdout) > 100


def commands(site: Path) -> str:
    """The commands of the command line that is installed there, and nowhere else."""
    third_party = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    path = os.pathsep.join([str(site), *third_party])
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if not p.startswith({str(ROOT)!r}) or 'site-packages' in p]\n"
        "import cdcsync_operator.cli.main as main; assert main.__file__.startswith(sys.argv[1]), main.__file__\n"
        "print(*(c.name for c in main.COMMANDS))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(site)],
        env={**os.environ, "PYTHONPATH": path},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return result.stdout.strip()
