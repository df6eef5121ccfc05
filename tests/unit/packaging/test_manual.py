"""The manual is what the code is: its generated pages, its reasons, and the files that it names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from cdcsync_core.errors import Reason

ROOT = Path(__file__).resolve().parents[3]


def test_the_generated_reference_is_that_of_the_code() -> None:
    command = [sys.executable, "tools/reference.py", "--check"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr


def test_every_reason_has_a_meaning_and_a_remedy() -> None:
    guide = tomllib.loads((ROOT / "tools" / "reasons.toml").read_text())
    assert list(guide) == [reason.value for reason in Reason]
    assert all(entry["meaning"] and entry["remedy"] for entry in guide.values())


def test_every_file_that_the_architecture_names_exists() -> None:
    """`name.py` behind a path is in the same folder."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    missing = []
    for cell in re.findall(r"\|([^|\n]*\.py`[^|\n]*)\|", text):
        folder = ROOT
        for name in re.findall(r"`([\w./]+\.py)`", cell):
            path = ROOT / name if "/" in name else folder / name
            folder = path.parent
            missing += [] if path.exists() else [str(path.relative_to(ROOT))]
    assert not missing


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    def pages(node: object) -> set[str]:
        if isinstance(node, str):
            return {node}
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        return {page for child in children for page in pages(child)}

    there = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert pages(navigation) == there
