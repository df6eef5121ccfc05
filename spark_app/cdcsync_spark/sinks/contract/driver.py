"""A kind of sink as a manifest's section describes it: what makes its `Sink`, and what checks its
servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.contract.sink import Sink


@dataclass(frozen=True)
class Role:
    """Who uses a sink: the kind of run that writes, empty for who only reads. `followed`: a stream
    comes after the run, and gathers the small files that it leaves. `server_id` is the source's, 0
    for who does not ask it."""

    run: str = ""
    followed: bool = False
    server_id: int = 0


#: who only reads
READER = Role()


class SinkDriver(Protocol):
    """One section `spec.sink` with the credentials of its Secrets, for one sync."""

    def check(self, tables: Sequence[TableId]) -> Checks:
        """Asks the sink's servers, and there for the targets of `tables`; changes nothing, raises
        no CdcError. Empty where the sink has stores of files only, which are checked for all
        kinds."""
        ...

    def open(self, role: Role) -> Sink:
        """Opens nothing yet; raises `SpecInvalid` for a store that is not supported."""
        ...
