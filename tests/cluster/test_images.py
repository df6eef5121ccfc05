"""The images' build: a release is built on a base by digest only, and what is built has no setuid
programs. The base that the tests made has a digest in the local store."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "tests" / "cluster" / "images.sh"
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


def _of_release(folder: Path, architecture: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Makes the archive of an image of one file, as a release on such a machine has it."""
    container = _buildah("from", "--arch", architecture, "scratch").stdout.strip()
    image = f"localhost/{container}:{architecture}"
    (folder / "architecture").write_text(architecture)
    assert _buildah("add", container, str(folder / "architecture"), "/").returncode == 0
    assert _buildah("commit", "--rm", container, image).returncode == 0
    command = [IMAGES, "pack", folder / "cdcsync-operator-1.oci.tar", "1", image]
    packed = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    _buildah("rmi", image)
    return packed


def test_an_archive_has_the_image_of_a_machine_of_another_architecture(tmp_path: Path) -> None:
    """Each machine makes a folder of one release, and the second one's archives have both."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder in (first, second, third):
        folder.mkdir()
    assert _of_release(first, "arm64").returncode == 0
    both = _of_release(second, "amd64", ADD_IMAGES=str(first))
    assert both.returncode == 0, both.stderr
    with tarfile.open(second / "cdcsync-operator-1.oci.tar") as archive:
        blob = archive.extractfile(f"blobs/{both.stdout.strip().replace(':', '/')}")
        assert blob is not None
        platforms = [m["platform"] for m in json.load(blob)["manifests"]]
    assert [p["architecture"] for p in platforms] == ["amd64", "arm64"]
    refused = _of_release(third, "arm64", ADD_IMAGES=str(first))
    assert (refused.returncode, "of this architecture" in refused.stderr) == (1, True), refused.stderr


@pytest.mark.parametrize(("wheel", "sums", "taken"), [(b"a", b"a", True), (b"b", b"a", False), (b"a", b"b", False)])
def test_images_are_added_of_the_same_commit_only(tmp_path: Path, wheel: bytes, sums: bytes, taken: bool) -> None:
    for name, content in (("this", b"a"), ("added", wheel)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cdcsync-1-py3-none-any.whl").write_bytes(content)
    line = f"{hashlib.sha256(sums).hexdigest()}  cdcsync-1-py3-none-any.whl\n"
    (tmp_path / "added" / "SHA256SUMS").write_text(line)
    command, added = [IMAGES, "check_added", tmp_path / "this"], {"ADD_IMAGES": str(tmp_path / "added")}
    checked = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | added)
    assert (checked.returncode == 0, "a release of the same commit" in checked.stderr) == (taken, not taken)


@pytest.mark.long
def test_the_images_have_no_setuid_programs_and_keep_their_budgets() -> None:
    """The build, which ends with the same check, has refused them otherwise; here it says so."""
    checked = subprocess.run([IMAGES, "check"], capture_output=True, text=True, check=False, timeout=300)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("no setuid or setgid files") == 2
