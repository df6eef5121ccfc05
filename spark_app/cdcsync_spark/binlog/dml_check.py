"""Whether a change in statement format can reach a captured table: the statement, the catalog, and
the binlog since.

Theory of operation. `wire.sql.dml` reads which tables the statement writes and reads. The source's
catalog says which triggers, keys and views hang on them now; the statement was written earlier. So
the binlog from the statement to its end is read for statements that may have changed that: what
names one of the tables, or mentions triggers, foreign keys or databases. If there is one, the
catalog of the statement's time is not known and the tables stop, as they do for everything else
that is not certain. Else the answer is right for the statement, and for those like it until such a
statement comes (`TransactionAssembler` forgets it then).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cdcsync_core.lineage import Lineage
from cdcsync_core.position import LogOffset
from cdcsync_core.source_table import TableId
from cdcsync_mysql.connection import Source, connect
from cdcsync_mysql.proof import prove
from cdcsync_mysql.reach import fault_of_reading, fault_of_writing
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.sql.dml import Dml
from cdcsync_spark.wire.sql.exclusion import is_dml
from cdcsync_spark.wire.sql.text import Statement

#: a statement on triggers, foreign keys or whole databases has one of these words
_WORDS = ("TRIGGER", "FOREIGN", "CONSTRAINT", "REFERENCES", "DATABASE", "SCHEMA")


def may_change_reach(sql: str, dml: Dml) -> bool:
    """Whether a statement may change what hangs on the tables of `dml`. In doubt yes."""
    if is_dml(sql):
        return False
    text = sql.upper()
    named = any(t.name.upper() in text or not t.name.isascii() for t in dml.tables)
    return named or "\ufffd" in sql or any(word in text for word in _WORDS)


@dataclass(frozen=True)
class DmlCheck:
    """`read` gives the facts of the history `log` from an offset to its end."""

    source: Source
    lineage: Lineage
    captured: tuple[TableId, ...]
    read: Callable[[LogOffset], Iterator[facts.Fact]]

    def fault(self, dml: Dml, place: LogOffset) -> str:
        """Why the statement, which ends at `place`, may reach a captured table; empty where it
        cannot. Raises CdcError."""
        with connect(self.source) as connection:
            prove(connection, self.lineage, None)
            fault = ""
            if dml.written is not None:
                written = TableId(dml.written.database, dml.written.name)
                fault = fault_of_writing(connection, written, self.captured)
            if dml.read is not None and not fault:
                fault = fault_of_reading(connection, TableId(dml.read.database, dml.read.name))
        return fault or _fault_since(self.read(place), dml)


def _fault_since(read: Iterable[facts.Fact], dml: Dml) -> str:
    for fact in read:
        if isinstance(fact, Statement) and may_change_reach(fact.sql, dml):
            return f"what hangs on its tables may have changed since: {' '.join(fact.sql.split())[:80]}"
    return ""
