"""A table whose schema changes, whose whole knowledge is in its target: run it, kill it anywhere,
run it again, until it ends by itself.

`EXPECTED` is what the table must hold whenever the program has ended well, however often it was
killed before.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Converted, Filled, Kept, Origin
from cdcsync_spark.sinks.contract.changes import Build, Empty, Upsert
from cdcsync_spark.sinks.contract.sink import Sink
from contract.crash_sinks import Place, sink_of
from contract.sinkcase import ORDERS, Row, batch, keys_of, make_table, rows_of, step, whole_snapshot

FIRST: list[Row] = [(1, "old"), (2, "old"), (3, "old"), (9, "old")]
FILLED = make_table({"id": "bigint(20)", "note": "varchar(20)", "late": "time"}, ["id"])
WIDER = make_table({"late": "time(2)", "id": "bigint(20)", "note": "varchar(20)"}, ["id"])
ADDED = make_table({"late": "time(2)", "id": "bigint(20)", "note": "varchar(20)", "n": "int(11)"}, ["id"])
RENAMED = make_table({"id": "bigint(20)", "title": "varchar(20)", "late": "time(2)"}, ["id"])
EXPECTED: list[Row] = [(1, "old", None), (2, "8", "12:00:00.25"), (4, "3", "01:00:00.00")]


@dataclass(frozen=True)
class Batch:
    """A step where `origins` are given, else changes of rows."""

    table: Capture
    origins: tuple[Origin, ...] = ()
    upserts: tuple[Row, ...] = ()
    deletes: tuple[Row, ...] = ()

    def build(self, number: int, epoch: int) -> Build:
        if self.origins:
            return step(number, self.table, self.origins, epoch)
        return batch(number, Upsert(rows_of(self.table, self.upserts), keys_of(self.table, self.deletes)), epoch)


BATCHES = (
    Batch(ORDERS, deletes=((9,),)),
    Batch(FILLED, (Kept("id"), Kept("note"), Filled("00:00:00"))),
    Batch(FILLED, upserts=((4, "3", "01:00:00"), (1, "old", None)), deletes=((3,),)),
    Batch(WIDER, (Converted("late", 2), Kept("id"), Kept("note"))),
    Batch(ADDED, (Kept("late"), Kept("id"), Kept("note"), Filled())),
    Batch(ADDED, upserts=(("00:00:01.00", 5, "6", 6),)),
    Batch(RENAMED, (Kept("id"), Kept("note"), Kept("late"))),
    Batch(RENAMED, upserts=((2, "8", "12:00:00.25"),), deletes=((5,),)),
)


def run(sink: Sink, epoch: int) -> None:
    """Another table is emptied, filled and emptied again."""
    main, emptied = sink.target(ORDERS.id), sink.target(OTHER.id)
    if main.last_commit() is None or main.last_commit().position is None:  # type: ignore[union-attr]
        whole_snapshot(main, FIRST, epoch=epoch)
    for number, made in enumerate(BATCHES, 1):
        main.commit(epoch, made.build(number, epoch))
    if emptied.last_commit() is None or emptied.last_commit().position is None:  # type: ignore[union-attr]
        whole_snapshot(emptied, FIRST, OTHER, epoch=epoch)
    emptied.commit(epoch, batch(1, Empty(), epoch))
    emptied.commit(epoch, batch(2, Upsert(rows_of(OTHER, FIRST[:1]), keys_of(OTHER, [])), epoch))
    emptied.commit(epoch, batch(3, Empty(), epoch))


OTHER = make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], name="emptied")


def run_armed(place: Place, epoch: int, gate: str, kind: str) -> None:
    """A process's work, which ends at the gate (as `CDCSYNC_GATE` has it), or by any warning."""
    warnings.simplefilter("error")
    os.environ["CDCSYNC_GATE"] = gate
    run(sink_of(kind, place), epoch)
