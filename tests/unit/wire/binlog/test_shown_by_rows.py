"""What a row event can prove of a schema change, and what it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.tables.schema_change import Followed, unchanged
from cdcsync_spark.wire.binlog.predicted_map import shown_by_rows, unseen_by_rows
from cdcsync_spark.wire.sql.changes.schema_change import apply_to
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import Session
from support.statements import WIDE

_SESSION = Session(1 << 21, "utf8mb4", True, 101_119)
_TABLE = WIDE.of(replace(WIDE.source, generated=frozenset(), unique=frozenset({"u"}), auto_increment="id"))


@pytest.mark.parametrize(
    ("clauses", "shown", "unseen"),
    [
        ("ADD x INT", True, ("the default of x",)),
        ("MODIFY i BIGINT", True, ()),
        ("MODIFY v VARCHAR(10) NOT NULL", True, ("the collation of v",)),
        ("RENAME COLUMN v TO w, ALTER i SET DEFAULT 5", True, ()),
        ("MODIFY l VARCHAR(20) CHARACTER SET utf8mb4", True, ("the collation of l",)),
        ("MODIFY i INT(5)", False, ("the declaration of i",)),
        ("MODIFY v VARCHAR(10) COLLATE utf8mb4_bin", False, ("the collation of v",)),
        ("DEFAULT CHARSET latin1", False, ("the default character set",)),
        ("MODIFY id INT NOT NULL", False, ("the numbered column",)),
        ("COMMENT 'x'", True, ()),
    ],
)
def test_what_rows_show_of_a_change(clauses: str, shown: bool, unseen: tuple[str, ...]) -> None:
    change = apply_to(_TABLE, Statement("shop", f"ALTER TABLE orders {clauses}", _SESSION))
    assert isinstance(change, Followed)
    assert (shown_by_rows(change), unseen_by_rows(change)) == (shown, unseen)


def test_rows_confirm_that_nothing_has_changed() -> None:
    assert shown_by_rows(unchanged(_TABLE))
