"""The files of a release, made as `make release` makes them; what is in them works by itself."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from support.chart import HELM, helm
from support.go_programs import COSIGN, go_program, registry

ROOT = Path(__file__).resolve().parents[2]
#: the environment of cosign: that of its key
PASSWORD = os.environ | {"COSIGN_PASSWORD": "for tests"}


def make_release(folder: Path, *options: str) -> Path:
    command = [sys.executable, str(ROOT / "tools" / "release.py"), str(folder), "--helm", str(HELM), *options]
    subprocess.run(command, check=True, capture_output=True, cwd=folder.parent)
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_release(tmp_path_factory.mktemp("release") / "dist")


def one(release: Path, pattern: str) -> Path:
    (path,) = release.glob(pattern)
    return path


def publish(release: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """As its owner does, to a registry without TLS."""
    command = ["make", "--no-print-directory", "publish", f"RELEASE={release}", "PLAIN_HTTP=yes", *options]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, env=PASSWORD)


def test_every_file_has_its_checksum(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in release.iterdir()
        if path.name != "SHA256SUMS"
    }
    kinds = ("*.whl", "cdcsync-*.tar.gz", "cdcsync-chart-*.tgz", "*-constraints.txt", "*.cdx.json", "*-notes.md")
    assert {one(release, kind).name for kind in kinds} == sums.keys()


def test_the_chart_and_the_bill_are_of_this_version(release: Path) -> None:
    rendered = helm("template", "cdcsync", str(one(release, "cdcsync-chart-*.tgz")), values={"clusterWide": True})
    assert rendered.returncode == 0, rendered.stderr
    assert "kind: CustomResourceDefinition" in rendered.stdout
    bill = json.loads(one(release, "*.cdx.json").read_text())
    pins = one(release, "*-constraints.txt").read_text().splitlines()
    assert len(bill["components"]) == len(pins) > 40
    assert {"pyspark", "kopf", "deltalake"} <= {c["name"] for c in bill["components"]}
    assert one(release, "*-notes.md").read_text().startswith("# CdcSync ")


def test_the_source_builds_the_same_wheel(release: Path, tmp_path: Path) -> None:
    with tarfile.open(one(release, "cdcsync-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    wheels = [one(release, "*.whl"), one(tmp_path / "again", "*.whl")]
    first, second = ({i.filename: i.CRC for i in zipfile.ZipFile(path).infolist()} for path in wheels)
    assert first == second


def test_the_wheel_has_its_programs_and_the_demos_example(release: Path, tmp_path: Path) -> None:
    """Imports from the wheel's files alone, with other packages as they are installed here."""
    with zipfile.ZipFile(one(release, "*.whl")) as archive:
        archive.extractall(tmp_path)
    third_party = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if not p.startswith({str(ROOT)!r}) or 'site-packages' in p]\n"
        "from cdcsync_demo import folder; assert folder.__file__.startswith(sys.argv[1]), folder.__file__\n"
        "from cdcsync_operator.cli.kubectl.plugin import COMMANDS\n"
        "print(folder.example_resource()['kind'], len(COMMANDS))"
    )
    path = os.pathsep.join([str(tmp_path), *third_party])
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert result.stdout.split()[0] == "CdcSync"
    (metadata,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert "kubectl-cdcsync = cdcsync_operator.cli.kubectl.plugin:main" in metadata.read_text()


def test_files_that_differ_from_their_checksums_are_not_signed(release: Path, tmp_path: Path) -> None:
    """Nor without a key. `true` stands where cosign would sign."""
    unsigned = shutil.copytree(release, tmp_path / "unsigned")
    sign = ["make", "--no-print-directory", f"RELEASE={unsigned}", "COSIGN=true", "sign"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*sign, *more], check=False, cwd=ROOT, capture_output=True, text=True)

    assert "no key" in run().stderr
    assert run("SIGN_KEY=cosign.key").returncode == 0
    with open(one(unsigned, "*.whl"), "ab") as wheel:
        wheel.write(b"more")
    refused = run("SIGN_KEY=cosign.key")
    assert refused.returncode != 0
    assert f"{one(unsigned, '*.whl').name}: FAILED" in refused.stdout


@pytest.fixture(scope="module")
def cosign() -> Path:
    return go_program("cosign", *COSIGN)


@pytest.mark.long
def test_a_release_is_signed_by_the_owners_key_and_verified_as_the_manual_says(
    release: Path, cosign: Path, tmp_path: Path
) -> None:
    signed = shutil.copytree(release, tmp_path / "signed")
    env = PASSWORD | {"PATH": f"{cosign.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str, cwd: Path = signed) -> int:
        return subprocess.run(command, check=False, cwd=cwd, env=env, capture_output=True).returncode

    sign = ["make", "--no-print-directory", f"RELEASE={signed}"]
    assert run(*sign, "sign", cwd=ROOT) != 0, "no key is named"
    assert run("cosign", "generate-key-pair", cwd=tmp_path) == 0
    assert run(*sign, f"SIGN_KEY={tmp_path / 'cosign.key'}", "sign", cwd=ROOT) == 0
    manual = (ROOT / "docs" / "quickstart.md").read_text()
    (verify,) = re.findall(r"^cosign verify-blob .*$", manual, re.M)
    shutil.copy(tmp_path / "cosign.pub", signed)
    assert run("sh", "-ec", verify) == 0
    with open(one(signed, "*.whl"), "ab") as wheel:
        wheel.write(b"more")
    assert run("sh", "-ec", verify) != 0, "a file differs from its checksum"
    assert run(*sign, f"SIGN_KEY={tmp_path / 'cosign.key'}", "sign", cwd=ROOT) != 0
    sums = (signed / "SHA256SUMS").read_text()
    digest = hashlib.sha256(one(signed, "*.whl").read_bytes()).hexdigest()
    lines = [f"{digest}  {line[66:]}" if line.endswith(".whl") else line for line in sums.splitlines()]
    (signed / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    assert run("sha256sum", "--check", "SHA256SUMS") == 0
    assert run("sh", "-ec", verify) != 0, "the checksums are not those that were signed"


@pytest.mark.long
def test_a_chart_is_pushed_and_pulled_by_its_digest(release: Path, cosign: Path, tmp_path: Path) -> None:
    """Nothing is pushed without a registry's name, and no files that differ from their checksums.
    The registry is a real one on loopback."""
    subprocess.run([cosign, "generate-key-pair"], cwd=tmp_path, env=PASSWORD, check=True, capture_output=True)
    changed = shutil.copytree(release, tmp_path / "changed")
    with open(one(changed, "cdcsync-chart-*.tgz"), "ab") as chart:
        chart.write(b"more")
    with registry("127.0.0.1", tmp_path) as address:
        assert "no registry" in publish(release).stderr
        refused = publish(changed, f"PUSH_TO={address}/team")
        assert f"found {one(changed, 'cdcsync-chart-*.tgz').name} other than SHA256SUMS says" in refused.stderr
        pushed = publish(release, f"PUSH_TO={address}/team", f"SIGN_KEY={tmp_path / 'cosign.key'}", f"COSIGN={cosign}")
        assert pushed.returncode == 0, pushed.stderr
        reference = pushed.stdout.removeprefix("# ").strip()
        assert reference.startswith(f"{address}/team/cdcsync@sha256:")
        shown = helm("template", "cdcsync", f"oci://{reference}", "--plain-http", values={"clusterWide": True})
        assert "kind: Deployment" in shown.stdout, shown.stderr
        other = f"oci://{address}/team/cdcsync@sha256:{'0' * 64}"
        assert helm("template", "cdcsync", other, "--plain-http", values={"clusterWide": True}).returncode != 0
        verify = f"{cosign} verify --key cosign.pub --insecure-ignore-tlog --allow-http-registry {reference}"
        subprocess.run(verify.split(), cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_krew_installs_the_plugin_which_needs_no_python(tmp_path: Path) -> None:
    """Krew itself, with the manifest and archive of a release and without a network."""
    url = "https://downloads.example/cdcsync/v1"
    release = make_release(tmp_path / "dist", "--plugin-url", url)
    packed, described = one(release, "kubectl-cdcsync-*.tar.gz"), one(release, "cdcsync-*-krew.yaml")
    assert {packed.name, described.name} <= set((release / "SHA256SUMS").read_text().split())
    (platform,) = yaml.safe_load(described.read_text())["spec"]["platforms"]
    assert platform["uri"] == f"{url}/{packed.name}"
    krew = go_program("krew", "sigs.k8s.io/krew", "v0.5.0")
    home = tmp_path / "krew"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KREW_ROOT": str(home), "KREW_NO_UPGRADE_CHECK": "1"}
    manifest = shutil.copy(described, tmp_path / "cdcsync.yaml")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, check=False, env=env, capture_output=True, text=True)

    installed = run(str(krew), "install", f"--manifest={manifest}", f"--archive={packed}")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    program = home / "bin" / "kubectl-cdcsync"
    wheel_version = one(release, "*.whl").name.split("-")[1]
    assert run(str(program), "--version").stdout == f"kubectl cdcsync, version {wheel_version}\n"
    env["KUBECONFIG"] = str(tmp_path / "none")
    refused = run(str(program), "status", "-n", "shop")
    assert refused.returncode != 0
    assert f"no usable kubeconfig at {tmp_path / 'none'}" in refused.stderr


def test_the_demos_example_is_the_projects() -> None:
    copy = ROOT / "demo" / "cdcsync_demo" / "examples" / "shop.yaml"
    assert copy.read_text() == (ROOT / "examples" / "shop.yaml").read_text(), "remedy: copy it there"
