"""A fresh virtual environment with the wheel of a release alone runs the demo to its end."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, check=False, capture_output=True, text=True)


def test_a_wheel_alone_runs_the_demo(tmp_path: Path) -> None:
    """The wheel says what to install where the packages of drivers are missing."""
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheels", cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    pins = ["-c", str(constraints(tmp_path))]
    installed = run(programs / "pip", "install", "--quiet", *pins, wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    bare = run(programs / "cdcsync", "demo", cwd=tmp_path)
    assert (bare.returncode, "pip install 'cdcsync[spark]'" in bare.stderr) == (2, True), bare.stderr
    installed = run(programs / "pip", "install", "--quiet", *pins, f"cdcsync[spark] @ file://{wheel}", cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    told = run(programs / "cdcsync", "demo", "--rows", "20000", cwd=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Equal both times" in told.stdout
    assert run(programs / "kubectl-cdcsync", "--version", cwd=tmp_path).returncode == 0


def constraints(folder: Path) -> Path:
    """As a release has them."""
    code = "import sys; from release import _LOCK, constraints, pins; print(constraints(pins(_LOCK.read_text())))"
    made = run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); {code}", cwd=folder)
    assert made.returncode == 0, made.stderr
    path = folder / "constraints.txt"
    path.write_text(made.stdout)
    return path
