"""What is taken of a source table, which key identifies a row, and by which the rows are cut
into splits.

The capture is recorded in the target's state when the table is planned, because the binlog does not
show everything (MariaDB's UUID, INET and JSON travel as BINARY and LONGTEXT; rule R9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import LABELLED, Column, SourceTable, TableId


@dataclass(frozen=True)
class Capture:
    """One captured table.

    `key` names the columns that identify a row, in the order of the unique index `key_index`
    (empty where that was not recorded). It is empty for a table without a key: its rows are a bag,
    in which two may be equal. `excluded` are columns that the manifest leaves out of the target
    (never key columns). `declared`: the manifest names the key's columns, and no index of the
    source keeps two rows from having the same; see `declared_key`.
    """

    source: SourceTable
    key: tuple[str, ...]
    excluded: frozenset[str] = frozenset()
    key_index: str = field(default="", compare=False)
    declared: bool = False

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        unknown = [k for k in self.key if k not in names or k in self.excluded]
        if unknown or len(set(names)) != len(names):
            raise ValueError(f"{self.id}: key {self.key} must name captured columns of {names}")

    @property
    def id(self) -> TableId:
        return self.source.id

    @property
    def chunk_key(self) -> tuple[str, ...] | None:
        """The columns by whose values the rows are cut into splits, which have an index; None for
        rows that are read by one SELECT."""
        return None if self.declared else self.key or None

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of the server's row, see `SourceTable`."""
        return self.source.columns

    @property
    def captured(self) -> tuple[Column, ...]:
        """The columns whose values are copied, in the source's order."""
        return tuple(c for c in self.columns if c.name not in self.excluded)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[k] for k in self.key)

    def reads_as(self, now: Capture) -> bool:
        """Whether rows of the definition `now` are read and told apart as this one says.

        Whether a column may be NULL, and the collation of one outside of the key, change no value.
        """
        identified = (self.id, self.key, self.declared, self.excluded)
        same_key = identified == (now.id, now.key, now.declared, now.excluded)
        return same_key and self._compared() == now._compared()

    def _compared(self) -> list[Column]:
        return [c if c.name in self.key else replace(c, nullable=True, collation="") for c in self.columns]

    def of(self, source: SourceTable) -> Capture:
        """The same taken of another version of the source table."""
        return replace(self, source=source)

    def named(self, table: TableId) -> Capture:
        """The same capture of a table of another name."""
        return self.of(replace(self.source, id=table))

    def replacing(self) -> Capture:
        """The same definition, read with U+FFFD for bytes that are no character. Not in the key:
        two rows could become one."""
        columns = (
            c if c.name in self.key else replace(c, type=replace(c.type, replaced=c.type.base in LABELLED))
            for c in self.columns
        )
        return self.of(replace(self.source, columns=tuple(columns)))

    def to_dict(self) -> dict[str, Any]:
        """The source table's own keys and those of the capture, side by side."""
        return self.source.to_dict() | {
            "key": list(self.key),
            "keyIndex": self.key_index,
            "excluded": sorted(self.excluded),
            **({"declared": True} if self.declared else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Capture:
        return cls(
            SourceTable.from_dict(data),
            tuple(data["key"]),
            frozenset(data["excluded"]),
            data.get("keyIndex", ""),
            data.get("declared", False),
        )


def uncertain_members(table: Capture) -> tuple[str, ...]:
    """The captured columns whose members only a binlog that has them shows exactly."""
    return tuple(c.name for c in table.captured if not c.type.has_certain_members)


def members_unknown(table: Capture, columns: Iterable[str], then: str = "") -> CdcError:
    """The refusal of such columns where the binlog does not have their members; `then` is what is
    to be done after the remedy."""
    return fail(
        Reason.ROW_METADATA_NOT_FULL,
        f"members of {', '.join(columns)} that the catalog may show with other characters than values have (a"
        " backslash, a question mark)",
        needed="binlog_row_metadata=FULL, with which the binlog has the members",
        remedy="SET GLOBAL binlog_row_metadata = 'FULL', or leave the columns out by"
        f" tables.overrides: [{{table: {table.id}, columns: {{exclude: [...]}}}}]{then}",
        table=str(table.id),
    )


def hidden_unknown(table: TableId) -> CdcError:
    """The refusal of a table with columns of which only such a binlog says where they are."""
    return fail(
        Reason.ROW_METADATA_NOT_FULL,
        "a UNIQUE key of long values, for which the server keeps columns that no catalog shows",
        needed="binlog_row_metadata=FULL, with which the binlog names each column",
        remedy="SET GLOBAL binlog_row_metadata = 'FULL'",
        table=str(table),
    )


def generated_left_out(table: str, columns: Iterable[str]) -> CdcError:
    """The refusal of captured generated columns on a server that does not log them with every
    change of a row."""
    names = ", ".join(columns)
    return fail(
        Reason.ROW_IMAGE_NOT_FULL,
        f"the generated columns {names}, which this server leaves out of the binlog when a row is updated or replaced",
        needed="captured columns that every row in the binlog has",
        remedy=f"leave them out: tables.overrides: [{{table: {table}, columns: {{exclude: [{names}]}}}}]",
        table=table,
    )
