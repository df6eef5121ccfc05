"""A consumer that checks every event against its own table: a sink that takes events has no false
row if this one finds no fault.

It refuses an insert of a key that is there, a before image that is not the row that is there, and
an ordinal that does not follow. What it holds at the end is the fold of the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind
from cdcsync_spark.rows.events import Events

Row = dict[str, Any]
OPERATIONS = {
    ChangeKind.INSERT: "+I",
    ChangeKind.UPDATE_BEFORE: "-U",
    ChangeKind.UPDATE_AFTER: "+U",
    ChangeKind.DELETE: "-D",
}


class Event(NamedTuple):
    """One image; a snapshot's rows have the ordinal 0."""

    operation: str
    row: Row
    ordinal: int


def events_of(events: Events) -> list[Event]:
    """The events of an `Emit`, one by one."""
    kinds = [OPERATIONS[ChangeKind(kind)] for kind in events.images[KIND].to_pylist()]
    rows = events.images.drop_columns([KIND, TRANSACTION]).to_pylist()
    return [Event(kind, row, events.first + n) for n, (kind, row) in enumerate(zip(kinds, rows, strict=True))]


@dataclass
class CheckingConsumer:
    """`rows` by key; `faults` in words."""

    key: Sequence[str]
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    ordinal: int = 0

    def take(self, events: Iterable[Event]) -> CheckingConsumer:
        for event in events:
            self._take(event)
        return self

    def _take(self, event: Event) -> None:
        key = tuple(event.row[name] for name in self.key)
        if (event.ordinal and event.ordinal != self.ordinal + 1) or (not event.ordinal and self.ordinal):
            self.faults.append(f"ordinal {event.ordinal} after {self.ordinal}: {event}")
        self.ordinal = event.ordinal
        there = self.rows.get(key)
        if event.operation.startswith("+"):
            if there is not None:
                self.faults.append(f"{event}, and there is {there}")
            self.rows[key] = event.row
        else:
            if there is None or repr(there) != repr(event.row):
                self.faults.append(f"{event}, and there is {there}")
            self.rows.pop(key, None)
