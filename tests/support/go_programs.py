"""Programs that tests run, built from Go modules the first time: who signs, and a registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
#: module and version
COSIGN = ("github.com/sigstore/cosign/v2", "v2.6.5")
CRANE = ("github.com/google/go-containerregistry", "v0.22.1")
_SERVING = re.compile(r"serving on port (\d+)")


def go_program(name: str, module: str, version: str) -> Path:
    """The program of a module's `cmd`."""
    program = ROOT / ".cache" / name / name
    program.parent.mkdir(parents=True, exist_ok=True)
    build = [str(ROOT / "tests" / "support" / "go-program.sh"), str(program)]
    subprocess.run([*build, module, version, f"cmd/{name}"], check=True)
    return program


@contextmanager
def registry(host: str, folder: Path) -> Iterator[str]:
    """Its address, on a free port; what is pushed there is in the folder."""
    log, disk = folder / "registry.log", folder / "registry"
    disk.mkdir()
    command = [go_program("crane", *CRANE), "registry", "serve", "--address", f"{host}:0", "--disk", disk]
    with log.open("wb") as output:
        process = subprocess.Popen([str(part) for part in command], stdout=output, stderr=output)
    try:
        eventually(lambda: _SERVING.search(log.read_text()), log)
        yield f"{host}:{_SERVING.findall(log.read_text())[0]}"
    finally:
        process.kill()
        process.wait()
