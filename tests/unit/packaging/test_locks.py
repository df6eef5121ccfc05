"""The images install what was tested: their locks are parts of the project's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def pins(path: str) -> set[str]:
    return set(re.findall(r"^(\S+==\S+)", (ROOT / path).read_text(), re.M))


@pytest.mark.parametrize("image", ["operator", "spark", "build"])
def test_an_images_lock_is_a_part_of_the_projects(image: str) -> None:
    mine = pins(f"docker/{image}.lock")
    assert mine
    assert sorted(mine - pins("requirements.lock")) == [], "remedy: make lock"


@pytest.mark.parametrize(("image", "extras"), [("operator", ()), ("spark", ("spark",))])
def test_an_image_has_all_that_the_code_asks_for(image: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(d for e in extras for d in project["optional-dependencies"][e])]
    names = {normal(re.split(r"[<>=~!\[ ]", d)[0]) for d in asked}
    there = {normal(pin.split("==")[0]) for pin in pins(f"docker/{image}.lock")}
    assert sorted(names - there) == [], "remedy: make lock"


def normal(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_operator_has_no_spark_and_no_columns() -> None:
    without = ("deltalake", "numpy", "pandas", "py4j", "pyarrow", "pyspark")
    assert not any(pin.startswith(without) for pin in pins("docker/operator.lock"))


def test_what_builds_the_product_is_locked_by_hash() -> None:
    """The build backend runs code while the wheel is made, so it is as trusted as a dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (backend,) = project["build-system"]["requires"]
    assert (ROOT / "docker" / "build.in").read_text().strip() == backend
    lock = (ROOT / "docker" / "build.lock").read_text()
    assert all(lock.count(f"{pin} \\\n    --hash=sha256:") == 1 for pin in pins("docker/build.lock"))
    installs = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
