"""The images' build: a release is built on a base by digest only, and what is built has no setuid
programs. The base that the tests made has a digest in the local store."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TAG = "docker.io/library/debian:bookworm-slim"


def _buildah(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False, timeout=300)


def _check(release: str, base: str) -> subprocess.CompletedProcess[str]:
    """Builds the stage that every image has a file of."""
    options = ["--isolation", "chroot", "--pull-never", "--no-cache", "--target", "checked"]
    built = _buildah("build", *options, "--build-arg", f"RELEASE={release}", "--build-arg", f"BASE={base}", str(ROOT))
    if built.returncode == 0:
        _buildah("rmi", built.stdout.split()[-1])
    return built


@pytest.fixture(scope="module")
def digest() -> str:
    found = _buildah("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", TAG)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_a_release_is_refused_on_a_base_by_tag(digest: str) -> None:
    refused = _check("0.1.0", TAG)
    assert refused.returncode != 0
    assert f"release 0.1.0: found BASE={TAG}; needed: a base by digest" in refused.stdout + refused.stderr


@pytest.mark.parametrize("release", ["", "0.1.0"])
def test_a_base_by_digest_is_taken(digest: str, release: str) -> None:
    built = _check(release, f"{TAG.rpartition(':')[0]}@{digest}")
    assert built.returncode == 0, built.stderr


def test_a_build_that_is_no_release_takes_a_tag(digest: str) -> None:
    built = _check("", TAG)
    assert built.returncode == 0, built.stderr


@pytest.mark.long
def test_the_images_have_no_setuid_programs_and_keep_their_budgets() -> None:
    """The build, which ends with the same check, has refused them otherwise; here it says so."""
    command = [ROOT / "tests" / "cluster" / "images.sh", "check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("no setuid or setgid files") == 2
