"""What every test may use: the server fixtures; and the markers that follow from use and place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.fixtures import (  # noqa: F401 (pytest finds fixtures by their names here)
    SERVER_FIXTURES,
    any_mariadb,
    any_mysql,
    any_server,
    every_server,
    fresh_database,
    fresh_server,
    iceberg_catalog,
    kafka,
    mariadb114,
    mariadb118,
    mariadb1011,
    mariadb1011_loose,
    mysql97_gtid,
    mysql97_nogtid,
    postgres,
    registry,
    syncing,
)

# How long an example takes says nothing on a shared machine. They are the same ones each time, but
# for `make test-all`.
settings.register_profile(
    "laws",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=200,
    derandomize="CDCSYNC_NEW_EXAMPLES" not in os.environ,
)
settings.load_profile("laws")

# Spark starts its workers with the first python3 of the PATH unless configured otherwise.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# A folder's tests all carry the marker that `make` selects them by.
FOLDER_MARKERS = {
    "servers": "server",
    "stress": "stress",
    "bench": "bench",
    "kube": "kube",
    "cluster": "cluster",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        marker = FOLDER_MARKERS.get(item.path.relative_to(tests).parts[0])
        if marker:
            item.add_marker(marker)
