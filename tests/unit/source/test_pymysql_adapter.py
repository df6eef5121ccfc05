"""What is overridden of PyMySQL is there in the version that is installed."""

from __future__ import annotations

import inspect

import pymysql
import pytest

from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection

_OVERRIDDEN = (
    "_execute_command",
    "_force_close",
    "_read_bytes",
    "_read_packet",
    "_read_query_result",
    "_request_authentication",
    "connect",
    "query",
)


@pytest.mark.parametrize("name", _OVERRIDDEN)
def test_an_override_takes_what_pymysql_calls_it_with(name: str) -> None:
    ours = inspect.signature(getattr(SourceConnection, name)).parameters.values()
    original = inspect.signature(getattr(pymysql.connections.Connection, name)).parameters.values()
    assert [p.kind for p in ours] == [p.kind for p in original]
    assert [p.default for p in ours] == [p.default for p in original]


def test_no_other_name_of_pymysql_is_overridden() -> None:
    functions = {name for name, value in vars(SourceConnection).items() if inspect.isfunction(value)}
    assert functions & set(dir(pymysql.connections.Connection)) == set(_OVERRIDDEN)
