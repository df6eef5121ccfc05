"""What the demo shows of the finished lake: the tables, and one query over them. Reads with
delta-rs or PyIceberg, as any program may."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table as Grid

from cdcsync_demo.shop import DATABASE, TABLES

QUERY = """\
SELECT c.country, COUNT(*) AS orders, SUM(o.total) AS revenue, MAX(o.placed_at) AS latest
FROM orders o JOIN customers c ON c.id = o.customer_id
WHERE o.status <> 'cancelled'
GROUP BY c.country ORDER BY revenue DESC"""


def places(lake: Path) -> Iterator[tuple[str, Path]]:
    """Table name -> where its Delta table is."""
    for table in TABLES:
        yield table.name, lake / DATABASE / table.name


def draw_tables(lake: Path, shown: Callable[[Path], str]) -> Grid:
    """`shown` makes a path one for people."""
    from deltalake import DeltaTable

    counts = _lake_rows(lake, " UNION ALL ".join(f"SELECT '{name}', COUNT(*) FROM {name}" for name, _ in places(lake)))
    rows = dict(zip(*counts, strict=True))
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("DELTA TABLE", no_wrap=True)
    grid.add_column("ROWS", justify="right")
    grid.add_column("COMMITS", justify="right")
    grid.add_column("KEY")
    keys = {t.name: t.key for t in TABLES}
    for name, path in places(lake):
        grid.add_row(escape(shown(path)), f"{rows[name]:,}", f"{DeltaTable(path).version() + 1:,}", keys[name])
    return grid


def draw_iceberg_tables(catalog: Path, shown: Callable[[Path], str]) -> Grid:
    """The newest metadata of each table of the catalog, with what PyIceberg finds there."""
    from pyiceberg.table import StaticTable

    grid = Grid(box=None, pad_edge=False)
    grid.add_column("ICEBERG TABLE")
    grid.add_column("ROWS", justify="right")
    grid.add_column("SNAPSHOTS", justify="right")
    question = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = ? ORDER BY table_name"
    with closing(sqlite3.connect(catalog)) as connection:
        for _, location in connection.execute(question, (DATABASE,)).fetchall():
            table = StaticTable.from_metadata(location)
            grid.add_row(escape(shown(Path(location))), f"{table.scan().count():,}", f"{len(table.snapshots()):,}")
    return grid


def draw_query(lake: Path) -> Grid:
    """The query's result."""
    grid = Grid(box=None, pad_edge=False)
    for name in ("COUNTRY", "ORDERS", "REVENUE", "LATEST"):
        grid.add_column(name, justify="left" if name == "COUNTRY" else "right")
    for row in zip(*_lake_rows(lake, QUERY), strict=True):
        grid.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row))
    return grid


def _lake_rows(lake: Path, query: str) -> list[list[Any]]:
    """The columns of a query's result."""
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder()
    for name, path in places(lake):
        builder = builder.register(name, DeltaTable(path))
    result = builder.execute(query).read_all()
    return [result.column(i).to_pylist() for i in range(result.num_columns)]
