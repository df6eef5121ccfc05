"""Which tables would be written to one target, as two names that a topic's template makes one.

Why it is right: of the tables that meet, the one that the sync has already keeps the target, else
the first by name; the others are refused each by itself, and take part as soon as the spec tells
the targets apart. A table that is gone from the source keeps its target while the sync has it,
because its records are there. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.topic_names import shared_topic, topic_name
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.tables.source_table import TableId

#: the sync's own name is the same in all of its topics
_SYNC = "n/n"


def shared_targets(
    sink: SinkSpec, recorded: Mapping[str, TableStatus], matching: Collection[str]
) -> dict[str, CdcError]:
    """What is wrong with those of the `matching` tables that cannot have their target."""
    having = {name for name, table in recorded.items() if _has_target(table)}
    return {
        name: shared_topic(name, target, names[0])
        for target, names in _by_target(sink, {*matching, *having}, having).items()
        for name in names[1:]
    }


def meeting_tables(sink: SinkSpec, matching: Collection[str]) -> frozenset[str]:
    """All of the `matching` tables that are not alone in their target."""
    return frozenset(name for names in _by_target(sink, matching, ()).values() if len(names) > 1 for name in names)


def _by_target(sink: SinkSpec, tables: Collection[str], having: Collection[str]) -> dict[str, list[str]]:
    """Target -> its tables, the one that keeps it first. A name that is too long for a topic is
    found by who makes it."""
    tables_of_target: dict[str, list[str]] = {}
    for name in sorted(tables, key=lambda name: (name not in having, name)) if sink.kind.topics else ():
        database, _, table = name.partition(".")
        with suppress(CdcError):
            tables_of_target.setdefault(topic_name(sink.kind.topics, _SYNC, TableId(database, table)), []).append(name)
    return tables_of_target


def _has_target(table: TableStatus) -> bool:
    return table.phase is not TablePhase.UNASSIGNED and (table.low is not None or not table.failed)
