"""What `tools/words.py` counts: each rule on the least code that breaks it, and on code that keeps
it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import words


@pytest.mark.parametrize(
    ("rule", "broken", "whole"),
    [
        (words.docstrings, 'def f():\n    """Of the table, its rows."""', 'def f():\n    """The table\'s rows."""'),
        (words.docstrings, '"""Without a key."""', '"""Offers keys."""'),
        (words.names, "found = read()", "state = read()"),
        (words.names, "def f(known): ...", "def f(applied): return known"),
        (words.names, "found: str = read()", "found = f'{count} rows'"),
        (words.names, "def f(found: int): ...", "def f(found: str): ..."),
        (words.names, "found, needed = read(), ''", "found, needed = 'none', read()"),
        (words.names, "for mine, other in pairs: ...", "for first, other in pairs: ..."),
        (words.helpers, "from contract.test_sinks import first_state", "from support.sinks import first_state"),
        (words.worlds, "def test_a(world): ...", "def test_a(source): ..."),
        (words.worlds, "class World: ...", "class Source: ..."),
    ],
)
def test_a_rule_finds_what_breaks_it(rule: words.Rule, broken: str, whole: str) -> None:
    assert len(list(rule(ast.parse(broken)))) == 1
    assert list(rule(ast.parse(whole))) == []


def test_a_class_name_of_two_files() -> None:
    trees = {"a.py": ast.parse("class A: ...\nclass B: ..."), "b.py": ast.parse("class B: ...")}
    assert words.shared_classes(trees) == {"B": ["a.py", "b.py"]}


def test_each_rule_holds_in_its_folders() -> None:
    code = "class A: ...\nfound = read()"
    trees = {path: ast.parse(code) for path in ("core/a.py", "core/b.py", "tests/c.py")}
    variable = "a variable `found`: name it by what is in it"
    assert list(words.faults(trees)) == [
        f"core/a.py:2: {variable}",
        f"core/b.py:2: {variable}",
        "class A is in core/a.py, core/b.py",
    ]
