"""Source and target, row for row and value for value.

Why it is an oracle: it shares no code with the product. The source's rows come by a plain SELECT as
the bytes of the wire and are cast to the target's types by Arrow; the target is read by delta-rs.
Both are sorted by the bytes of their keys and compared column by column. It is meant for a source
that is at rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from support.servers import Server
from support.workload_tables import GONE

_SHOWN = 10
#: a zero date is NULL in the copy
_ZERO = b"0000-00-00"


@dataclass(frozen=True)
class TargetDifference:
    """How the target of `table` differs. Keys are tuples of values; `changed` holds (key, column,
    source's value, target's value)."""

    table: str
    missing: list[tuple[Any, ...]]
    extra: list[tuple[Any, ...]]
    repeated: list[tuple[Any, ...]]
    changed: list[tuple[tuple[Any, ...], str, Any, Any]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.repeated or self.changed)

    def __str__(self) -> str:
        counts = (
            f"{len(self.missing)} rows missing, {len(self.extra)} that the source does not have, "
            f"{len(self.repeated)} keys repeated, {len(self.changed)} values differ"
        )
        lines = [f"{self.table}: {counts}"]
        for name in ("missing", "extra", "repeated"):
            lines += [f"  {name} {key}" for key in getattr(self, name)[:_SHOWN]]
        lines += [f"  {key} {column}: source {a!r}, target {b!r}" for key, column, a, b in self.changed[:_SHOWN]]
        return "\n".join(lines)


def source_rows(server: Server, database: str, table: str, schema: pa.Schema) -> pa.Table:
    """All rows of a source table, as the types of `schema`, whose columns are read."""
    columns = ", ".join(_expression(f) for f in schema)
    raw: dict[str, Any] = {
        "use_unicode": False,
        "conv": {},
        "init_command": "SET time_zone = '+00:00'",
    }
    with server.connect(db=database, **raw) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM `{table}`")
        rows = cursor.fetchall()
    cells: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [[] for _ in schema]
    return pa.Table.from_arrays([_typed(c, f.type) for c, f in zip(cells, schema, strict=True)], schema=schema)


def _expression(field: pa.Field) -> str:
    """The text protocol prints a FLOAT with six digits."""
    return f"CAST(`{field.name}` AS DOUBLE)" if pa.types.is_floating(field.type) else f"`{field.name}`"


def _typed(cells: Sequence[bytes | None], wanted: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(wanted) or pa.types.is_date(wanted):
        cells = [None if cell is not None and cell.startswith(_ZERO) else cell for cell in cells]
    raw = pa.array(cells, pa.binary())
    if pa.types.is_binary(wanted):
        return raw
    text = raw.cast(pa.string())
    if pa.types.is_timestamp(wanted):
        return text.cast(pa.timestamp("us")).cast(wanted)
    return text.cast(wanted)


def compare(table: str, source: pa.Table, target: pa.Table, key: Sequence[str]) -> TargetDifference:
    """Both with the same columns; `key` names the key's."""
    target = target.select(source.schema.names)
    source, target = _by_key(source, key), _by_key(target, key)
    if source.equals(target):
        return TargetDifference(table, [], [], [], [])
    return _difference(table, source, target, key)


def _by_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.take(pc.sort_indices(rows.select(key), sort_keys=[(k, "ascending") for k in key])).combine_chunks()


def _difference(table: str, source: pa.Table, target: pa.Table, key: Sequence[str]) -> TargetDifference:
    ours, theirs = _keys(source, key), _keys(target, key)
    missing, extra = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    repeated = _repeated(target, key)
    common = [k for k in ours if k in theirs]
    before = source.take(pa.array([ours[k] for k in common], pa.int64()))
    after = target.take(pa.array([theirs[k] for k in common], pa.int64()))
    changed = [
        (common[row], column, before[column][row].as_py(), after[column][row].as_py())
        for column in source.schema.names
        for row in _unequal(before[column], after[column])
    ]
    return TargetDifference(table, sorted(missing), sorted(extra), repeated, sorted(changed, key=lambda c: c[:2]))


def _keys(rows: pa.Table, key: Sequence[str]) -> dict[tuple[Any, ...], int]:
    return {k: i for i, k in enumerate(zip(*(rows[c].to_pylist() for c in key), strict=True))}


def _repeated(rows: pa.Table, key: Sequence[str]) -> list[tuple[Any, ...]]:
    counts = rows.group_by(list(key)).aggregate([([], "count_all")])
    again = counts.filter(pc.greater(counts["count_all"], 1))
    return sorted(zip(*(again[c].to_pylist() for c in key), strict=True))


def _unequal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> list[int]:
    same = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
    return pc.indices_nonzero(pc.invert(same)).to_pylist()


def diagnose_walk(steps: Mapping[int, int], target: Mapping[int, int]) -> list[str]:
    """What went wrong with each walk, in words. `steps`: id -> the last committed step; `target`:
    id -> the counter there."""
    found = []
    for walk in sorted(steps.keys() | target.keys()):
        step, counter = steps.get(walk, 0), target.get(walk)
        expected = None if step in (0, GONE) else step
        if counter != expected:
            found.append(f"walk {walk}: {_what_happened(step, counter)} (last step {step}, target {counter})")
    return found


def _what_happened(step: int, counter: int | None) -> str:
    if counter is None:
        return "the row is lost: its insert, or the delete before it was applied after it"
    if step in (0, GONE):
        return (
            "the delete is lost, or an earlier change was applied after it"
            if step
            else "a row that was never committed"
        )
    if counter > step:
        return "a change that was not committed"
    return "a change is lost, or an earlier one was applied after it"
