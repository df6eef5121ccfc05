"""SECURITY.md: each right names the tests of its bound."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def _tests_of(file: str) -> set[str]:
    path = ROOT / file
    body = ast.parse(path.read_text()).body if path.exists() else []
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_each_row_of_who_may_do_what_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| who | may")]
    assert len(rows) >= 10
    for row in rows:
        named = re.findall(r"`([^`]+)`", row.split("|")[4])
        assert named, row
        ids = [re.fullmatch(r"(tests/[a-z0-9_/]+\.py)::(test_\w+)", name) for name in named]
        assert [
            name for name, test in zip(named, ids, strict=True) if not test or test[2] not in _tests_of(test[1])
        ] == []
