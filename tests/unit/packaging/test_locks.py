"""The images install what was tested: their locks are parts of the project's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def pins(path: str) -> set[str]:
    return set(re.findall(r"^(\S+==\S+)", (ROOT / path).read_text(), re.M))


@pytest.mark.parametrize("image", ["operator", "spark"])
def test_an_images_lock_is_a_part_of_the_projects(image: str) -> None:
    mine = pins(f"docker/{image}.lock")
    assert mine
    assert sorted(mine - pins("requirements.lock")) == [], "remedy: make lock"


def test_the_operator_has_no_spark() -> None:
    assert not any(pin.startswith(("pyspark", "deltalake", "py4j")) for pin in pins("docker/operator.lock"))
