"""The calls of `cdcsync explain`: how the source reads a statement, how large its tables are, and
what a migration does to their copies.

What a stream follows belongs to the Spark side, so a process of its own is asked for it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cdcsync_core.errors import Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.migration import MigrationQuestion, ServerSession, StatementEffect, effects_from_json
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading.table_sizes import table_sizes
from cdcsync_mysql.server import global_variables, read_facts
from cdcsync_mysql.sessions.connection import connect, source_from_spec

_EXPLAIN = (sys.executable, "-m", "cdcsync_spark.app.explain")
_SECONDS = 600.0
_TAIL = 500


def session_and_sizes(
    resource: CdcSync, secrets: Path, tables: Sequence[TableId]
) -> tuple[ServerSession, dict[str, tuple[int, int]]]:
    """The server's defaults for new sessions; rows and bytes of each table, as it estimates them.
    Raises CdcError."""
    with connect(source_from_spec(resource.spec.source, secrets)) as connection:
        facts = read_facts(connection)
        variables = global_variables(connection, "sql_mode", "explicit_defaults_for_timestamp")
        sizes = table_sizes(connection, tables)
    major, minor, patch = (*facts.numbers, 0, 0)[:3]
    mariadb = facts.flavor == "mariadb"
    timestamps = None if mariadb else variables.get("explicit_defaults_for_timestamp") == "ON"
    session = ServerSession(mariadb, major * 10_000 + minor * 100 + patch, variables.get("sql_mode", ""), timestamps)
    return session, sizes


def effects_of(question: MigrationQuestion) -> list[StatementEffect]:
    """Raises CdcError(InternalError) where the process ends without an answer."""
    answer = subprocess.run(
        _EXPLAIN, input=question.to_json(), capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    try:
        return effects_from_json(answer.stdout)
    except (ValueError, KeyError, TypeError):
        ended = quoted(answer.stderr[-_TAIL:])
        raise fail(
            Reason.INTERNAL_ERROR, f"the explanation ended without an answer: {ended}", remedy="report this"
        ) from None
