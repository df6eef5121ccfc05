"""The notes of a release: the changelog's section of its version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import release

CHANGELOG = "# Changelog\n\n## Unreleased\n- c\n\n## [1.2.10] - 2026-01-02\n- b\n\n## 1.2.1\n- a\n"


@pytest.mark.parametrize(("of", "text"), [("1.2.1", "- a"), ("1.2.10", "- b"), ("1.2", "- c"), ("1.3.0", "- c")])
def test_the_notes_are_of_this_version_alone(of: str, text: str) -> None:
    assert release.notes(CHANGELOG, of) == f"# CdcSync {of}\n\n{text}\n"
