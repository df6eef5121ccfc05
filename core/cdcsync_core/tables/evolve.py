"""A followed statement in the terms of a target: its next schema, and where the values of existing
rows come from.

Why it is right: a statement is about the source's columns, a target has those that are captured and
perhaps dropped ones that are kept. Each column of the next schema is given exactly one origin, by
the origins that the statement's prediction has and never by an equal name. A kept column whose
name comes back (in any case: readers of lakes do not tell `A` from `a`) gives way to the new one,
which is filled; so no value of the old column shows up in it. A column whose values were not copied
cannot be followed into the copy.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum

from cdcsync_core.tables.logical_type import BINARY, BOOL, DECIMAL, STRING, LogicalType, logical_type
from cdcsync_core.tables.schema_change import Converted, Filled, Followed, Kept, Origin, Value
from cdcsync_core.tables.source_table import Column, SourceType
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema


class DroppedColumns(StrEnum):
    """What becomes of a column of the target that the source drops."""

    KEEP = "keep"
    DROP = "drop"


class NotCopied(Exception):
    """The next schema needs values that the target does not have; the text says which."""


def evolve(schema: TargetSchema, change: Followed, dropped: DroppedColumns) -> tuple[TargetSchema, tuple[Origin, ...]]:
    """The schema after `change` of a target that has `schema`, and an origin for each of its
    columns, in the names of `schema`.

    Captured columns come first, in the source's order, then the dropped ones that are kept. Raises
    `NotCopied`; `PermanentError(TypeUnsupported)` for a type that no target has.
    """
    places = {c.source: c for c in schema.columns if c.source is not None}
    captured = {c.name for c in change.after.captured}
    columns: list[TargetColumn] = []
    origins: list[Origin] = []
    for column, origin in zip(change.after.columns, change.origins, strict=True):
        if column.name in captured:
            columns.append(TargetColumn(column.name, logical_type(column.type), column.name))
            origins.append(_in_target(column, origin, places, change.before.columns))
    if dropped is DroppedColumns.KEEP:
        for dropped_column in _kept(schema, columns, origins):
            columns.append(replace(dropped_column, source=None))
            origins.append(Kept(dropped_column.name))
    return TargetSchema(tuple(columns), change.after.key), tuple(origins)


def rewrites(schema: TargetSchema, after: TargetSchema, origins: Sequence[Origin]) -> bool:
    """Whether files that were written under `schema` hold other values under `after` by name than
    they should: a column that is renamed, converted, filled or gone, or whose name was another
    column's. Else a reader's own rule, NULL for a column that a file lacks, gives the right rows.
    """
    there = {name.casefold() for name in schema.names}
    stays = set()
    for column, origin in zip(after.columns, origins, strict=True):
        if isinstance(origin, Kept) and origin.source == column.name:
            stays.add(column.name)
        elif origin != Filled(None) or column.name.casefold() in there:
            return True
    return stays != set(schema.names)


def _kept(schema: TargetSchema, columns: list[TargetColumn], origins: list[Origin]) -> list[TargetColumn]:
    """The columns that no next one takes its values from, and whose name none takes."""
    used = {origin.source for origin in origins if not isinstance(origin, Filled)}
    names = {c.name.casefold() for c in columns}
    return [c for c in schema.columns if c.name not in used and c.name.casefold() not in names]


def _in_target(column: Column, origin: Origin, places: dict[str, TargetColumn], before: Sequence[Column]) -> Origin:
    if isinstance(origin, Filled):
        return Filled(_value(origin.value, column.type))
    place = places.get(origin.source)
    if place is None:
        raise NotCopied(f"the column {origin.source!r}, now {column.name!r}, was left out of the copy")
    old = next(c.type for c in before if c.name == origin.source)
    digits = _digits(column.type)
    if logical_type(column.type) == place.type and (place.type != STRING or _digits(old) == digits):
        return Kept(place.name)
    return Converted(place.name, digits)


def _digits(source: SourceType) -> int:
    """Fraction digits of a type that is a text in the target, as the server prints it; 0 for texts
    of all other types."""
    if source.base == "time":
        return max(source.size, 0)
    return source.scale if source.base == "decimal" and logical_type(source) == STRING else 0


# -- values


def _value(value: Value, source: SourceType) -> Value:
    """A value in the terms of the source's type as the target has it."""
    target = logical_type(source)
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        return _time(value, _digits(source))
    if target == BOOL:
        return bool(value)
    if target == BINARY and isinstance(value, int):
        return value.to_bytes((source.size + 7) // 8, "big")
    if source.base == "decimal" or target.name == DECIMAL:
        return _decimal(value, source, target)
    return value


def _decimal(value: Value, source: SourceType, target: LogicalType) -> Value:
    assert isinstance(value, int | Decimal)
    exact = Decimal(value)
    return f"{exact:.{source.scale}f}" if target == STRING else exact


def _time(value: dt.timedelta, digits: int) -> str:
    """As the server prints a TIME that is not negative."""
    seconds, micro = divmod(value // dt.timedelta(microseconds=1), 10**6)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{micro:06}"[: len(text) + 1 + digits] if digits else text
