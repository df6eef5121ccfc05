"""What was found of changes in statement format: whether they can reach a captured table.

Why it is right: an answer counts until a statement comes that may change it; what is not known is
asked (`dml_check`). A captured table that the change writes stops, whatever the answer is; the
answer says whether the change may reach others.
"""

from __future__ import annotations

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.sql.changes.exclusion import is_dml
from cdcsync_spark.wire.sql.changes.relations import may_relate
from cdcsync_spark.wire.sql.row_changes.dml import Dml, read_dml
from cdcsync_spark.wire.sql.syntax.text import Statement


class KnownReach:
    """By change: why it may reach a captured table that it does not write; "" where it cannot."""

    def __init__(self) -> None:
        self._faults: dict[Dml, str] = {}

    def learn(self, dml: Dml, fault: str) -> None:
        self._faults[dml] = fault

    def forget(self, statement: Statement) -> None:
        """The answers that the statement may change."""
        self._faults = {d: f for d, f in self._faults.items() if not may_relate(statement, _ids(d))}

    def unknown(self, statement: Statement) -> Dml | None:
        """What must be asked; None where nothing is."""
        dml = read_dml(statement) if is_dml(statement.sql) else None
        return None if dml is None or not dml.tables or dml in self._faults else dml

    def fault(self, statement: Statement) -> str | None:
        """Why the change may reach a captured table, "" where it cannot; None if not checked."""
        if not is_dml(statement.sql) or not (self._faults or statement.temporary):
            return None
        dml = read_dml(statement)
        if dml is None:
            return None
        return self._faults.get(dml) if dml.tables else ""

    def reaches(self, statement: Statement, table: TableId) -> bool:
        """Whether the statement may change the captured table; in doubt yes."""
        if self.fault(statement) != "":
            return True
        dml = read_dml(statement)
        return dml is not None and dml.written is not None and dml.written.means(table)


def _ids(dml: Dml) -> list[TableId]:
    return [TableId(table.database, table.name) for table in dml.tables]
