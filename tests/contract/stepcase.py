"""A table, its rows, and steps of its schema with what they make of the rows."""

from __future__ import annotations

from decimal import Decimal

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Converted, Filled, Kept, Origin
from contract.sinkcase import Row, make_table

BEFORE = {"id": "int(11)", "note": "varchar(20)", "price": "decimal(40,2)", "late": "time", "big": "int(10) unsigned"}
TABLE = make_table(BEFORE, ["id"])
ROWS: list[Row] = [
    (1, "a", "1.50", "-12:00:00", 7),
    (2, None, None, None, None),
    (3, "c", "0.00", "838:59:59", 4294967295),
]


def after(**columns: str) -> Capture:
    return make_table(columns, ["id"])


KEPT = [Kept(name) for name in BEFORE]
#: the columns after a step, their origins, a row and what becomes of it
STEPS: dict[str, tuple[Capture, list[Origin], list[Row]]] = {
    "nothing": (TABLE, [*KEPT], ROWS),
    "a column added": (after(**BEFORE, x="int(11)"), [*KEPT, Filled()], [(*r, None) for r in ROWS]),
    "a column added and filled": (
        after(id="int(11)", x="varchar(9)", **{k: v for k, v in BEFORE.items() if k != "id"}),
        [KEPT[0], Filled("new"), *KEPT[1:]],
        [(r[0], "new", *r[1:]) for r in ROWS],
    ),
    "reordered": (
        make_table(dict(reversed(BEFORE.items())), ["id"]),
        [*reversed(KEPT)],
        [tuple(reversed(r)) for r in ROWS],
    ),
    "dropped": (after(id="int(11)", note="varchar(20)"), KEPT[:2], [r[:2] for r in ROWS]),
    "names exchanged": (
        after(id="int(11)", note="decimal(40,2)", price="varchar(20)"),
        [Kept("id"), Kept("price"), Kept("note")],
        [(r[0], r[2], r[1]) for r in ROWS],
    ),
    "dropped and added again": (TABLE, [KEPT[0], Filled(), *KEPT[2:]], [(r[0], None, *r[2:]) for r in ROWS]),
    "converted": (
        after(id="bigint(20)", note="text", price="decimal(50,4)", late="time(3)", big="bigint(20) unsigned"),
        [Converted("id"), Kept("note"), Converted("price", 4), Converted("late", 3), Converted("big")],
        [
            (1, "a", "1.5000", "-12:00:00.000", Decimal(7)),
            (2, None, None, None, None),
            (3, "c", "0.0000", "838:59:59.000", Decimal(4294967295)),
        ],
    ),
}
