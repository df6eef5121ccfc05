"""The plugin of kubectl as one program that needs no Python, as krew installs it.

PyInstaller puts the interpreter, the wheel and what it needs (`docker/operator.lock`) into a folder
with the program `kubectl-cdcsync`; beside the archive of it there is krew's manifest, which has its
checksum and where it will be. The program runs on the architecture of the machine that made it,
with that machine's glibc or a newer one.

Why it is right: all comes from locks with hashes; the archive is sorted and has the commit's time.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "kubectl-cdcsync"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_START = "from cdcsync_operator.cli.kubectl.plugin import main\n\nmain()\n"


def frozen(work: Path, wheel: Path) -> Path:
    """The folder of the program, made in `work`. Raises CalledProcessError."""
    environment = work / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for lock in ("operator.lock", "plugin.lock"):
        subprocess.run([*install, "--require-hashes", "--requirement", str(ROOT / "docker" / lock)], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    (work / f"{PROGRAM}.py").write_text(_START)
    freeze = [python, "-m", "PyInstaller", "--onedir", "--log-level", "ERROR", "--copy-metadata", "cdcsync"]
    subprocess.run([*freeze, "--name", PROGRAM, f"{PROGRAM}.py"], check=True, cwd=work)
    return work / "dist" / PROGRAM


def archive(folder: Path, target: Path, epoch: int) -> None:
    """The folder and the licence; the same content gives the same bytes."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
        return entry

    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in (ROOT / "LICENSE", *sorted(folder.rglob("*"))):
            name = "LICENSE" if path.parent == ROOT else str(path.relative_to(folder.parent))
            tar.add(path, name, recursive=False, filter=plain)


def manifest(version: str, packed: Path, url: str, architecture: str) -> dict[str, Any]:
    """Krew's manifest of the plugin, as `krew install --manifest` and its index take it."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "cdcsync"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "See and steer CdcSyncs",
            "description": (
                "Shows where CdcSyncs stand, why a table waits and what to do, and pauses, resumes,\n"
                "resnapshots and verifies. It uses the rights of your kubeconfig, no more.\n"
            ),
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
                    "uri": f"{url.rstrip('/')}/{packed.name}",
                    "sha256": hashlib.sha256(packed.read_bytes()).hexdigest(),
                    "bin": f"{PROGRAM}/{PROGRAM}",
                }
            ],
        },
    }


def build(folder: Path, wheel: Path, url: str, epoch: int) -> None:
    """Writes the archive and krew's manifest; `url` is where the archive will be, without its name,
    and `epoch` its files' time. Raises CalledProcessError, and ValueError on a machine that is
    neither amd64 nor arm64."""
    version, machine = wheel.name.split("-")[1], platform.machine()
    if machine not in _MACHINES:
        raise ValueError(f"found a machine {machine}; needed: {' or '.join(_MACHINES)}; remedy: make the release there")
    packed = folder / f"{PROGRAM}-{version}-linux-{_MACHINES[machine]}.tar.gz"
    described = folder / f"cdcsync-{version}-krew.yaml"
    with tempfile.TemporaryDirectory(prefix="plugin.") as work:
        archive(frozen(Path(work), wheel), packed, epoch)
    content = manifest(version, packed, url, _MACHINES[machine])
    described.write_text(yaml.safe_dump(content, sort_keys=False))
