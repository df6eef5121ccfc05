"""Pushes the files of a release: `python tools/publish.py FOLDER HOST/PATH --helm HELM`.

Each image goes to HOST/PATH/NAME with its version as the tag and the bytes that the release has, so
that its digest is the one that the chart's values name; the chart goes to HOST/PATH/cdcsync. With a
key, images and chart are signed where they were pushed (cosign 2; no transparency log is written).
It prints what was pushed, and the values that name the images, for `helm install -f`.

Why it is right: nothing is pushed of a folder whose files differ from its SHA256SUMS, and a digest
that differs from the release's ends it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

_ARCHIVE = re.compile(r"(?P<name>cdcsync-\w+)-(?P<version>.+)\.oci\.tar")


def changed_files(folder: Path) -> list[str]:
    """Names of files that are not as SHA256SUMS says, or of which it says nothing. Raises
    OSError."""
    digests = {name: digest for digest, name in _lines(folder / "SHA256SUMS")}
    changed = [name for name in digests if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digests[name]]
    pushed = [path.name for pattern in ("*.oci.tar", "*-images.yaml", "*.tgz") for path in folder.glob(pattern)]
    return changed + sorted(set(pushed) - set(digests))


def _lines(sums: Path) -> list[list[str]]:
    return [line.split("  ", 1) for line in sums.read_text().splitlines()]


def values_of(folder: Path) -> dict[str, dict[str, str]]:
    """The images' digests as the release has them, as values of the chart; nothing of a release
    without images."""
    return {k: v for path in folder.glob("*-images.yaml") for k, v in yaml.safe_load(path.read_text()).items()}


def publish(folder: Path, to: str, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Returns references by digest to what was pushed, and the values of the chart that name the
    images. Raises ValueError, OSError."""
    if changed := changed_files(folder):
        difference = f"found {', '.join(changed)} other than SHA256SUMS says"
        raise ValueError(f"{difference}; needed: a release as it was made; remedy: make it again")
    values: dict[str, Any] = values_of(folder)
    pushed = []
    for archive in sorted(folder.glob("*.oci.tar")):
        repository, digest = push_image(archive, to, options)
        entry = next((v for v in values.values() if v["digest"] == digest), None)
        if entry is None:
            raise ValueError(f"found digest {digest} of {repository}; needed: one of the release's images.yaml")
        entry["repository"] = repository
        pushed.append(f"{repository}@{digest}")
    pushed.append(push_chart(folder, to, options))
    if options.sign_key:
        for reference in pushed:
            sign(reference, options)
    return pushed, values


def push_image(archive: Path, to: str, options: argparse.Namespace) -> tuple[str, str]:
    """Its repository and digest."""
    named = _ARCHIVE.fullmatch(archive.name)
    if named is None:
        raise ValueError(f"found {archive.name}; needed: cdcsync-NAME-VERSION.oci.tar")
    repository, version = f"{to}/{named['name']}", named["version"]
    with tempfile.NamedTemporaryFile("r", prefix="digest.") as digest:
        copy = [options.skopeo, "copy", "--quiet", "--all", "--preserve-digests", "--digestfile", digest.name]
        plain = ["--dest-tls-verify=false"] if options.plain_http else []
        _run(*copy, *plain, f"oci-archive:{archive}:{version}", f"docker://{repository}:{version}")
        return repository, digest.read().strip()


def push_chart(folder: Path, to: str, options: argparse.Namespace) -> str:
    """Its reference by digest."""
    (chart,) = folder.glob("cdcsync-chart-*.tgz")
    printed = _run(options.helm, "push", str(chart), f"oci://{to}", *(["--plain-http"] if options.plain_http else []))
    digest = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", printed, re.M)
    if digest is None:
        raise ValueError(f"found no digest in what helm printed: {printed}; needed: Helm 3.8 or newer")
    return f"{to}/cdcsync@{digest[1]}"


def sign(reference: str, options: argparse.Namespace) -> None:
    plain = ["--allow-http-registry"] if options.plain_http else []
    _run(options.cosign, "sign", "--yes", "--tlog-upload=false", "--key", options.sign_key, *plain, reference)


def _run(*command: str) -> str:
    """What it prints. Raises ValueError with the end of that where it fails."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise ValueError(f"{' '.join(command[:2])} failed: {done.stdout[-2000:].strip()}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Push the files of a release.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("to", help="an OCI registry and a path there, such as registry.example/team")
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--skopeo", default="skopeo")
    parser.add_argument("--cosign", default="cosign")
    parser.add_argument("--sign-key", help="as cosign's --key takes it")
    parser.add_argument("--plain-http", action="store_true", help="the registry has no TLS")
    given = parser.parse_args()
    try:
        pushed, values = publish(given.folder, given.to, given)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"publish: {error}\n")
        return 1
    sys.stdout.write("".join(f"# {reference}\n" for reference in pushed))
    sys.stdout.write(yaml.safe_dump(values) if values else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
