"""What a server may have left out of a table's changes while it was a replica, and yet counts as
executed.

A transaction that a filter left out, or whose error was skipped, has its GTID and its commit time
in the replica's binlog, and no rows. So a filter that may concern the table, and a setting with
which errors are skipped, refuse the server, as far as the account may see them. Filters that name
other tables do no harm (Amazon RDS has such ones for its own tables). What was set in the past, and
an empty transaction that was put in the place of one that failed, do not show. Sources: MySQL
manual, "Replication Filtering Rules", "The replication_applier_global_filters Table"; MariaDB
knowledge base, "Replication Filters".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.server import ServerFacts, global_variables
from cdcsync_mysql.sessions.connection import Connection, fetch_dicts
from cdcsync_mysql.sessions.replication import Row, statuses

#: names since MySQL 8.0.26 and those before -> the value that leaves nothing out
APPLIED = {
    "replica_skip_errors": "OFF",
    "slave_skip_errors": "OFF",
    "replica_exec_mode": "STRICT",
    "slave_exec_mode": "STRICT",
}
APPLIED_BY_MARIADB = {
    "slave_skip_errors": "OFF",
    "slave_exec_mode": "STRICT",
    "replicate_events_marked_for_skip": "REPLICATE",
    "gtid_ignore_duplicates": "OFF",
}
#: MariaDB's, of the default connection, which outlive it
_FILTER_VARIABLES = (
    "replicate_do_db",
    "replicate_do_table",
    "replicate_ignore_db",
    "replicate_ignore_table",
    "replicate_rewrite_db",
    "replicate_wild_do_table",
    "replicate_wild_ignore_table",
)
_OF_A_FILTER = "REPLICATE_"
#: MySQL's, which outlive the channels of a replica that was promoted
GLOBAL_FILTERS = "performance_schema.replication_applier_global_filters"


@dataclass(frozen=True)
class ReplicaFilter:
    """`name` in lower case, as `replicate_ignore_table`; `rules` as the server shows them."""

    name: str
    rules: str

    def may_leave_out(self, table: TableId) -> bool:
        """Whether it may concern the table. Filters by database go by the default one of a
        statement, whatever table this changes, so each of them may."""
        rules = self.rules.replace("`", "").lower().split(",")
        name = str(table).lower()
        if self.name == "replicate_ignore_table":
            return name in rules
        if self.name == "replicate_wild_ignore_table":
            return any(re.fullmatch(_expression(rule), name, re.DOTALL) for rule in rules)
        return True


def _expression(pattern: str) -> str:
    """The regular expression of a pattern of LIKE."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)


@dataclass(frozen=True)
class LeftOut:
    """`settings`, each as `name=value`, concern all tables."""

    settings: tuple[str, ...]
    filters: tuple[ReplicaFilter, ...]

    def of(self, tables: Iterable[TableId]) -> str:
        """The first setting or filter that may have left out changes of one of the tables; empty
        where none may, as of no table."""
        concerned = list(tables)
        if not concerned:
            return ""
        filters = [f"{f.name}={f.rules}" for f in self.filters if any(map(f.may_leave_out, concerned))]
        return next(iter([*self.settings, *filters]), "")


def read_left_out(connection: Connection, facts: ServerFacts) -> LeftOut:
    """Raises SourceUnreachable."""
    applied = APPLIED_BY_MARIADB if facts.flavor == "mariadb" else APPLIED
    variables = global_variables(connection, *applied, *_FILTER_VARIABLES)
    settings = tuple(
        f"{name}={variables[name]}" for name, value in applied.items() if variables.get(name, value).upper() != value
    )
    rules = [(name, variables.get(name, "")) for name in _FILTER_VARIABLES] + _of_channels(connection, facts)
    return LeftOut(settings, tuple(ReplicaFilter(name, text) for name, text in rules if text))


def _of_channels(connection: Connection, facts: ServerFacts) -> list[tuple[str, str]]:
    """The filters by name and rules, without those that the account may not see."""
    rows = _shown(lambda: statuses(connection, fetch_dicts))
    filters = [
        (name.lower(), str(rules or "")) for row in rows for name, rules in row.items() if name.startswith(_OF_A_FILTER)
    ]
    if facts.flavor == "mysql":
        rows = _shown(lambda: _global_filters(connection))
        filters += [(str(row["FILTER_NAME"]).lower(), str(row["FILTER_RULE"])) for row in rows]
    return filters


def shows_global_filters(connection: Connection, facts: ServerFacts) -> bool:
    """Whether the account may see them; MariaDB has no such table."""
    try:
        if facts.flavor == "mysql":
            _global_filters(connection)
    except CdcError as e:
        if e.reason is Reason.SOURCE_UNREACHABLE:
            raise
        return False
    return True


def _global_filters(connection: Connection) -> list[Row]:
    return fetch_dicts(connection, f"SELECT FILTER_NAME, FILTER_RULE FROM {GLOBAL_FILTERS}")


def _shown(ask: Callable[[], list[Row]]) -> list[Row]:
    """No row where the account may not see them."""
    try:
        return ask()
    except CdcError as e:
        if e.reason is Reason.SOURCE_UNREACHABLE:
            raise
        return []
