"""The temporary tables of the source's sessions, as the binlog has them: a statement on one of them
is none on the base table of its name.

Why it exists: sessions in statement or mixed format write DDL and changes of their temporary tables
to the binlog, under names that captured tables may have. Nothing in the event alone says which
table is meant: the mark "thread specific" is also on statements on base tables that follow in the
same call of a procedure or that call CONNECTION_ID(), and on every DROP TABLE.

Why it is right: it is what a replica does. Both servers write the creation of a temporary table
before any other statement on it, and its end, also where the session ends; all with the session's
number. So a name means a temporary table if its session has created one here and the statement has
the mark, which MariaDB's RENAME TABLE never has. MySQL's RENAME TABLE is one of base tables, also
where the session has a temporary table of that name; so is a DROP TABLE without TEMPORARY, because
servers write the two apart.

The creation may have been written before the reader's start, or not at all (sql_log_bin=0). So a
marked statement on tables that no creation explains is in doubt: it stops a captured table that it
would change, and is never followed; a change of rows is asked for (`dml_check`).
"""

from __future__ import annotations

from dataclasses import replace

from cdcsync_spark.wire.sql.changes.exclusion import is_dml
from cdcsync_spark.wire.sql.row_changes.temporary import TableUse, read_use
from cdcsync_spark.wire.sql.syntax.reader import TableName, folded
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Unreadable

#: of whose temporary tables is known; MariaDB does not write the end of each
_MOST_SESSIONS = 10_000

_NONE: frozenset[TableName] = frozenset()
#: the server's id and the session's number there
_Session = tuple[int, int]


class TemporaryTables:
    """The temporary tables of each session; None where they are not known. A transaction that is
    read once more begins with the tables that were there before it (`go_back`)."""

    def __init__(self) -> None:
        self._sessions: dict[_Session, frozenset[TableName] | None] = {}
        #: what the transaction that is being read has changed, as it was before it
        self._before: dict[_Session, frozenset[TableName] | None] = {}

    def settle(self) -> None:
        """A transaction has ended, and is not read once more."""
        self._before = {}

    def go_back(self) -> None:
        for session, tables in self._before.items():
            self._set(session, tables)
        self.settle()

    def end_sessions(self, server: int) -> None:
        """The server has started; numbers of sessions come again."""
        for session in [s for s in self._sessions if s[0] == server]:
            self._sessions.pop(session)
        self.settle()

    def judge(self, statement: Statement) -> Statement | None:
        """None for a statement that changes nothing but temporary tables; else the statement with
        what is known of them."""
        thread = statement.thread
        if thread is None:
            return statement
        session = (thread.server, thread.number)
        tables = self._sessions.get(session, _NONE)
        if is_dml(statement.sql):
            return replace(statement, temporary=tables or _NONE, in_doubt=True) if thread.specific else statement
        if not thread.specific and not tables:
            return statement
        try:
            use = read_use(statement)
        except Unreadable:
            self._learn(session, None)
            return replace(statement, in_doubt=True)
        if tables is None:
            return replace(statement, in_doubt=thread.specific)
        self._learn(session, _after(tables, use))
        marked = thread.specific or (statement.session.mariadb and bool(use.renamed))
        if use.created or use.dropped or (marked and use.changed and tables.issuperset(use.changed)):
            return None
        names = {(folded(t.database), folded(t.name)) for t in tables}
        alike = any((folded(t.database), folded(t.name)) in names for t in use.changed)
        return replace(statement, in_doubt=alike or (thread.specific and bool(use.changed)))

    def _learn(self, session: _Session, tables: frozenset[TableName] | None) -> None:
        before = self._sessions.get(session, _NONE)
        if before == tables:
            return
        self._before.setdefault(session, before)
        self._set(session, tables)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))

    def _set(self, session: _Session, tables: frozenset[TableName] | None) -> None:
        if tables == _NONE:
            self._sessions.pop(session, None)
        else:
            self._sessions[session] = tables


def _after(tables: frozenset[TableName], use: TableUse) -> frozenset[TableName]:
    tables = (tables - set(use.dropped)) | set(use.created)
    for old, new in use.renamed:
        if old in tables:
            tables = tables - {old} | {new}
    return tables
