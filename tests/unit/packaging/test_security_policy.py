"""SECURITY.md: each right names the test of its bound."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_each_row_of_who_may_do_what_names_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| who | may")]
    assert len(rows) >= 10
    for row in rows:
        named = re.findall(r"`(tests/[a-z0-9_/]+\.py)`", row.split("|")[4])
        assert named, row
        assert [name for name in named if not (ROOT / name).exists()] == []
