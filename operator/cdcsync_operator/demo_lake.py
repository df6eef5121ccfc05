"""What the demo shows of the finished lake: the tables, and one query over them. Reads with delta-rs, as any program may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.markup import escape
from rich.table import Table as Grid

from cdcsync_operator.demo_shop import DATABASE, TABLES

QUERY = """\
SELECT c.country, COUNT(*) AS orders, SUM(o.total) AS revenue, MAX(o.placed_at) AS latest
FROM orders o JOIN customers c ON c.id = o.customer_id
WHERE o.status <> 'cancelled'
GROUP BY c.country ORDER BY revenue DESC"""


def places(lake: Path) -> Iterator[tuple[str, Path]]:
    """Table name -> where its Delta table is."""
    for table in TABLES:
        yield table.name, lake / DATABASE / table.name


def draw_tables(lake: Path) -> Grid:
    from deltalake import DeltaTable

    grid = Grid(box=None, pad_edge=False)
    grid.add_column("TABLE")
    grid.add_column("KEY")
    grid.add_column("COMMITS", justify="right")
    grid.add_column("DELTA TABLE", overflow="fold", no_wrap=False)
    keys = {t.name: t.key for t in TABLES}
    for name, path in places(lake):
        grid.add_row(name, keys[name], f"{DeltaTable(path).version() + 1:,}", escape(str(path)))
    return grid


def draw_query(lake: Path) -> Grid:
    """The query's result."""
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder()
    for name, path in places(lake):
        builder = builder.register(name, DeltaTable(path))
    result = builder.execute(QUERY).read_all()
    grid = Grid(box=None, pad_edge=False)
    columns = [result.column(i) for i in range(result.num_columns)]
    for name in result.schema.names:
        grid.add_column(str(name), justify="left" if name == "country" else "right")
    for row in zip(*(c.to_pylist() for c in columns), strict=True):
        grid.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row))
    return grid
