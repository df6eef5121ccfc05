"""The recipes of CONTRIBUTING.md name files, tables and functions that exist, the first change
needs no more than it names, and each word of the code is in the file where a reader begins."""

from __future__ import annotations

import os
import re
import subprocess
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


def parents() -> tuple[Path, ...]:
    return (ROOT, *(ROOT / package for package in PACKAGES))


def names() -> list[str]:
    """Constants, classes, private tables and snake_case functions, as opposed to words and
    commands."""
    form = r"[A-Z][A-Z_]{2,}|([A-Z][a-z]+){2,}|_[A-Za-z]\w+|[a-z]+(_[a-z]+)+"
    return sorted({q for q in quoted() if re.fullmatch(form, q)} - OTHERS)


@pytest.mark.parametrize("path", paths())
def test_a_path_of_a_recipe_exists(path: str) -> None:
    assert any((parent / path).exists() for parent in parents()), path


@pytest.mark.parametrize("name", names())
def test_a_name_of_a_recipe_is_in_the_code(name: str) -> None:
    assert name in code(), f"{name} is in no file of {FOLDERS}"


def placed_names() -> list[tuple[str, str]]:
    """A name and the file that the recipe says it is in: `NAME` of `path`, from the root or from a
    package."""
    return sorted(set(re.findall(r"`([A-Z_]\w+)`\s+(?:of|in)\s+`([\w./-]+\.py)`", recipes())))


@pytest.mark.parametrize(("name", "path"), placed_names())
def test_a_name_is_in_the_file_that_a_recipe_gives(name: str, path: str) -> None:
    text = next(((parent / path).read_text() for parent in parents() if (parent / path).is_file()), "")
    assert re.search(rf"\b{name}\b", text), f"{name} is not in {path}"


@pytest.mark.parametrize("target", ["venv", "test-unit", "format", "lint"])
def test_a_first_change_needs_neither_java_nor_maven_nor_root(target: str) -> None:
    """What make would do for it, were nothing there; also where make runs the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", target, "STAMPS=/nowhere"],
        cwd=ROOT, capture_output=True, text=True, check=True, env=environment,
    ).stdout  # fmt: skip
    assert "requirements.lock" in planned
    assert not re.search(r"system-packages\.sh (base|servers)|delta_jars|class_archive|\bmvn\b", planned), planned


def words_and_files() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| ([a-z ]+) \| .* \| `([\w/]+\.py)` \|$", (ROOT / "docs" / "code-words.md").read_text(), re.M)
    assert len(rows) > 20
    return rows


@pytest.mark.parametrize(("word", "path"), words_and_files())
def test_a_word_of_the_code_is_in_its_file(word: str, path: str) -> None:
    text = f"{path} {(ROOT / path).read_text()}".lower().replace("_", " ")
    assert word.removesuffix("s") in text, f"{path} has no word {word}"


def test_every_kind_of_run_has_an_application() -> None:
    assert set(APPLICATIONS) == set(RunKind)
