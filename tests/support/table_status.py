"""What a sync's status has of a table."""

from __future__ import annotations

from typing import Any

from support.servers import Server
from support.sync_process import Sync


def name_of(sync: Sync, table: str) -> str:
    """The full name of a table of the sync's one database."""
    return f"{sync.database}.{table}"  # type: ignore[attr-defined]


def entry(status: dict[str, Any], name: str) -> dict[str, Any]:
    """Empty where there is none yet."""
    return next((t for t in status.get("tableStatus", []) if t["name"] == name), {})


def fill(server: Server, database: str, *tables: str) -> None:
    for table in tables:
        server.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(20) NOT NULL)",
            f"INSERT INTO {table} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120)"
            " SELECT i, CONCAT('w', i) FROM n",
            db=database,
        )


def streaming(status: dict[str, Any]) -> int:
    return int(status.get("tables", {}).get("streaming", 0))


def assert_equal(sync: Sync, table: str) -> None:
    """Source and target, row for row."""
    target = sync.target(name_of(sync, table)).select(["id", "word"]).sort_by("id").to_pylist()
    source = sync.server.query(f"SELECT id, word FROM {name_of(sync, table)} ORDER BY id")
    assert [(row["id"], row["word"]) for row in target] == list(source)
