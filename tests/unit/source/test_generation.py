"""Which expressions have one value for one row: an allow list, read to the last token."""

from __future__ import annotations

import pytest

from cdcsync_core.tables.source_table import Column, SourceType
from cdcsync_mysql.reading.generation import Generated, unproved

_COLUMNS = {
    name: Column(name, SourceType.parse(declared))
    for name, declared in {
        "n": "int",
        "v": "varchar(9)",
        "ts": "timestamp",
        "d": "datetime",
        "d6": "datetime(6)",
        "a`b": "int",
        "`now": "int",
    }.items()
}


def reasons(kind: str, *expressions: str) -> list[str]:
    columns = [Column(f"g{i}", SourceType.parse(kind)) for i in range(len(expressions))]
    generated = {c.name: Generated(c, text, stored=False) for c, text in zip(columns, expressions, strict=True)}
    by_column = unproved(generated, _COLUMNS | {c.name: c for c in columns})
    return [by_column.get(c.name, "") for c in columns]


@pytest.mark.parametrize(
    "expression",
    [
        "`n` + 1.5e3",
        "`a``b` % 2",
        "concat(`v`,'it''s now()','\\'','`ts`')",
        "concat(`v`,_utf8mb4\\'it\\\\\\'s now()\\')",
        "if((`ts` is null),1,NULL)",
        "(`v` collate utf8mb4_bin) = _latin1\\'x\\'",
        "cast(`n` as char charset utf8mb4)",
    ],
)
def test_what_the_row_decides(expression: str) -> None:
    assert reasons("varchar(9)", expression) == [""]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("now()", "it uses now"),
        ("concat(`v`,'x\\'') + now()", "it uses now"),
        ("concat(`v`, 'open", "its expression has more than"),
        ("`n` + @@session.sql_mode", "its expression has more than"),
        ('concat("now")', "its expression has more than"),
        ("`n` # x", "its expression has more than"),
        ("`n` / 2", "it divides by /"),
        ("`gone` + 1", "it is computed from gone"),
        ("hour(`ts`)", "it is computed from ts, a TIMESTAMP"),
        ("`ts` is", "it is computed from ts, a TIMESTAMP"),
        ("if(`ts` is null,1,`ts`)", "it is computed from ts, a TIMESTAMP"),
        ("cast(`ts` as date)", "it is computed from ts, a TIMESTAMP"),
        ("cast(`v` as date)", "it makes a date of a text or a number"),
        ("`d` > '2024-02-31'", "it makes a date of a text or a number"),
        ("`d` > `v`", "it makes a date of a text or a number"),
        ("cast(`d6` as datetime)", "it cuts digits of a second"),
    ],
)
def test_what_is_not_proved(expression: str, why: str) -> None:
    [reason] = reasons("varchar(9)", expression)
    assert reason.startswith(why)


def test_the_type_of_the_column_counts() -> None:
    assert reasons("timestamp", "`d`") == ["it is a TIMESTAMP"]
    assert reasons("datetime", "`d6`") == ["it cuts digits of a second"]
    assert reasons("datetime(6)", "`d6`", "`d`") == ["", ""]
    assert reasons("date", "`v`") == ["it makes a date of a text or a number"]


def test_what_is_computed_from_an_unproved_column_is_unproved() -> None:
    """In whatever order they stand."""
    assert reasons("int", "`g1` + 1", "`g2` + 1", "hour(`ts`)", "`n`")[:2] == [
        "it is computed from g1",
        "it is computed from g2",
    ]
