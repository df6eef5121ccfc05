"""The definitions of the captured tables as of the reader's place in the binlog, and which of them
rows have still to prove.

Why it is right: a definition changes only by a statement that is followed, at the end of its
transaction, where the reader ends a batch; so all rows of a batch are of one definition. The first
TABLE_MAP after such a statement must equal the prediction in every field that it carries, before a
row of it is used; the later ones are compared as those of every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType

from cdcsync_core.errors import CdcError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Emptied, Followed, unchanged
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.schema.steps import FollowPolicy, contradicted, meaning, names
from cdcsync_spark.binlog.schema.stop_reasons import statement_error
from cdcsync_spark.wire.binlog.facts import TableMap
from cdcsync_spark.wire.binlog.predicted_map import differences
from cdcsync_spark.wire.sql.changes.statement import may_change
from cdcsync_spark.wire.sql.syntax.text import Statement

_NO_POLICIES: Mapping[TableId, FollowPolicy] = MappingProxyType({})


class Definitions(Mapping[TableId, Capture]):
    """The definition of each table. A table without a policy has the one definition, and stops
    where it may change."""

    def __init__(
        self,
        captures: Mapping[TableId, Capture],
        policies: Mapping[TableId, FollowPolicy] = _NO_POLICIES,
        unproved: Set[TableId] = frozenset(),
        unconfirmed: Set[TableId] = frozenset(),
    ) -> None:
        self._captures, self._policies = dict(captures), policies
        self._unproved, self._unconfirmed = set(unproved), set(unconfirmed)

    def __getitem__(self, table: TableId) -> Capture:
        return self._captures[table]

    def __iter__(self) -> Iterator[TableId]:
        return iter(self._captures)

    def __len__(self) -> int:
        return len(self._captures)

    def meaning(
        self, table: TableId, statement: Statement, fault: str | None = None
    ) -> Followed | Emptied | CdcError | None:
        """What the statement means for the table as it is here; `fault` is why a change in
        statement format may reach it.

        While the last change waits for the catalog, and where rows do not name their columns, every
        statement that names the table is a step: what the catalog shows is compared with the last
        of them.
        """
        policy = self._policies.get(table)
        if policy is not None:
            meant = meaning(self[table], statement, policy, fault)
            waits = meant is None and table in self._unconfirmed and names(statement, self[table])
            return unchanged(self[table]) if waits else meant
        if not may_change(statement, self[table]):
            return None
        return statement_error(statement, table, fault, needed="no DDL on the table")

    def advance(self, table: TableId, step: Followed | Emptied) -> None:
        """All that is decoded from here on is of the definition after `step`."""
        self._unconfirmed.add(table)
        if isinstance(step, Followed):
            self._unproved.add(table)
        self._captures[table] = step.after

    def note_undescribed(self, table: TableId) -> None:
        """Rows of the table came whose TABLE_MAP does not name the columns."""
        self._unconfirmed.add(table)

    def is_unproved(self, table: TableId) -> bool:
        return table in self._unproved

    def prove(self, table: TableId, table_map: TableMap) -> None:
        """Raises SchemaChangeRefused where the rows' own description is another one. One without
        names refutes, and proves nothing."""
        differing = differences(self[table], table_map)
        if differing:
            raise contradicted(table, "rows", differing)
        if table_map.described:
            self._unproved.discard(table)
