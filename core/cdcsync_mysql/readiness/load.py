"""What a source is busy with, by its own counts, beside what it may be while it is read.

`Threads_running` has every session that executes a statement, those of a snapshot, of binlog dumps
and this question included. The history list has the undo logs that no purge has removed: it grows
while a transaction reads an old view. A replica's lag is what it shows itself; while it does not
replicate it shows none, which counts as too much. Sources: MySQL manual, "Server Status Variables",
"The INFORMATION_SCHEMA INNODB_METRICS Table", "SHOW REPLICA STATUS"; MariaDB knowledge base,
"InnoDB Status Variables".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_mysql.checks import Check, passed, refused
from cdcsync_mysql.sessions.connection import Connection, fetch, fetch_dicts
from cdcsync_mysql.sessions.replication import channels

if TYPE_CHECKING:  # see `sessions.source`
    from cdcsync_core.resource.snapshot_spec import MaxLoad

_METRIC = "SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'"


def excess(connection: Connection, flavor: str, most: MaxLoad) -> str:
    """What is more than it may be, in words; empty where nothing is. Raises PrivilegeMissing and
    SourceUnreachable."""
    counts: dict[str, tuple[int | None, Callable[[], int]]] = {
        "Threads_running": (most.threads_running, lambda: _status(connection, "Threads_running")),
        "the history list length": (most.history_list_length, lambda: _history(connection, flavor)),
    }
    asked = [(name, count(), bound) for name, (bound, count) in counts.items() if bound is not None]
    too_much = [f"{name} is {count}, at most {bound} allowed" for name, count, bound in asked if count > bound]
    return "; ".join([*too_much, *_lags(connection, most.replica_lag)])


def check_load(connection: Connection, flavor: str, most: MaxLoad) -> list[Check]:
    """Whether the counts can be read."""
    if not most.is_set:
        return []
    try:
        too_much = excess(connection, flavor, most)
    except PermanentError as e:
        return [refused("snapshot.maxLoad", e)]
    return [passed("snapshot.maxLoad", too_much or "the load is within it now")]


def _lags(connection: Connection, most: float | None) -> Iterator[str]:
    """Yields what is too much of a replica; a primary has no lag."""
    if most is None:
        return
    for channel in channels(connection, fetch_dicts):
        if channel.behind is None:
            yield f"the replica's lag is not known, because it does not replicate now; at most {most:g} s allowed"
        elif channel.behind > most:
            yield f"the replica's lag is {channel.behind} s, at most {most:g} s allowed"


def _history(connection: Connection, flavor: str) -> int:
    if flavor == "mariadb":
        return _status(connection, "Innodb_history_list_length")
    rows = fetch(connection, _METRIC, doing="reading the history list length")
    return _number(rows[0][0] if rows else None, "the history list length")


def _status(connection: Connection, name: str) -> int:
    rows = fetch(connection, f"SHOW GLOBAL STATUS LIKE '{name}'")
    return _number(rows[0][1] if rows else None, name)


def _number(value: object, name: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            f"the server has no number for {name}",
            needed="one, because spec.snapshot.maxLoad bounds it",
            remedy="leave that bound out of spec.snapshot.maxLoad, and of the source's Secret",
        )
    return int(text)
