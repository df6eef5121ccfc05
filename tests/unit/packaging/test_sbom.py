"""The images' bill of materials says what is in them, and nothing else."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "sbom.py"
DPKG = """Package: tini
Status: install ok installed
Architecture: amd64
Version: 1:0.19.0-1+b3
Description: a tiny init
 over two lines

Package: purged
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


@pytest.fixture(scope="module")
def sbom() -> Any:
    spec = importlib.util.spec_from_file_location("sbom", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
        "var/lib/dpkg/status": DPKG,
        "opt/lib/Some_Package-1.2.dist-info/METADATA": "Name: Some_Package\nVersion: 1.2\nLicense-Expression: MIT\n\nText: no field\n",
        "opt/o/Some_Package-1.2.dist-info/METADATA": "Name: Some_Package\nVersion: 1.2\nLicense-Expression: MIT\n\nText: no field\n",
        "opt/lib/old.egg-info/PKG-INFO": "Name: old\nVersion: 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    jar(tmp_path / "opt/jars/plain.jar", {})
    jar(tmp_path / "opt/jars/core-4.1.jar", {"org.example/core": "version=4.1\ngroupId=org.example\nartifactId=core\n"})
    jar(tmp_path / "opt/jars/shaded.jar", {"a/b": "version=1\ngroupId=a\nartifactId=b\n", "c/d": "version=2\n"})
    (tmp_path / "opt/jars/link.jar").symlink_to("core-4.1.jar")
    return tmp_path


def jar(path: Path, properties: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.class", "")
        for name, text in properties.items():
            archive.writestr(f"META-INF/maven/{name}/pom.properties", text)


def test_what_is_installed_is_listed_by_its_package_url(sbom: Any, root: Path) -> None:
    found = {c["name"]: c for c in sbom.bill(root, "cdcsync-operator", "1")["components"]}
    assert {name: c.get("purl") for name, c in found.items()} == {
        "tini": "pkg:deb/debian/tini@1%3A0.19.0-1%2Bb3?arch=amd64&distro=debian-12",
        "Some_Package": "pkg:pypi/some-package@1.2",
        "old": "pkg:pypi/old@3",
        "core": "pkg:maven/org.example/core@4.1",
        "plain.jar": None,
        "shaded.jar": None,
    }
    assert found["Some_Package"]["licenses"] == [{"expression": "MIT"}]


def test_an_archive_has_its_checksum_and_its_place(sbom: Any, root: Path) -> None:
    (core,) = [c for c in sbom.bill(root, "x", "1")["components"] if c["name"] == "core"]
    path = root / "opt/jars/core-4.1.jar"
    assert core["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
    assert core["evidence"] == {"occurrences": [{"location": "/opt/jars/core-4.1.jar"}]}


def test_the_same_image_gives_the_same_bytes_and_names_each_part_once(sbom: Any, root: Path) -> None:
    first, second = (json.dumps(sbom.bill(root, "x", "1")) for _ in range(2))
    assert first == second
    names = [c["bom-ref"] for c in json.loads(first)["components"]]
    assert len(names) == len(set(names))
    assert json.loads(first)["serialNumber"] != sbom.bill(root, "x", "2")["serialNumber"]
