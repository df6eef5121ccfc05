"""Which filters of a replica may concern a table."""

from __future__ import annotations

import pytest

from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.left_out import LeftOut, ReplicaFilter


@pytest.mark.parametrize(
    ("name", "rules", "concerns"),
    [
        ("replicate_ignore_table", "mysql.plugin,mysql.rds_monitor", False),
        ("replicate_ignore_table", "mysql.plugin,Shop.`Orders`", True),
        ("replicate_wild_ignore_table", "mysql.%,shop.ord_s%", False),
        ("replicate_wild_ignore_table", "mysql.%,shop.order_", True),
        ("replicate_wild_ignore_table", r"shop\_2.%,shop.order\_s", False),
        ("replicate_wild_ignore_table", r"sh%", True),
        ("replicate_wild_ignore_table", r"shop.o\rders", True),
        ("replicate_ignore_db", "mysql", True),
        ("replicate_do_table", "shop.orders", True),
        ("replicate_rewrite_db", "(a,b)", True),
    ],
)
def test_a_filter_that_may_concern_the_table(name: str, rules: str, concerns: bool) -> None:
    left_out = LeftOut((), (ReplicaFilter(name, rules),))
    assert left_out.of([TableId("shop", "orders")]) == (f"{name}={rules}" if concerns else "")


def test_a_setting_concerns_all_tables_that_there_are() -> None:
    """A server that all tables are on is asked of none."""
    left_out = LeftOut(("slave_skip_errors=1062",), ())
    assert left_out.of([TableId("shop", "orders")]) == "slave_skip_errors=1062"
    assert not left_out.of([])
