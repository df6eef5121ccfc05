"""The sync that the tests of local mode run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from unit.local.harness import LocalHarness


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHarness:
    found = LocalHarness(tmp_path)
    monkeypatch.setenv("FAKE_DRIVER_FOLDER", str(found.driver_folder))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return found
