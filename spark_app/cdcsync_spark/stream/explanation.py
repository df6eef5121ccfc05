"""What the statements of a migration would do to the targets of captured tables, by the functions
that decide it in the stream.

Why it is right: each statement is given to `meaning` and `target_change`, as the reader and the
applier give it, with the definition that the statements before it have left. A table that is not
followed any more has no definition that is known, so later statements say nothing about it: what a
resnapshot reads is the newest. The target is taken for one that was copied under today's definition
and is published; dropped columns that it may still have are not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from cdcsync_core.errors import CdcError
from cdcsync_core.runs.migration import Script, ServerSession, StatementEffect, TargetEffect
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.evolve import NotCopied, rewrites
from cdcsync_core.tables.schema_change import Emptied, Followed
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.table_selection import TableSelection
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.schema.new_tables import made_by
from cdcsync_spark.binlog.schema.steps import FollowPolicy, meaning, not_followed
from cdcsync_spark.binlog.schema.stop_reasons import shown, shown_text
from cdcsync_spark.sinks.contract.changes import Empty, Evolve
from cdcsync_spark.stream.apply.schema_commit import target_change
from cdcsync_spark.wire.sql.changes.exclusion import is_dml
from cdcsync_spark.wire.sql.syntax.modes import sql_mode_number
from cdcsync_spark.wire.sql.syntax.script import Cutter, ScriptStatement, without_comments_before
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import NO_BACKSLASH_ESCAPES, Session, Started

_CHARSET = "utf8mb4"
_SET_MODE = re.compile(r"SET\s+(?:SESSION\s+|LOCAL\s+|@@(?:SESSION\.|LOCAL\.)?)?sql_mode\s*:?=\s*'([\w, ]*)'", re.I)
#: what runs statements that the script does not show, or changes how the next ones are read
_IS_UNKNOWN = re.compile(
    r"\A(?:(?:CALL|PREPARE|EXECUTE|SOURCE)\b|BEGIN\s+NOT\b|(?:IF|CASE|LOOP|WHILE|REPEAT|FOR|DECLARE)\b"
    r"|SET\b(?!\s+STATEMENT\b).*\bsql_mode\b)",
    re.I | re.S,
)
#: what no binlog has as a statement of its own
_IS_NOT_LOGGED = re.compile(
    r"(?:SET(?!\s+STATEMENT\b)|SELECT|SHOW|DESC|DESCRIBE|EXPLAIN|START|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|LOCK|UNLOCK|DO)\b",
    re.I,
)


@dataclass(frozen=True)
class Copy:
    """A table as the source defines it, and its target."""

    capture: Capture
    schema: TargetSchema


@dataclass(frozen=True)
class Rules:
    """`policy` is each table's by its name; `keyed`: the sink has files of rows, which a change of
    values writes again."""

    selection: TableSelection
    policy: Callable[[str], FollowPolicy]
    keyed: bool


def explain(
    tables: Iterable[Capture], scripts: Iterable[Script], database: str, server: ServerSession, now: int, rules: Rules
) -> Iterator[StatementEffect]:
    """The effects in the order of the statements; nothing of a statement that changes no target.
    `now` is the unix time at which the statements are taken to run."""
    copies = {table.id: Copy(table, TargetSchema.of(table)) for table in tables}
    for script in scripts:
        yield from _script_effects(copies, script, database, server, now, rules)


def _script_effects(
    copies: dict[TableId, Copy], script: Script, database: str, server: ServerSession, now: int, rules: Rules
) -> Iterator[StatementEffect]:
    session = session_of(server, now)
    cutter = Cutter(script.sql, database)
    while statement := cutter.next(escapes=not (session.sql_mode or 0) & NO_BACKSLASH_ESCAPES):
        text = without_comments_before(statement.sql)
        if mode := _SET_MODE.fullmatch(text):
            session = session_of(replace(server, sql_mode=mode[1]), now)
        elif _IS_UNKNOWN.search(text):
            yield StatementEffect("", script.name, statement.line, shown_text(text), TargetEffect.UNKNOWN)
        elif not (_IS_NOT_LOGGED.match(text) or is_dml(text)):
            yield from _effects(copies, script.name, statement, session, rules)


def session_of(server: ServerSession, now: int) -> Session:
    """A session with the server's defaults, whose client speaks UTF-8."""
    mode = sql_mode_number(server.sql_mode, mariadb=server.mariadb)
    started = Started(now, 0, "+00:00")
    return Session(mode, _CHARSET, server.mariadb, server.version, started, _CHARSET, server.timestamps)


def _effects(
    copies: dict[TableId, Copy], script: str, part: ScriptStatement, session: Session, rules: Rules
) -> Iterator[StatementEffect]:
    statement = Statement(part.database, part.sql, session)
    created = [t for t in made_by(part.sql, part.database) if rules.selection.captures(str(t)) and t not in copies]
    for table in list(copies):
        effect, error = _effect(copies, table, statement, rules)
        if effect is not None:
            yield StatementEffect(str(table), script, part.line, shown(statement), effect, error)
    for table in created:
        yield StatementEffect(str(table), script, part.line, shown(statement), TargetEffect.NEW)


def _effect(
    copies: dict[TableId, Copy], table: TableId, statement: Statement, rules: Rules
) -> tuple[TargetEffect | None, CdcError | None]:
    """Also notes the definition after the statement; forgets a table that is not followed."""
    copy, policy = copies[table], rules.policy(str(table))
    outcome = meaning(copy.capture, statement, policy)
    if outcome is None:
        return None, None
    if isinstance(outcome, CdcError):
        del copies[table]
        return TargetEffect.STOP, outcome
    try:
        return _followed(copies, copy, outcome, policy, rules), None
    except NotCopied as e:
        del copies[table]
        return TargetEffect.STOP, not_followed(str(e), statement, table)
    except CdcError as e:
        del copies[table]
        return TargetEffect.STOP, e


def _followed(
    copies: dict[TableId, Copy], copy: Copy, outcome: Followed | Emptied, policy: FollowPolicy, rules: Rules
) -> TargetEffect | None:
    schema, change = target_change(copy.schema, outcome, policy, published=True)
    copies[copy.capture.id] = Copy(outcome.after, schema)
    if isinstance(change, Empty):
        return TargetEffect.EMPTY
    if isinstance(change, Evolve) and rules.keyed and rewrites(copy.schema, schema, change.origins):
        return TargetEffect.REWRITE
    return TargetEffect.METADATA if isinstance(change, Evolve) else None
