"""What a sync's status has of a table."""

from __future__ import annotations

from typing import Any

from support.sync_process import Sync


def name_of(sync: Sync, table: str) -> str:
    """The full name of a table of the sync's one database."""
    return f"{sync.database}.{table}"  # type: ignore[attr-defined]


def entry(status: dict[str, Any], name: str) -> dict[str, Any]:
    """Empty where there is none yet."""
    return next((t for t in status.get("tableStatus", []) if t["name"] == name), {})
