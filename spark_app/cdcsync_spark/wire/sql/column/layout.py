"""The columns of a table while an ALTER TABLE is applied to them, in the server's own order of
steps.

Why it is right: a server builds the next list of columns from the old one first (dropped, renamed
and changed in place), and then puts what is added or moved into it, in the order of the statement;
AFTER names a column of the list that is being built (MySQL and MariaDB `sql/sql_table.cc`,
mysql_prepare_alter_table). Every clause names columns of the old table, so a column that two
clauses name is `Unpredictable`. So is a statement that would put a column in front of MySQL's
generated invisible key: at the end the server moves that key to the front again while it is
invisible, which a definition does not have (MySQL 8.0.30 `sql/sql_gipk.cc`,
adjust_generated_invisible_primary_key_column_position).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Filled, Kept, Origin
from cdcsync_core.tables.source_table import Column
from cdcsync_spark.wire.sql.column.column_types import Unpredictable
from cdcsync_spark.wire.sql.syntax.reader import folded

_GENERATED_KEY = "my_row_id"


@dataclass(frozen=True)
class Placed:
    """A column of the next definition; `after` is None where it stays or goes to the end, empty for
    FIRST."""

    column: Column
    origin: Origin
    after: str | None = None


@dataclass
class Layout:
    """What the clauses of one statement do to the columns of `old`."""

    old: Capture
    dropped: set[str] = field(default_factory=set)
    changed: dict[str, Placed] = field(default_factory=dict)
    #: added or moved, in the order of the statement
    later: list[Placed] = field(default_factory=list)
    _claimed: set[str] = field(default_factory=set)

    def find(self, name: str) -> Column | None:
        """The old column of this name, whatever its case. Raises Unpredictable for a name that only
        some servers take for it."""
        column = next((c for c in self.old.columns if same_name(c.name, name)), None)
        if column is None and any(folded(c.name) == folded(name) for c in self.old.columns):
            raise Unpredictable(f"the column {name} in another spelling")
        return column

    def claim(self, name: str) -> None:
        """One clause may name a column, no more."""
        if folded(name) in self._claimed:
            raise Unpredictable(f"two clauses about the column {name}")
        self._claimed.add(folded(name))

    def take(self, name: str) -> Column:
        """The old column for a clause that changes it."""
        column = self.find(name)
        if column is None:
            raise Unpredictable(f"there is no column {name}")
        self.claim(name)
        return column

    def drop(self, column: Column) -> None:
        self.dropped.add(column.name)

    def change(self, old: Column, placed: Placed) -> None:
        self.changed[old.name] = placed
        if placed.after is not None:
            self.later.append(placed)

    def columns(self) -> list[Placed]:
        """In the next order. Raises Unpredictable."""
        placed_columns: list[Placed] = []
        for column in self.old.columns:
            placed = self.changed.get(column.name, Placed(column, Kept(column.name)))
            if column.name not in self.dropped and placed.after is None:
                placed_columns.append(placed)
        for placed in self.later:
            placed_columns.insert(_place(placed_columns, placed.after), placed)
        names = {folded(p.column.name) for p in placed_columns}
        if len(names) != len(placed_columns) or not names:
            raise Unpredictable("two columns of one name, or none")
        self._check_generated_key(placed_columns[0])
        return placed_columns

    def _check_generated_key(self, front: Placed) -> None:
        key = self.old.columns[0].name
        stays = not isinstance(front.origin, Filled) and front.origin.source == key
        if same_name(key, _GENERATED_KEY) and not stays:
            raise Unpredictable(f"{front.column.name} in front of the key {key}, which MySQL may have generated")


def _place(columns: list[Placed], after: str | None) -> int:
    if after is None:
        return len(columns)
    if not after:
        return 0
    place = next((i for i, p in enumerate(columns) if same_name(p.column.name, after)), None)
    if place is None:
        raise Unpredictable(f"no column {after} to follow")
    return place + 1


def same_name(column: str, name: str) -> bool:
    """Whether every server takes `name` for the column: case counts in none."""
    return column == name or (column.isascii() and name.isascii() and column.lower() == name.lower())
