"""Which replicas do not apply what their source writes, by what the servers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from cdcsync_mysql.sessions.connection import Connection
from cdcsync_mysql.sessions.hosts import is_demoted, is_stalled
from cdcsync_mysql.sessions.replication import FAR_BEHIND_SECONDS, channels

_RUNS = {
    "CHANNEL_NAME": "",
    "REPLICA_IO_RUNNING": "Yes",
    "REPLICA_SQL_RUNNING": "Yes",
    "SECONDS_BEHIND_SOURCE": 0,
    "LAST_IO_ERRNO": 0,
    "LAST_SQL_ERRNO": 0,
}
_STOPPED = _RUNS | {"REPLICA_IO_RUNNING": "No", "REPLICA_SQL_RUNNING": "No", "SECONDS_BEHIND_SOURCE": None}


@dataclass
class _GreetingServer:
    greeting: str = "9.7.0"

    def get_server_info(self) -> str:
        return self.greeting


def _judged(judge: Any, channels: list[dict[str, Any]], read_only: str) -> bool:
    def fetch(_: Connection, sql: str) -> list[dict[str, Any]]:
        variables = [{"VARIABLE_NAME": "read_only", "VALUE": read_only}]
        return variables if sql.startswith("SHOW GLOBAL VARIABLES") else channels

    return bool(judge(cast(Connection, _GreetingServer()), fetch))


@pytest.mark.parametrize("read_only", ["ON", "OFF"])
@pytest.mark.parametrize(
    ("change", "stalled"),
    [
        ({}, False),
        ({"SECONDS_BEHIND_SOURCE": FAR_BEHIND_SECONDS}, False),
        ({"SECONDS_BEHIND_SOURCE": FAR_BEHIND_SECONDS + 1}, True),
        ({"REPLICA_SQL_RUNNING": "No", "SECONDS_BEHIND_SOURCE": None}, True),
        ({"REPLICA_SQL_RUNNING": "No", "LAST_SQL_ERRNO": 1062}, True),
        ({"REPLICA_IO_RUNNING": "No"}, True),
        ({"REPLICA_IO_RUNNING": "Connecting"}, False),
        ({"REPLICA_IO_RUNNING": "Connecting", "LAST_IO_ERRNO": 2003}, True),
        ({"CHANNEL_NAME": "group_replication_recovery", "REPLICA_SQL_RUNNING": "No"}, False),
    ],
)
def test_what_is_stalled(change: dict[str, Any], stalled: bool, read_only: str) -> None:
    assert _judged(is_stalled, [_RUNS | change], read_only) is stalled
    assert _judged(is_stalled, [_RUNS, _RUNS | change], read_only) is stalled


def test_a_stopped_replica_that_is_written_was_promoted() -> None:
    assert not _judged(is_stalled, [_STOPPED], "OFF")
    assert _judged(is_stalled, [_STOPPED], "ON")
    assert _judged(is_stalled, [_STOPPED | {"LAST_SQL_ERRNO": 1062}], "OFF")
    assert not _judged(is_demoted, [_STOPPED], "ON")


def test_a_server_without_a_source_is_no_replica() -> None:
    assert not _judged(is_stalled, [], "ON")
    assert _judged(is_demoted, [], "ON")


@pytest.mark.parametrize(
    ("greeting", "asked"),
    [
        ("8.0.21", "SHOW SLAVE STATUS"),
        ("8.0.22", "SHOW REPLICA STATUS"),
        ("10.11.19-MariaDB", "SHOW ALL SLAVES STATUS"),
    ],
)
def test_a_server_is_asked_in_its_words(greeting: str, asked: str) -> None:
    statements: list[str] = []

    def fetch(_: Connection, sql: str) -> list[dict[str, Any]]:
        statements.append(sql)
        return []

    assert channels(cast(Connection, _GreetingServer(greeting)), fetch) == []
    assert statements == [asked]
