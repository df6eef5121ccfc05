"""The columns of a target and its key, apart from what is read of the source.

Why it is right: after a schema change a target may have columns that the source has no more, whose
rows stay as they are. So each column says which captured column fills it, and one that is filled by
none is NULL in every row that is written from then on. A target's rows are identified by `key`,
whose columns are always filled; it is empty for a table without a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.logical_type import LogicalType, logical_type


@dataclass(frozen=True)
class TargetColumn:
    """`source` is the captured column whose values it takes; None: a dropped column that is
    kept."""

    name: str
    type: LogicalType
    source: str | None

    def to_list(self) -> list[str | None]:
        """As a state has it, short; the source's name only where it is another."""
        return [self.name, str(self.type)] + ([] if self.source == self.name else [self.source])

    @classmethod
    def from_list(cls, data: list[Any]) -> TargetColumn:
        name, kind, *source = data
        return cls(name, LogicalType.parse(kind), source[0] if source else name)


@dataclass(frozen=True)
class TargetSchema:
    """`key` names target columns, in the order of the source's index."""

    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        filled = {c.name for c in self.columns if c.source is not None}
        if not filled.issuperset(self.key) or len({c.name for c in self.columns}) != len(self.columns):
            raise ValueError(f"key {self.key} must name filled columns of {[c.name for c in self.columns]}")

    @classmethod
    def of(cls, capture: Capture) -> TargetSchema:
        """That of a new copy: the captured columns in the source's order, under their names."""
        columns = (TargetColumn(c.name, logical_type(c.type), c.name) for c in capture.captured)
        return cls(tuple(columns), capture.key)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def plain(self) -> bool:
        """Whether each column takes the captured one of its own name: rows need no projection."""
        return all(c.source == c.name for c in self.columns)

    def column(self, name: str) -> TargetColumn | None:
        return next((c for c in self.columns if c.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        return {"columns": [c.to_list() for c in self.columns], "key": list(self.key)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TargetSchema:
        return cls(tuple(TargetColumn.from_list(c) for c in data["columns"]), tuple(data["key"]))
