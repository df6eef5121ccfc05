"""The recipes of CONTRIBUTING.md name files, tables and functions that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_spark.app.driver import APPLICATIONS

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("core", "operator", "spark_app", "demo", "tests", "tools")
#: what a recipe names that is no name of the code: variables of make, the parts of a manifest
OTHERS = {"IMAGE_LOADER", "TEST_ADDRESS", "KUBECONFIG", "LONG", "ARGS"}


#: a recipe may name a file below the package that it named before
PACKAGES = ("spark_app/cdcsync_spark", "operator/cdcsync_operator", "core/cdcsync_core")


@cache
def recipes() -> str:
    return (ROOT / "CONTRIBUTING.md").read_text()


@cache
def code() -> str:
    """All Python files of the project in one text, a part of a longer name included."""
    return "\n".join(p.read_text() for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py")))


def quoted() -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", recipes()))


def paths() -> list[str]:
    return sorted(q for q in quoted() if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", q) and not q.startswith("../"))


def names() -> list[str]:
    """Constants, private tables and snake_case functions, as opposed to words and commands."""
    form = r"[A-Z][A-Z_]{2,}|_[A-Za-z]\w+|[a-z]+(_[a-z]+)+"
    return sorted({q for q in quoted() if re.fullmatch(form, q)} - OTHERS)


@pytest.mark.parametrize("path", paths())
def test_a_path_of_a_recipe_exists(path: str) -> None:
    assert any((parent / path).exists() for parent in (ROOT, *(ROOT / p for p in PACKAGES))), path


@pytest.mark.parametrize("name", names())
def test_a_name_of_a_recipe_is_in_the_code(name: str) -> None:
    assert name in code(), f"{name} is in no file of {FOLDERS}"


def test_every_kind_of_run_has_an_application() -> None:
    assert set(APPLICATIONS) == set(RunKind)
