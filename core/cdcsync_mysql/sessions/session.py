"""The session profile: what a session must not inherit from the server's globals (rule R1).

A global READ UNCOMMITTED returned a row that was rolled back, a global `sql_select_limit` cut a
split without an error, a global `completion_type=RELEASE` ends a session at its first COMMIT. So
every session sets each variable that changes what it reads, how it ends or how it times out, and
reads all of them back: a proxy that swallows a SET is noticed, too. Which ones these are is tried
with every session variable that the servers list (`tests/servers/test_odd_globals.py`). Sources:
MySQL and MariaDB manuals, "Server System Variables".
"""

from __future__ import annotations

from typing import Any

import pymysql

from cdcsync_core.errors import CdcError, Reason, fail

#: the value that means "no limit" on both servers
_UNLIMITED = 2**64 - 1
#: what is locked for longer is tried again later, and holds back no other table meanwhile
_LOCK_SECONDS = 10
#: more than any key has
_SORTED_BYTES = 8192
#: the most that MariaDB lists; what an answer of its catalog leaves out is in a warning only
_LISTED_WARNINGS = 65_535
_MARIADB: dict[str, str | int] = {
    "idle_transaction_timeout": 0,
    "idle_readonly_transaction_timeout": 0,
    "idle_write_transaction_timeout": 0,
    "max_error_count": _LISTED_WARNINGS,
    "max_session_mem_used": 2**63 - 1,
    "old_mode": "UTF8_IS_UTF8MB3",
    # what the catalog shows is a temporary table, which fails beyond them
    "tmp_disk_table_size": _UNLIMITED,
    "tmp_memory_table_size": 16 * 2**20,
    "max_heap_table_size": 16 * 2**20,
}
_CHARACTER_SETS = ("character_set_client", "character_set_connection", "character_set_results")
#: the name since MariaDB 11.1 and MySQL 8.0, and the one before
_ISOLATION = ("transaction_isolation", "tx_isolation")


def profile(flavor: str, version: tuple[int, ...], max_seconds: int) -> dict[str, str | int]:
    """The variables of a session and their values; `max_seconds` bounds a statement. A wait for a
    metadata lock ends before it, so that the server's error says which of the two it was."""
    common: dict[str, str | int] = {
        "autocommit": 1,
        "completion_type": "NO_CHAIN",
        "sql_auto_is_null": 0,
        "sql_buffer_result": 0,
        "sql_quote_show_create": 1,
        "max_sort_length": _SORTED_BYTES,
        "sort_buffer_size": 2 * 2**20,
        # names of accounts and tables are read from an error's text
        "lc_messages": "en_US",
        "sql_select_limit": _UNLIMITED,
        "sql_big_selects": 1,
        "sql_mode": "",
        "time_zone": "+00:00",
        "net_read_timeout": 3600,
        "net_write_timeout": 3600,
        "wait_timeout": 8 * 3600,
        "lock_wait_timeout": min(_LOCK_SECONDS, max(1, max_seconds // 2)),
    }
    if flavor == "mariadb":
        return common | _MARIADB | {"max_statement_time": max_seconds}
    # statistics of now, not of yesterday, for the plan
    mysql = common | {"max_execution_time": max_seconds * 1000, "information_schema_stats_expiry": 0}
    if version >= (8, 0, 13):
        mysql["use_secondary_engine"] = "OFF"
    if version >= (8, 0, 30):
        mysql["show_gipk_in_create_table_and_information_schema"] = 1
    return mysql


def apply_profile(
    connection: pymysql.connections.Connection[Any], flavor: str, version: tuple[int, ...], max_seconds: int
) -> None:
    """Sets the profile and reads it back; raises InternalError where the session differs. pymysql's
    errors pass."""
    settings = profile(flavor, version, max_seconds)
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(f"SET SESSION {', '.join(f'{name} = %s' for name in settings)}", tuple(settings.values()))
        names = [*settings, *_CHARACTER_SETS, *_ISOLATION]
        cursor.execute("SHOW SESSION VARIABLES WHERE Variable_name IN %s", (names,))
        values = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    for name, value in settings.items():
        _check(name, values.get(name), str(value))
    for name in _CHARACTER_SETS:
        _check(name, values.get(name), "utf8mb4")
    isolation = next((values[name] for name in _ISOLATION if name in values), None)
    _check(_ISOLATION[0], isolation, "REPEATABLE-READ")


def _check(name: str, value: str | None, setting: str) -> None:
    if value is None or not _same(value, setting):
        raise _differs(name, value, setting)


def _same(value: str, setting: str) -> bool:
    if value == setting or {value, setting} in ({"ON", "1"}, {"OFF", "0"}):
        return True
    # MariaDB prints max_statement_time with six decimals
    return value.endswith(".000000") and value.removesuffix(".000000") == setting


def _differs(name: str, value: str | None, setting: str) -> CdcError:
    return fail(
        Reason.INTERNAL_ERROR,
        f"the session's {name} is {value!r} after it was set",
        needed=repr(setting),
        remedy="connect to the server itself, not through a proxy that changes sessions",
    )
