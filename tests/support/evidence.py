"""What the target's own history has of a key: the first evidence when source and target
differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from support.lake import rows_of
from support.sync_process import Sync

_NOTHING = object()


def history(sync: Sync, table: str, key: Mapping[str, Any]) -> list[str]:
    """Each version of the target of `database.table` in which the row of `key` changed: its number,
    its operation, the rows."""
    newest = sync.delta(table).version()
    wanted = None
    for column, value in key.items():
        equal = pc.field(column) == value
        wanted = equal if wanted is None else wanted & equal
    found: list[str] = []
    before: Any = _NOTHING
    for version in range(newest + 1):
        delta = sync.delta(table, version)
        rows = rows_of(delta).filter(wanted).to_pylist()
        if rows != before:
            [commit] = delta.history(1)
            found.append(f"version {version} {commit.get('operation')} {_state(commit)}: {rows}")
            before = rows
    return found


def _state(commit: Mapping[str, Any]) -> str:
    """The state that the commit carries: its number, epoch, low, high and position."""
    for value in commit.values():
        try:
            state = json.loads(value) if isinstance(value, str) else None
        except ValueError:
            continue
        if isinstance(state, dict) and "identity" in state:
            return json.dumps({k: state.get(k) for k in ("number", "epoch", "low", "high", "position")})
    return ""
