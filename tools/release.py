"""The files of a release: `python tools/release.py FOLDER --helm HELM [--images PROGRAM]
[--plugin-url URL]`.

A wheel and a source distribution, the versions that were tested with it (for `pip install -c`), a
bill of materials of these, the chart as a package, the notes of the version from the changelog, and
the checksums of all. With the program that built the images (`tests/cluster/images.sh`) there is an
OCI archive of each, its bill of materials, and their digests as values of the chart. With the URL
where the files will be there is the plugin as krew installs it (`plugin.py`). Where to push, and by
whose key to sign, is the owner's: `make sign` signs the checksums, and so all of it at once.

Why it is right: each version is written once in the project and once in the chart, and a release
whose two differ is refused; the same commit gives the same files, because times are the commit's;
the folder is made under another name and renamed when it is complete.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plugin
import yaml

ROOT = Path(__file__).resolve().parent.parent
#: what a driver needs, as it was tested
_LOCK = ROOT / "docker" / "spark.lock"


def version() -> str:
    """Raises ValueError where project and chart are of different ones."""
    project = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    chart = yaml.safe_load((ROOT / "helm" / "cdcsync" / "Chart.yaml").read_text())
    if {str(chart["version"]), str(chart["appVersion"])} != {project}:
        found = f"pyproject.toml has {project}, Chart.yaml {chart['version']} and appVersion {chart['appVersion']}"
        raise ValueError(f"{found}; needed: one version; remedy: correct Chart.yaml")
    return project


def notes(changelog: str, of: str) -> str:
    """The section of a version; that of what is unreleased while there is none. Raises ValueError
    where there is neither."""
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S))
    named = next((text for title, text in sections.items() if re.match(rf"\[?{re.escape(of)}(?![\w.+-])", title)), None)
    text = sections.get("Unreleased") if named is None else named
    if text is None or not text.strip():
        raise ValueError(f"CHANGELOG.md has nothing about {of}; needed: a section `## {of}` or `## Unreleased`")
    return f"# CdcSync {of}\n\n{text.strip()}\n"


def pins(lock: str) -> list[tuple[str, str, str]]:
    """Name, version and marker of each entry of a lock."""
    entries = re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)(?: ; ([^\\\n]+?))? *\\?$", lock, re.M)
    return [(name, number, marker.strip()) for name, number, marker in entries]


def constraints(entries: list[tuple[str, str, str]]) -> str:
    """A line each, as pip reads them."""
    return "".join(f"{name}=={number}{f' ; {marker}' if marker else ''}\n" for name, number, marker in entries)


def bill(product: str, of: str, entries: list[tuple[str, str, str]]) -> dict[str, Any]:
    """CycloneDX 1.6 of what the wheel is tested with; one of another machine may leave some out."""
    components = [_component(name, number) for name, number, _ in entries]
    content = json.dumps([product, of, components], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": product, "version": of, "bom-ref": f"{product}@{of}"}
        },
        "components": components,
    }


def _component(name: str, number: str) -> dict[str, str]:
    purl = f"pkg:pypi/{name.lower().replace('_', '-').replace('.', '-')}@{quote(number, safe='')}"
    return {"type": "library", "name": name, "version": number, "purl": purl, "bom-ref": purl}


def build(folder: Path, helm: Path, images: Path | None = None, plugin_url: str | None = None) -> list[str]:
    """Writes all into a new folder, with `images` the images and with `plugin_url` the plugin, too;
    returns the names of its files. Raises ValueError, CalledProcessError."""
    if folder.exists():
        raise ValueError(f"found {folder}; needed: a folder that is not there yet; remedy: remove it")
    of = version()
    making = folder.with_name(f"{folder.name}.making.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        _write(making, of, helm)
        if images is not None:
            _write_images(making, of, images)
        if plugin_url is not None:
            plugin.build(making, making / f"cdcsync-{of}-py3-none-any.whl", plugin_url, _commit_time())
        names = sorted(path.name for path in making.iterdir())
        sums = [f"{hashlib.sha256((making / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
        (making / "SHA256SUMS").write_text("".join(sums))
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return [*names, "SHA256SUMS"]


def _write(folder: Path, of: str, helm: Path) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(_commit_time())}
    for command in (
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        [str(helm), "package", str(ROOT / "helm" / "cdcsync"), "--destination", str(folder)],
    ):
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    (folder / f"cdcsync-{of}.tgz").rename(folder / f"cdcsync-chart-{of}.tgz")
    entries = pins(_LOCK.read_text())
    (folder / f"cdcsync-{of}-constraints.txt").write_text(constraints(entries))
    (folder / f"cdcsync-{of}.cdx.json").write_text(json.dumps(bill("cdcsync", of, entries), indent=1) + "\n")
    (folder / f"cdcsync-{of}-notes.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), of))


def _commit_time() -> int:
    log = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(log, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def _write_images(folder: Path, of: str, images: Path) -> None:
    for arguments in (["archives", str(folder), of], ["sbom", str(folder)]):
        subprocess.run([str(images), *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the files of a release.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--helm", type=Path, required=True)
    parser.add_argument("--images", type=Path, help="the program that makes archives of the images that it built")
    parser.add_argument("--plugin-url", help="where the release's files will be: makes the plugin for krew")
    given = parser.parse_args()
    try:
        names = build(given.folder, given.helm.resolve(), given.images and given.images.resolve(), given.plugin_url)
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    sys.stdout.write("".join(f"{given.folder / name}\n" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
