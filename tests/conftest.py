"""What every test may use: the server fixtures; and the marker that follows from using them."""

from __future__ import annotations

import pytest
from support.fixtures import (  # noqa: F401 (pytest finds fixtures by their names here)
    SERVER_FIXTURES,
    any_mariadb,
    any_mysql,
    any_server,
    fresh_database,
    fresh_server,
    mariadb114,
    mariadb1011,
    mariadb1011_loose,
    mysql97_gtid,
    mysql97_nogtid,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
