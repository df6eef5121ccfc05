"""What a followed change of the schema asks of a Delta table.

A reader gives NULL for a column that a file lacks and ignores one that the schema lacks, so some
changes are the schema alone (`evolve.rewrites`); for all others each live file is written again
(`sinks.lake.evolution`). No feature is used that would keep readers out (column mapping, type
widening).

A column that another program added stays while files stay as they are. It has no place in rewritten
ones, and where the source adds one of its name they are rewritten: its values are not the source's.
A history table's files always stay, and so do its metadata columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.evolve import rewrites
from cdcsync_core.tables.schema_change import Origin
from cdcsync_spark.sinks.delta.table.schema import evolved_schema
from cdcsync_spark.sinks.delta.table.view import TableView


def rewrites_files(view: TableView, after: TableState, origins: tuple[Origin, ...]) -> bool:
    """Whether each live file has to be written again."""
    assert view.state is not None
    return rewrites(view.state.schema, after.schema, origins) or _share_a_name(after, _theirs(view))


def schema(view: TableView, after: TableState, origins: Sequence[Origin], *, rewritten: bool) -> str:
    """The table's next schema, as Delta's JSON."""
    return evolved_schema(view.fields, after.schema, origins, () if rewritten else _theirs(view).values())


def _theirs(view: TableView) -> dict[str, Mapping[str, Any]]:
    """The fields of columns that another program added."""
    assert view.state is not None
    ours = set(view.state.schema.names)
    return {name: field for name, field in view.fields.items() if name not in ours}


def _share_a_name(after: TableState, fields: Mapping[str, object]) -> bool:
    """In any case: readers of lakes do not tell `A` from `a`."""
    return not {name.casefold() for name in fields}.isdisjoint(name.casefold() for name in after.schema.names)


def not_native(state: TableState, reason: str) -> CdcError:
    """`reason` rules native commits out."""
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"a change of the definition, and {reason}",
        needed="a target table that has only the features with which it was made",
        remedy=resnapshot(state.identity.table),
        table=state.identity.table,
    )
