"""The columns that a target has beside the source's where it keeps events.

Their names may be chosen, because a source column of such a name would be hidden: it refuses the
table. Names are compared without their case, as readers of lakes compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

from cdcsync_core.errors import CdcError, Reason, fail

#: their types, as `check` shows types of targets
TYPES = ("string", "timestamp[us, tz=UTC]", "int64", "string", "string")


@dataclass(frozen=True)
class EventColumns:
    """`op`: `+I`, `-U`, `+U` or `-D`; `ts`: when the transaction was committed; `seq`: the image's
    ordinal within the table, 0 for the rows of the snapshot; `position`: where the transaction ends
    in the binlog; `gtid`: its GTID, where the server gives one."""

    op: str = "_cdc_op"
    ts: str = "_cdc_ts"
    seq: str = "_cdc_seq"
    position: str = "_cdc_position"
    gtid: str = "_cdc_gtid"

    @property
    def names(self) -> tuple[str, ...]:
        return astuple(self)

    def typed(self) -> Iterator[tuple[str, str]]:
        """Each name with its type."""
        return zip(self.names, TYPES, strict=True)

    def taken(self, columns: Iterable[str]) -> str:
        """The first of a table's `columns` that has one of the names; empty where none has."""
        own_names = {name.lower() for name in self.names}
        return next((name for name in columns if name.lower() in own_names), "")


def taken_error(column: str, table: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the source's column {column} has the name of a metadata column of history tables",
        needed="names that no column of the source has",
        remedy="name the metadata column otherwise in historyColumns of the sink, "
        "or leave the source's column out by tables.overrides[].columns.exclude",
        table=table,
    )
