"""What people see of keys that differ: the key's values and, column by column, what the two sides
hold.

The rows are read once more for that. A key whose rows changed in between is shown with what is
there now; what was proven stays proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.runs.verification import Difference, DifferenceKind
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.sessions.connection import Source
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.verify.digest import Digester, DigestSet
from cdcsync_spark.verify.keys import matching, scan_keys, select_keys

_LONGEST = 60
Row = dict[str, Any]


def differences(
    source: Source,
    lineage: Lineage,
    table: Capture,
    snapshot: TargetSnapshot,
    keys: pa.Table,
    kinds: Sequence[DifferenceKind],
    digester: Digester,
    max_seconds: int,
) -> tuple[Difference, ...]:
    """One per key, in the order of `keys`. Raises CdcError."""
    digests = [digester.of(batch) for batch in keys.combine_chunks().to_batches()]
    if not digests:
        return ()
    digests_to_find = DigestSet(digests[0])
    there = _by_key(select_keys(source, lineage, table, keys, max_seconds), digester, digests_to_find)
    here = _by_key(scan_keys(snapshot, table, keys), digester, digests_to_find)
    return tuple(
        Difference(kind, {k: text(v) for k, v in key.items()}, _columns(there.get(d.tobytes()), here.get(d.tobytes())))
        for key, kind, d in zip(keys.to_pylist(), kinds, digests[0], strict=True)
    )


def _by_key(batches: Iterable[pa.RecordBatch], digester: Digester, keys: DigestSet) -> dict[bytes, Row]:
    return {
        digest.tobytes(): row
        for batch, digests in matching(batches, digester, keys)
        for digest, row in zip(digests, batch.to_pylist(), strict=True)
    }


def _columns(source: Row | None, target: Row | None) -> dict[str, tuple[str, str]]:
    """Column -> what the source has, what the target has; empty where one side has no row."""
    if source is None or target is None:
        return {}
    return {c: (text(v), text(target[c])) for c, v in source.items() if repr(v) != repr(target[c])}


def text(value: object) -> str:
    """NULL, bytes as hexadecimal digits, texts in quotes, long ones cut."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _cut(f"0x{value[:_LONGEST].hex()}")
    return _cut(repr(value[: _LONGEST + 1]) if isinstance(value, str) else str(value))


def _cut(shown: str) -> str:
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
