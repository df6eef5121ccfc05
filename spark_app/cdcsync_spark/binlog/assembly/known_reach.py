"""What was found of changes in statement format: whether they can reach a captured table.

Why it is right: an answer counts until a statement comes that may change it; what is not known is
asked (`dml_check`). A captured table that the change writes stops, whatever the answer is; the
answer says whether the change may reach others. One of which that is not known, for a lock, stays
before the change: a later run asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.exclusion import is_dml
from cdcsync_spark.wire.sql.changes.relations import may_relate
from cdcsync_spark.wire.sql.row_changes.dml import Dml, read_dml
from cdcsync_spark.wire.sql.syntax.text import Statement


@dataclass(frozen=True)
class Reach:
    """`fault` is why a change may reach a captured table that it does not write, "" where it
    cannot; of the `locked` ones that is not known."""

    fault: str = ""
    locked: Mapping[TableId, CdcError] = field(default_factory=dict)


class KnownReach:
    """The reach of each change that was asked for, by change."""

    def __init__(self) -> None:
        self._reaches: dict[Dml, Reach] = {}

    def learn(self, dml: Dml, reach: Reach) -> None:
        self._reaches[dml] = reach

    def forget(self, statement: Statement) -> None:
        """The answers that the statement may change."""
        self._reaches = {d: r for d, r in self._reaches.items() if not may_relate(statement, _ids(d))}

    def unknown(self, statement: Statement) -> Dml | None:
        """What must be asked; None where nothing is."""
        dml = read_dml(statement) if is_dml(statement.sql) else None
        return None if dml is None or not dml.tables or dml in self._reaches else dml

    def fault(self, statement: Statement) -> str | None:
        """Why the change may reach a captured table, "" where it cannot; None if not checked."""
        if not is_dml(statement.sql) or not (self._reaches or statement.temporary):
            return None
        dml = read_dml(statement)
        if dml is None:
            return None
        if not dml.tables:
            return ""
        reach = self._reaches.get(dml)
        return None if reach is None else reach.fault

    def lock(self, statement: Statement, table: TableId) -> CdcError | None:
        """The lock for which it is not known whether the statement reaches the captured table,
        which it does not write."""
        dml = read_dml(statement) if self._reaches and is_dml(statement.sql) else None
        if dml is None or dml not in self._reaches or (dml.written is not None and dml.written.means(table)):
            return None
        return self._reaches[dml].locked.get(table)

    def reaches(self, statement: Statement, table: TableId) -> bool:
        """Whether the statement may change the captured table; in doubt yes."""
        if self.fault(statement) != "":
            return True
        dml = read_dml(statement)
        return dml is not None and dml.written is not None and dml.written.means(table)


def _ids(dml: Dml) -> list[TableId]:
    return [TableId(table.database, table.name) for table in dml.tables]
