"""A release is installed from its own files: from archives that are brought to the node, and from a
registry to which its owner has published them. Each image is named by its digest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.go_programs import registry
from support.node import HELM, Node
from support.node_images import ctr, driver_image, operators, plugin
from support.node_sync import NodeSync

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def release(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    images = ROOT / "tests" / "cluster" / "images.sh"
    command = [sys.executable, ROOT / "tools" / "release.py", folder, "--helm", HELM, "--images", images]
    making = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    assert making.returncode == 0, making.stderr
    return folder


@pytest.fixture
def before(own_node: Node) -> Iterator[Node]:
    yield own_node
    own_node.install()


def one(release: Path, pattern: str) -> Path:
    (path,) = release.glob(pattern)
    return path


def references(values: dict[str, Any]) -> list[str]:
    """The operator's image and the driver's."""
    return [f"{values[part]['repository']}@{values[part]['digest']}" for part in ("image", "driverImage")]


def test_a_node_installs_a_release_from_its_archives(
    before: Node, release: Path, shop: NodeSync, tmp_path: Path
) -> None:
    """The next driver of a sync that flows is of the release, too."""
    shop.flows()
    values = yaml.safe_load(one(release, "*-images.yaml").read_text())
    for part, name in (("image", "operator"), ("driverImage", "spark")):
        values[part]["repository"] = f"localhost/cdcsync-{name}"
        archive = one(release, f"cdcsync-{name}-*.oci.tar")
        ctr("images", "import", "--digests", "--base-name", values[part]["repository"], str(archive))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    before.install(str(one(release, "cdcsync-chart-*.tgz")), tmp_path / "values.yaml")
    operator, driver = references(values)
    operators(before, operator, 1)
    first = shop.driver()
    plugin(before, "restart", shop.name)
    shop.until(lambda s: s.runs.stream and s.runs.stream.pod != first, 240, "a driver of the release")
    shop.flows()
    assert driver_image(shop) == driver


def test_a_node_installs_a_release_from_a_registry(before: Node, release: Path, tmp_path: Path) -> None:
    with registry(before.address, tmp_path) as address:
        where = [f"RELEASE={release}", f"PUSH_TO={address}/team", "PLAIN_HTTP=yes"]
        command = ["make", "--no-print-directory", "publish", *where]
        pushed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert pushed.returncode == 0, pushed.stderr
        (tmp_path / "values.yaml").write_text(pushed.stdout)
        images = references(yaml.safe_load(pushed.stdout))
        for image in images:
            ctr("images", "pull", "--plain-http", image)
        before.install(f"oci://{address}/team/cdcsync", tmp_path / "values.yaml", "--plain-http")
        operators(before, images[0], 1)
