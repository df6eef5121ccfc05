"""Fixtures of the benchmarks. What is measured waits for the disk as servers do."""

from __future__ import annotations

import pytest

from bench.commit_times import show  # noqa: F401 (pytest finds fixtures by their names)
from support.fixtures import Syncing


@pytest.fixture(scope="session")
def syncing() -> Syncing:
    return {"mariadb": {}, "mysql": {}}
