"""What the image build refuses of an image's files: programs with the rights of another user, and
more megabytes than its budget."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def judged(target: str, image: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "tests" / "cluster" / "images.sh", "judge", target, image]
    environment = os.environ | {"CDCSYNC_NODE_CACHE": str(cache)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_an_image_has_no_setuid_and_setgid_files(tmp_path: Path) -> None:
    image, cache = tmp_path / "image", tmp_path / "cache"
    image.mkdir()
    program = image / "su"
    program.write_text("")
    taken = judged("operator", image, cache)
    assert (taken.returncode, "no setuid or setgid files" in taken.stdout) == (0, True), taken.stderr
    for mode in (0o4755, 0o2755):
        program.chmod(mode)
        refused = judged("operator", image, cache)
        assert refused.returncode != 0
        assert f"found setuid or setgid files: {program}; needed: none" in refused.stderr


def test_an_image_is_no_larger_than_its_budget(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    budgets = dict(line.split() for line in (ROOT / "docker" / "budget").read_text().splitlines() if line[0] != "#")
    assert set(budgets) == {"operator", "spark"}
    size = int(budgets["operator"]) + 1
    with (image / "file").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size * 2**20)
    refused = judged("operator", image, tmp_path / "cache")
    assert refused.returncode != 0
    assert f"needed: at most {budgets['operator']} MB" in refused.stderr
