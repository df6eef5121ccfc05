"""An image's bill of materials as CycloneDX 1.6 JSON, from what its file system holds:
`sbom.py ROOT NAME VERSION > NAME.cdx.json`.

Why it is right: nothing is inferred from what was asked for. Debian's packages are those of dpkg's
record, Python's those whose metadata is installed, and of Java every archive that is there, with
its checksum; what a jar calls itself is taken from its own Maven properties, where it has some. The
same image gives the same bytes. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def bill(root: Path, name: str, version: str) -> dict[str, Any]:
    """The bill of materials of the image whose file system is at `root`."""
    components = sorted([*debian(root), *python(root), *java(root)], key=lambda c: str(c["bom-ref"]))
    content = json.dumps([name, version, components], sort_keys=True)
    image = {"type": "container", "name": name, "version": version, "bom-ref": f"{name}@{version}"}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {"component": image},
        "components": components,
    }


def debian(root: Path) -> Iterator[Component]:
    """The packages that dpkg has installed (deb822 paragraphs, dpkg-query(1))."""
    release = _assignments((root / "etc/os-release").read_text())
    distribution = f"{release['ID']}-{release['VERSION_ID']}"
    for paragraph in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = Parser().parsestr(paragraph.strip())
        if fields.get("Status", "").endswith(" installed"):
            name, version, machine = fields["Package"], fields["Version"], fields["Architecture"]
            about = f"?arch={quote(machine)}&distro={quote(distribution)}"
            yield _component(
                name, version, f"pkg:deb/{quote(release['ID'])}/{quote(name)}@{quote(version, safe='')}{about}"
            )


def python(root: Path) -> Iterator[Component]:
    """The distributions that are installed anywhere (core metadata, PEP 566)."""
    for path in sorted([*root.rglob("*.dist-info/METADATA"), *root.rglob("*.egg-info/PKG-INFO")]):
        fields = Parser().parsestr(path.read_text(errors="replace"))
        name, version = fields["Name"], fields["Version"]
        plain = name.lower().replace("_", "-").replace(".", "-")
        component = _component(name, version, f"pkg:pypi/{quote(plain)}@{quote(version, safe='')}")
        # one distribution may bring another one along
        component["bom-ref"] = f"{component['purl']}#{path.parent.relative_to(root)}"
        if fields.get("License-Expression"):
            component["licenses"] = [{"expression": fields["License-Expression"]}]
        yield component


def java(root: Path) -> Iterator[Component]:
    """Every archive, by its place."""
    for path in sorted(p for p in root.rglob("*.jar") if p.is_file() and not p.is_symlink()):
        place = str(path.relative_to(root))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        about = _maven(path)
        if about is None:
            component: Component = {"type": "library", "name": path.name, "bom-ref": place}
        else:
            group, artifact, version = about
            purl = f"pkg:maven/{quote(group)}/{quote(artifact)}@{quote(version, safe='')}"
            component = _component(artifact, version, purl) | {"group": group, "bom-ref": f"{purl}#{quote(place)}"}
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
        component["evidence"] = {"occurrences": [{"location": f"/{place}"}]}
        yield component


def _maven(path: Path) -> tuple[str, str, str] | None:
    """Group, artifact and version that a jar gives itself; None where it has none, or, as a bundle
    of others, several."""
    with zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if n.startswith("META-INF/maven/") and n.endswith("/pom.properties")]
        own = [n for n in names if path.name.startswith(f"{n.split('/')[-2]}-")] or names
        if len(own) != 1:
            return None
        properties = _assignments(archive.read(own[0]).decode("latin-1"))
    return (
        (properties["groupId"], properties["artifactId"], properties["version"])
        if {"groupId", "artifactId", "version"} <= set(properties)
        else None
    )


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _assignments(text: str) -> dict[str, str]:
    """`KEY=value` lines, as in os-release and Java's properties."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip('"') for key, value in pairs}


if __name__ == "__main__":
    json.dump(bill(Path(sys.argv[1]), sys.argv[2], sys.argv[3]), sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")
